//! All that is seen of a tree.

use std::collections::{BTreeMap, BTreeSet};

/// What is seen of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub number: u64,
    /// Mode, links, user, group, device, and size if it is no directory.
    pub stat: [u64; 6],
    /// Of access, modification and change, in nanoseconds.
    pub times: [i64; 3],
    /// A symbolic link's.
    pub target: Vec<u8>,
}

/// Files by their paths.
pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// How two trees differ, but for times and numbers; which names are of one file has to be the same.
pub fn differences([ours, kernel]: &[Tree; 2]) -> String {
    let mut text = String::new();
    let paths: BTreeSet<_> = ours.keys().chain(kernel.keys()).collect();
    let mut numbers = BTreeMap::new();
    for path in paths {
        let [left, right] = [ours.get(path), kernel.get(path)];
        let same = match (left, right) {
            (Some(left), Some(right)) => {
                let is_same_file =
                    *numbers.entry(left.number).or_insert(right.number) == right.number;
                is_same_file && left.stat == right.stat && left.target == right.target
            }
            _ => false,
        };
        if !same {
            let path = String::from_utf8_lossy(path);
            text += &format!("  {path}\n    ours   {left:?}\n    kernel {right:?}\n");
        }
    }
    text
}

/// Files of which times of modification or change are others than before.
pub fn touched(before: &Tree, after: &Tree) -> BTreeSet<(Vec<u8>, &'static str)> {
    let old: BTreeMap<u64, &Seen> = before.values().map(|seen| (seen.number, seen)).collect();
    let mut touched = BTreeSet::new();
    for (path, seen) in after {
        let Some(old) = old.get(&seen.number) else {
            continue;
        };
        for (index, what) in [(1, "modification"), (2, "change")] {
            if old.times[index] != seen.times[index] {
                touched.insert((path.clone(), what));
            }
        }
    }
    touched
}
