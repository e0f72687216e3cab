//! Requests about open files and their bytes.

use std::sync::atomic::Ordering::Relaxed;

use conquest::{FileId, FileType};
use conquest_access::Capability;
use conquest_fs::attributes::SetTime;
use conquest_fs::content::{Allocate, Seek, WriteAt};
use conquest_fs::open::{End, How, OpenFile};
use conquest_fs::{Errno, Result};
use conquest_fuse::wire::{self, CopyRange, Opened, OpenedFlags, Read, SetAttributes, Write};

use crate::caller::Caller;
use crate::server::Server;
use crate::stat::nanoseconds;

/// Flags of open(2) that the kernel has seen to before it asks.
const SEEN_TO: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY) as u32;
/// Set-id bits.
const SET_IDS: u32 = libc::S_ISUID | libc::S_ISGID;

impl Server {
    /// How `flags` of open(2) open a file of this type.
    pub(crate) fn how(&self, flags: u32, file_type: FileType) -> Result<How> {
        let mut how = How::from_open(flags & !SEEN_TO, 0)?;
        how.open.no_access_time |= self.options.no_access_time
            || file_type == FileType::Directory && self.options.no_directory_access_time;
        Ok(how)
    }

    /// Opens `node`.
    pub(crate) fn open(
        &self,
        caller: Caller<'_>,
        node: u64,
        flags: u32,
        file_type: FileType,
    ) -> Result<Opened> {
        let how = self.how(flags, file_type)?;
        if how.open.write {
            // What can't be changed any more is not opened as if it could.
            self.fs().core().check_health()?;
        }
        let file = self.file(node)?;
        let who = self.as_member(caller, file).credentials();
        let open = self.fs().open_file(&who, file, &how)?;
        Ok(self.opened(open))
    }

    /// What the kernel is told of `open`, which gets a handle.
    ///
    /// Writes to what is open for appending go past the page cache: there, the kernel makes two of
    /// one that goes over the end of a page, and what another process appends could come between
    /// them.
    pub(crate) fn opened(&self, open: OpenFile) -> Opened {
        let appends = open.how.open.append && open.how.open.write;
        let direct = OpenedFlags::DIRECT_IO.when(appends && self.maps_direct.load(Relaxed));
        Opened { handle: self.handles.add(open), flags: direct, ..Opened::default() }
    }

    /// Reads to `out`: how many bytes, fewer only at the end.
    pub(crate) fn read(&self, read: &Read, out: &mut [u8]) -> Result<usize> {
        let open = self.open_file(read.handle)?;
        self.fs().read_at(&open, read.offset, out)
    }

    /// Writes: how many bytes, fewer if the store is full.
    pub(crate) fn write(&self, caller: Caller<'_>, write: &Write<'_>) -> Result<u32> {
        let open = self.open_file(write.handle)?;
        let appends = write.flags & libc::O_APPEND as u32 != 0 && !write.cached;
        let at = if appends { WriteAt::End } else { WriteAt::Offset(write.offset) };
        let caller = self.as_member(caller.dropping(write.kill_suidgid), open.file);
        let is_direct = write.flags & libc::O_DIRECT as u32 != 0 && !write.cached;
        let (_, written) = caller.with_space(|caller| match is_direct {
            true => self.fs().write_direct(&caller.credentials(), open.file, at, write.data),
            false => self.fs().write(&caller.credentials(), open.file, at, write.data),
        })?;
        Ok(written as u32)
    }

    /// A descriptor of `handle` is closed by a process whose locks are those of `owner`.
    pub(crate) fn flush(&self, handle: u64, owner: u64) -> Result<()> {
        let open = self.open_file(handle)?;
        if self.records.flush(open.file.number, owner) {
            self.release_records(&open, owner)?;
        }
        Ok(())
    }

    /// Nobody has `handle` any more.
    pub(crate) fn release(&self, handle: u64) -> Result<()> {
        let open = self.handles.remove(handle).ok_or(Errno::EBADF)?;
        for owner in self.records.release(open.file.number, handle) {
            self.release_records(&open, owner)?;
        }
        self.fs().close(&open)?;
        // Those of `flock` go with it.
        self.queue.look();
        Ok(())
    }

    /// Makes what was done with `handle` as durable as it can be.
    pub(crate) fn sync(&self, handle: u64) -> Result<()> {
        self.fs().sync(&self.open_file(handle)?)
    }

