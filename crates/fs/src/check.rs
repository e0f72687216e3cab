//! Checking every rule of a file system, for tests: whatever is allocated is reached, and all that
//! is said twice agrees.
//!
//! For a region at rest: no operation may run meanwhile, so everything is read once.

use std::collections::BTreeMap;

use conquest_format::fs::INODE;
use conquest_format::inode::{Content, FileType, Inode, offset_of};
use conquest_format::pointer;
use conquest_pm::check::{Finding, Reachable};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;

use crate::content::reach;
use crate::extended;
use crate::inode::{FileId, directory, identify, load};
use crate::large::chunk::{self, List};
use crate::{FileSystem, Result};

/// What a file system consists of, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Files of all types but directories.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// A check under way.
#[derive(Default)]
struct Check {
    reachable: Reachable,
    /// Files that are no directories: how often they were reached, and how many names they claim.
    files: BTreeMap<u64, (u32, u32)>,
    /// Directories that are still to be looked at, with their parents.
    left: Vec<(FileId, u64)>,
    census: Census,
}

impl Check {
    fn find(&mut self, what: &'static str, file: FileId) {
        let at = offset_of(file.number).unwrap_or(conquest_format::Offset::NONE);
        self.census.findings.push(Finding { what, at });
    }
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Checks every rule of the file system.
    ///
    /// # Errors
    /// [`conquest_pm::Error::Corrupt`] for what can't even be followed.
    pub fn check(&self) -> Result<Census> {
        let mut check = Check::default();
        check.left.push((self.root(), self.root().number));
        while let Some((file, parent)) = check.left.pop() {
            self.check_directory(&mut check, file, parent)?;
        }
        for list in [List::Due, List::Unused] {
            self.check_list(&mut check, list)?;
        }
        for word in self.core().orphans() {
            self.check_orphan(&mut check, word)?;
        }
        for (number, (found, claimed)) in core::mem::take(&mut check.files) {
            if found != claimed {
                check.find("file with another number of names", FileId { number, generation: 0 });
            }
        }
        check.census.findings.extend(self.core().check(&check.reachable)?);
        Ok(check.census)
    }

    /// Notes the chunks on `list` that no file has.
    fn check_list(&self, check: &mut Check, list: List) -> Result<()> {
        self.read(0, |view| {
            for at in chunk::members(view, list, usize::MAX, |_| true)? {
                let chunk = chunk::load(view, at)?;
                if chunk.inode == 0 {
                    check.reachable.object(at);
                } else if list == List::Unused {
                    check.find(
                        "chunk of a file that nobody is said to need",
                        FileId { number: chunk.inode, generation: chunk.generation },
                    );
                }
            }
            Ok(())
        })
    }

    /// Checks what a holding keeps: a file without names, unless it has got one since.
    fn check_orphan(&self, check: &mut Check, word: u64) -> Result<()> {
        let at = pointer::unpack(word, INODE).unwrap_or(conquest_format::Offset::NONE);
        let file = self.read(0, |view| identify(view, at))?;
        let (inode, _) = self.read(file.number, |view| load(view, file))?;
        let is_known = check.files.contains_key(&file.number);
        if inode.links.count != 0 || is_known {
            return Ok(());
        }
        if inode.file_type == FileType::Directory {
            check.census.directories += 1;
            self.reach_inode(check, file, &inode)?;
        } else {
            self.check_file(check, file, &inode)?;
        }
        // It was found, and has no name.
        check.files.insert(file.number, (0, 0));
        Ok(())
    }

    fn check_directory(&self, check: &mut Check, file: FileId, parent: u64) -> Result<()> {
        let (inode, entries) = self.read(file.number, |view| {
            let (inode, _) = load(view, file)?;
            let mut entries = Vec::new();
            let names = directory(file, self.key())?;
            names.check(view, &mut check.reachable, |entry, _| entries.push(*entry))?;
            Ok((inode, entries))
        })?;
        check.census.directories += 1;
        self.reach_inode(check, file, &inode)?;
        if inode.parent != parent {
            check.find("directory with another parent", file);
        }
        let mut directories = 0;
        for entry in entries {
            let (child, inner) = self.read(file.number, |view| {
                let child = identify(view, entry.inode)?;
                Ok((child, load(view, child)?.0))
            })?;
            if inner.file_type != entry.file_type {
                check.find("entry of another type than its file", child);
            }
            if inner.file_type == FileType::Directory {
                directories += 1;
                check.left.push((child, file.number));
            } else {
                self.check_file(check, child, &inner)?;
            }
        }
        if inode.links.count != 2 + directories {
            check.find("directory with another number of directories", file);
        }
        Ok(())
    }

    /// Notes what the inode of `file` consists of.
    fn reach_inode(&self, check: &mut Check, file: FileId, inode: &Inode) -> Result<()> {
        if let Some(at) = offset_of(file.number) {
            check.reachable.object(at);
        }
        let reachable = &mut check.reachable;
        self.read(file.number, |view| extended::reach(view, inode.attributes, reachable))
    }

    fn check_file(&self, check: &mut Check, file: FileId, inode: &Inode) -> Result<()> {
        let (found, _) = check.files.entry(file.number).or_insert((0, inode.links.count));
        *found += 1;
        if *found > 1 {
            return Ok(());
        }
        check.census.files += 1;
        self.reach_inode(check, file, inode)?;
        if matches!(inode.content, Content::None | Content::Device { .. }) {
            return Ok(());
        }
        let reachable = &mut check.reachable;
        let pages = self.read(file.number, |view| reach(view, inode.content, reachable))?;
        if pages != inode.pages {
            check.find("file with another number of pages", file);
        }
        Ok(())
    }
}
