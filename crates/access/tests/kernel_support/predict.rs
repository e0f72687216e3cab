//! What the rules say an operation does: its result, and everything that is seen afterwards.

use std::collections::BTreeSet;

use conquest_access::{
    Access, AclKind, Capability, Change, Credentials, Errno, File, NameSpace, Removal, Rename,
    Times, XattrAccess, flag,
};

use super::operation::Operation;
use super::world::{ACL_NAMES, CAPABILITY, Seen, Snapshot};
use conquest_peers::machine::Kind;
use conquest_peers::sys::Outcome;

/// A machine's settings that the rules leave out.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub kind: Kind,
    /// `fs.protected_hardlinks`.
    pub protects_links: bool,
}

/// What a rule says, as a system call would.
fn number<T>(result: Result<T, Errno>) -> Outcome<T> {
    result.map_err(Errno::number)
}

/// Carries out `operation` on `seen`, if it succeeds.
pub fn predict(
    settings: Settings,
    who: &Credentials,
    operation: &Operation,
    seen: &mut Snapshot,
) -> Outcome<Vec<u8>> {
    let before = seen.clone();
    if !operation.needs_open() && !matches!(operation, Operation::SetFlags(_)) {
        let nothing_to_do = matches!(operation, Operation::SetTimes(Some([a, b]))
            if *a == libc::UTIME_OMIT && *b == libc::UTIME_OMIT);
        if nothing_to_do {
            return Ok(Vec::new());
        }
        search(who, &before.directories[0])?;
    }
    let result = match operation {
        Operation::Create { .. } => create(who, operation, &before, seen),
        Operation::Remove { as_directory } => {
            let how = if *as_directory { Removal::Directory } else { Removal::File };
            let [directory, file] = [before.directories[0].file(), before.source().file()];
            number(conquest_access::remove(who, &directory, &file, how))
                .map(|()| seen.files[0] = None)
        }
        Operation::Rename { to, exchanges } => rename(who, *to, *exchanges, &before, seen),
        Operation::Link { to } => link(settings, who, *to, &before, seen),
        Operation::Get(_) | Operation::Set(..) | Operation::Unset(_) | Operation::List => {
            return attribute(
                settings,
                who,
                operation,
                before.source(),
                seen.files[0].as_mut().unwrap(),
            );
        }
        _ => inode(settings, who, operation, before.source(), seen.files[0].as_mut().unwrap()),
    };
    result.map(|()| Vec::new())
}

fn search(who: &Credentials, directory: &Seen) -> Outcome {
    number(conquest_access::permission(who, &directory.file(), Access::EXECUTE))
}

fn apply(change: Change, seen: &mut Seen) {
    seen.mode = change.mode;
    seen.uid = change.uid;
    seen.gid = change.gid;
    if change.acl.is_some() {
        seen.acl = change.acl;
    }
    if change.drops_capabilities {
        seen.names.remove(CAPABILITY);
    }
}

/// Operations on the file alone.
fn inode(
    settings: Settings,
    who: &Credentials,
    operation: &Operation,
    before: &Seen,
    after: &mut Seen,
) -> Outcome {
    let file = before.file();
    let mut asked = file;
    if settings.kind == Kind::Tmpfs && is_ignored(operation, &file) {
        asked.flags = 0;
    }
    match operation {
        Operation::Access(mode) => {
            number(conquest_access::permission(who, &file, Access::from_bits(*mode)))
        }
        Operation::Open(how) => {
            let change = number(conquest_access::open(who, &file, *how))?;
            let lacks_reader = before.is(libc::S_IFIFO) && how.write && !how.read;
            if before.is(libc::S_IFSOCK) || lacks_reader {
                return Err(libc::ENXIO);
            }
            apply(change, after);
            Ok(())
        }
        Operation::Chmod(mode) => {
            number(conquest_access::chmod(who, &file, *mode)).map(|change| apply(change, after))
        }
        Operation::Chown(uid, gid) => number(conquest_access::chown(who, &asked, *uid, *gid))
            .map(|change| apply(change, after)),
        Operation::SetTimes(times) => {
            let is_now = times.is_none_or(|times| times == [libc::UTIME_NOW; 2]);
            let times = if is_now { Times::Now } else { Times::Explicit };
            number(conquest_access::set_times(who, &file, times))
        }
        Operation::Truncate if before.is(libc::S_IFLNK) => Err(libc::ENOENT),
        Operation::Truncate => {
            number(conquest_access::truncate(who, &file)).map(|change| apply(change, after))
        }
        Operation::TruncateOpen => {
            number(conquest_access::truncate_open(who, &asked)).map(|change| apply(change, after))
        }
        Operation::Write => {
            number(conquest_access::write_open(who, &asked)).map(|change| apply(change, after))
        }
        Operation::Allocate { punches } => number(conquest_access::allocate(who, &file, *punches))
            .map(|change| apply(change, after)),
        Operation::SetFlags(flags) => set_flags(settings, who, &file, *flags, after),
        other => panic!("{other:?} is not about the file alone"),
    }
}

