//! The file system of an attached region: where it begins, and how its operations run.

use std::sync::{Arc, Mutex};

use conquest_access::{Capability, Credentials};
use conquest_format::fs::{INODE, RESERVE_MAX, VERSION, chunk, root};
use conquest_format::geometry::STATE_ROOTS;
use conquest_format::inode::{self, Content, FileType, Inode, Links, Owner, SIZE_MAX};
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Mode, Ptr, Tx, View};

use crate::buffer::Buffer;
use crate::content;
use crate::dir::Key;
use crate::inode::{FileId, InodeObject, NewInode};
use crate::large::{NewLarge, Space};
use crate::{Error, Result};

/// The lock that directories are moved under: the first one, so it is taken before all others. Its
/// version is the store-wide rename sequence.
pub(crate) const MOVES: u32 = 0;
/// Locks that a region with a file system has at least: that one, and one for inodes.
pub const LOCKS_MIN: u32 = 2;

/// Tells the time: nanoseconds since 1970.
pub type Clock = Box<dyn Fn() -> i64 + Send + Sync>;

/// What is to be done after each operation that has changed something, with nothing locked.
pub type AfterEach<M, H> = Box<dyn Fn(&Core<M, H>) -> conquest_pm::Result<()> + Send + Sync>;

/// What a new file system begins with.
#[derive(Clone, Copy, Debug)]
pub struct NewFileSystem {
    /// The key by which names are hashed: random, and nobody else's business.
    pub key: [u64; 2],
    /// Who owns the root directory.
    pub owner: Owner,
    /// The root directory's permissions.
    pub permissions: u16,
    /// Most bytes in a regular file, at most 2^63 - 1.
    pub size_max: u64,
    /// Percentage of the region's pages that only callers with `CAP_SYS_RESOURCE` may use, at most
    /// [`RESERVE_MAX`].
    pub reserve: u64,
    /// Where large files' data goes, if that is not the region.
    pub large: Option<NewLarge>,
}

/// A file system on an attached region. Every operation may be called by any thread, and by several
/// processes at once.
pub struct FileSystem<M: Memory, H: Host> {
    core: Arc<Core<M, H>>,
    key: Key,
    root: FileId,
    size_max: u64,
    /// Pages that are reserved.
    reserve: u64,
    clock: Clock,
    /// Bytes above which a file's data is on the volume.
    threshold: u64,
    /// Blocks of a chunk of the volume's space, 0 if there is none.
    chunk_blocks: u64,
    /// The volume's space, for large files.
    space: Option<Box<dyn Space>>,
    /// Memory for what is on its way there, used again.
    passing: Mutex<Vec<Vec<u8>>>,
    /// Whether operations make durable what they have done before they return.
    is_synchronous: bool,
    after_each: Option<AfterEach<M, H>>,
}

/// What came of an attempt.
pub(crate) enum Attempt<T> {
    /// What was asked for is staged.
    Done(T),
    /// The beginning of what was asked for is staged, and an intent for the rest.
    Begun(T),
    /// Something else had to be staged first: commit it, and try again.
    Prepared,
}

/// The lock of a region that guards inode `number` and its content.
pub(crate) fn lock_of<M: Memory, H: Host>(core: &Core<M, H>, number: u64) -> u32 {
    // Inodes made one after the other get locks all over the table.
    let mixed = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32;
    let inodes = core.geometry().shape().locks.saturating_sub(2).max(1);
    1 + mixed % inodes
}

/// The lock of a region that guards the lists of chunks: the last one, so it is taken after all
/// others.
pub(crate) fn lists_lock<M: Memory, H: Host>(core: &Core<M, H>) -> u32 {
    core.geometry().shape().locks - 1
}

/// Takes a step of an intent of this file system: the handler that a region with one needs, as
/// [`conquest_pm::Options::intents`].
///
/// # Errors
/// [`conquest_pm::Error::UnknownIntent`] if it is no such intent; those of the region.
pub fn finish_intent<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    intent: conquest_pm::intent::Intent,
) -> conquest_pm::Result<()> {
    content::finish_cut(tx, intent)
}

