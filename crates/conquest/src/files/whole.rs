//! Files that are opened for one operation.

use std::path::Path;

use conquest_fs::open::UNOPENED_MAX;

use super::{Files, OpenOptions};
use crate::Result;

/// Bytes that are asked for at once when a file turns out longer than it was.
const MORE: usize = 32 << 10;

impl Files {
    /// Reads bytes of the file at `path` from byte `offset` on, as if it were opened, read and
    /// closed: how many bytes, fewer than there is room for only at the end.
    ///
    /// # Errors
    /// As open(2) and pread(2).
    pub fn read_at(&self, path: impl AsRef<Path>, out: &mut [u8], offset: u64) -> Result<usize> {
        if out.len() <= UNOPENED_MAX {
            return self.at(path.as_ref(), |fs, who, at| fs.read_unopened(who, at, offset, out));
        }
        let file = self.open(path)?;
        let read = file.read_at(out, offset)?;
        file.close().map(|()| read)
    }

    /// All bytes of the file at `path`.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let mut done = 0;
        loop {
            if done == bytes.len() {
                // One more than there are shows that these are all.
                let more = if done == 0 { len.saturating_add(1) } else { MORE };
                if bytes.try_reserve(more).is_err() {
                    let errno = conquest_access::Errno::ENOMEM;
                    return Err(file.handle().called().fail()(errno));
                }
                bytes.resize(done + more, 0);
            }
            match file.read(bytes.get_mut(done..).unwrap_or_default())? {
                0 => {
                    bytes.truncate(done);
                    return Ok(bytes);
                }
                read => done += read,
            }
        }
    }

    /// Makes `bytes` all bytes of the file at `path`, which is made if there is none. If the store
    /// is full, or the process dies, it may have fewer.
    ///
    /// # Errors
    /// As open(2) and write(2).
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let mut options = OpenOptions::new();
        let file = self.open_with(path, options.write(true).create(true).truncate(true))?;
        file.write_all_at(bytes.as_ref(), 0)?;
        file.close()
    }
}