/// Whether tmpfs does not look at the flags, where ext4 does: what is open may be changed even if
/// it is immutable, and for `chown` without an owner no flag counts.
fn is_ignored(operation: &Operation, file: &File) -> bool {
    match operation {
        Operation::Chown(uid, gid) => uid.is_none() && gid.is_none(),
        Operation::TruncateOpen => !file.is_append_only(),
        Operation::Write => true,
        _ => false,
    }
}

fn set_flags(
    settings: Settings,
    who: &Credentials,
    file: &File,
    flags: u32,
    after: &mut Seen,
) -> Outcome {
    let (mut asked, mut flags_asked) = (*file, flags);
    if settings.kind == Kind::Tmpfs && asked.flags & flags & flag::IMMUTABLE != 0 {
        // On tmpfs the other flags of what stays immutable may change.
        asked.flags &= !flag::IMMUTABLE;
        flags_asked &= !flag::IMMUTABLE;
    }
    number(conquest_access::set_flags(who, &asked, flags_asked, false))
        .map(|()| after.flags = flags)
}

fn create(
    who: &Credentials,
    operation: &Operation,
    before: &Snapshot,
    after: &mut Snapshot,
) -> Outcome {
    let &Operation::Create { mode, is_whiteout, .. } = operation else {
        panic!("{operation:?} makes nothing");
    };
    let directory = &before.directories[0];
    number(conquest_access::create(who, &directory.file(), mode, is_whiteout))?;
    let default = directory.default_acl.as_ref();
    let new = conquest_access::new_file(who, &directory.file(), default, mode);
    let is_plain = [libc::S_IFREG, libc::S_IFDIR].contains(&(mode & libc::S_IFMT));
    after.files[1] = Some(Seen {
        number: 0,
        mode: new.mode,
        uid: new.uid,
        gid: new.gid,
        flags: if is_plain { new.flags } else { 0 },
        acl: new.acl,
        default_acl: new.default_acl,
        names: BTreeSet::new(),
    });
    Ok(())
}

fn rename(
    who: &Credentials,
    to: usize,
    exchanges: bool,
    before: &Snapshot,
    after: &mut Snapshot,
) -> Outcome {
    search(who, &before.directories[to])?;
    let new = if to == 0 { 1 } else { 2 };
    let target = before.files[new].as_ref().map(Seen::file);
    if exchanges && target.is_none() {
        return Err(libc::ENOENT);
    }
    let (from, source) = (before.directories[0].file(), before.source().file());
    let change = Rename {
        from: &from,
        source: &source,
        to: &before.directories[to].file(),
        target: target.as_ref(),
        stays: to == 0,
        exchanges,
    };
    number(conquest_access::rename(who, &change))?;
    after.files[0] = if exchanges { before.files[new].clone() } else { None };
    after.files[new] = before.files[0].clone();
    Ok(())
}

