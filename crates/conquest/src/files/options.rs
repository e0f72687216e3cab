//! How to open a file, and where paths may lead.

use conquest_access::Errno;
use conquest_fs::open::How;

/// The bits of flags that say whether to read or to write.
const ACCESS: i32 = libc::O_ACCMODE;

/// How to open a file: as [`std::fs::OpenOptions`], with the extensions for Unix.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
    custom_flags: i32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is asked for yet; new files get mode 0666, as far as the mask leaves it.
    #[must_use]
    pub const fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
            custom_flags: 0,
        }
    }

    /// To read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// To write.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// To write, always at the end.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.append = append;
        self
    }

    /// To cut it off at its beginning; it has to be opened to write.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// To make it if there is none; it has to be opened to write.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// To make it, and to fail if there is one.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// The mode of a new file, before the mask.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Further flags of open(2); those to read and write are left out.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.custom_flags = flags;
        self
    }

    /// What it comes to; the checks are those of the standard library.
    pub(super) fn how(&self) -> Result<How, Errno> {
        How::from_open((self.access()? | self.making()? | self.others()).cast_unsigned(), self.mode)
    }

    fn access(&self) -> Result<i32, Errno> {
        match (self.read, self.write, self.append) {
            (true, false, false) => Ok(libc::O_RDONLY),
            (false, true, false) => Ok(libc::O_WRONLY),
            (true, true, false) => Ok(libc::O_RDWR),
            (false, _, true) => Ok(libc::O_WRONLY | libc::O_APPEND),
            (true, _, true) => Ok(libc::O_RDWR | libc::O_APPEND),
            (false, false, false) => Err(Errno::EINVAL),
        }
    }

    fn making(&self) -> Result<i32, Errno> {
        let makes = self.truncate || self.create || self.create_new;
        let contradicts =
            if self.append { self.truncate && !self.create_new } else { makes && !self.write };
        match (self.create, self.truncate, self.create_new) {
            _ if contradicts => Err(Errno::EINVAL),
            (_, _, true) => Ok(libc::O_CREAT | libc::O_EXCL),
            (true, true, false) => Ok(libc::O_CREAT | libc::O_TRUNC),
            (true, false, false) => Ok(libc::O_CREAT),
            (false, true, false) => Ok(libc::O_TRUNC),
            (false, false, false) => Ok(0),
        }
    }

    const fn others(&self) -> i32 {
        self.custom_flags & !ACCESS
    }
}

/// Where paths may lead: the `RESOLVE_` flags of openat2(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resolve {
    /// Only to what is below where they begin; absolute paths nowhere: `EXDEV`.
    pub beneath: bool,
    /// Where they begin is the root directory for them.
    pub in_root: bool,
    /// Through no symbolic link: `ELOOP`.
    pub no_symlinks: bool,
    /// Through none of the kernel's magic links, of which stores have none.
    pub no_magiclinks: bool,
    /// To no other file system: there is none in a store.
    pub no_xdev: bool,
    /// Only to what is in memory, as all is: but as with the kernel, nothing is made or truncated
    /// when it is opened so (`EAGAIN`).
    pub cached: bool,
}

impl Resolve {
    /// The flags `bits` of `struct open_how`.
    ///
    /// # Errors
    /// `EINVAL` for bits that are unknown, or contradict each other.
    pub fn from_bits(bits: u64) -> Result<Resolve, Errno> {
        const KNOWN: u64 = libc::RESOLVE_BENEATH
            | libc::RESOLVE_IN_ROOT
            | libc::RESOLVE_NO_SYMLINKS
            | libc::RESOLVE_NO_MAGICLINKS
            | libc::RESOLVE_NO_XDEV
            | libc::RESOLVE_CACHED;
        let has = |flag: u64| bits & flag != 0;
        let resolve = Resolve {
            beneath: has(libc::RESOLVE_BENEATH),
            in_root: has(libc::RESOLVE_IN_ROOT),
            no_symlinks: has(libc::RESOLVE_NO_SYMLINKS),
            no_magiclinks: has(libc::RESOLVE_NO_MAGICLINKS),
            no_xdev: has(libc::RESOLVE_NO_XDEV),
            cached: has(libc::RESOLVE_CACHED),
        };
        if has(!KNOWN) { Err(Errno::EINVAL) } else { resolve.check().map(|()| resolve) }
    }

    /// Refuses what contradicts itself.
    pub(super) fn check(self) -> Result<(), Errno> {
        if self.beneath && self.in_root { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_resolution_are_known_or_refused() {
        let of = |bits| Resolve::from_bits(bits);
        assert_eq!(of(0), Ok(Resolve::default()));
        assert_eq!(of(0x08), Ok(Resolve { beneath: true, ..Resolve::default() }));
        assert_eq!(of(0x10), Ok(Resolve { in_root: true, ..Resolve::default() }));
        assert_eq!(of(0x20), Ok(Resolve { cached: true, ..Resolve::default() }));
        assert_eq!(of(0x18), Err(Errno::EINVAL));
        assert_eq!(of(0x40), Err(Errno::EINVAL));
    }
}
