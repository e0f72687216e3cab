//! The fields of each operation.

use super::abi::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn,
    FsyncFlags, FsyncIn, GetattrFlags, GetattrIn, GetxattrIn, InitFlags, InterruptIn, IoctlFlags,
    IoctlIn, LinkIn, LockFlags, LockIn, LseekIn, MkdirIn, MknodIn, NotifyReplyIn, Opcode,
    OpenFlags, OpenIn, PollFlags, PollIn, ReadFlags, ReadIn, ReleaseFlags, ReleaseIn,
    RemovemappingIn, Rename2In, RenameIn, SetupmappingIn, SetxattrExtIn, SetxattrFlags, SetxattrIn,
    StatxIn, SyncfsIn, WriteFlags, WriteIn,
};
use super::cursor::Cursor;
use super::init::{Agreed, Offer};
use super::list::List;
use super::lock::{FileLock, LockKind};
use super::malformed::Fault;
use super::operation::{CopyRange, Create, Ioctl, Lock, Operation, Read, Statx, Write};
use super::set_attributes::SetAttributes;

type Parsed<'a> = Result<Operation<'a>, Fault>;

/// Takes the fields of `opcode`, and nothing behind them.
pub(crate) fn operation<'a>(opcode: Opcode, from: &mut Cursor<'a>, agreed: &Agreed) -> Parsed<'a> {
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup { name: from.name("name")? },
        Opcode::Forget => Operation::Forget { lookups: from.take::<ForgetIn>()?.lookups },
        Opcode::BatchForget => batch_forget(from)?,
        Opcode::Getattr => getattr(from)?,
        Opcode::Statx => statx(from)?,
        Opcode::Setattr => Operation::Setattr(SetAttributes::from_wire(&from.take()?)?),
        Opcode::Readlink => Operation::Readlink,
        Opcode::Symlink => symlink(from)?,
        Opcode::Mknod => mknod(from)?,
        Opcode::Mkdir => mkdir(from)?,
        Opcode::Unlink => Operation::Unlink { name: from.name("name")? },
        Opcode::Rmdir => Operation::Rmdir { name: from.name("name")? },
        Opcode::Rename => rename(from.take::<RenameIn>()?.new_parent, 0, from)?,
        Opcode::Rename2 => rename2(from)?,
        Opcode::Link => link(from)?,
        Opcode::Open => open(from, |flags, kill| Operation::Open { flags, kill_suidgid: kill })?,
        Opcode::Read => Operation::Read(read(from)?),
        Opcode::Write => write(from)?,
        Opcode::Statfs => Operation::Statfs,
        Opcode::Release => release(from)?,
        Opcode::Fsync => fsync(from, |handle, data_only| Operation::Fsync { handle, data_only })?,
        Opcode::Setxattr => setxattr(from, agreed)?,
        Opcode::Getxattr => getxattr(from)?,
        Opcode::Listxattr => Operation::Listxattr { size: from.take::<GetxattrIn>()?.size },
        Opcode::Removexattr => Operation::Removexattr { name: from.name("name")? },
        Opcode::Flush => flush(from)?,
        Opcode::Init => Operation::Init(Offer::parse(from)?),
        Opcode::Opendir => {
            open(from, |flags, kill| Operation::Opendir { flags, kill_suidgid: kill })?
        }
        Opcode::Readdir => Operation::Readdir(read(from)?),
        Opcode::Readdirplus => Operation::Readdirplus(read(from)?),
        Opcode::Releasedir => releasedir(from)?,
        Opcode::Fsyncdir => {
            fsync(from, |handle, data_only| Operation::Fsyncdir { handle, data_only })?
        }
        Opcode::Getlk => Operation::Getlk(lock(from)?),
        Opcode::Setlk => Operation::Setlk(lock(from)?),
        Opcode::Setlkw => Operation::Setlkw(lock(from)?),
        Opcode::Access => Operation::Access { mask: from.take::<AccessIn>()?.mask },
        Opcode::Create => Operation::Create(create(from)?),
        Opcode::Tmpfile => tmpfile(from)?,
        Opcode::Interrupt => Operation::Interrupt { unique: from.take::<InterruptIn>()?.unique },
        Opcode::Bmap => bmap(from)?,
        Opcode::Destroy => Operation::Destroy,
        Opcode::Ioctl => ioctl(from)?,
        Opcode::Poll => poll(from)?,
        Opcode::NotifyReply => notify_reply(from)?,
        Opcode::Fallocate => fallocate(from)?,
        Opcode::Lseek => lseek(from)?,
        Opcode::CopyFileRange => Operation::CopyFileRange(copy_range(from)?),
        Opcode::CopyFileRange64 => Operation::CopyFileRange64(copy_range(from)?),
        Opcode::Setupmapping => setupmapping(from)?,
        Opcode::Removemapping => removemapping(from)?,
        Opcode::Syncfs => from.take::<SyncfsIn>().map(|_| Operation::Syncfs)?,
    })
}

