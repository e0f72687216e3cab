//! One case: a volume is corrupted, opened and used all the same, and judged.

use conquest_flash::{Damage, Error, Verifying, Volume};
use conquest_format::volume::Arrangement;
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_testkit::Rng;
use conquest_testkit::flash::Recorder;
use conquest_testkit::flash::slice::Slice;

use crate::base::{Base, Op, Unit, open, read, seen};
use crate::corrupt::{Corruption, corrupt, forge};
use crate::fuzz::{Counts, caught};

/// Volumes to corrupt.
const BASES: u64 = 32;
/// Ranges that are looked at of what is allocated: a forged map may have as many as it likes.
const RANGES: u32 = 10_000;

/// What all cases of a seed share.
pub(crate) struct Bases {
    seed: u64,
    all: Vec<Base>,
}

/// What may be expected of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trust {
    /// Nothing can be wrong: one member of two that are the same was corrupted.
    Full,
    /// What can be read was there at some moment.
    Checksums,
    /// Checksums are right, whatever they are of: nothing but an end.
    None,
}

impl Bases {
    pub(crate) fn new(seed: u64) -> Result<Bases, String> {
        let base = |number: u64| {
            let base = caught(|| Base::new(seed.wrapping_add(number)));
            base.unwrap_or_else(|(_, place)| Err(place))
                .map_err(|error| format!("volume {}: {error}", seed.wrapping_add(number)))
        };
        Ok(Bases { seed, all: (0..BASES).map(base).collect::<Result<_, _>>()? })
    }

    /// Runs case `number`; on failure says why.
    pub(crate) fn run(&self, number: u64, counts: &mut Counts) -> Result<(), String> {
        let mut rng = Rng::stream(self.seed, number);
        let which = rng.below(BASES);
        let base = &self.all[which as usize];
        let mut members = base.members.clone();
        let (trust, what) = if rng.chance(1, 2) {
            (Trust::None, forge(&mut rng, base, &mut members))
        } else {
            let done = corrupt(&mut rng, base, &mut members);
            (trust(base, &done), done.what)
        };
        let explain =
            |why: String| format!("{why}; volume {which}, {trust:?}: {}", what.join(", "));
        let mut case = Case { base, trust, counts, rng };
        caught(|| case.play(&members))
            .unwrap_or_else(|(_, place)| Err(format!("panic: {place}")))
            .map_err(explain)
    }
}

fn trust(base: &Base, done: &Corruption) -> Trust {
    let is_spared = base.arrangement == Arrangement::Mirrored && done.member.is_some();
    if is_spared && done.has_superblocks { Trust::Full } else { Trust::Checksums }
}

struct Case<'a> {
    base: &'a Base,
    trust: Trust,
    counts: &'a mut Counts,
    rng: Rng,
}

