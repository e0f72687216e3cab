//! What mounting a store needs; nothing else does.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::Finding;

/// The program that mounts for ordinary users, and its settings.
const HELPER: &str = "fusermount3";
const SETTINGS: &str = "/etc/fuse.conf";

/// All of it. Root needs no helper.
pub(super) fn all() -> Vec<Finding> {
    let mut found = vec![device()];
    if !geteuid().is_root() {
        found.extend([helper(), others()]);
    }
    found
}

fn device() -> Finding {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        return Finding::warn("FUSE", "no /dev/fuse", "modprobe fuse, to mount stores");
    }
    match access(device, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Finding::ok("FUSE", "/dev/fuse"),
        Err(_) => Finding::warn(
            "FUSE",
            "/dev/fuse may not be opened by this user",
            "as root: chmod 666 /dev/fuse, to let users mount stores",
        ),
    }
}

fn helper() -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).any(|directory| directory.join(HELPER).exists()) {
        true => Finding::ok(HELPER, "available"),
        false => Finding::warn(HELPER, "missing", "install the package fuse3, to mount stores"),
    }
}

/// Whether users may let others into what they mount.
fn others() -> Finding {
    let settings = fs::read_to_string(SETTINGS).unwrap_or_default();
    match settings.lines().any(|line| line.trim() == "user_allow_other") {
        true => Finding::ok("allow_other", "permitted to users"),
        false => Finding::warn(
            "allow_other",
            "not permitted to users",
            "only root can mount stores for all: user_allow_other in /etc/fuse.conf permits it",
        ),
    }
}
