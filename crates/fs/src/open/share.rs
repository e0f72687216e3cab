//! Open file descriptions that several processes share: position, flags and locks (open(2), "Open
//! file descriptions").
//!
//! Each process that has the description has a holding of its own, which keeps the file; all but
//! one of them only name the *home*, the holding of whoever opened the file, whose words are the
//! description. When that one closes it or dies, its holding goes on as a mere description until
//! the last of the others ends. Who has the description is decided under the inode's lock, by
//! looking: nothing is counted, so no death can make a count wrong.
//!
//! On its way from one process to another a description is in a [`Parcel`].

use conquest_access::{Capability, Credentials, Errno};
use conquest_format::inode::flag;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Core, Held, Holding, LASTING, Parcel, Tx};

use crate::file_system::lock_of;
use crate::inode::load;
use crate::open::flags::CHANGEABLE;
use crate::open::keep::present;
use crate::open::{DESCRIPTION, How, OPEN, OPEN_TO_WRITE, OpenFile};
use crate::{FileSystem, Result};

/// Word of the holding of an open file: the number of its home, plus one; 0 if it is the home.
const HOME: u64 = 3;
/// Word of a description: its flags.
const FLAGS: u64 = 4;

/// Flags of an open file that can be changed while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Whether each write is to the end: `O_APPEND`.
    pub append: bool,
    /// Whether reading does not note the time: `O_NOATIME`.
    pub no_access_time: bool,
    /// Whether whole pages of a large file go past the core and the cache: `O_DIRECT`.
    pub direct: bool,
}

impl<M: Memory, H: Host> FileSystem<M, H> {
    /// Adds the description of `open` to `parcel`: the number by which it is known to the one who
    /// receives it.
    ///
    /// # Errors
    /// `EBADF` if this process does not have it open; `ENFILE`; those of the region.
    pub fn pack(&self, parcel: &Parcel<H>, open: &OpenFile) -> Result<u32> {
        let core = self.core();
        let number = open.file.number;
        let mut tx = core.begin()?;
        self.lock(&mut tx, false, [Some(open.file)])?;
        if !self.is_own(open) || !tx.make_lasting(open.holding) {
            return Err(Errno::EBADF.into());
        }
        let words = [0, 0, 0, u64::from(open.home.number()) + 1, core.held(open.home, FLAGS)];
        let kind = open.how.kind() | LASTING;
        let packed = tx.hold_for(parcel, self.lock_of(number), kind, number, &words)?;
        Ok(packed.number())
    }

    /// Opens what is in `parcel`, and ends it: the open files with the numbers by which they were
    /// added. They share their descriptions with whoever has these.
    ///
    /// # Errors
    /// `ENFILE`; those of the region: then nothing of it is open.
    pub fn unpack(&self, parcel: Parcel<H>) -> Result<Vec<(u32, OpenFile)>> {
        let mut inside = Vec::new();
        self.core().look_into(&parcel, |held| {
            if matches!(held.kind, OPEN | OPEN_TO_WRITE) {
                inside.push(held);
            }
        });
        let mut opened: Vec<(u32, OpenFile)> = Vec::new();
        let taken = inside.into_iter().try_for_each(|held| {
            opened.push((held.holding.number(), self.take_out(held)?));
            Ok(())
        });
        let discarded = self.core().discard(parcel);
        match taken.and(discarded.map_err(Into::into)) {
            Ok(()) => Ok(opened),
            Err(error) => {
                for (_, open) in opened {
                    self.close(&open)?;
                }
                Err(error)
            }
        }
    }

    fn take_out(&self, held: Held) -> Result<OpenFile> {
        let core = self.core();
        let number = held.key;
        let home = home_of(core, held.holding);
        let flags = core.held(home, FLAGS);
        let words = [0, 0, 0, u64::from(home.number()) + 1, flags];
        let lock = self.lock_of(number);
        let holding = core.hold(lock, held.kind | LASTING, number, &words)?;
        core.let_go(lock, held.holding)?;
        let found = self.read(number, |view| {
            let file = present(view, number)?;
            Ok((file, load(view, file)?.0.file_type))
        });
        match found {
            Ok((file, file_type)) => {
                let how = How::of_status(flags as u32);
                let life = core.life();
                Ok(OpenFile { file, file_type, how, old_access: None, holding, home, life })
            }
            Err(error) => {
                core.let_go(lock, holding)?;
                Err(error)
            }
        }
    }