fn batch_forget<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let BatchForgetIn { count, .. } = from.take()?;
    Ok(Operation::BatchForget(List::take(from, "nodes to forget", count)?))
}

/// The open file, if the flags of GETATTR or STATX say that there is one.
fn handle_of(flags: u32, handle: u64) -> Option<u64> {
    GetattrFlags::from_bits(flags).contains(GetattrFlags::HANDLE).then_some(handle)
}

fn getattr<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: GetattrIn = from.take()?;
    Ok(Operation::Getattr { handle: handle_of(fields.flags, fields.handle) })
}

fn statx<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: StatxIn = from.take()?;
    let handle = handle_of(fields.getattr_flags, fields.handle);
    Ok(Operation::Statx(Statx { handle, flags: fields.flags, mask: fields.mask }))
}

fn symlink<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let name = from.name("name")?;
    Ok(Operation::Symlink { name, target: from.name("target")? })
}

fn mknod<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: MknodIn = from.take()?;
    let MknodIn { mode, umask, rdev: device, .. } = fields;
    Ok(Operation::Mknod { name: from.name("name")?, mode, umask, device })
}

fn mkdir<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let MkdirIn { mode, umask } = from.take()?;
    Ok(Operation::Mkdir { name: from.name("name")?, mode, umask })
}

fn rename<'a>(new_parent: u64, flags: u32, from: &mut Cursor<'a>) -> Parsed<'a> {
    let name = from.name("name")?;
    Ok(Operation::Rename { name, new_parent, new_name: from.name("new name")?, flags })
}

fn rename2<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: Rename2In = from.take()?;
    rename(fields.new_parent, fields.flags, from)
}

fn link<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let LinkIn { node } = from.take()?;
    Ok(Operation::Link { node, name: from.name("name")? })
}

/// Whether set-id bits are to go.
fn kills(open_flags: u32) -> bool {
    OpenFlags::from_bits(open_flags).contains(OpenFlags::KILL_SUIDGID)
}

fn open<'a>(from: &mut Cursor<'a>, make: fn(u32, bool) -> Operation<'a>) -> Parsed<'a> {
    let OpenIn { flags, open_flags } = from.take()?;
    Ok(make(flags, kills(open_flags)))
}

fn create<'a>(from: &mut Cursor<'a>) -> Result<Create<'a>, Fault> {
    let CreateIn { flags, mode, umask, open_flags } = from.take()?;
    let name = from.name("name")?;
    Ok(Create { name, mode, umask, flags, kill_suidgid: kills(open_flags) })
}

/// As CREATE; the name is one that the kernel has made up.
fn tmpfile<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let Create { mode, umask, flags, kill_suidgid, .. } = create(from)?;
    Ok(Operation::Tmpfile { mode, umask, flags, kill_suidgid })
}

fn read(from: &mut Cursor<'_>) -> Result<Read, Fault> {
    let fields: ReadIn = from.take()?;
    let ReadIn { handle, offset, size, flags, .. } = fields;
    let has_owner = ReadFlags::from_bits(fields.read_flags).contains(ReadFlags::LOCK_OWNER);
    let lock_owner = has_owner.then_some(fields.lock_owner);
    Ok(Read { handle, offset, size, lock_owner, flags })
}

fn write<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: WriteIn = from.take()?;
    let how = WriteFlags::from_bits(fields.write_flags);
    Ok(Operation::Write(Write {
        handle: fields.handle,
        offset: fields.offset,
        data: from.data(fields.size)?,
        cached: how.contains(WriteFlags::CACHED),
        kill_suidgid: how.contains(WriteFlags::KILL_SUIDGID),
        lock_owner: how.contains(WriteFlags::LOCK_OWNER).then_some(fields.lock_owner),
        flags: fields.flags,
    }))
}

