//! Replay strings: `seed=0x1/power:cut=17,mask=0x3,junk=zeros/death:cut=5`.
//!
//! A crash after a slash happened during the recovery from the one before. The mask has, from its
//! low end and in the order of the words in flight, as many bits per word as its number of possible
//! values needs: with two values each, bit n says whether the n-th word has the new one.

use crate::inflight::Candidates;
use crate::plan::State;
use crate::{Failure, Junk};

/// A crash as written in a replay string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) failure: Failure,
    pub(crate) cut: usize,
    /// Bits from the low end.
    mask: Vec<bool>,
    pub(crate) junk: Junk,
}

fn bits(word: &Candidates) -> u32 {
    usize::BITS - (word.values.len() - 1).leading_zeros()
}

impl Step {
    pub(crate) fn new(state: &State, words: &[Candidates]) -> Self {
        let mut mask = Vec::new();
        for (word, &value) in words.iter().zip(&state.choice) {
            mask.extend((0..bits(word)).map(|bit| value >> bit & 1 == 1));
        }
        Step { failure: state.failure, cut: state.cut, mask, junk: state.junk }
    }

    /// The state, given what is in flight at its cut.
    pub(crate) fn state(&self, words: &[Candidates]) -> Result<State, String> {
        let mut bit = self.mask.iter().copied().chain(std::iter::repeat(false));
        let mut choice = Vec::new();
        if self.failure == Failure::Power {
            for word in words {
                let mut value = 0;
                for place in 0..bits(word) {
                    value |= u16::from(bit.next() == Some(true)) << place;
                }
                if usize::from(value) >= word.values.len() {
                    return Err(format!("word {} has no value {value}", word.word));
                }
                choice.push(value);
            }
        }
        let (failure, cut, junk) = (self.failure, self.cut, self.junk);
        Ok(State { failure, cut, choice: choice.into_boxed_slice(), junk })
    }

    fn write(&self, out: &mut String) {
        if self.failure == Failure::Death {
            out.push_str(&format!("/death:cut={}", self.cut));
            return;
        }
        let digit = |four: &[bool]| {
            let value = four.iter().rev().fold(0, |value, &bit| value * 2 + u32::from(bit));
            char::from_digit(value, 16).unwrap_or('0')
        };
        let digits: String = self.mask.chunks(4).rev().map(digit).collect();
        let digits = match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        out.push_str(&format!("/power:cut={},mask=0x{digits},junk={}", self.cut, self.junk));
    }

    fn parse(text: &str) -> Option<Step> {
        let (failure, fields) = text.split_once(':')?;
        let failure = match failure {
            "power" => Failure::Power,
            "death" => Failure::Death,
            _ => return None,
        };
        let mut step = Step { failure, cut: 0, mask: Vec::new(), junk: Junk::Held };
        for field in fields.split(',') {
            match field.split_once('=')? {
                ("cut", value) => step.cut = value.parse().ok()?,
                ("mask", value) => {
                    for digit in value.strip_prefix("0x")?.chars().rev() {
                        let digit = digit.to_digit(16)?;
                        step.mask.extend((0..4).map(|bit| digit >> bit & 1 == 1));
                    }
                }
                ("junk", value) => {
                    step.junk = Junk::ALL.into_iter().find(|junk| junk.to_string() == value)?;
                }
                _ => return None,
            }
        }
        Some(step)
    }
}

/// Writes a replay string.
pub(crate) fn format(seed: u64, steps: &[Step]) -> String {
    let mut out = format!("seed={seed:#x}");
    steps.iter().for_each(|step| step.write(&mut out));
    out
}

/// Reads a replay string; none if it isn't one.
pub(crate) fn parse(text: &str) -> Option<(u64, Vec<Step>)> {
    let mut parts = text.trim().split('/');
    let seed = parts.next()?.strip_prefix("seed=0x")?;
    let seed = u64::from_str_radix(seed, 16).ok()?;
    let steps = parts.map(Step::parse).collect::<Option<Vec<_>>>()?;
    (!steps.is_empty()).then_some((seed, steps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_states_go_to_and_fro() {
        let word =
            |word, count| Candidates { word, base: 0, values: (0..count).collect(), latest: 1 };
        let words = [word(1, 2), word(2, 5), word(3, 2), word(9, 3)];
        let choice: Box<[u16]> = Box::new([1, 4, 0, 2]);
        let state = State { failure: Failure::Power, cut: 17, choice, junk: Junk::Zeros };
        let death =
            State { failure: Failure::Death, cut: 5, choice: Box::default(), junk: Junk::Held };
        let steps = [Step::new(&state, &words), Step::new(&death, &[])];
        let text = format(0xAB, &steps);
        // 1, then 4 in three bits, 0, then 2 in two bits: 10 0 100 1.
        assert_eq!(text, "seed=0xab/power:cut=17,mask=0x49,junk=zeros/death:cut=5");
        let (seed, read) = parse(&text).unwrap();
        assert_eq!((seed, read.len()), (0xAB, 2));
        assert_eq!(read[0].state(&words), Ok(state));
        assert_eq!(read[1].state(&words), Ok(death));
        for bad in ["", "seed=0x1", "seed=1/death:cut=1", "seed=0x1/fire:cut=1", "seed=0x1/death:x"]
        {
            assert_eq!(parse(bad), None);
        }
        let too_big = parse("seed=0x1/power:cut=0,mask=0xff").unwrap().1;
        assert!(too_big[0].state(&words).is_err());
    }
}
