//! What samples say.
//!
//! No distribution is assumed: times on a shared machine have long tails, and a mean with a
//! standard deviation says of them what is not so. Intervals are of order statistics, and hold with
//! at least 90 % confidence, however few samples there are: what five can't say is not said.

mod interval;
mod verdict;
mod warm_up;

pub use interval::{Interval, SAMPLES_MIN, median, of_median, of_ratio, of_unpaired_ratio};
pub use verdict::{MARGIN, Verdict};
pub use warm_up::steady_from;
