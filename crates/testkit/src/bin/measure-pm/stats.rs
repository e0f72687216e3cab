//! What a row of measured values says.

/// A row of measured values, summed up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Summary {
    /// The value in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// Nine tenths of the values lie between these two.
    pub(crate) low: f64,
    /// See `low`.
    pub(crate) high: f64,
    /// How many they are.
    pub(crate) count: usize,
}

/// Sums up `values`; all zeros if there are none.
pub(crate) fn summary(values: &[f64]) -> Summary {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (sorted.len().saturating_sub(1)) as f64;
        let below = sorted.get(place.floor() as usize).copied().unwrap_or(0.0);
        let above = sorted.get(place.ceil() as usize).copied().unwrap_or(0.0);
        below + (above - below) * place.fract()
    };
    Summary { median: at(0.5), min: at(0.0), low: at(0.05), high: at(0.95), count: sorted.len() }
}

/// Mean of `values`, and the interval in which their true mean lies with 90 % confidence, by
/// Student's distribution.
pub(crate) fn mean_interval(values: &[f64]) -> (f64, f64, f64) {
    let count = values.len() as f64;
    if values.len() < 2 {
        return (values.first().copied().unwrap_or(0.0), f64::NEG_INFINITY, f64::INFINITY);
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = student_95(count - 1.0) * (squares / (count - 1.0) / count).sqrt();
    (mean, mean - half, mean + half)
}

/// The 95 % quantile of Student's distribution with `freedom` degrees of freedom, by its expansion
/// around the normal one: exact to 1 % from 3 degrees on.
fn student_95(freedom: f64) -> f64 {
    let z: f64 = 1.644_853_6;
    let first = (z.powi(3) + z) / (4.0 * freedom);
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2));
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z)
        / (384.0 * freedom.powi(3));
    z + first + second + third
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, table) in [(3.0, 2.353), (9.0, 1.833), (29.0, 1.699), (100.0, 1.660)] {
            let found = student_95(freedom);
            assert!((found - table).abs() < 0.01 * table, "{freedom}: {found}");
        }
    }

    #[test]
    fn rows_are_summed_up() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let expected = Summary { median: 50.0, min: 0.0, low: 5.0, high: 95.0, count: 101 };
        assert_eq!(summary(&values), expected);
        assert_eq!(summary(&[1.0, 2.0]).median, 1.5);
        let (mean, low, high) = mean_interval(&values);
        assert!((mean - 50.0).abs() < 1e-9 && low < 46.0 && low > 44.0 && high > 54.0);
    }
}
