//! A device in memory that keeps little of what it need not keep, and whose power can be cut.
//!
//! Payload of experiments is one word again and again: of such a unit the word is kept, of all
//! others all bytes. So a volume of many gigabytes fits into some hundred megabytes.

use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use conquest_flash::device::{Device, Limits};

use super::UNIT;
use crate::random::Random;

/// What a unit holds.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Held {
    /// This word, again and again.
    Word(u64),
    /// These bytes.
    Bytes(Box<[u8]>),
}

/// When the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Never.
    Never,
    /// Before the write that follows so many others.
    After(u64),
    /// Before the next write that ends in the first so many bytes.
    Within(u64),
}

#[derive(Debug)]
struct State {
    /// Of each unit.
    words: Vec<u64>,
    /// Units that are no word.
    others: Others,
    /// What units held before they were written, since the last flush, in order.
    before: Vec<(u64, Held)>,
    cut: Cut,
    is_off: bool,
}

/// Units of which all bytes are kept. Those that were written together are together in memory, and
/// are found by one look, so that reading them takes little more than copying them.
#[derive(Debug)]
struct Others {
    /// Of each unit of the device which one it is here, plus 1; 0 if it is not here.
    places: Vec<u32>,
    /// So many units each.
    chunks: Vec<Box<[u8]>>,
    /// Places that are free, of which the last one is used next.
    free: Vec<u32>,
}

/// Units of a chunk.
const CHUNK: usize = 256;

impl Others {
    fn of(units: usize) -> Others {
        Others { places: vec![0; units], chunks: Vec::new(), free: Vec::new() }
    }

    fn place(&self, unit: u64) -> Option<usize> {
        self.places.get(unit as usize)?.checked_sub(1).map(|place| place as usize)
    }

    fn get(&self, unit: u64) -> Option<&[u8]> {
        let place = self.place(unit)?;
        self.chunks.get(place / CHUNK)?.chunks(UNIT as usize).nth(place % CHUNK)
    }

    /// Keeps `bytes`, or nothing, for `unit`: what was kept before.
    fn put(&mut self, unit: u64, bytes: Option<&[u8]>) -> Option<Box<[u8]>> {
        let before = self.get(unit).map(Box::from);
        if let Some(place) = self.place(unit) {
            self.free.push(place as u32);
            self.note(unit, 0);
        }
        if let Some(bytes) = bytes {
            let place = self.free_place();
            let chunk = self.chunks.get_mut(place as usize / CHUNK);
            let kept =
                chunk.and_then(|chunk| chunk.chunks_mut(UNIT as usize).nth(place as usize % CHUNK));
            if let Some(kept) = kept {
                kept.copy_from_slice(bytes);
                self.note(unit, place + 1);
            }
        }
        before
    }

    fn note(&mut self, unit: u64, place: u32) {
        if let Some(noted) = self.places.get_mut(unit as usize) {
            *noted = place;
        }
    }

    fn free_place(&mut self) -> u32 {
        if let Some(place) = self.free.pop() {
            return place;
        }
        let first = (self.chunks.len() * CHUNK) as u32;
        self.chunks.push(vec![0; CHUNK * UNIT as usize].into());
        self.free.extend((first + 1..first + CHUNK as u32).rev());
        first
    }
}

/// The device.
#[derive(Debug)]
pub struct Thin {
    len: u64,
    /// Several can read at once.
    state: RwLock<State>,
}

impl Thin {
    /// With so many zeros; a last part of a unit is left out.
    #[must_use]
    pub fn new(len: u64) -> Thin {
        let state = State {
            words: vec![0; (len / UNIT) as usize],
            others: Others::of((len / UNIT) as usize),
            before: Vec::new(),
            cut: Cut::Never,
            is_off: false,
        };
        Thin { len: len / UNIT * UNIT, state: RwLock::new(state) }
    }

    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says when the power is to go.
    pub fn set_cut(&self, cut: Cut) {
        self.state_mut().cut = cut;
    }

    /// Whether it has gone: nothing can be written since.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// The power comes back. Of what was written since the last flush each unit is lost with the
    /// chance `lost`.
    pub fn restore(&self, lost: f64, random: &mut Random) {
        let mut state = self.state_mut();
        while let Some((unit, held)) = state.before.pop() {
            if random.share() < lost {
                state.put(unit, held);
            }
        }
        state.is_off = false;
        state.cut = Cut::Never;
    }

