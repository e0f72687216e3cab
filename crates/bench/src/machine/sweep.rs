//! What a load costs, by how much memory is loaded from: the caches as they are, whatever the
//! system says of them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Bytes of a line.
const LINE: u64 = 64;
/// Words of a line.
const WORDS: usize = LINE as usize / size_of::<u32>();
/// Time for one size.
const TIME: Duration = Duration::from_millis(4);
/// A load that costs so many times more than one from half the memory is from further away.
const STEP: f64 = 1.25;

/// A size, and what a load from as much memory costs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Bytes that are loaded from, line by line, in random order.
    pub bytes: u64,
    /// Nanoseconds for a load that waits for the one before.
    pub nanoseconds: f64,
}

/// Measures from 4 KiB to `most` bytes, twice as many each time.
#[must_use]
pub fn sweep(most: u64) -> Vec<Latency> {
    let sizes = std::iter::successors(Some(4096_u64), |bytes| bytes.checked_mul(2));
    sizes
        .take_while(|bytes| *bytes <= most)
        .map(|bytes| Latency { bytes, nanoseconds: latency(bytes) })
        .collect()
}

/// Nanoseconds for a load.
fn latency(bytes: u64) -> f64 {
    let lines = (bytes / LINE) as usize;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    Random::new(bytes).shuffle(&mut order);
    // Each line's first word says which line is next: one circle through all of them.
    let mut next = vec![0_u32; lines * WORDS];
    for (at, line) in order.iter().enumerate() {
        let following = order.get((at + 1) % lines).copied().unwrap_or(0);
        if let Some(word) = next.get_mut(*line as usize * WORDS) {
            *word = following * WORDS as u32;
        }
    }
    // Once around for warming up, then for as long as it takes; the least of some tries, because
    // nothing makes a load faster than it is.
    let (mut place, mut best) = (follow(&next, 0, lines), f64::INFINITY);
    let steps = lines.clamp(1 << 12, 1 << 17);
    let begin = Instant::now();
    while begin.elapsed() < TIME {
        let start = Instant::now();
        place = follow(&next, place, steps);
        best = best.min(start.elapsed().as_nanos() as f64 / steps as f64);
    }
    black_box(place);
    best
}

/// Where one is after `steps` loads.
fn follow(next: &[u32], from: u32, steps: usize) -> u32 {
    (0..steps).fold(from, |place, _| next.get(place as usize).copied().unwrap_or(0))
}

/// Sizes, in bytes, above which loads cost more: what the caches hold, as far as it shows.
#[must_use]
pub fn steps(latencies: &[Latency]) -> Vec<u64> {
    let mut steps = Vec::new();
    let mut is_rising = false;
    for pair in latencies.windows(2) {
        if let [before, after] = pair {
            let rises = after.nanoseconds > before.nanoseconds * STEP;
            if rises && !is_rising {
                steps.push(before.bytes);
            }
            is_rising = rises;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_where_loads_begin_to_cost_more() {
        let at =
            |(kibibytes, nanoseconds): (u64, f64)| Latency { bytes: kibibytes << 10, nanoseconds };
        let measured: Vec<Latency> =
            [(16, 1.0), (32, 1.0), (64, 2.5), (128, 3.2), (256, 3.2), (512, 3.3), (1024, 9.0)]
                .map(at)
                .to_vec();
        assert_eq!(steps(&measured), [32 << 10, 512 << 10]);
        assert_eq!(steps(&[]), Vec::<u64>::new());
    }

    #[test]
    fn loads_from_afar_cost_more() {
        let measured = sweep(256 << 20);
        let (near, far) = (measured.first().unwrap(), measured.last().unwrap());
        assert_eq!((near.bytes, far.bytes), (4096, 256 << 20));
        // 1 ns and 100 ns on most machines.
        assert!(far.nanoseconds > 3.0 * near.nanoseconds, "{measured:?}");
    }
}
