//! Damage on purpose: units of a volume on flash memory are looked for on the medium, and all that
//! a member has of them is made wrong, by a bit that turns over, or by pages that can't be read.

use std::collections::HashMap;
use std::ops::AddAssign;

use conquest_flash::device::{Device, Nand};
use conquest_flash::{Damage, Error, Verifying};

use super::erased::Erased;
use super::{PER_UNIT, UNIT, failed};
use crate::calls::{CallError, Outcome};
use crate::random::Random;

/// What was written to the units of a volume, from its first on: of each, how often.
#[derive(Clone, Debug)]
pub struct Written(Vec<u64>);

/// What reading all of it found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadBack {
    /// Units with damage that were read all the same.
    pub corrected: u64,
    /// Units with damage that reading them told of.
    pub detected: u64,
    /// Units without damage that could not be read.
    pub refused: u64,
    /// Bytes that were read and are not what was written.
    pub wrong: u64,
}

impl AddAssign for ReadBack {
    fn add_assign(&mut self, more: ReadBack) {
        self.corrected += more.corrected;
        self.detected += more.detected;
        self.refused += more.refused;
        self.wrong += more.wrong;
    }
}

/// What `unit` holds when it was written for the `time`th time: begins with these two numbers.
fn content(unit: u64, time: u64) -> Vec<u8> {
    let mut bytes = Random::new(unit << 24 ^ time).bytes(UNIT as usize);
    for (place, number) in bytes.chunks_mut(size_of::<u64>()).zip([unit, time]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

impl Written {
    /// Writes `units` units, and `again` of them once more, at random; all of that is flushed.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn to(made: &Erased, units: u64, again: u64, random: &mut Random) -> Outcome<Written> {
        let mut times = vec![0; units as usize];
        for number in 0..units + again {
            let unit = if number < units { number } else { random.below(units) };
            let Some(time) = times.get_mut(unit as usize) else { continue };
            *time += 1;
            let written = made.volume.write(unit * PER_UNIT, &content(unit, *time));
            written.map_err(failed("write to a volume"))?;
        }
        made.volume.flush().map_err(failed("flush a volume"))?;
        Ok(Written(times))
    }

    /// Where `nand` has what units hold: all copies of it, as cleaning leaves some behind.
    ///
    /// # Errors
    /// Those of the device.
    fn places(&self, nand: &Nand) -> Outcome<HashMap<u64, Vec<u64>>> {
        let mut found: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut page = vec![0; UNIT as usize];
        for at in (0..nand.len()).step_by(UNIT as usize) {
            nand.read(at, &mut page).map_err(|source| CallError::of("read a device", source))?;
            let mut numbers = page.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            let (unit, time) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            if self.0.get(unit as usize) == Some(&time) && page == content(unit, time) {
                found.entry(unit).or_default().push(at);
            }
        }
        Ok(found)
    }

    /// Damages `bits` units by turning over a bit of each copy that a member has of it, and `pages`
    /// units by letting the pages die; each on one member, which is another one for each next unit.
    /// Those that were damaged.
    ///
    /// # Errors
    /// Those of the devices; if there are fewer units on a member than are to be damaged.
    pub fn damage(
        &self,
        made: &Erased,
        [bits, pages]: [u64; 2],
        random: &mut Random,
    ) -> Outcome<Vec<u64>> {
        let mut units: Vec<u64> = (0..self.0.len() as u64).collect();
        random.shuffle(&mut units);
        units.truncate((bits + pages) as usize);
        let places: Vec<_> =
            made.nands.iter().map(|nand| self.places(nand)).collect::<Outcome<_>>()?;
        let members = || made.nands.iter().zip(&places);
        for (number, (unit, (nand, places))) in
            (0..bits + pages).zip(units.iter().zip(members().cycle()))
        {
            let of = |source| CallError::of("damage a device", source);
            let copies = places.get(unit).map_or(&[][..], Vec::as_slice);
            if copies.is_empty() {
                return Err(of(std::io::Error::other("it does not have what was written")));
            }
            for at in copies {
                match number < bits {
                    true => nand.flip(at + random.below(UNIT), random.below(8) as u32),
                    false => nand.kill(*at),
                }
                .map_err(of)?;
            }
        }
        Ok(units)
    }

    /// Reads all of it, of which `damaged` are damaged.
    ///
    /// # Errors
    /// Those of the volume that are not about damage.
    pub fn read(&self, made: &Erased, damaged: &[u64]) -> Outcome<ReadBack> {
        let mut all = ReadBack::default();
        let mut found = vec![0; UNIT as usize];
        for (unit, time) in (0..).zip(&self.0) {
            let is_damaged = damaged.contains(&unit);
            match made.volume.read(unit * PER_UNIT, &mut found) {
                Ok(()) => {
                    let right = content(unit, *time);
                    let wrong = found.iter().zip(&right).filter(|(one, other)| one != other);
                    all.wrong += wrong.count() as u64;
                    all.corrected += u64::from(is_damaged && found == right);
                }
                Err(Error::Damaged { .. } | Error::Device { .. }) if is_damaged => {
                    all.detected += 1
                }
                Err(Error::Damaged { .. } | Error::Device { .. }) => all.refused += 1,
                Err(error) => return Err(failed("read a volume")(error)),
            }
        }
        Ok(all)
    }
}

/// Looks at all copies of all that is in use, and writes what is damaged anew, if there is another
/// copy: units of which a copy was damaged, and those of them that were written anew.
///
/// # Errors
/// Those of the volume.
pub fn scrub(made: &Erased) -> Outcome<[u64; 2]> {
    let (mut damaged, mut repaired) = (0, 0);
    let mut found = |damage| {
        if let Damage::Payload { count, is_repaired, .. } = damage {
            damaged += count / PER_UNIT;
            repaired += if is_repaired { count / PER_UNIT } else { 0 };
        }
    };
    let how = Verifying { repair: true, found: &mut found, progress: &mut |_, _| true };
    made.volume.verify(how).map_err(failed("scrub a volume"))?;
    Ok([damaged, repaired])
}

#[cfg(test)]
mod tests {
    use conquest_format::volume::Arrangement;

    use super::*;

    fn damaged(arrangement: Arrangement, count: usize) -> (Erased, ReadBack) {
        let made = Erased::new(arrangement, count, [100, 16], 1).unwrap();
        let mut random = Random::new(1);
        let written = Written::to(&made, 400, 800, &mut random).unwrap();
        let units = written.damage(&made, [20, 10], &mut random).unwrap();
        assert_eq!(units.len(), 30);
        let found = written.read(&made, &units).unwrap();
        (made, found)
    }

    #[test]
    fn damage_is_told_of_or_another_copy_is_read() {
        let (made, found) = damaged(Arrangement::Striped, 1);
        assert_eq!(found, ReadBack { detected: 30, ..ReadBack::default() });
        assert_eq!(scrub(&made).unwrap(), [30, 0]);
        let (made, found) = damaged(Arrangement::Mirrored, 2);
        assert_eq!(found, ReadBack { corrected: 30, ..ReadBack::default() });
        assert_eq!(scrub(&made).unwrap(), [30, 30]);
        assert_eq!(scrub(&made).unwrap(), [0, 0]);
    }
}
