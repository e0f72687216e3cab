//! What a region is attached from.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What a region is attached from.
#[derive(Debug)]
pub enum Source {
    /// The file, or the character device, of this name.
    Path(PathBuf),
    /// An open file, such as one made by `memfd_create`.
    Descriptor(OwnedFd),
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Source {
        Source::Path(path.to_owned())
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        Source::Path(path)
    }
}

impl From<OwnedFd> for Source {
    fn from(descriptor: OwnedFd) -> Source {
        Source::Descriptor(descriptor)
    }
}