    /// The units of `count` bytes from `at` on.
    fn units(&self, at: u64, count: usize) -> io::Result<std::ops::Range<u64>> {
        let count = count as u64;
        let is_whole = (at | count).is_multiple_of(UNIT);
        let is_inside = at.checked_add(count).is_some_and(|end| end <= self.len);
        match is_whole && is_inside {
            true => Ok(at / UNIT..(at + count) / UNIT),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// `bytes` as what is kept of them.
fn held(bytes: &[u8]) -> Held {
    let words = bytes.as_chunks().0;
    let first = words.first().copied().unwrap_or_default();
    match words.iter().all(|word| *word == first) {
        true => Held::Word(u64::from_le_bytes(first)),
        false => Held::Bytes(bytes.into()),
    }
}

impl State {
    /// Puts `held` into `unit`: what it held before.
    fn put(&mut self, unit: u64, held: Held) -> Held {
        let other = match held {
            Held::Word(_) => self.others.put(unit, None),
            Held::Bytes(ref bytes) => self.others.put(unit, Some(bytes)),
        };
        let Some(place) = self.words.get_mut(unit as usize) else {
            return held;
        };
        let before = other.map_or(Held::Word(*place), Held::Bytes);
        if let Held::Word(word) = held {
            *place = word;
        }
        before
    }

    /// Fails once the power has gone, or goes before a write that ends at `end`.
    fn pass(&mut self, end: Option<u64>) -> io::Result<()> {
        if let Some(end) = end {
            match &mut self.cut {
                Cut::After(0) => self.is_off = true,
                Cut::Within(first) if end <= *first => self.is_off = true,
                Cut::After(left) => *left -= 1,
                Cut::Never | Cut::Within(_) => {}
            }
        }
        if self.is_off { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }
}

impl Device for Thin {
    fn name(&self) -> &Path {
        Path::new("a thin device")
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn limits(&self) -> Limits {
        Limits { is_cached: true, ..Limits::of_blocks(UNIT as u32) }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let units = self.units(at, into.len())?;
        let state = self.state();
        for (unit, into) in units.zip(into.chunks_mut(UNIT as usize)) {
            match state.others.get(unit) {
                Some(bytes) => into.copy_from_slice(bytes),
                None => {
                    let word = state.words.get(unit as usize).copied().unwrap_or(0);
                    into.as_chunks_mut().0.fill(word.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let units = self.units(at, bytes.len())?;
        let mut state = self.state_mut();
        state.pass(Some(at + bytes.len() as u64))?;
        for (unit, bytes) in units.zip(bytes.chunks(UNIT as usize)) {
            let before = state.put(unit, held(bytes));
            state.before.push((unit, before));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state_mut();
        state.pass(None)?;
        state.before.clear();
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    /// Nobody else has it.
    fn enter(&self, _: u64) -> io::Result<bool> {
        Ok(true)
    }

    fn leave(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_entered(&self, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u64) -> Vec<u8> {
        Random::new(seed).bytes(UNIT as usize)
    }

    fn read(thin: &Thin, unit: u64) -> Vec<u8> {
        let mut found = vec![1; UNIT as usize];
        thin.read(unit * UNIT, &mut found).unwrap();
        found
    }

    #[test]
    fn units_are_what_was_written() {
        let thin = Thin::new(10 * UNIT + 7);
        assert_eq!(thin.len(), 10 * UNIT);
        let mut two = [7; UNIT as usize].to_vec();
        two.extend(bytes(1));
        thin.write(3 * UNIT, &two).unwrap();
        assert_eq!(read(&thin, 3), two[..UNIT as usize]);
        assert_eq!((read(&thin, 4), read(&thin, 5)), (bytes(1), vec![0; UNIT as usize]));
        assert_eq!(thin.state().others.free.len(), CHUNK - 1);
        thin.write(4 * UNIT, &two[..UNIT as usize]).unwrap();
        assert_eq!(read(&thin, 4), two[..UNIT as usize]);
        assert!(thin.write(10 * UNIT, &two).is_err() && thin.write(5, &two).is_err());
    }

    #[test]
    fn power_cuts_lose_what_was_not_flushed() {
        let thin = Thin::new(10 * UNIT);
        let mut random = Random::new(1);
        thin.write(0, &bytes(1)).unwrap();
        thin.flush().unwrap();
        thin.set_cut(Cut::After(2));
        thin.write(0, &bytes(2)).unwrap();
        thin.write(UNIT, &bytes(3)).unwrap();
        assert!(!thin.is_off());
        assert!(thin.write(UNIT, &bytes(4)).is_err() && thin.is_off());
        assert!(thin.flush().is_err());
        thin.restore(1.0, &mut random);
        assert_eq!((read(&thin, 0), read(&thin, 1)), (bytes(1), vec![0; UNIT as usize]));
        thin.set_cut(Cut::Within(2 * UNIT));
        thin.write(2 * UNIT, &bytes(5)).unwrap();
        assert!(thin.write(UNIT, &bytes(5)).is_err());
        thin.restore(0.0, &mut random);
        assert_eq!((read(&thin, 2), read(&thin, 1)), (bytes(5), vec![0; UNIT as usize]));
    }
}
