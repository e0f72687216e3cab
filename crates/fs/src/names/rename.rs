//! Renaming.
//!
//! Whoever moves a directory holds the lock of moves, so that nobody makes a circle of two moves
//! that are innocent each by itself: under that lock the ways up from directories don't change. Its
//! version is the sequence that path walks look at.

use conquest_access::{AclKind, Credentials, Errno, Rename, new_file, rename};
use conquest_format::Offset;
use conquest_format::inode::{Content, FileType, Links, Owner, offset_of, word};
use conquest_pm::Tx;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::dir::{Entry, Insert, Name};
use crate::error::corrupt;
use crate::extended::access_list;
use crate::feed::{NoticeKind, tell_name};
use crate::file_system::Attempt;
use crate::inode::{Draft, FileId, NewInode};
use crate::names::create::stage_lists;
use crate::names::{LocalName, again, hashed, open_directory, still_names};
use crate::{FileSystem, Result};

/// How to rename.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renaming {
    /// What has the new name loses it.
    Replace,
    /// The new name must not be taken.
    NoReplace,
    /// The two files exchange their names.
    Exchange,
    /// As [`Renaming::Replace`], and a whiteout gets the old name.
    Whiteout,
    /// As [`Renaming::NoReplace`], and a whiteout gets the old name.
    WhiteoutNoReplace,
}

impl Renaming {
    pub(crate) const fn replaces(self) -> bool {
        !matches!(self, Renaming::NoReplace | Renaming::WhiteoutNoReplace)
    }

    const fn leaves_whiteout(self) -> bool {
        matches!(self, Renaming::Whiteout | Renaming::WhiteoutNoReplace)
    }
}

/// What a renaming is about, as seen without locks.
struct Plan {
    source: (FileId, FileType),
    target: Option<(FileId, FileType)>,
}

impl Plan {
    fn moves_directories(&self) -> bool {
        let is_directory = |(_, file_type): &(FileId, FileType)| *file_type == FileType::Directory;
        is_directory(&self.source) || self.target.as_ref().is_some_and(is_directory)
    }
}

/// A renaming whose files are locked: nothing is staged yet.
struct Change {
    from: Draft,
    /// The other directory, if it is another one.
    to: Option<Draft>,
    source: Draft,
    target: Option<Draft>,
    old: Entry,
    new: Option<Entry>,
    /// The whiteout that gets the old name.
    whiteout: Option<FileId>,
}

impl Change {
    fn to(&self) -> &Draft {
        self.to.as_ref().unwrap_or(&self.from)
    }

