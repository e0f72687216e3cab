//! Random deaths under load: several processes at work, one of them killed at a random moment,
//! again and again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conquest_testkit::Rng;
use conquest_testkit::shelf::Op;

use crate::arena::Arena;
use crate::process::{Child, End, watchdog};
use crate::tally::Tally;

/// Processes at work.
const WORKERS: u32 = 3;
/// Kills between two examinations of the region at rest.
const KILLS_EACH: u64 = 20;

/// Kills `kills` processes.
pub(crate) fn kill_at_random(tally: &mut Tally, kills: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut left = kills;
    let mut operations = 0;
    while left > 0 && !tally.is_hopeless() {
        let round = left.min(KILLS_EACH * 25);
        left -= round;
        match one_arena(tally, &mut rng, round) {
            Ok(done) => operations += done,
            Err(error) => {
                tally.count(|| Err::<(), _>(format!("random kills: {error}")));
            }
        }
    }
    tally.note(format!("{kills} random kills under {operations} operations"));
}

/// Kills on one region; operations done there.
fn one_arena(tally: &mut Tally, rng: &mut Rng, kills: u64) -> Result<u64, String> {
    let arena = Arena::new(1)?;
    // Sometimes nobody else is attached, so that the dead were the last.
    let mut keeper = arena.attach_safely()?;
    let mut left = kills;
    while left > 0 {
        watchdog();
        let mut workers = Vec::new();
        for actor in 0..WORKERS {
            workers.push(worker(&arena, actor, rng.word())?);
        }
        for _ in 0..left.min(KILLS_EACH) {
            left -= 1;
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
            let victim = rng.below(u64::from(WORKERS)) as u32;
            kill(&mut workers[victim as usize])?;
            let restart = || worker(&arena, victim, rng.word());
            let Some(next) = tally.count(restart) else { return Err("no new process".into()) };
            workers[victim as usize] = next;
        }
        for worker in &mut workers {
            kill(worker)?;
        }
        if rng.chance(1, 2) {
            drop(keeper);
            keeper = arena.attach_safely()?;
        }
        let actors: Vec<u32> = (0..WORKERS).collect();
        arena.examine(&keeper, &actors)?;
    }
    Ok((0..WORKERS).map(|actor| arena.acknowledged(actor).load(Ordering::SeqCst)).sum())
}

fn kill(worker: &mut Child) -> Result<(), String> {
    worker.signal(libc::SIGKILL);
    match worker.wait()? {
        End::Signal(libc::SIGKILL) => Ok(()),
        other => Err(format!("a worker ended by itself: {other:?}")),
    }
}

/// A process that does random operations as `actor` until it is killed.
fn worker(arena: &Arena, actor: u32, seed: u64) -> Result<Child, String> {
    Child::fork(|| {
        let core = arena.attach_safely()?;
        settle(arena, &core, actor)?;
        let mut rng = Rng::new(seed);
        loop {
            let number = arena.acknowledged(actor).load(Ordering::SeqCst) + 1;
            let op = Op::random(&mut rng, actor, number, 40);
            arena.perform(&core, actor, op)?;
        }
    })
}

/// Finds out whether the operation that the actor's last process was in happened.
fn settle(arena: &Arena, core: &crate::arena::View, actor: u32) -> Result<(), String> {
    core.recover().map_err(|error| error.to_string())?;
    let done = conquest_testkit::shelf::done(core, actor);
    let acknowledged = arena.acknowledged(actor).load(Ordering::SeqCst);
    if done < acknowledged || done > acknowledged + 1 {
        return Err(format!("actor {actor}: {acknowledged} acknowledged, {done} happened"));
    }
    arena.acknowledged(actor).store(done, Ordering::SeqCst);
    Ok(())
}
