//! Whether what stands on the store's volume is the core's: if not, no changes are made any more,
//! by whatever process, as they could never be made durable.

use conquest_flash::Error as VolumeError;
use conquest_image::Error as ImageError;
use conquest_pm::Region;
use conquest_pm::log::Refusal;

use crate::Error;

/// Tells all who have `core` attached that working on its volume has failed.
pub(crate) fn tell(core: &Region, error: &Error) {
    if let Some(why) = refusal_for(error) {
        core.refuse(Some(why));
    }
}

/// Why no changes are to be made after `error`. None of what goes by, or is the matter of this
/// process alone: no permission, no memory, no space.
fn refusal_for(error: &Error) -> Option<Refusal> {
    match error {
        Error::VolumeOfAnother { .. } | Error::Image(ImageError::Other { .. }) => {
            Some(Refusal::Other)
        }
        Error::Image(ImageError::Older { .. }) => Some(Refusal::Older),
        Error::Image(ImageError::Newer { .. }) => Some(Refusal::Newer),
        Error::Image(ImageError::Superseded { .. }) => Some(Refusal::Superseded),
        Error::Image(
            ImageError::Missing { .. } | ImageError::Version { .. } | ImageError::Corrupt { .. },
        ) => Some(Refusal::Unreadable),
        Error::Volume(error) | Error::Image(ImageError::Volume(error)) => of_volume(error),
        _ => None,
    }
}

fn of_volume(error: &VolumeError) -> Option<Refusal> {
    match error {
        VolumeError::Open { source, .. } | VolumeError::Device { source, .. } => {
            match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => Some(Refusal::Missing),
                Some(libc::EIO | libc::ENXIO | libc::ENODEV | libc::EREMOTEIO | libc::EROFS) => {
                    Some(Refusal::Failed)
                }
                _ => None,
            }
        }
        VolumeError::Missing { .. } => Some(Refusal::Missing),
        VolumeError::Member { .. }
        | VolumeError::Damaged { .. }
        | VolumeError::Unreadable { .. } => Some(Refusal::Unreadable),
        VolumeError::Failed { .. } => Some(Refusal::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_goes_by_is_no_reason() {
        let open = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            let device = PathBuf::from("volume");
            refusal_for(&Error::Volume(VolumeError::Open { device, what: "it", source }))
        };
        assert_eq!(open(libc::ENOENT), Some(Refusal::Missing));
        assert_eq!(open(libc::EIO), Some(Refusal::Failed));
        for errno in [libc::EACCES, libc::EMFILE, libc::ENOMEM, libc::ENOSPC] {
            assert_eq!(open(errno), None);
        }
    }
}