    fn to_mut(&mut self) -> &mut Draft {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    /// Sees to it that what is told of names is not told once more of the files that it is about.
    fn is_told(&mut self, exchanges: bool) {
        (self.from.is_told, self.source.is_told) = (true, true);
        self.to_mut().is_told = true;
        if let Some(target) = self.target.as_mut().filter(|_| exchanges) {
            target.is_told = true;
        }
    }

    /// Tells which file has got which name.
    fn tell<M: Memory, H: Host>(
        &self,
        tx: &mut Tx<'_, M, H>,
        [old, new]: [&[u8]; 2],
    ) -> Result<()> {
        let (from, to) = ((self.from.file, old), (self.to().file, new));
        let source = self.source.told();
        // Only files that exchange names are both still there.
        let target = self.target.as_ref().map(Draft::told);
        let mut name = |kind, file, (directory, name): (FileId, &[u8])| {
            tell_name(tx, kind, file, directory, name)
        };
        name(NoticeKind::MovedFrom, source, from)?;
        if let Some(target) = target {
            name(NoticeKind::MovedFrom, target, to)?;
        }
        name(NoticeKind::MovedTo, source, to)?;
        if let Some(target) = target {
            name(NoticeKind::MovedTo, target, from)?;
        }
        if let Some(whiteout) = self.whiteout {
            name(NoticeKind::Created, (whiteout, false), from)?;
        }
        Ok(())
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Gives what is named `old` in the directory `from` the name `new` in the directory `to`.
    /// Nothing happens if both names are the same file's.
    ///
    /// # Errors
    /// - `ENOENT`: there is no such name, or none to exchange it with; a directory is gone;
    /// - `EEXIST`: the new name is taken and was not to be;
    /// - `EBUSY`: a name is `.` or `..` (`EEXIST` for the new one, if it must not be taken);
    /// - `EINVAL`: a directory would move into itself; no file can have the name;
    /// - `ENOTEMPTY`: the new name is that of a directory with entries;
    /// - `EISDIR`, `ENOTDIR`: one of the files is a directory, the other one not, and they are not
    ///   exchanged; or `from` or `to` is no directory;
    /// - `EACCES`, `EPERM`: the caller may not;
    /// - `EMLINK`, `ENAMETOOLONG`, `ENOSPC`.
    pub fn rename(
        &self,
        who: &Credentials,
        from: FileId,
        old: &[u8],
        to: FileId,
        new: &[u8],
        how: Renaming,
    ) -> Result<()> {
        check_names(old, new, how)?;
        self.rename_with_slashes(who, (from, old, false), (to, new, false), how)
    }

    /// [`Self::rename`] with names that slashes may follow, which only directories allow: of each
    /// name, its directory, itself, and whether slashes follow. Neither is `.`, `..` or empty.
    pub(crate) fn rename_with_slashes(
        &self,
        who: &Credentials,
        (from, old, old_slash): (FileId, &[u8], bool),
        (to, new, new_slash): (FileId, &[u8], bool),
        how: Renaming,
    ) -> Result<()> {
        let (local_old, local_new) = (LocalName::new(old), LocalName::new(new));
        let plan = || {
            let source = self.lookup(who, from, old)?.ok_or(Errno::ENOENT)?;
            let target = self.lookup(who, to, new)?;
            Ok(Plan { source, target })
        };
        let mut is_full = false;
        self.run_planned(plan, |tx, plan| {
            self.keep_reserve(tx, who);
            let files = [Some(from), Some(to), Some(plan.source.0), plan.target.map(|file| file.0)];
            self.lock(tx, plan.moves_directories(), files)?;
            let old_name = hashed(self.key(), local_old.as_ref().map_or(&[], LocalName::bytes))?;
            let new_name = hashed(self.key(), local_new.as_ref().map_or(&[], LocalName::bytes))?;
            let Some(mut change) =
                self.reopen(tx, who, [from, to], plan, [&old_name, &new_name])?
            else {
                return again();
            };
            check_types(&change, how, [old_slash, new_slash])?;
            self.check_places(tx, &change, how)?;
            if change.new.is_some_and(|entry| entry.inode == change.old.inode) {
                return Ok(Attempt::Done(()));
            }
            check_rules(who, &change, how)?;
            if is_full {
                is_full = self.make_room(tx, change.to(), &new_name)?;
                if is_full {
                    return Ok(Attempt::Prepared);
                }
            }
            change.is_told(how == Renaming::Exchange);
            let staged = match how {
                Renaming::Exchange => Some(self.exchange(tx, &mut change)?),
                _ => self.put_over(tx, who, &mut change, &new_name, how)?,
            };
            is_full = staged.is_none();
            let Some(staged) = staged else {
                return again();
            };
            change.tell(tx, [old_name.bytes(), new_name.bytes()])?;
            Ok(staged)
        })
    }

    /// Refuses to move a directory into itself, or to where it would take the place of one above.
    fn check_places(&self, tx: &Tx<'_, M, H>, change: &Change, how: Renaming) -> Result<()> {
        if change.old.file_type == FileType::Directory {
            self.refuse_within(tx, change.source.file, change.to().file, Errno::EINVAL)?;
        }
        if let Some(target) = &change.target
            && target.inode.file_type == FileType::Directory
        {
            let is_exchange = how == Renaming::Exchange;
            let errno = if is_exchange { Errno::EINVAL } else { Errno::ENOTEMPTY };
            self.refuse_within(tx, target.file, change.from.file, errno)?;
        }
        Ok(())
    }

    /// Opens all that a renaming is about, if it is still as planned.
    fn reopen(
        &self,
        tx: &Tx<'_, M, H>,
        who: &Credentials,
        [from, to]: [FileId; 2],
        plan: &Plan,
        [old_name, new_name]: [&Name<'_>; 2],
    ) -> Result<Option<Change>> {
        let from_draft = open_directory(tx, who, from)?;
        let to_draft = if to == from { None } else { Some(open_directory(tx, who, to)?) };
        let old = from_draft.directory(self.key()).find(tx, old_name)?;
        let entries = to_draft.as_ref().unwrap_or(&from_draft).directory(self.key());
        let new = entries.find(tx, new_name)?;
        let source = plan.source.0;
        let target = plan.target.map(|(file, _)| file);
        let (true, true, Some(old)) =
            (still_names(tx, old, Some(source))?, still_names(tx, new, target)?, old)
        else {
            return Ok(None);
        };
        let target = match target.filter(|&target| target != source) {
            Some(target) => Some(Draft::open(tx, target)?),
            None => None,
        };
        let source = Draft::open(tx, source)?;
        let whiteout = None;
        Ok(Some(Change { from: from_draft, to: to_draft, source, target, old, new, whiteout }))
    }

    /// Refuses with `errno` if directory `inner` is `outer` or somewhere below it. The transaction
    /// holds the lock of moves: the ways up don't change.
    fn refuse_within(
        &self,
        tx: &Tx<'_, M, H>,
        outer: FileId,
        inner: FileId,
        errno: Errno,
    ) -> Result<()> {
        let mut number = inner.number;
        // A way up is a circle only on damaged media. Brent's way of finding out: remember where
        // it was at each power of two.
        let (mut remembered, mut steps, mut power) = (0, 0_u64, 1_u64);
        while number != outer.number {
            if number == self.root().number {
                return Ok(());
            }
            let at = offset_of(number).ok_or(Errno::ENOENT)?;
            if number == remembered {
                let expected = "a way up to the root directory";
                return Err(corrupt("parents of a directory", at, expected, number).into());
            }
            steps += 1;
            if steps == power {
                (remembered, steps, power) = (number, 0, power.saturating_mul(2));
            }
            let is_there = tx.core().resolve_kind(at, conquest_format::fs::INODE);
            is_there.map_err(|_| Errno::ENOENT)?;
            number = tx.get(at.plus(word::PARENT));
        }
        Err(errno.into())
    }

    /// Stages that source and target exchange their names.
    fn exchange(&self, tx: &mut Tx<'_, M, H>, change: &mut Change) -> Result<Attempt<()>> {
        let Change { from, to, source, target: Some(target), old, new: Some(new), .. } = change
        else {
            return Err(Errno::ENOENT.into());
        };
        let now = self.now();
        let is_directory = |file: &Draft| file.inode.file_type == FileType::Directory;
        from.directory(self.key()).replace(tx, old.position, new.inode, new.file_type)?;
        let entries = to.as_ref().unwrap_or(from).directory(self.key());
        entries.replace(tx, new.position, old.inode, old.file_type)?;
        if let Some(to) = to {
            match (is_directory(source), is_directory(target)) {
                (true, false) => move_link(from, to)?,
                (false, true) => move_link(to, from)?,
                _ => {}
            }
            adopt(source, to);
            adopt(target, from);
            to.touch(now);
            to.stage(tx)?;
        }
        from.touch(now);
        from.stage(tx)?;
        for file in [source, target] {
            file.change(now);
            file.stage(tx)?;
        }
        Ok(Attempt::Done(()))
    }

    /// Stages that the source has the new name; none if there is no room for it. Then nothing of
    /// the transaction may be committed.
    fn put_over(
        &self,
        tx: &mut Tx<'_, M, H>,
        who: &Credentials,
        change: &mut Change,
        new_name: &Name<'_>,
        how: Renaming,
    ) -> Result<Option<Attempt<()>>> {
        let now = self.now();
        let entries = change.to().directory(self.key());
        let (old, new) = (change.old, change.new);
        match new {
            Some(new) => {
                entries.replace(tx, new.position, old.inode, old.file_type)?;
            }
            None => match entries.insert(tx, new_name, old.inode, old.file_type)? {
                Insert::Done(_) => {}
                Insert::NoRoom => return Ok(None),
                Insert::Exists(_) => return Err(Errno::EEXIST.into()),
            },
        }
        let left = change.from.directory(self.key());
        if how.leaves_whiteout() {
            let (whiteout, file) = stage_whiteout(tx, who, &change.from, now)?;
            left.replace(tx, old.position, whiteout, FileType::Character)?;
            change.whiteout = Some(file);
        } else {
            left.remove(tx, old.position)?;
        }
        let is_begun = match change.target.take() {
            Some(target) => self.unname(tx, change.to_mut(), target, now)?,
            None => false,
        };
        if change.source.inode.file_type == FileType::Directory
            && let Change { from, to: Some(to), source, .. } = &mut *change
        {
            move_link(from, to)?;
            adopt(source, to);
        }
        if let Some(to) = &mut change.to {
            to.touch(now);
            to.stage(tx)?;
        }
        change.from.touch(now);
        change.from.stage(tx)?;
        change.source.change(now);
        change.source.stage(tx)?;
        Ok(Some(if is_begun { Attempt::Begun(()) } else { Attempt::Done(()) }))
    }
}

/// What is refused whatever there is.
fn check_names(old: &[u8], new: &[u8], how: Renaming) -> Result<()> {
    match (old, new) {
        ([], _) | (_, []) => Err(Errno::ENOENT.into()),
        (b"." | b"..", _) => Err(Errno::EBUSY.into()),
        (_, b"." | b"..") if how.replaces() => Err(Errno::EBUSY.into()),
        (_, b"." | b"..") => Err(Errno::EEXIST.into()),
        _ => Ok(()),
    }
}

/// What the types of the files, and that there are any, allow.
fn check_types(change: &Change, how: Renaming, [old_slash, new_slash]: [bool; 2]) -> Result<()> {
    let is_directory = |entry: &Entry| entry.file_type == FileType::Directory;
    let exchanges = how == Renaming::Exchange;
    match &change.new {
        Some(_) if !how.replaces() => return Err(Errno::EEXIST.into()),
        None if exchanges => return Err(Errno::ENOENT.into()),
        Some(new) if exchanges && new_slash && !is_directory(new) => {
            return Err(Errno::ENOTDIR.into());
        }
        _ => {}
    }
    if !is_directory(&change.old) && (old_slash || new_slash && !exchanges) {
        return Err(Errno::ENOTDIR.into());
    }
    Ok(())
}

/// What the rules say, with everything known.
fn check_rules(who: &Credentials, change: &Change, how: Renaming) -> Result<()> {
    let target = change.target.as_ref().map(|target| target.rules());
    let stays = change.to.is_none();
    let exchanges = how == Renaming::Exchange;
    if change.to().inode.links.count == 0 {
        return Err(Errno::ENOENT.into());
    }
    rename(
        who,
        &Rename {
            from: &change.from.rules(),
            source: &change.source.rules(),
            to: &change.to().rules(),
            target: target.as_ref(),
            stays,
            exchanges,
        },
    )?;
    let is_full_directory =
        |target: &Draft| target.inode.file_type == FileType::Directory && target.inode.size != 0;
    if !exchanges && change.target.as_ref().is_some_and(is_full_directory) {
        return Err(Errno::ENOTEMPTY.into());
    }
    Ok(())
}

/// Counts that a directory moves from `from` to `to`.
fn move_link(from: &mut Draft, to: &mut Draft) -> Result<()> {
    let links = &mut to.inode.links.count;
    *links = links.checked_add(1).ok_or(Errno::EMLINK)?;
    let links = &mut from.inode.links.count;
    *links = links.saturating_sub(1);
    Ok(())
}

/// Makes `parent` the parent of `file`, if that is a directory.
fn adopt(file: &mut Draft, parent: &Draft) {
    if file.inode.file_type == FileType::Directory {
        file.inode.parent = parent.file.number;
    }
}

/// Stages a whiteout in `directory`: a character device 0:0 without permissions. Where it is, and
/// which file.
fn stage_whiteout<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    who: &Credentials,
    directory: &Draft,
    now: i64,
) -> Result<(Offset, FileId)> {
    let default = access_list(tx, &directory.inode, AclKind::Default)?;
    let new = new_file(who, &directory.rules(), default.as_ref(), libc::S_IFCHR);
    let inode = NewInode {
        file_type: FileType::Character,
        permissions: (new.mode & 0o7777) as u16,
        flags: new.flags,
        owner: Owner { uid: new.uid, gid: new.gid },
        links: Links { count: 1, project: 0 },
        content: Content::Device { minor: 0, major: 0 },
        size: 0,
        pages: 0,
        attributes: stage_lists(tx, &new)?,
        parent: None,
        threshold: None,
    };
    let (made, file) = inode.stage(tx, now)?;
    Ok((made.offset(), file))
}
