//! The mark of a volume that has the large files of a core whose records are durable at once, on
//! persistent memory or on a battery. (A logged core's volume has its image instead.)
//!
//! Core and volume each have it. Who opens the volume first in an attach generation of the core
//! gives both another one: the core says which one that is going to be; the volume gets it; the
//! core says that it has it. So both have the same, unless he dies in between, and then the volume
//! has one of the two that the core names. A copy of either that is older has another one.

use std::path::Path;
use std::time::Duration;

use conquest_format::image::ImageDefect;
use conquest_format::mark::{MARK, MARK_BYTES, Mark};
use conquest_fs::large::{Marks, marks, set_marks};
use conquest_pm::Region;

use super::lock::StoreLock;
use super::region;
use super::volume::Volume;
use crate::error::failed;
use crate::{Error, Id, Result, id};

/// How long to wait for others who do something with the store: less than these wait for a keeper
/// to leave, which may be the one that waits here.
const PATIENCE: Duration = Duration::from_secs(2);

/// A mark that no other core or volume has: of attach generation `generation`.
fn random(directory: &Path, generation: u64) -> Result<u64> {
    let bytes = id::random().map_err(failed(directory, "ask for random numbers"))?;
    let low = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Ok(generation << 32 | u64::from(low))
}

/// Gives `volume` the mark `mark`: durable when this returns.
pub(crate) fn write(volume: &Volume, mark: &Mark) -> Result<()> {
    volume.write(MARK, &mark.to_bytes())?;
    Ok(volume.flush()?)
}

/// A mark for a volume that is made, or restored.
pub(crate) fn first(directory: &Path) -> Result<u64> {
    random(directory, 0)
}

/// Refuses `volume` unless it is that of the region `region`, as of when that was used last; the
/// mark that it has.
pub(crate) fn check(directory: &Path, volume: &Volume, region: Id, known: Marks) -> Result<Mark> {
    let unfit =
        |why| Error::VolumeUnfit { directory: directory.to_owned(), device: volume.name(), why };
    let mut bytes = [0; MARK_BYTES];
    volume.read(MARK, &mut bytes)?;
    let found = Mark::from_bytes(&bytes).map_err(|defect| match defect {
        ImageDefect::Magic => unfit("it has not been the volume of a core"),
        ImageDefect::Version(_) => unfit("its mark is of another version of this program"),
        _ => unfit("its mark is damaged"),
    })?;
    if found.region != region.0 {
        return Err(unfit("it is the volume of another core"));
    }
    let generation = |number: u64| number >> 32;
    match found.number {
        number if number == known.seen || number == known.next => Ok(found),
        number if generation(number) < generation(known.seen) => Err(unfit(
            "it is an older copy than the core needs (put the one that was used last in its place)",
        )),
        _ => Err(unfit(
            "it was used with a later state of the core, or with a copy of it (restore a saved \
             copy, or put back the core that was used last)",
        )),
    }
}

/// Refuses `volume` unless it is that of `core`; if nobody has opened it in this attach generation,
/// both get another mark.
pub(crate) fn agree(directory: &Path, volume: &Volume, core: &Region) -> Result<()> {
    let superblock = region::superblock(core)?;
    let (region, generation) = (Id(superblock.uuid), superblock.attach_generation);
    let is_current = |number: u64| number >> 32 == generation & u64::from(u32::MAX);
    let known = marks(core)?;
    let found = check(directory, volume, region, known)?;
    if is_current(known.seen) && found.number == known.seen {
        return Ok(());
    }
    // One at a time. Who comes next finds it done.
    let _lock = StoreLock::take(directory, "opening its volume", PATIENCE)?;
    let found = check(directory, volume, region, marks(core)?)?;
    let seen = found.number;
    if is_current(seen) && seen == marks(core)?.seen {
        return Ok(());
    }
    let next = random(directory, generation)?;
    set_marks(core, Marks { seen, next })?;
    write(volume, &Mark { number: next, ..found })?;
    Ok(set_marks(core, Marks { seen: next, next })?)
}
