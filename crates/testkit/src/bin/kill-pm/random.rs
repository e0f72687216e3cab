//! Random deaths under load: several processes at work, one of them killed at a random moment,
//! again and again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conquest_testkit::Rng;
use conquest_testkit::shelf::Op;

use crate::arena::{Arena, View, template};
use crate::kill::crew::share;
use crate::kill::limit::{LIMIT, Watchdog};
use crate::kill::region::Template;
use crate::kill::tally::Tally;
use crate::os::child::{Child, End};
use crate::os::memory::Shared;

/// Processes at work.
const WORKERS: u32 = 3;
/// Kills between two examinations of the region at rest.
const KILLS_EACH: u64 = 20;

/// Kills on one region.
const KILLS_OF_REGION: u64 = 25 * KILLS_EACH;

/// Kills `kills` processes.
pub(crate) fn kill_at_random(
    tally: &Tally,
    processors: usize,
    kills: u64,
    seed: u64,
) -> Result<(), String> {
    let template = template(1)?;
    let operations = Shared::new()?;
    let regions: Vec<u64> = (0..kills.div_ceil(KILLS_OF_REGION)).collect();
    // Each of them has several processes at work, which must get something done between two kills.
    let crew = processors.div_ceil(WORKERS as usize);
    share(tally, crew, "random kills, region", &regions, |region| {
        let kills = (kills - region * KILLS_OF_REGION).min(KILLS_OF_REGION);
        let done = one_arena(tally, &template, Rng::stream(seed, region), kills)?;
        operations[0].fetch_add(done, Ordering::SeqCst);
        Ok(())
    });
    let operations = operations[0].load(Ordering::SeqCst);
    println!("{kills} random kills under {operations} operations");
    Ok(())
}

/// Kills on one region; operations done there.
fn one_arena(tally: &Tally, template: &Template, mut rng: Rng, kills: u64) -> Result<u64, String> {
    let arena = Arena::new(template)?;
    // Sometimes nobody else is attached, so that the dead were the last.
    let mut keeper = arena.attach_safely()?;
    let mut left = kills;
    while left > 0 {
        let _watchdog = Watchdog::start();
        let mut workers = Vec::new();
        for actor in 0..WORKERS {
            workers.push(worker(&arena, actor, rng.word())?);
        }
        for _ in 0..left.min(KILLS_EACH) {
            left -= 1;
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
            let victim = rng.below(u64::from(WORKERS)) as u32;
            kill(&mut workers[victim as usize])?;
            workers[victim as usize] = worker(&arena, victim, rng.word())?;
            tally.pass();
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
    match worker.wait_for(LIMIT)? {
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
fn settle(arena: &Arena, core: &View, actor: u32) -> Result<(), String> {
    core.recover().map_err(|error| error.to_string())?;
    let done = conquest_testkit::shelf::done(core, actor);
    let acknowledged = arena.acknowledged(actor).load(Ordering::SeqCst);
    if done < acknowledged || done > acknowledged + 1 {
        return Err(format!("actor {actor}: {acknowledged} acknowledged, {done} happened"));
    }
    arena.acknowledged(actor).store(done, Ordering::SeqCst);
    Ok(())
}