    /// Allocates or frees space, as fallocate(2).
    pub(crate) fn allocate(
        &self,
        caller: Caller<'_>,
        handle: u64,
        (offset, len): (u64, u64),
        mode: u32,
    ) -> Result<()> {
        const KEEP: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
        const HOLE: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32;
        const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
        let open = self.open_file(handle)?;
        let keeps_size = mode & KEEP != 0;
        let how = match mode & !KEEP {
            0 => Allocate::Space { keeps_size },
            ZERO => Allocate::Zeros { keeps_size },
            HOLE if keeps_size => Allocate::Hole,
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        let drops = self.drops_set_ids(&caller, open.file);
        self.as_member(caller.dropping(drops), open.file).with_space(|caller| {
            self.fs().allocate(&caller.credentials(), open.file, how, offset, len)
        })
    }

    /// Whether `file` has set-id bits that the caller takes away by changing its content: where the
    /// kernel leaves it to file systems, and does not say.
    fn drops_set_ids(&self, caller: &Caller<'_>, file: FileId) -> bool {
        let has = self.fs().stat(file).is_ok_and(|stat| stat.mode & SET_IDS != 0);
        has && !caller.has(Capability::Fsetid)
    }

    /// The group of `file`, if the caller is a member of it and that matters: where the group may
    /// not execute a file, only strangers to the group take its set-group-id bit away. Requests
    /// about what is there already don't tell of groups.
    fn group_that_matters(&self, caller: &Caller<'_>, file: FileId) -> Option<u32> {
        const PROGRAM: u32 = libc::S_ISGID | libc::S_IXGRP;
        let stat = self.fs().stat(file).ok()?;
        let matters = stat.mode & PROGRAM == libc::S_ISGID;
        let is_in = matters && caller.is_in(stat.seen_by(&caller.credentials()).gid);
        is_in.then_some(stat.gid)
    }

    /// `caller`, who is about to change the content of `file`, with what is needed to know of his
    /// groups.
    pub(crate) fn as_member<'c>(&self, caller: Caller<'c>, file: FileId) -> Caller<'c> {
        if !caller.drops() {
            return caller;
        }
        self.group_that_matters(&caller, file).map_or(caller, |gid| caller.member_of(gid))
    }

    /// `caller`, who is about to give `file` to group `new`, in the same way.
    fn as_giver<'c>(&self, caller: Caller<'c>, file: FileId, new: Option<u32>) -> Caller<'c> {
        if !self.drops_set_ids(&caller, file) {
            return caller;
        }
        match self.group_that_matters(&caller, file) {
            // He may set the bit before and after.
            Some(_) if new.is_none_or(|gid| caller.is_in(gid)) => caller,
            Some(gid) => caller.dropping(true).member_of(gid),
            None => caller.dropping(true),
        }
    }

    /// The next data or hole, as lseek(2).
    pub(crate) fn seek(&self, handle: u64, offset: u64, whence: u32) -> Result<u64> {
        let open = self.open_file(handle)?;
        let what = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL.into()),
        };
        self.fs().seek(open.file, what, offset)
    }

    /// Copies bytes from one open file to another one: how many.
    pub(crate) fn copy(&self, caller: Caller<'_>, copy: &CopyRange) -> Result<u64> {
        let (source, target) = (self.open_file(copy.handle_in)?, self.open_file(copy.handle_out)?);
        let flags = u32::try_from(copy.flags).map_err(|_| Errno::EINVAL)?;
        let drops = self.drops_set_ids(&caller, target.file);
        self.as_member(caller.dropping(drops), target.file).with_space(|caller| {
            let from = End { open: &source, at: Some(copy.offset_in) };
            let to = End { open: &target, at: Some(copy.offset_out) };
            self.fs().copy_range(&caller.credentials(), from, to, copy.length, flags)
        })
    }

    /// Sets attributes of `node`.
    pub(crate) fn set_attributes(
        &self,
        caller: Caller<'_>,
        node: u64,
        set: &SetAttributes,
    ) -> Result<()> {
        let file = self.file(node)?;
        let fs = self.fs();
        let who = caller.credentials();
        if set.uid.is_some() || set.gid.is_some() {
            let who = self.as_giver(caller, file, set.gid).credentials();
            fs.set_owner(&who, file, set.uid, set.gid)?;
        }
        if let Some(mode) = set.mode {
            fs.set_mode(&who, file, mode & 0o7777)?;
        }
        if let Some(size) = set.size {
            let caller = self.as_member(caller.dropping(set.kill_suidgid), file);
            caller.with_space(|caller| fs.truncate_open(&caller.credentials(), file, size))?;
        }
        let [atime, mtime] = [set.atime, set.mtime].map(|time| match time {
            None => SetTime::Omit,
            Some(wire::SetTime::Now) => SetTime::Now,
            Some(wire::SetTime::At(time)) => SetTime::At(nanoseconds(time)),
        });
        if (atime, mtime) != (SetTime::Omit, SetTime::Omit) {
            fs.set_times(&who, file, atime, mtime)?;
        }
        Ok(())
    }

    /// The target of the symbolic link `node`: how many bytes of `out` it is.
    pub(crate) fn read_link(&self, node: u64, out: &mut [u8]) -> Result<usize> {
        self.fs().read_link(self.file(node)?, out)
    }

    /// Makes what was done so far as durable as it can be.
    pub(crate) fn sync_all(&self) -> Result<()> {
        self.fs().sync_all()
    }
}