fn link(
    settings: Settings,
    who: &Credentials,
    to: usize,
    before: &Snapshot,
    after: &mut Snapshot,
) -> Outcome {
    search(who, &before.directories[to])?;
    let new = if to == 0 { 1 } else { 2 };
    if before.files[new].is_some() {
        return Err(libc::EEXIST);
    }
    let file = before.source().file();
    let is_program = file.mode & 0o2010 == 0o2010 || file.mode & libc::S_ISUID != 0;
    let wanted = Access::READ | Access::WRITE;
    let is_safe =
        file.is_regular() && !is_program && conquest_access::permission(who, &file, wanted).is_ok();
    if settings.protects_links && !is_safe && !conquest_access::is_owner_or_capable(who, &file) {
        return Err(libc::EPERM);
    }
    number(conquest_access::link(who, &before.directories[to].file(), &file))?;
    after.files[new] = before.files[0].clone();
    Ok(())
}

/// Which access list `name` names.
fn list_of(name: &str) -> Option<AclKind> {
    match NameSpace::of(name.as_bytes()) {
        NameSpace::Acl(kind) => Some(kind),
        _ => None,
    }
}

/// Operations on attributes.
fn attribute(
    settings: Settings,
    who: &Credentials,
    operation: &Operation,
    before: &Seen,
    after: &mut Seen,
) -> Outcome<Vec<u8>> {
    let file = before.file();
    let rule = |name: &str, what: XattrAccess| {
        number(conquest_access::xattr(who, &file, name.as_bytes(), what))
    };
    match operation {
        Operation::Get(name) => match list_of(name) {
            Some(kind) => {
                number(conquest_access::read_acl(&file))?;
                let lists = [&before.acl, &before.default_acl];
                let list = lists[usize::from(kind == AclKind::Default)];
                list.as_ref().map(conquest_access::Acl::to_xattr).ok_or(libc::ENODATA)
            }
            None => {
                rule(name, XattrAccess::Read)?;
                let is_there = before.names.contains(name);
                let value = if name == CAPABILITY {
                    super::world::CAPABILITY_VALUE.to_vec()
                } else {
                    b"value".to_vec()
                };
                if is_there { Ok(value) } else { Err(libc::ENODATA) }
            }
        },
        Operation::Set(name, value) => {
            match list_of(name) {
                Some(kind) => set_acl(settings, who, kind, value, before, after)?,
                None => {
                    rule(name, XattrAccess::Write(value))?;
                    after.names.insert(name.clone());
                }
            }
            Ok(Vec::new())
        }
        Operation::Unset(name) => {
            match list_of(name) {
                Some(kind) => set_acl(settings, who, kind, &[], before, after)?,
                None => {
                    rule(name, XattrAccess::Remove)?;
                    if !after.names.remove(name) {
                        return Err(libc::ENODATA);
                    }
                }
            }
            Ok(Vec::new())
        }
        _ => Ok(listed(who, before)),
    }
}

fn set_acl(
    settings: Settings,
    who: &Credentials,
    kind: AclKind,
    value: &[u8],
    before: &Seen,
    after: &mut Seen,
) -> Outcome {
    let set = number(conquest_access::set_acl(who, &before.file(), kind, value))?;
    after.mode = set.mode;
    let may_keep_gid_bit = who.is_in(before.gid) || who.has(Capability::Fsetid);
    if settings.kind == Kind::Tmpfs && kind == AclKind::Access && !may_keep_gid_bit {
        // On tmpfs removing a list is a change of the mode like setting one.
        after.mode &= !libc::S_ISGID;
    }
    match kind {
        AclKind::Access => after.acl = set.acl,
        AclKind::Default => after.default_acl = set.acl,
    }
    Ok(())
}

/// The names that `listxattr` gives, sorted.
fn listed(who: &Credentials, seen: &Seen) -> Vec<u8> {
    let lists = [&seen.acl, &seen.default_acl];
    let lists = ACL_NAMES.iter().zip(lists).filter(|(_, list)| list.is_some());
    let mut names: BTreeSet<&str> = lists.map(|(name, _)| *name).collect();
    names.extend(seen.names.iter().map(String::as_str));
    names.retain(|name| conquest_access::is_listed(who, name.as_bytes()));
    names.iter().flat_map(|name| name.bytes().chain([0])).collect()
}
