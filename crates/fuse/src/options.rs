//! How a file system is to be mounted.

use std::ffi::{CString, OsStr, OsString};

use rustix::mount::MountFlags;

use crate::error::{Error, Result};

/// What the root of the mounted file system is; the mount point has to be the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Root {
    /// A directory.
    #[default]
    Directory,
    /// A regular file.
    File,
}

/// When reading a file changes its time of access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessTimes {
    /// When it is older than the other times, or than a day.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Never,
}

/// How a file system is to be mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// What follows `fuse.` in the type of the file system.
    pub subtype: OsString,
    /// What is shown as mounted.
    pub source: OsString,
    /// What the root is.
    pub root: Root,
    /// Whether others than the mount's owner may come in.
    pub allow_other: bool,
    /// Whether the kernel checks modes and access lists.
    pub default_permissions: bool,
    /// The longest read that is asked for, in bytes.
    pub max_read: Option<u32>,
    /// The mount's owner, user and group; who mounts, if not given. Only root may name somebody
    /// else.
    pub owner: Option<(u32, u32)>,
    /// No changes.
    pub read_only: bool,
    /// Set-id bits and file capabilities count. Only root may mount so.
    pub suid: bool,
    /// Device nodes lead to devices. Only root may mount so.
    pub dev: bool,
    /// Files can be executed.
    pub exec: bool,
    /// When a read is noted in a file.
    pub access_times: AccessTimes,
    /// Whether listing a directory is noted in it.
    pub directory_access_times: bool,
    /// All writes are durable when they return.
    pub synchronous: bool,
    /// All changes of directories are durable when they return.
    pub synchronous_directories: bool,
}

impl MountOptions {
    /// The options that are safe for anybody: no set-id bits, no devices, and for who mounts only.
    #[must_use]
    pub fn new(subtype: impl Into<OsString>, source: impl Into<OsString>) -> MountOptions {
        MountOptions {
            subtype: subtype.into(),
            source: source.into(),
            root: Root::Directory,
            allow_other: false,
            default_permissions: false,
            max_read: None,
            owner: None,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            access_times: AccessTimes::Relative,
            directory_access_times: true,
            synchronous: false,
            synchronous_directories: false,
        }
    }

    /// The type of the file system, as it is asked for and shown.
    pub(crate) fn kind(&self) -> OsString {
        let mut kind = OsString::from("fuse");
        if !self.subtype.is_empty() {
            kind.push(".");
            kind.push(&self.subtype);
        }
        kind
    }

    /// Refuses what no system call can be told.
    pub(crate) fn check(&self) -> Result {
        for (what, name) in [("subtype", &self.subtype), ("source", &self.source)] {
            if name.as_encoded_bytes().contains(&0) {
                return Err(Error::Name { what, name: name.clone() });
            }
        }
        Ok(())
    }

    /// The flags of `mount(2)`.
    pub(crate) fn flags(&self) -> MountFlags {
        let times = match self.access_times {
            AccessTimes::Relative => MountFlags::RELATIME,
            AccessTimes::Strict => MountFlags::STRICTATIME,
            AccessTimes::Never => MountFlags::NOATIME,
        };
        let mut flags = times;
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, !self.exec);
        flags.set(MountFlags::NODIRATIME, !self.directory_access_times);
        flags.set(MountFlags::SYNCHRONOUS, self.synchronous);
        flags.set(MountFlags::DIRSYNC, self.synchronous_directories);
        flags
    }

    /// The options of FUSE's own that both ways of mounting know, as words.
    fn common(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (word, is_wanted) in
            [("allow_other", self.allow_other), ("default_permissions", self.default_permissions)]
        {
            if is_wanted {
                words.push(word.to_owned());
            }
        }
        words.extend(self.max_read.map(|bytes| format!("max_read={bytes}")));
        words
    }

    /// The data of `mount(2)`: the device is at `descriptor`. Names are none of it.
    pub(crate) fn data(&self, descriptor: i32) -> Result<CString> {
        let own = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let (user, group) = self.owner.unwrap_or(own);
        let mode = match self.root {
            Root::Directory => 0o40_000,
            Root::File => 0o100_000,
        };
        let mut words =
            vec![format!("fd={descriptor},rootmode={mode:o},user_id={user},group_id={group}")];
        words.extend(self.common());
        let text = words.join(",");
        CString::new(text).map_err(|_| Error::Name { what: "options", name: OsString::new() })
    }

    /// The argument of `fusermount3 -o`.
    pub(crate) fn helper_words(&self) -> OsString {
        let either = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
        let mut words = vec![
            either(self.read_only, "ro", "rw"),
            either(self.suid, "suid", "nosuid"),
            either(self.dev, "dev", "nodev"),
            either(self.exec, "exec", "noexec"),
        ];
        match self.access_times {
            // What the kernel does unless it is told something else.
            AccessTimes::Relative => {}
            AccessTimes::Strict => words.push("strictatime"),
            AccessTimes::Never => words.push("noatime"),
        }
        for (word, is_wanted) in [
            ("nodiratime", !self.directory_access_times),
            ("sync", self.synchronous),
            ("dirsync", self.synchronous_directories),
        ] {
            if is_wanted {
                words.push(word);
            }
        }
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.extend(self.common().into_iter().map(OsString::from));
        for (key, name) in [("fsname=", &self.source), ("subtype=", &self.subtype)] {
            if !name.is_empty() {
                let mut word = OsString::from(key);
                word.push(escape(name));
                words.push(word);
            }
        }
        words.join(OsStr::new(","))
    }
}

/// `name` as `fusermount3` reads names: a backslash keeps a comma or a backslash as it is.
fn escape(name: &OsStr) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name.as_encoded_bytes() {
        if matches!(byte, b',' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    OsString::from_vec(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_told_names_with_escapes() {
        let mut options = MountOptions::new("a,b", r"x\y,z w");
        options.max_read = Some(4096);
        options.access_times = AccessTimes::Never;
        let words = "rw,nosuid,nodev,exec,noatime,max_read=4096,fsname=x\\\\y\\,z w,subtype=a\\,b";
        assert_eq!(options.helper_words(), words);
    }

    #[test]
    fn mount_is_told_numbers_only() {
        let mut options = MountOptions::new("s", "a,fd=3");
        options.owner = Some((5, 6));
        options.root = Root::File;
        options.allow_other = true;
        options.default_permissions = true;
        let data = options.data(7).unwrap();
        let told = "fd=7,rootmode=100000,user_id=5,group_id=6,allow_other,default_permissions";
        assert_eq!(data.to_str(), Ok(told));
        assert_eq!(options.kind(), "fuse.s");
        assert_eq!(options.flags(), MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME);
    }

    #[test]
    fn names_with_zero_bytes_are_refused() {
        let error = MountOptions::new("s", "a\0b").check().unwrap_err().to_string();
        assert!(error.contains("source") && error.contains("zero byte"), "{error}");
    }
}
