//! Options of a mount, as mount(8) and fstab(5) write them.
//!
//! Of options that say something of the same thing, the last one counts. What only concerns
//! mount(8) or the service manager is ignored.

mod nearest;
mod split;

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU32;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use conquest::quote;
use rustix::mount::MountFlags;

use crate::log::Level;
use crate::reason::{Reason, Result};

/// Threads that serve, at most.
const THREADS_MAX: u32 = 1024;

/// When reading a file changes its access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum AccessTimes {
    /// When the file was changed since, or a day later.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// What a mount is to be like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountOptions {
    /// Nothing can be changed through it.
    pub(crate) read_only: bool,
    /// Programs run as who owns them if their modes say so.
    pub(crate) suid: bool,
    /// Device files lead to devices.
    pub(crate) dev: bool,
    /// Files can be executed.
    pub(crate) exec: bool,
    /// When reading changes access times.
    pub(crate) access_times: AccessTimes,
    /// Whether reading directories changes theirs.
    pub(crate) directory_access_times: bool,
    /// Every change is durable when the call returns.
    pub(crate) sync: bool,
    /// The same of changes of directories only.
    pub(crate) dirsync: bool,
    /// A mount that is there is changed.
    pub(crate) remount: bool,
    /// Others than who mounts may use it.
    pub(crate) allow_other: bool,
    /// Locks are the kernel's, for this mount alone.
    pub(crate) local_locks: bool,
    /// What the mount is said to be of; none for the store's directory.
    pub(crate) fsname: Option<OsString>,
    /// Threads that serve, at most; none for a number that suits the machine.
    pub(crate) threads: Option<NonZeroU32>,
    /// Messages that are logged.
    pub(crate) log_level: Level,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            access_times: AccessTimes::default(),
            directory_access_times: true,
            sync: false,
            dirsync: false,
            remount: false,
            allow_other: false,
            local_locks: false,
            fsname: None,
            threads: None,
            log_level: Level::default(),
        }
    }
}

/// What an option without a value does.
type Switch = fn(&mut MountOptions);

/// Options without a value.
const SWITCHES: [(&str, Switch); 27] = [
    ("ro", |it| it.read_only = true),
    ("rw", |it| it.read_only = false),
    ("suid", |it| it.suid = true),
    ("nosuid", |it| it.suid = false),
    ("dev", |it| it.dev = true),
    ("nodev", |it| it.dev = false),
    // As mount(8) has to be told them: it keeps those above to itself.
    ("allow_suid", |it| it.suid = true),
    ("allow_dev", |it| it.dev = true),
    ("exec", |it| it.exec = true),
    ("noexec", |it| it.exec = false),
    ("atime", |it| it.access_times = AccessTimes::Relative),
    ("noatime", |it| it.access_times = AccessTimes::Never),
    ("relatime", |it| it.access_times = AccessTimes::Relative),
    // The kernel has no other default.
    ("norelatime", |it| it.access_times = AccessTimes::Relative),
    ("strictatime", |it| it.access_times = AccessTimes::Strict),
    ("nostrictatime", |it| it.access_times = AccessTimes::Relative),
    ("diratime", |it| it.directory_access_times = true),
    ("nodiratime", |it| it.directory_access_times = false),
    ("sync", |it| it.sync = true),
    ("async", |it| it.sync = false),
    ("dirsync", |it| it.dirsync = true),
    ("remount", |it| it.remount = true),
    ("allow_other", |it| it.allow_other = true),
    ("local_locks", |it| it.local_locks = true),
    // Modes and access control lists are obeyed in any case.
    ("default_permissions", |_| {}),
    ("silent", |_| {}),
    ("loud", |_| {}),
];

/// Options with a value.
const VALUED: [&str; 3] = ["fsname", "threads", "log-level"];

/// Options that concern mount(8) or the service manager, with a value or without.
const IGNORED: [&str; 14] = [
    "_netdev", "auto", "comment", "defaults", "group", "helper", "noauto", "nofail", "nogroup",
    "noowner", "nouser", "nousers", "owner", "uhelper",
];
/// The same for mounts by users.
const IGNORED_OF_USERS: [&str; 2] = ["user", "users"];
/// What the kernel says of a mount of FUSE, and mount(8) gives back when it mounts it again.
const IGNORED_OF_FUSE: [&str; 4] = ["blksize", "group_id", "max_read", "user_id"];

