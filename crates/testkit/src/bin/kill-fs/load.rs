//! Random deaths under load: several processes at work, one of them killed at a random moment,
//! again and again. Each works in a directory of its own, whose names are known after each of its
//! operations, and in one that all share.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conquest_fs::FileId;
use conquest_fs::names::New;
use conquest_testkit::Rng;
use conquest_testkit::files::root_user;
use conquest_testkit::judge::judge_attached;

use crate::arena::{Files, SHAPE, attach_safely, template};
use crate::kill::crew::share;
use crate::kill::limit::{LIMIT, Watchdog};
use crate::kill::region::{Copy, Template};
use crate::kill::tally::Tally;
use crate::names::{Model, Op};
use crate::os::child::{Child, End};
use crate::os::memory::Shared;

/// Processes at work.
const WORKERS: usize = 3;
/// Kills between two examinations of the file system at rest.
const KILLS_EACH: u64 = 20;
/// Kills on one file system.
const KILLS_OF_REGION: u64 = 25 * KILLS_EACH;
/// The directory that all share; the others have the numbers of their workers.
const COMMON: &[u8] = b"common";

/// Kills `kills` processes.
pub(crate) fn kill_at_random(
    tally: &Tally,
    processors: usize,
    kills: u64,
    seed: u64,
) -> Result<(), String> {
    let template = template(SHAPE, |files| {
        let own = (0..WORKERS).map(|worker| worker.to_string().into_bytes());
        for name in own.chain([COMMON.to_vec()]) {
            files
                .create(&root_user(), files.root(), &name, New::Directory, 0o755)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    })?;
    let operations = Shared::new()?;
    let regions: Vec<u64> = (0..kills.div_ceil(KILLS_OF_REGION)).collect();
    // Each of them has several processes at work, which must get something done between two kills.
    let crew = processors.div_ceil(WORKERS);
    share(tally, crew, "random kills, region", &regions, |region| {
        let kills = (kills - region * KILLS_OF_REGION).min(KILLS_OF_REGION);
        let mut load = Load::new(&template, Rng::stream(seed, region))?;
        load.kill(tally, kills)?;
        operations[0].fetch_add(load.acknowledged(), Ordering::SeqCst);
        Ok(())
    });
    let operations = operations[0].load(Ordering::SeqCst);
    println!("{kills} random kills under {operations} operations, and as many in common");
    Ok(())
}

/// A file system, and who works on it.
struct Load {
    region: Copy,
    /// Attached by this process.
    files: Files,
    rng: Rng,
    seeds: [u64; WORKERS],
    /// Operations that each worker has reported: shared memory, not part of the region.
    reported: Shared,
    /// What each has done, of which the model has been told.
    told: [u64; WORKERS],
    models: [Model; WORKERS],
}

impl Load {
    fn new(template: &Template, mut rng: Rng) -> Result<Load, String> {
        let region = template.copy()?;
        let files = attach_safely(&region)?;
        let seeds = [(); WORKERS].map(|()| rng.word());
        let reported = Shared::new()?;
        let models = Default::default();
        Ok(Load { region, files, rng, seeds, reported, told: [0; WORKERS], models })
    }

    fn acknowledged(&self) -> u64 {
        self.told.iter().sum()
    }

    fn kill(&mut self, tally: &Tally, kills: u64) -> Result<(), String> {
        let mut left = kills;
        while left > 0 {
            let _watchdog = Watchdog::start();
            let mut workers = Vec::new();
            for worker in 0..WORKERS {
                workers.push(self.worker(worker)?);
            }
            for _ in 0..left.min(KILLS_EACH) {
                left -= 1;
                std::thread::sleep(Duration::from_micros(self.rng.below(3000)));
                let victim = self.rng.below(WORKERS as u64) as usize;
                end(&mut workers[victim])?;
                self.settle(victim)?;
                workers[victim] = self.worker(victim)?;
                tally.pass();
            }
            for (number, worker) in workers.iter_mut().enumerate() {
                end(worker)?;
                self.settle(number)?;
            }
            if self.rng.chance(1, 2) {
                self.files = attach_safely(&self.region)?;
            }
            judge_attached(self.files.core())?;
            let census = self.files.check().map_err(|error| error.to_string())?;
            if let Some(finding) = census.findings.first() {
                return Err(format!("{finding} (and {} more)", census.findings.len() - 1));
            }
        }
        Ok(())
    }

    /// A process that does operations as worker `worker` until it is killed.
    fn worker(&self, worker: usize) -> Result<Child, String> {
        Child::fork(|| {
            let files = attach_safely(&self.region)?;
            let own = directory(&files, worker.to_string().as_bytes())?;
            let common = directory(&files, COMMON)?;
            let reported = &self.reported[worker];
            loop {
                let number = reported.load(Ordering::SeqCst) + 1;
                Op::random(self.seeds[worker], number).perform(&files, own)?;
                reported.fetch_add(1, Ordering::SeqCst);
                Op::random(!self.seeds[worker], number).perform(&files, common)?;
            }
        })
    }

    /// Finds out whether the operation that the worker's last process was in has happened.
    fn settle(&mut self, worker: usize) -> Result<(), String> {
        self.files.core().recover().map_err(|error| error.to_string())?;
        let own = directory(&self.files, worker.to_string().as_bytes())?;
        let reported = self.reported[worker].load(Ordering::SeqCst);
        while self.told[worker] < reported {
            self.tell(worker);
        }
        if self.models[worker].is_in(&self.files, own)? {
            return Ok(());
        }
        self.tell(worker);
        self.reported[worker].store(self.told[worker], Ordering::SeqCst);
        if !self.models[worker].is_in(&self.files, own)? {
            return Err(format!("worker {worker}: not what {reported} operations leave"));
        }
        Ok(())
    }

    /// Tells the worker's model of one more operation.
    fn tell(&mut self, worker: usize) {
        self.told[worker] += 1;
        self.models[worker].apply(Op::random(self.seeds[worker], self.told[worker]));
    }
}

fn end(worker: &mut Child) -> Result<(), String> {
    worker.signal(libc::SIGKILL);
    match worker.wait_for(LIMIT)? {
        End::Signal(libc::SIGKILL) => Ok(()),
        other => Err(format!("a worker ended by itself: {other:?}")),
    }
}

fn directory(files: &Files, name: &[u8]) -> Result<FileId, String> {
    let found = files.lookup(&root_user(), files.root(), name);
    let (file, _) = found.map_err(|error| error.to_string())?.ok_or("a directory is gone")?;
    Ok(file)
}
