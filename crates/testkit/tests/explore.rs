//! The explorer finds the faults of a toy journal, and only those.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use conquest_format::Offset;
use conquest_pm::memory::Memory;
use conquest_testkit::{
    CrashPoint, Image, Mark, Options, Recording, RecordingMemory, explore, replay,
};

const CELLS: [Offset; 2] = [Offset::new(0), Offset::new(64)];
const RECORD: [Offset; 2] = [Offset::new(128), Offset::new(136)];
const COMMIT: Offset = Offset::new(192);
const VOLATILE: u64 = 4096;

/// Ordering points that a journal can forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    RecordFence,
    CommitFence,
    ApplyFence,
    RecoveryFence,
    /// Recovery trusts a commit that it has not made durable.
    CommitOfTheDead,
    AcknowledgedEarly,
}

fn persist(memory: &impl Memory, words: &[Offset], fence: bool) {
    words.iter().for_each(|&word| memory.write_back(word, 8));
    if fence {
        memory.fence();
    }
}

fn apply(memory: &impl Memory, fence: bool) {
    for (cell, record) in CELLS.into_iter().zip(RECORD) {
        memory.put(cell, memory.load(record, SeqCst), SeqCst);
    }
    persist(memory, &CELLS, fence);
    memory.put(COMMIT, 0, SeqCst);
    persist(memory, &[COMMIT], true);
}

/// Operation `k` sets the cells to k and 100 - k.
fn record(operations: u64, fault: Fault) -> Recording {
    let base = Image::new(2 * VOLATILE);
    base.set(8, 100);
    let memory = RecordingMemory::new(Arc::new(base), VOLATILE..2 * VOLATILE, true);
    let actor = memory.actor(7);
    for k in 1..=operations {
        actor.mark(Mark::Begun(k));
        actor.store(Offset::new(VOLATILE), 5 << 32 | k, SeqCst);
        actor.put(RECORD[0], k, SeqCst);
        actor.put(RECORD[1], 100 - k, SeqCst);
        persist(&actor, &RECORD, fault != Fault::RecordFence);
        actor.put(COMMIT, 1, SeqCst);
        if fault == Fault::AcknowledgedEarly {
            actor.mark(Mark::Acknowledged(k));
        }
        persist(&actor, &[COMMIT], fault != Fault::CommitFence);
        apply(&actor, fault != Fault::ApplyFence);
        actor.mark(Mark::Acknowledged(k));
    }
    memory.recording()
}

fn check(memory: &RecordingMemory, at: &CrashPoint<'_>, fault: Fault) -> Result<u64, String> {
    let actor = memory.actor(0);
    if actor.load(COMMIT, SeqCst) == 1 {
        if fault != Fault::CommitOfTheDead {
            persist(&actor, &[RECORD[0], RECORD[1], COMMIT], true);
        }
        apply(&actor, fault != Fault::RecoveryFence);
    }
    actor.mark(Mark::Recovered);
    let [one, two] = CELLS.map(|cell| actor.load(cell, SeqCst));
    if one + two != 100 {
        return Err(format!("{one} + {two} is not 100"));
    }
    let least = at.last_acknowledged(7).unwrap_or(0);
    let most = at.last_begun(7).unwrap_or(0);
    if !(least..=most).contains(&one) {
        return Err(format!("operation {one}, expected {least} to {most}"));
    }
    // After recovery a test may do what it likes: no crash comes between.
    actor.put(CELLS[0], 1000, SeqCst);
    Ok(one)
}

#[test]
fn each_forgotten_ordering_point_is_found() {
    for fault in [
        Fault::None,
        Fault::RecordFence,
        Fault::CommitFence,
        Fault::ApplyFence,
        Fault::RecoveryFence,
        Fault::CommitOfTheDead,
        Fault::AcknowledgedEarly,
    ] {
        let recording = record(3, fault);
        let options = Options::default();
        let found = explore(&recording, &options, |m, at| check(m, at, fault));
        assert_eq!(found.failed == 0, fault == Fault::None, "{fault:?}\n{found}");
        assert_eq!(found.sampled_points, 0);
        for failure in &found.failures {
            let again = replay(&recording, &options, failure, |m, at| check(m, at, fault));
            let why = again.expect_err(failure);
            assert!(failure.ends_with(&why), "{failure}, but replay says {why}");
        }
        if fault == Fault::None {
            assert_eq!(found.outcomes.len(), 4);
            assert!(found.inner_states > 0);
        }
    }
}

