//! Names of files that are being made: `.conquest-N-P-S-C`.
//!
//! A file gets its name once it is complete; until then it has one that says who makes it: the pid
//! namespace, the process, when that began, and a count, in hexadecimal digits. Who finds such a
//! name can tell whether it was left behind, and remove it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, StatxFlags, statx};

use crate::tree::Meta;

/// How all such names begin.
const PREFIX: &[u8] = b".conquest-";
/// Nanoseconds after which the file of a process that can't be seen counts as left behind.
const PATIENCE: i64 = 24 * 3600 * 1_000_000_000;

static SELF: OnceLock<String> = OnceLock::new();
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The pid namespace's number.
fn namespace() -> u64 {
    let found = statx(rustix::fs::CWD, "/proc/self/ns/pid", AtFlags::empty(), StatxFlags::INO);
    found.map_or(0, |stat| stat.stx_ino)
}

/// When process `pid` began, in ticks since the machine did; none if there is no such process.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field may hold anything, but ends with the last parenthesis.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = core::str::from_utf8(stat.get(end + 1..)?).ok()?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// A name that nobody else uses.
pub(crate) fn new_name() -> Vec<u8> {
    let own = SELF.get_or_init(|| {
        let pid = std::process::id();
        format!("{:x}-{pid:x}-{:x}", namespace(), start_of(pid).unwrap_or(0))
    });
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    [PREFIX, format!("{own}-{count:x}").as_bytes()].concat()
}

/// Whether `name` is one of a file that is being made, or was.
pub(super) fn is_one(name: &[u8]) -> bool {
    parse(name).is_some()
}

fn parse(name: &[u8]) -> Option<[u64; 4]> {
    let text = core::str::from_utf8(name.strip_prefix(PREFIX)?).ok()?;
    let mut numbers = [0; 4];
    let mut parts = text.split('-');
    for number in &mut numbers {
        *number = u64::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Whether the file called `name`, of which `meta` is known at `now`, was left behind.
pub(super) fn is_left_behind(name: &[u8], meta: &Meta, now: i64) -> bool {
    let Some([namespace_of, pid, start, _]) = parse(name) else {
        return false;
    };
    if namespace_of != namespace() {
        return now.saturating_sub(meta.ctime) > PATIENCE;
    }
    let lives = u32::try_from(pid).ok().and_then(start_of).is_some_and(|found| found == start);
    !lives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Host, Tree};

    #[test]
    fn only_names_of_the_dead_are_left_behind() {
        let path = b"/proc/self";
        let meta = Host.meta(&Host.find(path, true).unwrap()).unwrap();
        let left = |name: &[u8]| is_left_behind(name, &meta, meta.ctime);
        let own = new_name();
        assert!(is_one(&own) && !left(&own));
        let numbers = parse(&own).unwrap();
        let name = |[a, b, c, d]: [u64; 4]| format!(".conquest-{a:x}-{b:x}-{c:x}-{d:x}");
        let [space, pid, start, count] = numbers;
        assert!(left(name([space, pid, start + 1, count]).as_bytes()));
        assert!(left(name([space, 1 << 23, start, count]).as_bytes()));
        let other = name([space + 1, pid, start + 1, count]);
        assert!(!left(other.as_bytes()));
        let later = meta.ctime + PATIENCE + 1;
        assert!(is_left_behind(other.as_bytes(), &meta, later));
        for no in [&b".conquest-1-2-3"[..], b".conquest-1-2-3-4-5", b".conquest-x", b"a"] {
            assert!(!is_one(no) && !left(no));
        }
    }
}