/// Who gives the options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Giver {
    /// Whether it is root, who alone may ask for `suid` and `dev`.
    pub(crate) is_root: bool,
    /// Whether options that are not known are ignored (mount -s).
    pub(crate) is_sloppy: bool,
}

impl MountOptions {
    /// What the option strings `texts` say.
    ///
    /// # Errors
    /// A rule that names the option that is not understood or not permitted.
    pub(crate) fn parse<S: AsRef<OsStr>>(texts: &[S], giver: Giver) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        for text in texts {
            for (name, value) in split::split(text.as_ref().as_bytes())? {
                options.apply(&name, value, giver)?;
            }
        }
        for (name, is_asked) in [("suid", options.suid), ("dev", options.dev)] {
            if is_asked && !giver.is_root {
                let text = format!("option {name}: only root may ask for it (leave it out)");
                return Err(Reason::Rule(text));
            }
        }
        Ok(options)
    }

    fn apply(&mut self, name: &[u8], value: Option<Vec<u8>>, giver: Giver) -> Result<()> {
        let label = quote::message(name);
        let name = str::from_utf8(name).unwrap_or_default();
        let switch = SWITCHES.iter().find(|(known, _)| *known == name);
        match (switch, value) {
            (Some((_, switch)), None) => {
                switch(self);
                Ok(())
            }
            (Some(_), Some(_)) => {
                Err(Reason::Rule(format!("option {label}: takes no value (write it without =)")))
            }
            (None, None) if VALUED.contains(&name) => {
                Err(Reason::Rule(format!("option {label}: needs a value (write {label}=VALUE)")))
            }
            (None, Some(value)) if VALUED.contains(&name) => self.set(name, value),
            (None, _) if is_ignored(name) || giver.is_sloppy => Ok(()),
            (None, _) => Err(unknown(name, &label)),
        }
    }

    fn set(&mut self, name: &str, value: Vec<u8>) -> Result<()> {
        let wrong = |why: String| Reason::Rule(format!("option {name}: {why}"));
        let text = String::from_utf8_lossy(&value).into_owned();
        match name {
            "fsname" => self.fsname = Some(OsString::from_vec(value)).filter(|it| !it.is_empty()),
            "threads" => {
                let number = text.parse().ok().and_then(NonZeroU32::new);
                let number = number.filter(|number| number.get() <= THREADS_MAX);
                let rule = || wrong(format!("{text:?} is no number from 1 to {THREADS_MAX}"));
                self.threads = Some(number.ok_or_else(rule)?);
            }
            _ => {
                let level = text.parse();
                self.log_level =
                    level.map_err(|error: crate::log::Unknown| wrong(error.to_string()))?;
            }
        }
        Ok(())
    }

    /// What of it the kernel knows of any mount.
    pub(crate) fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::NODIRATIME, !self.directory_access_times);
        flags.set(MountFlags::SYNCHRONOUS, self.sync);
        flags.set(MountFlags::DIRSYNC, self.dirsync);
        flags |= match self.access_times {
            AccessTimes::Relative => MountFlags::RELATIME,
            AccessTimes::Strict => MountFlags::STRICTATIME,
            AccessTimes::Never => MountFlags::NOATIME,
        };
        flags
    }
}

fn is_ignored(name: &str) -> bool {
    let is_comment = name.starts_with("x-") || name.starts_with("X-");
    let lists = [&IGNORED[..], &IGNORED_OF_USERS, &IGNORED_OF_FUSE];
    is_comment || lists.iter().any(|list| list.contains(&name))
}

fn unknown(name: &str, label: &str) -> Reason {
    let known = SWITCHES.iter().map(|(name, _)| *name).chain(VALUED).chain(IGNORED);
    let hint = match nearest::nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => "see `conquest help mount`".to_owned(),
    };
    Reason::Rule(format!("option {label}: unknown ({hint})"))
}

#[cfg(test)]
mod tests;