#[test]
fn faults_of_recovery_need_a_crash_in_it() {
    for fault in [Fault::RecoveryFence, Fault::CommitOfTheDead] {
        let options = Options { depth: 0, ..Options::default() };
        let recording = record(2, fault);
        let found = explore(&recording, &options, |m, at| check(m, at, fault));
        assert_eq!(found.failed, 0, "{found}");
    }
    // Neither is enough alone: a death leaves words in flight that only a power failure loses.
    for (power, death) in [(true, false), (false, true)] {
        let options = Options { power, death, ..Options::default() };
        let fault = Fault::CommitOfTheDead;
        let found = explore(&record(2, fault), &options, |m, at| check(m, at, fault));
        assert_eq!(found.failed, 0, "{found}");
    }
}

#[test]
fn the_result_is_the_same_however_many_threads_work() {
    let recording = record(20, Fault::ApplyFence);
    let run = |threads, seed| {
        let options = Options { threads, seed, described: 100, ..Options::default() };
        explore(&recording, &options, |m, at| check(m, at, Fault::None))
    };
    let (one, three) = (run(1, 5), run(3, 5));
    assert_eq!(one.failures, three.failures);
    let counts = |s: &conquest_testkit::Summary| {
        (s.states, s.inner_states, s.failed, s.duplicates, s.outcomes.clone())
    };
    assert_eq!(counts(&one), counts(&three));
}

fn memory() -> RecordingMemory {
    RecordingMemory::new(Arc::new(Image::new(4096)), 4096..4096, true)
}

/// States and duplicates of a log, and the images seen, as the digest of the whole image.
fn count(memory: &RecordingMemory, options: &Options) -> (usize, usize, usize) {
    let options = Options { depth: 0, ..options.clone() };
    let found = explore(&memory.recording(), &options, |m, _| Ok(m.image().digest()));
    assert_eq!(found.failed, 0, "{found}");
    (found.states, found.duplicates, found.outcomes.len())
}

#[test]
fn states_are_counted_as_by_hand() {
    let power = Options { death: false, ..Options::default() };
    let death = Options { power: false, ..Options::default() };
    let put = |actor: &conquest_testkit::Actor, word: u64, value| {
        actor.put(Offset::new(word * 8), value, SeqCst);
    };
    // One word of two values and one of three.
    let product = memory();
    put(&product.actor(0), 0, 1);
    put(&product.actor(0), 1, 1);
    put(&product.actor(0), 1, 2);
    assert_eq!(count(&product, &power), (6, 0, 6));
    assert_eq!(count(&product, &death), (4, 0, 4));
    // The fence takes a choice away: {0, 1} before; 1 with {0, 1} after, of which one is known.
    let fenced = memory();
    let actor = fenced.actor(0);
    put(&actor, 0, 1);
    actor.write_back(Offset::new(0), 8);
    actor.fence();
    put(&actor, 8, 1);
    assert_eq!(count(&fenced, &power), (3, 1, 3));
    // A mark makes equal images different: each of two is checked before and after it.
    let marked = memory();
    put(&marked.actor(0), 0, 1);
    marked.actor(0).mark(Mark::Begun(1));
    assert_eq!(count(&marked, &power), (4, 0, 2));
    // Death: before and after the store, and after the mark.
    assert_eq!(count(&marked, &death), (3, 0, 2));
    // Another actor's fence counts for nothing.
    let other = memory();
    put(&other.actor(0), 0, 1);
    other.actor(0).write_back(Offset::new(0), 8);
    other.actor(1).fence();
    put(&other.actor(0), 8, 1);
    assert_eq!(count(&other, &power), (4, 0, 4));
}

#[test]
fn many_words_are_sampled_within_the_budget() {
    let memory = memory();
    for word in 0..40 {
        memory.actor(0).put(Offset::new(word * 8), 1, SeqCst);
    }
    let seen = Mutex::new(BTreeSet::new());
    let options = Options { death: false, depth: 0, pair_words: 40, ..Options::default() };
    let found = explore(&memory.recording(), &options, |m, _| {
        let words = (0..40).filter(|&word| m.image().get(word) == 1);
        let mask = words.fold(0_u64, |mask, word| mask | 1 << word);
        let new = seen.lock().unwrap().insert(mask);
        if new { Ok(mask) } else { Err(format!("{mask:#x} twice")) }
    });
    assert_eq!(found.failed, 0, "{found}");
    assert!(found.sampled_points > 0);
    let seen = seen.into_inner().unwrap();
    let all = (1 << 40) - 1;
    for one in 0..40 {
        assert!(seen.contains(&(1 << one)) && seen.contains(&(all ^ 1 << one)));
        assert!((0..one).all(|two| seen.contains(&(1 << one | 1 << two))));
    }
    assert!(seen.contains(&0) && seen.contains(&all));
    assert!((0..1 << 12).all(|low| seen.contains(&low)), "small sets on the way");
    let small = Options { states: 100, ..options };
    let found = explore(&memory.recording(), &small, |_, _| Ok(0));
    assert!((80..=100).contains(&found.states), "{found}");
}

