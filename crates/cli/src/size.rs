//! Numbers of bytes: read from arguments, written for people.

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// `512M`, `4G`, `1048576`: a number, with a binary unit (K, M, G, T, P, E; `iB` may follow).
///
/// # Errors
/// Words that say how sizes are written.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no size: a number, with K, M, G, T, P or E after it or not");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = unit.strip_suffix("iB").unwrap_or(unit);
    let mut letters = unit.chars();
    let power = match (letters.next().map(|c| c.to_ascii_uppercase()), letters.next()) {
        (None, _) => 0,
        (Some(letter), None) => 1 + UNITS.iter().position(|u| *u == letter).ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let factor = 1_u64.checked_shl(10 * power as u32).ok_or_else(wrong)?;
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is more than 2^64 bytes"))
}

/// `bytes` with a unit and two digits at least, rounded up, as `df -h` and `ls -h` have it.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1_u128 << 10;
    let mut letter = 0;
    while u128::from(bytes) > unit * 1023 && letter + 1 < UNITS.len() {
        unit <<= 10;
        letter += 1;
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(unit);
    let suffix = UNITS.get(letter).copied().unwrap_or('E');
    if tenths < 100 {
        format!("{}.{}{suffix}", tenths / 10, tenths % 10)
    } else {
        format!("{}{suffix}", tenths.div_ceil(10))
    }
}

/// `number` with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("4k"), Ok(4096));
        assert_eq!(parse("3GiB"), Ok(3 << 30));
        for bad in ["", "G", "1.5G", "4x", "1GG", "99999999999999999999", "17E", "-1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_written() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            (1023 << 10, "1023K"),
            ((1023 << 10) + 1, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
    }
}