impl<M: Memory, H: Host> core::fmt::Debug for FileSystem<M, H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FileSystem").field("root", &self.root).finish_non_exhaustive()
    }
}

pub(crate) fn root_word(index: u64) -> Offset {
    STATE_ROOTS.plus(index * WORD)
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Makes a file system with nothing but an empty root directory in a region that has none.
    ///
    /// # Errors
    /// [`Error::Unfit`] if there is something already, or too few locks; those of the region.
    pub fn make(core: &Core<M, H>, new: &NewFileSystem, clock: &Clock) -> Result<()> {
        let locks = core.geometry().shape().locks;
        if locks < LOCKS_MIN {
            return Err(Error::Unfit {
                what: "locks of the region",
                expected: "2 or more; make it with more",
                found: locks.into(),
            });
        }
        core.run(|tx| {
            tx.lock(MOVES, Mode::Exclusive)?;
            let found = tx.get(root_word(root::VERSION));
            if found != 0 {
                return Ok(Err(Error::Unfit {
                    what: "version of the file system",
                    expected: "0: the region has a file system already, which is left alone",
                    found,
                }));
            }
            let new_root = NewInode {
                file_type: FileType::Directory,
                permissions: new.permissions,
                flags: 0,
                owner: new.owner,
                links: Links { count: 2, project: 0 },
                content: Content::Directory { root: 0 },
                size: 0,
                pages: 0,
                attributes: 0,
                parent: None,
                threshold: None,
            };
            let made = new_root.stage(tx, clock())?;
            tx.set(root_word(root::DIRECTORY), Ptr::<InodeObject>::word(made.0))?;
            tx.set(root_word(root::KEY), new.key[0])?;
            tx.set(root_word(root::KEY + 1), new.key[1])?;
            let large = new.large.unwrap_or(NewLarge { threshold: 0, chunk_blocks: 0 });
            let size_max = new.large.map_or(SIZE_MAX, |large| chunk::file_max(large.chunk_blocks));
            tx.set(root_word(root::FILE_MAX), new.size_max.min(size_max))?;
            tx.set(root_word(root::THRESHOLD), large.threshold)?;
            tx.set(root_word(root::CHUNK_BLOCKS), large.chunk_blocks)?;
            tx.set(root_word(root::RESERVE), new.reserve.min(RESERVE_MAX))?;
            tx.set(root_word(root::VERSION), VERSION)?;
            Ok(Ok(()))
        })?
    }

    /// The file system of an attached region.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the region has none, or one of another version; those of the region.
    pub fn open(core: Arc<Core<M, H>>, clock: Clock) -> Result<Self> {
        let wanted = [
            root::VERSION,
            root::DIRECTORY,
            root::FILE_MAX,
            root::RESERVE,
            root::THRESHOLD,
            root::CHUNK_BLOCKS,
            root::KEY,
            root::KEY + 1,
        ];
        let [version, word, size_max, percentage, threshold, chunk_blocks, key @ ..] =
            core.read(MOVES, |view| Ok(wanted.map(|index| view.word(root_word(index)))))?;
        if version != VERSION {
            return Err(Error::Unfit {
                what: "version of the file system",
                expected: "1; 0 is none, others need another version of this program",
                found: version,
            });
        }
        let root = Ptr::<InodeObject>::from_word(word, root_word(root::DIRECTORY))?;
        let place = core.resolve_kind(root.offset(), INODE)?;
        let number = crate::inode::number_of(place.offset())?;
        let at = place.offset().plus(inode::word::GENERATION);
        // The root directory is never removed: its generation stays.
        let generation = core.read(MOVES, |view| Ok(view.word(at)))?;
        let root = FileId { number, generation };
        let size_max = size_max.min(SIZE_MAX);
        let pages = core.geometry().shape().max_groups * GROUP_PAGES;
        let reserve = pages * percentage.min(RESERVE_MAX) / 100;
        let key = Key::new(key);
        let is_possible = (chunk::BLOCKS_MIN..=chunk::BLOCKS_MAX).contains(&chunk_blocks)
            && chunk_blocks.is_power_of_two()
            || chunk_blocks == 0 && threshold == 0;
        if !is_possible {
            return Err(Error::Unfit {
                what: "blocks of a chunk of the volume's space",
                expected: "a power of two from 2^21 to 2^51, or 0 in a store without a volume",
                found: chunk_blocks,
            });
        }
        Ok(FileSystem {
            core,
            key,
            root,
            size_max,
            reserve,
            clock,
            threshold: if chunk_blocks == 0 { u64::MAX } else { threshold },
            chunk_blocks,
            space: None,
            passing: Mutex::default(),
            is_synchronous: false,
            after_each: None,
        })
    }

    /// The same with the space of a volume, where large files' data is. Without it these can't be
    /// read, and none becomes large.
    #[must_use]
    pub fn with_space(self, space: Box<dyn Space>) -> Self {
        FileSystem { space: Some(space), ..self }
    }

    /// Bytes above which a file's data goes to the volume; none if there is no volume.
    pub fn threshold(&self) -> Option<u64> {
        self.space.as_ref().filter(|_| self.chunk_blocks != 0).map(|_| self.threshold)
    }

    /// Bytes above which the file of `inode` goes to the volume: its own threshold, or else the
    /// store's; more than any file has if there is no volume.
    pub(crate) fn limit_of(&self, inode: &Inode) -> u64 {
        match self.threshold() {
            Some(threshold) => inode.threshold.unwrap_or(threshold),
            None => u64::MAX,
        }
    }

    /// Blocks of a chunk of the volume's space; 0 if the store has none.
    pub(crate) fn chunk_blocks(&self) -> u64 {
        self.chunk_blocks
    }

    /// The volume's space.
    pub(crate) fn space(&self) -> Result<&dyn Space> {
        self.space.as_deref().ok_or(Error::NoVolume)
    }

    /// [`Space::settle`], before a record that says what the volume has, or has no more. No lock is
    /// held.
    pub(crate) fn settle(&self) -> Result<()> {
        Ok(self.space()?.settle()?)
    }

    /// Memory for what is on its way to the volume.
    pub(crate) fn passing(&self) -> &Mutex<Vec<Vec<u8>>> {
        &self.passing
    }

    /// Whether each operation makes durable what it has done.
    pub(crate) fn is_synchronous(&self) -> bool {
        self.is_synchronous
    }

    /// The same, but with operations that make durable what they have done before they return. One
    /// that returns an error then may have been done all the same.
    #[must_use]
    pub fn synchronous(self) -> Self {
        FileSystem { is_synchronous: true, ..self }
    }

    /// The same, but each operation that has changed something does `after_each` before it returns.
    /// One that returns an error of that has been done all the same.
    #[must_use]
    pub fn with_after_each(self, after_each: AfterEach<M, H>) -> Self {
        FileSystem { after_each: Some(after_each), ..self }
    }

    /// The region.
    pub fn core(&self) -> &Arc<Core<M, H>> {
        &self.core
    }

    /// The root directory.
    pub fn root(&self) -> FileId {
        self.root
    }

    /// Most bytes in a regular file.
    pub fn size_max(&self) -> u64 {
        self.size_max
    }

    /// Pages that only callers with `CAP_SYS_RESOURCE` may use.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Sees to it that `tx` leaves alone what is reserved, unless `who` may use it.
    pub(crate) fn keep_reserve(&self, tx: &mut Tx<'_, M, H>, who: &Credentials) {
        if !who.has_initially(Capability::SysResource) {
            tx.keep_free(self.reserve);
        }
    }

    /// How names are hashed.
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// The present time, nanoseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        (self.clock)()
    }

    /// The lock that guards inode `number` and its content.
    pub(crate) fn lock_of(&self, number: u64) -> u32 {
        lock_of(&self.core, number)
    }

    /// Takes the locks of `files` exclusively, and before them that of moves if `moves`: always in
    /// the order of their numbers.
    pub(crate) fn lock<const N: usize>(
        &self,
        tx: &mut Tx<'_, M, H>,
        moves: bool,
        files: [Option<FileId>; N],
    ) -> Result<()> {
        if moves {
            tx.lock(MOVES, Mode::Exclusive)?;
        }
        let mut numbers = files.map(|file| file.map(|file| self.lock_of(file.number)));
        numbers.sort_unstable();
        for number in numbers.into_iter().flatten() {
            tx.lock(number, Mode::Exclusive)?;
        }
        Ok(())
    }

    /// Reads what the lock of inode `number` guards, as one committed state.
    pub(crate) fn read<T>(
        &self,
        number: u64,
        mut look: impl FnMut(&View<'_, M, H>) -> Result<T>,
    ) -> Result<T> {
        self.core.read(self.lock_of(number), |view| Ok(look(view)))?
    }

    /// Reads like [`Self::read`]; `look` fills `out`, which is the caller's memory: it may fault,
    /// so it is not touched while a lock is held. What is left in `out` counts only as far as
    /// `look` says in the end.
    pub(crate) fn read_to<T>(
        &self,
        number: u64,
        out: &mut [u8],
        mut look: impl FnMut(&View<'_, M, H>, &mut [u8]) -> Result<T>,
    ) -> Result<T> {
        let lock = self.lock_of(number);
        match self.core.try_read(lock, |view| Ok(look(view, out))) {
            Some(seen) => seen?,
            None => self.read_aside(lock, out, look),
        }
    }

    /// [`Self::read_to`] for what is changed again and again.
    #[cold]
    fn read_aside<T>(
        &self,
        lock: u32,
        out: &mut [u8],
        mut look: impl FnMut(&View<'_, M, H>, &mut [u8]) -> Result<T>,
    ) -> Result<T> {
        let mut aside = Buffer::<{ PAGE as usize }>::new(out.len());
        let seen = self.core.read(lock, |view| Ok(look(view, &mut aside)))??;
        out.copy_from_slice(&aside);
        Ok(seen)
    }

    /// Runs `attempt` in a transaction, again until it is done.
    pub(crate) fn run<T>(
        &self,
        mut attempt: impl FnMut(&mut Tx<'_, M, H>) -> Result<Attempt<T>>,
    ) -> Result<T> {
        self.run_planned(|| Ok(()), |tx, ()| attempt(tx))
    }

    /// Runs `attempt` in a transaction, again until it is done; each time with a new plan, which is
    /// made before the transaction begins.
    pub(crate) fn run_planned<P, T>(
        &self,
        mut plan: impl FnMut() -> Result<P>,
        mut attempt: impl FnMut(&mut Tx<'_, M, H>, &P) -> Result<Attempt<T>>,
    ) -> Result<T> {
        loop {
            let planned = plan()?;
            let mut tx = self.core.begin()?;
            match attempt(&mut tx, &planned) {
                Ok(Attempt::Done(value)) => {
                    self.commit(tx)?;
                    return self.done(value);
                }
                Ok(Attempt::Begun(value)) => {
                    self.commit_and_finish(tx)?;
                    return self.done(value);
                }
                Ok(Attempt::Prepared) => self.commit(tx)?,
                Err(Error::Core(conquest_pm::Error::Again)) => drop(tx),
                Err(error @ Error::Core(conquest_pm::Error::NoSpace { .. })) => {
                    drop(tx);
                    if !self.push_for_room()? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits a change of files, unless none are to be made: it comes after all other reasons
    /// against one, as with system calls.
    pub(crate) fn commit(&self, tx: Tx<'_, M, H>) -> Result<()> {
        self.check_changes()?;
        Ok(tx.commit()?)
    }

    /// The same for one that has staged an intent, which is finished as well.
    pub(crate) fn commit_and_finish(&self, tx: Tx<'_, M, H>) -> Result<()> {
        self.check_changes()?;
        Ok(tx.commit_and_finish()?)
    }

    /// Refuses changes, if none are to be made.
    pub(crate) fn check_changes(&self) -> Result<()> {
        self.core.refusal().map_or(Ok(()), |why| Err(Error::NoChanges(why)))
    }

    /// What an operation gives that has committed what it does.
    pub(crate) fn done<T>(&self, value: T) -> Result<T> {
        if self.is_synchronous {
            self.core.make_durable()?;
        }
        if let Some(after_each) = &self.after_each {
            after_each(&self.core)?;
        }
        Ok(value)
    }
}
