//! One case: a region is corrupted, used all the same, and judged.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conquest_format::Geometry;
use conquest_pm::{Core, Error, Options};
use conquest_testkit::scenario::{Plan, shape};
use conquest_testkit::shelf::{self, Op};
use conquest_testkit::{Image, RecordingMemory, Rng, World};

use crate::corrupt::{corruption, next_tag, superblock};
use crate::fuzz::{Counts, caught};
use crate::memory::{Change, Endless, Flipping, OneThread};

/// Steps that a case may take.
const STEPS: u64 = 3_000_000;
/// Regions to corrupt.
const BASES: u64 = 24;

/// What all cases of a seed share.
pub(crate) struct Bases {
    seed: u64,
    geometry: Geometry,
    images: Vec<Arc<Image>>,
}

impl Bases {
    pub(crate) fn new(seed: u64) -> Result<Bases, String> {
        let geometry = Geometry::new(shape()).ok_or("impossible shape")?;
        let base = |number| Plan::random(seed.wrapping_add(number), 1, 0, false).base();
        let images = (0..BASES).map(|number| base(number).map(|(image, _)| image));
        Ok(Bases { seed, geometry, images: images.collect::<Result<_, _>>()? })
    }

    /// Runs case `number`; on failure says why.
    pub(crate) fn run(&self, number: u64, counts: &mut Counts) -> Result<(), String> {
        let mut rng = Rng::stream(self.seed, number);
        let base = &self.images[rng.below(self.images.len() as u64) as usize];
        let needs = rng.chance(1, 2);
        let image = Image::over(Arc::clone(base));
        let when = rng.below(3);
        let get = |word| image.get(word);
        let (what, changes) = corruption(&mut rng, &self.geometry, &get, next_tag(&get));
        let mut later = Vec::new();
        if when == 0 {
            for &(word, value) in &changes {
                image.set(word, value);
            }
        } else {
            let start = rng.below(6000);
            let between = if rng.chance(1, 2) { 0 } else { rng.below(200) };
            later.extend((0..).zip(&changes).map(|(i, &change)| (start + i * between, change)));
        }
        let mut case =
            Case { bases: self, image: Arc::new(image), needs, changes: later, violation: None };
        let ended = caught(|| case.play(&mut rng, counts));
        let explain = |why: String| {
            format!(
                "{why}; {what}, {}: {}",
                if when == 0 { "before" } else { "while" },
                text(&changes)
            )
        };
        if let Err((reason, place)) = ended {
            if let Some(Endless(trace)) = reason.downcast_ref() {
                let is_ours = |line: &&str| line.contains("/pm/src/");
                let places: Vec<&str> = trace.lines().filter(is_ours).take(8).collect();
                return Err(explain(format!("endless: {}", places.join(" "))));
            }
            return Err(explain(place));
        }
        case.violation.take().map_or(Ok(()), |violation| Err(explain(violation)))
    }
}

fn text(changes: &[Change]) -> String {
    let shown = changes.iter().take(6).map(|(word, value)| format!("{:#x}={value:#x}", word * 8));
    format!("{} words: {}", changes.len(), shown.collect::<Vec<_>>().join(" "))
}

struct Case<'a> {
    bases: &'a Bases,
    image: Arc<Image>,
    needs: bool,
    changes: Vec<(u64, Change)>,
    violation: Option<String>,
}

impl Case<'_> {
    fn play(&mut self, rng: &mut Rng, counts: &mut Counts) {
        // Long runs take long to fill.
        let pages = if rng.chance(1, 50) { 400 } else { 3 };
        for pid in 1..=2 {
            // A superblock may say that the region is another one: the memory then believes it.
            let found = superblock(&|word| self.image.get(word));
            let geometry = found.and_then(|found| Geometry::new(found.shape));
            let volatile = geometry.unwrap_or_else(|| self.bases.geometry.clone()).volatile();
            let memory = RecordingMemory::new(Arc::clone(&self.image), volatile, self.needs);
            self.use_region(&memory, pid, pages, rng, counts);
            self.violation = self.violation.take().or(memory.violation());
            self.image = memory.snapshot();
        }
    }

    fn use_region(
        &mut self,
        memory: &RecordingMemory,
        pid: u32,
        pages: u64,
        rng: &mut Rng,
        counts: &mut Counts,
    ) {
        let world = World::new(memory.clock());
        let changes = std::mem::take(&mut self.changes);
        let memory = Flipping::new(memory.this_thread(), STEPS, changes);
        let host = OneThread(world.process(pid));
        let options = Options {
            intents: Some(Box::new(shelf::step)),
            growth_groups: 1,
            attach_patience: Duration::from_millis(20),
            ..Options::default()
        };
        let path = Path::new("simulated core");
        let core = match Core::attach(memory, host, path, &shelf::kinds(), options) {
            Ok(core) => core,
            Err(error) => return count(counts, "attach", &Err::<(), _>(error)),
        };
        for number in 0..rng.below(16) {
            let op = Op::random(rng, pid, 1000 + number, pages);
            count(counts, "operation", &shelf::perform(&core, pid, op));
        }
        count(counts, "recover", &core.recover());
        count(counts, "examine", &shelf::examine(&core).map(|_| ()));
        if rng.chance(1, 2) {
            world.kill(pid);
        }
        count(counts, "detach", &core.detach());
    }
}

/// Counts what an action came to.
pub(crate) fn count<T>(counts: &mut Counts, action: &str, result: &Result<T, Error>) {
    let kind = match result {
        Ok(_) => "success".to_owned(),
        Err(error @ Error::Corrupt { what, .. }) => {
            let _message = error.to_string();
            format!("Corrupt {what}")
        }
        Err(error) => {
            let text = format!("{error:?}");
            text.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
        }
    };
    *counts.entry(format!("{action}: {kind}")).or_default() += 1;
}