    /// The flags of `open` that can be changed, as they are now.
    pub fn status(&self, open: &OpenFile) -> Status {
        let How { open, direct, .. } = How::of_status(self.core().held(open.home, FLAGS) as u32);
        Status { append: open.append, no_access_time: open.no_access_time, direct }
    }

    /// Sets the flags of `open` that can be changed, for all who share its description: as
    /// `F_SETFL`.
    ///
    /// # Errors
    /// `EBADF` if it is open for its name only; `EPERM` if `O_APPEND` of an append-only file would
    /// change, or others than the owner ask for `O_NOATIME`; those of [`FileSystem::stat`].
    pub fn set_status(&self, who: &Credentials<'_>, open: &OpenFile, status: Status) -> Result<()> {
        if open.how.path_only {
            return Err(Errno::EBADF.into());
        }
        let how = How {
            open: conquest_access::Open {
                append: status.append,
                no_access_time: status.no_access_time,
                ..How::default().open
            },
            direct: status.direct,
            ..How::default()
        };
        let wanted = u64::from(how.status() & CHANGEABLE);
        let inode = self.read(open.file.number, |view| Ok(load(view, open.file)?.0))?;
        let may_skip = who.fsuid == inode.owner.uid || who.capabilities.has(Capability::Fowner);
        loop {
            let old = self.core().held(open.home, FLAGS);
            let new = old & !u64::from(CHANGEABLE) | wanted;
            let before = self.status(open);
            let appends_alone = inode.flags & flag::APPEND != 0;
            if appends_alone && before.append != status.append
                || status.no_access_time && !before.no_access_time && !may_skip
            {
                return Err(Errno::EPERM.into());
            }
            if self.core().replace_held(open.home, FLAGS, old, new) {
                return Ok(());
            }
        }
    }
}

/// The home of the description that `holding`, of an open file, has.
fn home_of<M: Memory, H: Host>(core: &Core<M, H>, holding: Holding) -> Holding {
    let home = core.held(holding, HOME).checked_sub(1).and_then(|number| core.holding(number));
    home.unwrap_or(holding)
}

/// Whether `held` is that of a process which has the description `home` of inode `number`.
pub(crate) fn users<M: Memory, H: Host>(
    core: &Core<M, H>,
    number: u64,
    home: Holding,
    held: &Held,
) -> bool {
    held.key == number
        && matches!(held.kind, OPEN | OPEN_TO_WRITE)
        && home_of(core, held.holding) == home
}

/// The description that `held` has or is, of a file that is open.
pub(super) fn description<M: Memory, H: Host>(core: &Core<M, H>, held: &Held) -> Holding {
    if held.kind == DESCRIPTION { held.holding } else { home_of(core, held.holding) }
}

/// Whether a living process has the description `home` of inode `number`, other than by `except`.
/// The transaction holds the inode's lock exclusively.
pub(super) fn is_used<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    number: u64,
    home: Holding,
    except: Holding,
) -> Result<bool> {
    let core = tx.core();
    let mut is_used = false;
    tx.holdings(lock_of(core, number), |held| {
        is_used |= !held.is_dead && held.holding != except && users(core, number, home, &held);
    })?;
    Ok(is_used)
}

/// Ends the description `home`, which nobody has any more, but for the holding `except`: its locks,
/// and the holding in which it is if that has gone on without its process.
pub(super) fn end_description<M: Memory, H: Host>(
    tx: &Tx<'_, M, H>,
    number: u64,
    home: Holding,
    except: Holding,
) -> Result<()> {
    crate::locks::release_all(tx, number, home)?;
    let goes_on = tx.core().look_at(home).is_some_and(|held| {
        held.kind == DESCRIPTION && held.key == number && !held.is_dead && home != except
    });
    if goes_on {
        tx.end_holding(home);
    }
    Ok(())
}
