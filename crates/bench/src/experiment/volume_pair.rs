//! What was taken by a pair of phases, of which one is a volume's and the other one the device's.

use super::{Pair, Run};
use crate::stopwatch::{Batch, Pieces};
use crate::volume::slices::Taken;

/// The two phases of `pair`, each of which took what `both` says, with so many bytes or requests
/// for each unit. If the target is to be slower, as a test of the method, the volume is.
pub(super) fn batches(
    run: &Run<'_>,
    pair: &Pair,
    both: &[Taken; 2],
    bytes: u64,
) -> [(&'static str, Vec<Batch>); 2] {
    let ([phase, beside], [ours, other]) = (pair.phases, both);
    [(phase, ours.batches(bytes, run.pieces())), (beside, other.batches(bytes, Pieces::new(0.0)))]
}
