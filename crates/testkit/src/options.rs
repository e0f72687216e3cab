//! How much to explore.

/// The bounds of an exploration. Within them everything follows from the seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides samples and garbage.
    pub seed: u64,
    /// Images to build at most, not counting those of crashes during recovery.
    pub states: usize,
    /// Crashes after fewer events of the recording are left out.
    pub first: usize,
    /// Explore power failures; ignored for recordings on memory that needs no write-back.
    pub power: bool,
    /// Explore the death of all processes after every store.
    pub death: bool,
    /// A crash point with up to so many images is explored exhaustively: 2^12 for 12 words of two
    /// values each.
    pub exhaustive: usize,
    /// At larger crash points: pairs of words are tried if there are up to so many words.
    pub pair_words: usize,
    /// At larger crash points: random images.
    pub samples: usize,
    /// Crashes during recovery, in a row.
    pub depth: usize,
    /// Images of crashes during recovery, in all: if there are more recoveries than that allows,
    /// crashes are put into a part of them, chosen by the seed.
    pub inner_states: usize,
    /// Images of crashes during one recovery at most; a quarter of it for each recovery from one of
    /// these, and so on.
    pub inner_each: usize,
    /// Threads that check.
    pub threads: usize,
    /// Loads and stores after which one check has failed: it hangs.
    pub steps: u64,
    /// Failures that the summary describes; all are counted.
    pub described: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            states: 200_000,
            first: 0,
            power: true,
            death: true,
            exhaustive: 1 << 12,
            pair_words: 24,
            samples: 64,
            depth: 1,
            inner_states: 200_000,
            inner_each: 32,
            threads: 2,
            steps: 50_000_000,
            described: 10,
        }
    }
}
