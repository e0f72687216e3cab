//! Error numbers.

use core::fmt;

/// An error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Names the error numbers that the rules, and the file system that uses them, give.
macro_rules! numbers {
    ($($name:ident: $what:literal,)*) => {
        impl Errno {
            $(#[doc = $what] pub const $name: Errno = Errno(libc::$name);)*

            fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    EPERM: "Only an owner or a capability would do, or a flag forbids it.",
    EBADF: "It is not open for that.",
    EACCES: "The permission bits or the access list forbid it.",
    EINVAL: "An argument makes no sense for such a file.",
    EISDIR: "It is a directory.",
    ENOTDIR: "It is not a directory.",
    ELOOP: "It is a symbolic link.",
    EOPNOTSUPP: "Such files have no such thing.",
    ENODATA: "There is no such attribute, or the caller may not know.",
    E2BIG: "The value is too long.",
    ERANGE: "The name is too long, or empty.",
    ENOENT: "There is no such name, or what it named is gone.",
    EEXIST: "The name is taken.",
    ENOTEMPTY: "The directory has entries.",
    EBUSY: "It is in use as what it is, the root for example.",
    EXDEV: "The way leads out of where it has to stay.",
    EMLINK: "It has all the names that it can have.",
    ENAMETOOLONG: "A name or a path is too long.",
    ENOSPC: "There is no space.",
    ENOMEM: "There is no memory for the call.",
    ENFILE: "Too many files are open.",
    ENOLCK: "There are too many locks.",
    EOVERFLOW: "It would pass the last byte that a file can have.",
    EFBIG: "The file would be larger than files can be.",
    ENODEV: "Only regular files have such a thing.",
    ENXIO: "There is nothing from there on.",
    EINTR: "A signal came first.",
    EDEADLK: "It would wait for the caller himself.",
    EAGAIN: "Too much changed meanwhile; try again.",
    EIO: "Something is damaged.",
    ESTALE: "The file is there no more.",
    EROFS: "Nothing can be changed there.",
    ENOTTY: "There is no such control.",
}

impl Errno {
    /// The number, as in `errno`.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Errno {}
