//! Which power cuts of a scenario came one after the other, as text that repeats them.

use core::fmt;

use crate::rng::mix;

/// A power cut: the place in the log, and which of the media that it may leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cut {
    /// Events of the log before it.
    pub at: usize,
    /// Which medium.
    pub variant: u32,
}

/// Power cuts of a scenario, each in the run that follows the one before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// Of which scenario.
    pub seed: u64,
    /// The cuts.
    pub cuts: Vec<Cut>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        for (index, cut) in self.cuts.iter().enumerate() {
            let sign = if index == 0 { ':' } else { '/' };
            write!(f, "{sign}{}.{}", cut.at, cut.variant)?;
        }
        Ok(())
    }
}

impl Way {
    /// The way that `text` names; none if it names none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Way> {
        let (seed, rest) = text.split_once(':').unwrap_or((text, ""));
        let cut = |text: &str| {
            let (at, variant) = text.split_once('.')?;
            Some(Cut { at: at.parse().ok()?, variant: variant.parse().ok()? })
        };
        let parts = rest.split('/').filter(|part| !part.is_empty());
        Some(Way { seed: seed.parse().ok()?, cuts: parts.map(cut).collect::<Option<_>>()? })
    }

    pub(crate) fn then(&self, cut: Cut) -> Way {
        let mut cuts = self.cuts.clone();
        cuts.push(cut);
        Way { seed: self.seed, cuts }
    }

    /// What is drawn for this way follows from this.
    pub(crate) fn seed(&self) -> u64 {
        let step = |seed, cut: &Cut| mix(mix(seed ^ cut.at as u64) ^ u64::from(cut.variant));
        self.cuts.iter().fold(mix(self.seed), step)
    }
}
