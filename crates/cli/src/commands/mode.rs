//! Modes as chmod(1) takes them: octal, or symbolic changes of what would be made.

/// Bits of one class, shifted to the class of others.
const CLASS: u32 = 0o7;

/// The mode that `text` makes of `start`, for a directory.
///
/// # Errors
/// Words that say what is wrong.
pub(super) fn apply(text: &str, start: u32) -> Result<u32, String> {
    let wrong = || format!("invalid mode: '{text}'");
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let mode = u32::from_str_radix(text, 8).map_err(|_| wrong())?;
        return if mode <= 0o7777 { Ok(mode) } else { Err(wrong()) };
    }
    text.split(',').try_fold(start, |mode, clause| change(clause, mode).ok_or_else(wrong))
}

/// One change: `u+rwx`, `go=`, `a-w`, `+t`.
fn change(clause: &str, mode: u32) -> Option<u32> {
    let end = clause.find(['+', '-', '='])?;
    let (who, mut rest) = clause.split_at(end);
    let mut classes = 0;
    for letter in who.chars() {
        classes |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    if who.is_empty() {
        classes = 0o7777;
    }
    let mut mode = mode;
    while let Some(operator) = rest.chars().next() {
        let tail = rest.get(1..)?;
        let end = tail.find(['+', '-', '=']).unwrap_or(tail.len());
        let (letters, next) = tail.split_at(end);
        let bits = bits_of(letters, mode)? & classes;
        mode = match operator {
            '+' => mode | bits,
            '-' => mode & !bits,
            '=' => mode & !(classes & 0o777) | bits,
            _ => return None,
        };
        rest = next;
    }
    Some(mode)
}

fn bits_of(letters: &str, mode: u32) -> Option<u32> {
    let all = |class: u32| class << 6 | class << 3 | class;
    letters.chars().try_fold(0, |bits, letter| {
        let more = match letter {
            'r' => all(4),
            'w' => all(2),
            'x' | 'X' => all(1),
            's' => 0o6000,
            't' => 0o1000,
            'u' => all(mode >> 6 & CLASS),
            'g' => all(mode >> 3 & CLASS),
            'o' => all(mode & CLASS),
            _ => return None,
        };
        Some(bits | more)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        for (text, expected) in [
            ("700", 0o700),
            ("1777", 0o1777),
            ("u=rwx,go=", 0o700),
            ("a-w", 0o555),
            ("g+w,o-rx", 0o770),
            ("+t", 0o1755),
            ("g+s", 0o2755),
            ("o=u", 0o757),
            ("u-w+s", 0o4555),
        ] {
            assert_eq!(apply(text, 0o755), Ok(expected), "{text}");
        }
        for bad in ["", "8", "77777", "u", "z+r", "u+q", "u+r,"] {
            assert!(apply(bad, 0o755).is_err(), "{bad}");
        }
    }
}
