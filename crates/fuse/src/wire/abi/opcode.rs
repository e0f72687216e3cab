//! Which operation a request asks for.

use core::fmt;

macro_rules! opcodes {
    ($($opcode:ident = $number:literal $name:literal,)*) => {
        /// Which operation a request asks for.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        pub enum Opcode {
            $(#[doc = concat!($name, ", number ", $number, ".")] $opcode = $number,)*
        }

        impl Opcode {
            /// All that are known.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$opcode,)*];

            /// The operation of number `number`, if it is known.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$opcode),)*
                    _ => None,
                }
            }

            /// Its name in the protocol.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Opcode::$opcode => $name,)*
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1 "LOOKUP",
    Forget = 2 "FORGET",
    Getattr = 3 "GETATTR",
    Setattr = 4 "SETATTR",
    Readlink = 5 "READLINK",
    Symlink = 6 "SYMLINK",
    Mknod = 8 "MKNOD",
    Mkdir = 9 "MKDIR",
    Unlink = 10 "UNLINK",
    Rmdir = 11 "RMDIR",
    Rename = 12 "RENAME",
    Link = 13 "LINK",
    Open = 14 "OPEN",
    Read = 15 "READ",
    Write = 16 "WRITE",
    Statfs = 17 "STATFS",
    Release = 18 "RELEASE",
    Fsync = 20 "FSYNC",
    Setxattr = 21 "SETXATTR",
    Getxattr = 22 "GETXATTR",
    Listxattr = 23 "LISTXATTR",
    Removexattr = 24 "REMOVEXATTR",
    Flush = 25 "FLUSH",
    Init = 26 "INIT",
    Opendir = 27 "OPENDIR",
    Readdir = 28 "READDIR",
    Releasedir = 29 "RELEASEDIR",
    Fsyncdir = 30 "FSYNCDIR",
    Getlk = 31 "GETLK",
    Setlk = 32 "SETLK",
    Setlkw = 33 "SETLKW",
    Access = 34 "ACCESS",
    Create = 35 "CREATE",
    Interrupt = 36 "INTERRUPT",
    Bmap = 37 "BMAP",
    Destroy = 38 "DESTROY",
    Ioctl = 39 "IOCTL",
    Poll = 40 "POLL",
    NotifyReply = 41 "NOTIFY_REPLY",
    BatchForget = 42 "BATCH_FORGET",
    Fallocate = 43 "FALLOCATE",
    Readdirplus = 44 "READDIRPLUS",
    Rename2 = 45 "RENAME2",
    Lseek = 46 "LSEEK",
    CopyFileRange = 47 "COPY_FILE_RANGE",
    Setupmapping = 48 "SETUPMAPPING",
    Removemapping = 49 "REMOVEMAPPING",
    Syncfs = 50 "SYNCFS",
    Tmpfile = 51 "TMPFILE",
    Statx = 52 "STATX",
    CopyFileRange64 = 53 "COPY_FILE_RANGE_64",
}

impl Opcode {
    /// Whether the kernel takes an answer to such a request: not if it only tells something.
    #[must_use]
    pub const fn has_reply(self) -> bool {
        !matches!(self, Opcode::Forget | Opcode::BatchForget | Opcode::NotifyReply)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_operations_belong_together() {
        let known: Vec<Opcode> = (0..100).filter_map(Opcode::from_number).collect();
        assert_eq!(known, Opcode::ALL);
        assert_eq!(known.len(), 51);
        assert!(known.iter().all(|&opcode| Opcode::from_number(opcode as u32) == Some(opcode)));
        assert_eq!(Opcode::CopyFileRange64.to_string(), "COPY_FILE_RANGE_64");
    }
}
