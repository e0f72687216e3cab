//! Where a phase has become steady.

/// At most this share of a phase counts as its warm-up, one in so many: a phase that is slower at
/// the beginning throughout is no warm-up but what the target does.
const PART: usize = 4;

/// How many of `values`, which were found one after the other, are from before it was steady: those
/// without which the mean of the others is known best (White's rule, MSER).
#[must_use]
pub fn steady_from(values: &[f64]) -> usize {
    let mut best = (f64::INFINITY, 0);
    // From the end, so that each look costs one addition.
    let (mut sum, mut squares) = (0.0, 0.0);
    for (behind, (at, value)) in values.iter().enumerate().rev().enumerate() {
        let count = (behind + 1) as f64;
        sum += value;
        squares += value * value;
        if at > values.len() / PART || count < 2.0 {
            continue;
        }
        let error = (squares - sum * sum / count).max(0.0) / (count * count);
        // Of equals the earliest: nothing is dropped without a reason.
        if error <= best.0 {
            best = (error, at);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_beginnings_are_found() {
        let mut values = vec![1.0; 40];
        assert_eq!(steady_from(&values), 0);
        values[0] = 9.0;
        values[1] = 4.0;
        values[2] = 2.0;
        assert_eq!(steady_from(&values), 3);
        // Not so much that nothing would be left.
        let fall: Vec<f64> = (0..40).map(|at| f64::from(40 - at)).collect();
        assert!(steady_from(&fall) <= 10);
        assert_eq!(steady_from(&[]), 0);
        assert_eq!(steady_from(&[5.0]), 0);
    }
}
