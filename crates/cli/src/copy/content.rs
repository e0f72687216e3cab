//! Copying the bytes of a file, holes as holes.

use super::Job;
use crate::reason::{Reason, Result};
use crate::stop;
use crate::tree::{Meta, Tree};

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// Times that a file is read which changes while it is read.
const TRIES: u32 = 3;

/// Whether a file has stayed as it was.
fn is_same(old: &Meta, new: &Meta) -> bool {
    (old.size, old.mtime, old.ctime) == (new.size, new.mtime, new.ctime)
}

impl<S: Tree, T: Tree> Job<'_, S, T> {
    /// Makes the bytes of `copy`, which is empty, those of `file`: what was known of the file when
    /// they were read, and whether it stayed so to the end.
    pub(super) fn copy_bytes(
        &self,
        file: &S::Node,
        meta: &Meta,
        copy: &T::Node,
    ) -> Result<(Meta, bool)> {
        let mut meta = *meta;
        if meta.size == 0 {
            return Ok((meta, true));
        }
        self.source.open(file)?;
        let mut buffer = vec![0; CHUNK.min(meta.size as usize)];
        for attempt in 1..=TRIES {
            self.copy_once(file, meta.size, copy, &mut buffer)?;
            let now = self.source.meta(file)?;
            if is_same(&meta, &now) {
                return Ok((meta, true));
            }
            if attempt == TRIES {
                break;
            }
            self.counts.retried();
            self.target.set_size(copy, 0)?;
            meta = now;
        }
        Ok((meta, false))
    }

    fn copy_once(
        &self,
        file: &S::Node,
        size: u64,
        copy: &T::Node,
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut at = 0;
        let mut end = 0;
        while let Some(range) = self.source.data(file, at)? {
            at = range.start;
            // What has been appended since does not belong to the file that was looked at.
            let stop = range.end.min(size);
            if at >= stop {
                break;
            }
            while at < stop {
                stop::check()?;
                let most = (stop - at).min(buffer.len() as u64) as usize;
                let part = buffer.get_mut(..most).unwrap_or_default();
                let len = self.source.read(file, at, part)?;
                if len == 0 {
                    return self.target.set_size(copy, at);
                }
                let part = part.get(..len).unwrap_or_default();
                self.target.write(copy, at, part)?;
                self.counts.bytes(len as u64);
                at += len as u64;
                end = at;
            }
        }
        if end < size { self.target.set_size(copy, size) } else { Ok(()) }
    }

    /// The complaint about a file that never stood still.
    pub(super) fn unsteady() -> Reason {
        Reason::rule("changed while it was read, three times (run again when it is at rest)")
    }
}