impl Case<'_> {
    fn play(&mut self, members: &[conquest_testkit::flash::Medium]) -> Result<(), String> {
        let opened = open(members);
        self.note("open", &opened)?;
        let Ok((volume, recorders)) = opened else {
            return Ok(());
        };
        let found = self.look(&volume)?;
        let now = self.change(&volume, found)?;
        let flushed = volume.flush();
        self.note("flush", &flushed)?;
        drop(volume);
        if flushed.is_err() {
            return Ok(());
        }
        let members: Vec<_> = recorders.iter().map(Recorder::medium).collect();
        let opened = open(&members);
        self.note("open again", &opened)?;
        match opened {
            Ok((volume, _)) => self.compare(&volume, &now),
            Err(error) if self.trust != Trust::None => {
                Err(format!("what was open can't be opened again: {error}"))
            }
            Err(_) => Ok(()),
        }
    }

    /// Asks a volume for all that can be asked: what its units are.
    fn look<M: Memory, H: Host>(
        &mut self,
        volume: &Volume<M, H>,
    ) -> Result<Vec<Option<Unit>>, String> {
        let info = volume.info();
        self.note("info", &info)?;
        let checked = volume.check();
        self.note("check", &checked)?;
        let found = self.read(volume)?;
        self.judge(&found)?;
        let others = checked.map_or_else(
            |error| vec![error.to_string()],
            |found| {
                let is_other = |finding: &&conquest_flash::Finding| {
                    self.trust == Trust::Full || finding.what != "what the map leads to"
                };
                found.iter().filter(is_other).map(ToString::to_string).collect()
            },
        );
        if let Some(first) = others.first().filter(|_| self.trust != Trust::None) {
            return Err(format!("check: {first} (and {} more)", others.len() - 1));
        }
        let mut at = 0;
        for _ in 0..RANGES {
            let allocated = volume.allocated(at);
            self.note("allocated", &allocated)?;
            match allocated {
                Ok(Some((first, count))) if first + (count - 1) < u64::MAX => at = first + count,
                _ => break,
            }
        }
        self.verify(volume)?;
        Ok(found)
    }

    fn verify<M: Memory, H: Host>(&mut self, volume: &Volume<M, H>) -> Result<(), String> {
        let mut structure = None;
        let mut looks = 0;
        let verified = volume.verify(Verifying {
            repair: self.rng.chance(1, 2),
            found: &mut |damage| {
                if let Damage::Structure { what } = damage {
                    structure = Some(what);
                }
            },
            progress: &mut |_, _| {
                looks += 1;
                looks < RANGES
            },
        });
        self.note("verify", &verified)?;
        match structure {
            Some(what) if self.trust != Trust::None => Err(format!("verify: {what}")),
            _ => Ok(()),
        }
    }

    fn read<M: Memory, H: Host>(
        &mut self,
        volume: &Volume<M, H>,
    ) -> Result<Vec<Option<Unit>>, String> {
        let trust = self.trust;
        let mut errors = Vec::new();
        let found = read(volume, self.base.units, |error| {
            let is_fine = matches!(error, Error::Damaged { .. } | Error::Device { .. });
            if trust == Trust::Full || trust == Trust::Checksums && !is_fine {
                return Err(format!("read: {error}"));
            }
            errors.push(Err::<(), _>(error));
            Ok(None)
        });
        errors.iter().try_for_each(|error| self.note("read", error))?;
        match found {
            // What was forged may lead to what never was payload.
            Err(_) if self.trust == Trust::None => Ok(vec![None; self.base.units]),
            found => found,
        }
    }

    /// What can be read is what all of it was at one moment.
    fn judge(&mut self, found: &[Option<Unit>]) -> Result<(), String> {
        if self.trust == Trust::None {
            return Ok(());
        }
        let possible = self.base.possible(found)?;
        let Some(&latest) = possible.last() else {
            return Err(format!("it never was as it is: {}", self.base.nearest(found)));
        };
        let is_missing = found.contains(&None);
        let label = match latest >= self.base.flushed {
            true if is_missing => "state: with all that was flushed, not all of it can be read",
            true => "state: with all that was flushed",
            false => "state: an earlier one",
        };
        *self.counts.entry(label.into()).or_default() += 1;
        if self.trust == Trust::Full && (latest < self.base.flushed || is_missing) {
            return Err(format!("after {latest} steps, {} were flushed", self.base.flushed));
        }
        Ok(())
    }

    /// Changes a volume on which `found` was found: what it should be then.
    fn change<M: Memory, H: Host>(
        &mut self,
        volume: &Volume<M, H>,
        found: Vec<Option<Unit>>,
    ) -> Result<Vec<Option<Unit>>, String> {
        let mut now = found;
        for number in self.base.next..self.base.next + self.rng.below(60) {
            let op = Op::random(&mut self.rng, self.base.units);
            let done = op.perform(volume, number);
            self.note("change", &done)?;
            if self.trust == Trust::Full {
                done.as_ref().map_err(|error| format!("{op:?}: {error}"))?;
            }
            let mut slice = slice(&now);
            let mut changed = Vec::new();
            for step in op.steps(self.base.units) {
                slice.apply(&step, number, &mut |block, _, _| changed.push(block));
            }
            for block in changed {
                let unit = block / slice_unit();
                // Of what failed nothing is known; nor of a unit of which a part was not known.
                now[unit] = done.is_ok().then(|| unit_of(&slice, unit)).flatten();
            }
        }
        Ok(now)
    }

    fn compare<M: Memory, H: Host>(
        &mut self,
        volume: &Volume<M, H>,
        expected: &[Option<Unit>],
    ) -> Result<(), String> {
        let found = self.read(volume)?;
        if self.trust == Trust::None {
            return Ok(());
        }
        let both = found.iter().zip(expected).enumerate();
        for (unit, (found, expected)) in both {
            if let (Some(found), Some(expected)) = (found, expected)
                && found != expected
            {
                return Err(format!("then, unit {unit} is {found:x?} and not {expected:x?}"));
            }
        }
        Ok(())
    }

    /// Counts what an action came to.
    ///
    /// # Errors
    /// An outcome that can't be.
    fn note<T>(&mut self, action: &str, result: &Result<T, Error>) -> Result<(), String> {
        let kind = match result {
            Ok(_) => "success".to_owned(),
            Err(error) => {
                let message = error.to_string();
                let kind = format!("{error:?}");
                let kind = kind.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
                let is_possible = match error {
                    Error::Member { .. } | Error::Unreadable { .. } => action.starts_with("open"),
                    Error::Device { .. } | Error::Damaged { .. } => true,
                    // A root may say of any member that it has failed.
                    Error::Parted { .. } => action.starts_with("open") && self.trust == Trust::None,
                    Error::Region(conquest_pm::Error::Corrupt { .. })
                    | Error::Shape { .. }
                    | Error::TooMany { .. }
                    | Error::TooLarge { .. }
                    | Error::NoSpace { .. } => self.trust == Trust::None,
                    _ => false,
                };
                let is_full = self.trust == Trust::Full;
                if !is_possible || is_full || message.len() < 20 {
                    return Err(format!("{action}: {kind}: {message}"));
                }
                kind
            }
        };
        *self.counts.entry(format!("{action}: {kind}")).or_default() += 1;
        Ok(())
    }
}

const fn slice_unit() -> usize {
    conquest_testkit::flash::values::PER_UNIT
}

/// A value that nothing has: of what is not known.
const UNKNOWN: u64 = u64::MAX;

fn slice(units: &[Option<Unit>]) -> Slice {
    let values = units.iter().flat_map(|unit| unit.unwrap_or([UNKNOWN; slice_unit()]));
    Slice::new(0, values.collect())
}

fn unit_of(slice: &Slice, unit: usize) -> Option<Unit> {
    let values = slice.values.get(unit * slice_unit()..(unit + 1) * slice_unit())?;
    let values: Unit = values.try_into().ok()?;
    (!values.contains(&UNKNOWN)).then(|| seen(values))
}
