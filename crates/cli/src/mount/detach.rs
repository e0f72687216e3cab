//! Taking a mount away within a limit of time.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::place;
use crate::reason::{Reason, Result};

/// Takes away what is mounted at `point`, an absolute path without links; at once and whoever uses
/// it, if `is_lazy`: its users keep it until they end.
///
/// # Errors
/// `EBUSY` if somebody uses it; whatever else keeps it, also that it takes longer than `limit`. All
/// but the first name the mount point.
pub(crate) fn detach(point: &Path, is_lazy: bool, limit: Duration) -> Result<()> {
    let (done, wait) = mpsc::channel();
    let path = point.to_owned();
    // What is still to be written is written first, which takes a server that answers.
    let unmount = move || done.send(conquest_fuse::unmount(&path, is_lazy));
    std::thread::Builder::new().spawn(unmount)?;
    match wait.recv_timeout(limit) {
        Ok(unmounted) => Ok(unmounted?),
        Err(_) => Err(Reason::rule(format!(
            "{}: not unmounted after {:.0} s: its server does not answer (use --lazy, or end the \
             server)",
            place::host_label(point),
            limit.as_secs_f64()
        ))),
    }
}
