//! What the tests of regions in real processes share: scenarios, each in a process of its own (this
//! program again, told by a variable which scenario it is; one that hangs is killed), a small
//! region, and what processes do with it.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::mem::ManuallyDrop;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conquest_format::geometry::{STATE_ROOTS, Shape};
use conquest_format::kind::{KINDS, KindSpec, KindTable};
use conquest_format::{Offset, WORD};
use conquest_pm::attach::NewRegion;
use conquest_pm::check::Reachable;
use conquest_pm::media::Source;
use conquest_pm::{Access, Holder, Mode, Options, Region, Result};

use crate::media_support::{LIMIT, Temporary};

/// A dead owner is promised to be found within 100 ms; a loaded machine gets more.
pub const FOUND: Duration = Duration::from_millis(500);
pub const SCENARIO: &str = "CONQUEST_SCENARIO";

/// Runs `body` in a process of its own: this test, started again.
pub fn alone(name: &str, body: impl FnOnce()) {
    if std::env::var(SCENARIO).as_deref() == Ok(name) {
        // SAFETY: sets a timer of this process, which ends it if the scenario hangs.
        unsafe { libc::alarm(2 * LIMIT.as_secs() as u32) };
        return body();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(SCENARIO, name);
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    for at in said.lines().filter_map(|line| line.find("measured:").map(|at| &line[at..])) {
        println!("{at}");
    }
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
}

pub fn kinds() -> KindTable {
    let mut kinds = [KindSpec::UNUSED; KINDS];
    kinds[1] = KindSpec::object(200).unwrap();
    kinds
}

pub fn region(lanes: u32) -> Temporary {
    region_of(lanes, 8)
}

pub fn region_of(lanes: u32, slots: u32) -> Temporary {
    region_with(Shape { max_groups: 2, lanes, slots, locks: 64, chunks: 4, log: 0 })
}

pub fn region_with(shape: Shape) -> Temporary {
    let file = Temporary::shm();
    let new = NewRegion { shape, kinds: kinds(), uuid: [5; 16], created: 5, groups: 1 };
    Region::create(Source::from(file.0.as_path()), 0o600, &new).unwrap();
    file
}

pub fn open_with(path: &Path, on_slow: Option<Box<dyn Fn(Holder) + Send + Sync>>) -> Arc<Region> {
    let options = Options { on_slow, ..Options::default() };
    Region::open(Source::from(path), &kinds(), Access::default(), options).unwrap()
}

pub fn open(path: &Path) -> Arc<Region> {
    open_with(path, None)
}

pub fn root(number: u32) -> Offset {
    STATE_ROOTS.plus(u64::from(number) * WORD)
}

/// Steps the root that lock `number` guards.
pub fn step(core: &Region, number: u32) -> Result<()> {
    core.run(|tx| {
        tx.lock(number, Mode::Exclusive)?;
        let value = tx.get(root(number));
        tx.set(root(number), value + 1)
    })
}

pub fn root_of(core: &Region, number: u32) -> u64 {
    use conquest_pm::memory::Memory;
    core.memory().load(root(number), Ordering::Acquire)
}

pub fn assert_clean(core: &Region) {
    assert_eq!(core.check(&Reachable::default()).unwrap(), []);
}

/// An operation that is never ended.
pub fn leave_open(core: &Region, number: u32) {
    let mut tx = ManuallyDrop::new(core.begin().unwrap());
    tx.lock(number, Mode::Exclusive).unwrap();
    tx.set(root(number), 99).unwrap();
}