fn release<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: ReleaseIn = from.take()?;
    let how = ReleaseFlags::from_bits(fields.release_flags);
    Ok(Operation::Release {
        handle: fields.handle,
        flags: fields.flags,
        flush: how.contains(ReleaseFlags::FLUSH),
        flock_owner: how.contains(ReleaseFlags::FLOCK_UNLOCK).then_some(fields.lock_owner),
    })
}

fn releasedir<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let ReleaseIn { handle, flags, .. } = from.take()?;
    Ok(Operation::Releasedir { handle, flags })
}

fn flush<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let FlushIn { handle, lock_owner, .. } = from.take()?;
    Ok(Operation::Flush { handle, lock_owner })
}

fn fsync<'a>(from: &mut Cursor<'a>, make: fn(u64, bool) -> Operation<'a>) -> Parsed<'a> {
    let FsyncIn { handle, flags, .. } = from.take()?;
    Ok(make(handle, FsyncFlags::from_bits(flags).contains(FsyncFlags::DATA_ONLY)))
}

fn setxattr<'a>(from: &mut Cursor<'a>, agreed: &Agreed) -> Parsed<'a> {
    let SetxattrIn { size, flags } = from.take()?;
    let mut more = SetxattrFlags::NONE;
    if agreed.flags.contains(InitFlags::SETXATTR_EXT) {
        more = SetxattrFlags::from_bits(from.take::<SetxattrExtIn>()?.flags);
    }
    let acl_kill_sgid = more.contains(SetxattrFlags::ACL_KILL_SGID);
    let name = from.name("name")?;
    Ok(Operation::Setxattr { name, value: from.data(size)?, flags, acl_kill_sgid })
}

fn getxattr<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let GetxattrIn { size, .. } = from.take()?;
    Ok(Operation::Getxattr { name: from.name("name")?, size })
}

fn lock(from: &mut Cursor<'_>) -> Result<Lock, Fault> {
    let fields: LockIn = from.take()?;
    let is_flock = LockFlags::from_bits(fields.flags).contains(LockFlags::FLOCK);
    let kind = if is_flock { LockKind::Flock } else { LockKind::Posix };
    let lock = FileLock::from_wire(fields.lock)?;
    Ok(Lock { handle: fields.handle, owner: fields.owner, kind, lock })
}

fn bmap<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let BmapIn { block, block_size, .. } = from.take()?;
    Ok(Operation::Bmap { block, block_size })
}

fn ioctl<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let fields: IoctlIn = from.take()?;
    let IoctlIn { handle, command, argument, out_size, .. } = fields;
    let data = from.data(fields.in_size)?;
    let flags = IoctlFlags::from_bits(fields.flags);
    Ok(Operation::Ioctl(Ioctl { handle, flags, command, argument, data, out_size }))
}

fn poll<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let PollIn { handle, kernel_handle, flags, events } = from.take()?;
    let wants_notice = PollFlags::from_bits(flags).contains(PollFlags::SCHEDULE_NOTIFY);
    Ok(Operation::Poll { handle, kernel_handle, events, wants_notice })
}

fn notify_reply<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let NotifyReplyIn { offset, size, .. } = from.take()?;
    Ok(Operation::NotifyReply { offset, data: from.data(size)? })
}

fn fallocate<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let FallocateIn { handle, offset, length, mode, .. } = from.take()?;
    Ok(Operation::Fallocate { handle, offset, length, mode })
}

fn lseek<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let LseekIn { handle, offset, whence, .. } = from.take()?;
    Ok(Operation::Lseek { handle, offset, whence })
}

fn copy_range(from: &mut Cursor<'_>) -> Result<CopyRange, Fault> {
    let CopyFileRangeIn { handle_in, offset_in, node_out, handle_out, offset_out, length, flags } =
        from.take()?;
    Ok(CopyRange { handle_in, offset_in, node_out, handle_out, offset_out, length, flags })
}

fn setupmapping<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let SetupmappingIn { handle, offset, length, flags, memory_offset } = from.take()?;
    Ok(Operation::Setupmapping { handle, offset, length, flags, memory_offset })
}

fn removemapping<'a>(from: &mut Cursor<'a>) -> Parsed<'a> {
    let RemovemappingIn { count } = from.take()?;
    Ok(Operation::Removemapping(List::take(from, "mappings", count)?))
}
