//! What somebody may have meant.

/// The one of `known` that `word` is a misspelling of, if there is one.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let most = (word.len() / 3).clamp(1, 3);
    let near = known.map(|name| (distance(word, name), name));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

/// How many letters have to be put in, left out or replaced to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    // Of each beginning of `other` to the beginning of `one` that was looked at so far.
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = above;
        let mut left = above + 1;
        for (cell, found) in row.iter_mut().skip(1).zip(other.chars()) {
            let best = (diagonal + usize::from(found != letter)).min(*cell + 1).min(left + 1);
            diagonal = std::mem::replace(cell, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = above + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, expected) in
            [("", "", 0), ("ro", "", 2), ("", "ro", 2), ("noatme", "noatime", 1), ("abc", "bcd", 2)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn misspelled_words_are_recognised_others_are_not() {
        let known = || ["noatime", "nodiratime", "allow_other", "threads"].into_iter();
        assert_eq!(nearest("noatme", known()), Some("noatime"));
        assert_eq!(nearest("allow-other", known()), Some("allow_other"));
        assert_eq!(nearest("thread", known()), Some("threads"));
        assert_eq!(nearest("compress", known()), None);
    }
}
