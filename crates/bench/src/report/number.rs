//! Numbers that people read.

use crate::experiment::Unit;

/// `rate`, or an amount, with three digits that count: `139 k`, `7.40 GB`, `20.5 us`.
pub(super) fn rate(rate: f64, unit: Unit) -> String {
    let of = match unit {
        Unit::Seconds => return seconds(rate),
        Unit::Each => return three(rate),
        Unit::Bytes => "B",
        Unit::Files | Unit::Transactions | Unit::Attachments | Unit::Requests => "",
    };
    let (scaled, prefix) = [(1e9, "G"), (1e6, "M"), (1e3, "k")]
        .into_iter()
        .find(|(scale, _)| rate >= *scale)
        .map_or((rate, ""), |(scale, prefix)| (rate / scale, prefix));
    let digits = three(scaled);
    if prefix.is_empty() && of.is_empty() { digits } else { format!("{digits} {prefix}{of}") }
}

/// `time` in the unit that suits it.
fn seconds(time: f64) -> String {
    let (scale, unit) = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")]
        .into_iter()
        .find(|(scale, _)| time.abs() >= *scale)
        .unwrap_or((1e-9, "ns"));
    format!("{} {unit}", three(time / scale))
}

/// `value` with three digits that count.
pub(super) fn three(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if value < 0.0 => format!("-{}", three(-value)),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value if value >= 0.0995 || value == 0.0 => format!("{value:.2}"),
        value if value >= 0.000_995 => format!("{value:.4}"),
        value => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        assert_eq!(rate(139_231.0, Unit::Files), "139 k");
        assert_eq!(rate(7.4e9, Unit::Bytes), "7.40 GB");
        assert_eq!(rate(12.0, Unit::Files), "12.0");
        assert_eq!(rate(12.0, Unit::Bytes), "12.0 B");
        assert_eq!(rate(0.000_020_5, Unit::Seconds), "20.5 us");
        assert_eq!(rate(-0.000_000_9, Unit::Seconds), "-900 ns");
        assert_eq!(
            (rate(1.25, Unit::Seconds), rate(2.69, Unit::Each)),
            ("1.25 s".into(), "2.69".into())
        );
        assert_eq!(three(1.0), "1.00");
        assert_eq!(three(99.96), "100");
        assert_eq!(
            (three(0.0), three(0.0123), three(0.000_001_2)),
            ("0.00".into(), "0.0123".into(), "1e-6".into())
        );
        assert_eq!(three(f64::NAN), "-");
    }
}