#[test]
fn garbage_hangs_and_panics_are_failures() {
    let recording = record(1, Fault::None);
    let held = Mutex::new(BTreeSet::new());
    let options = Options { steps: 1000, depth: 0, ..Options::default() };
    let found = explore(&recording, &options, |m, _| {
        let load = |at| m.actor(0).load(Offset::new(at), SeqCst);
        held.lock().unwrap().extend([load(VOLATILE), load(VOLATILE + 800)]);
        Ok(0)
    });
    assert_eq!(found.failed, 0, "{found}");
    let seen = held.into_inner().unwrap();
    assert!(seen.contains(&0) && seen.contains(&(5 << 32 | 1)) && seen.len() > 3, "{seen:x?}");

    type Check = fn(&RecordingMemory, &CrashPoint<'_>) -> Result<u64, String>;
    let bad: [(Check, &str); 3] = [
        (
            |m, _| loop {
                m.actor(0).load(COMMIT, SeqCst);
            },
            "still running",
        ),
        (|m, _| Ok(m.actor(0).load(Offset::new(1 << 40), SeqCst)), "out of bounds"),
        (|_, _| std::panic::resume_unwind(Box::new("boom")), "panicked: boom"),
    ];
    for (check, expected) in bad {
        let found = explore(&recording, &options, check);
        assert_eq!(found.failed, found.states);
        assert!(found.failures[0].contains(expected), "{found}");
        let text = found.to_string();
        assert_eq!(text.lines().last(), Some(&*format!("0 passed, {} failed", found.failed)));
    }
}

#[test]
fn what_the_dead_wrote_back_is_not_made_durable_by_the_fences_of_others() {
    let (data, seal) = (Offset::new(0), Offset::new(64));
    let memory = memory();
    let actor = memory.actor(0);
    actor.put(data, 1, SeqCst);
    actor.write_back(data, 8);
    actor.put(Offset::new(128), 1, SeqCst);
    let recording = memory.recording();
    for write_back in [true, false] {
        let options = Options { power: true, ..Options::default() };
        let found = explore(&recording, &options, |m, _| {
            let actor = m.actor(0);
            let (held, sealed) = (actor.load(data, SeqCst), actor.load(seal, SeqCst));
            if sealed > held {
                return Err(String::from("sealed, but lost"));
            }
            if write_back {
                actor.write_back(data, 8);
            }
            actor.fence();
            if actor.load(Offset::new(128), SeqCst) == 1 {
                actor.put(seal, held, SeqCst);
            }
            persist(&actor, &[seal], true);
            Ok(held)
        });
        assert_eq!(found.failed == 0, write_back, "{found}");
    }
}

#[test]
fn deaths_in_a_row_keep_all_that_was_stored() {
    let (tries, done, copy) = (Offset::new(VOLATILE), Offset::new(0), Offset::new(64));
    let memory = RecordingMemory::new(Arc::new(Image::new(8192)), VOLATILE..8192, true);
    let options = Options { power: false, depth: 3, ..Options::default() };
    let deepest = Mutex::new(0);
    let found = explore(&memory.recording(), &options, |m, at| {
        let actor = m.actor(0);
        let tried = actor.load(tries, SeqCst);
        if tried != at.depth as u64 {
            return Err(format!("tried {tried} times at depth {}", at.depth));
        }
        let (did, copied) = (actor.load(done, SeqCst), actor.load(copy, SeqCst));
        if copied > did || did > tried {
            return Err(format!("copied {copied}, done {did}, tried {tried}"));
        }
        actor.store(tries, tried + 1, SeqCst);
        actor.put(done, did + 1, SeqCst);
        persist(&actor, &[done], true);
        actor.put(copy, did + 1, SeqCst);
        let mut deepest = deepest.lock().unwrap();
        *deepest = at.depth.max(*deepest);
        Ok(did)
    });
    assert_eq!(found.failed, 0, "{found}");
    // Three stores, so three deaths in each recovery; the bound at depth 2 is two.
    assert_eq!((found.states, found.inner_states), (1, 3 + 9 + 18), "{found}");
    assert_eq!(deepest.into_inner().unwrap(), 3);
}
