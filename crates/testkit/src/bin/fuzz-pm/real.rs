//! A case on real memory: another thread stores into the file while operations run.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conquest_format::geometry::Shape;
use conquest_format::{Geometry, Offset, WORD};
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;

use conquest_pm::{Access, Options, Region};
use conquest_testkit::Rng;
use conquest_testkit::shelf::{self, Op};

use crate::case::count;
use crate::corrupt::{corruption, next_tag};
use crate::fuzz::Counts;

const SHAPE: Shape = Shape { max_groups: 3, lanes: 3, slots: 3, locks: 4, chunks: 4, log: 0 };

/// Runs real case `number` of `seed`. How the threads meet is not repeatable.
pub(crate) fn run(seed: u64, number: u64, counts: &mut Counts) -> Result<(), String> {
    let mut rng = Rng::stream(seed, number);
    let text = |error: conquest_pm::Error| error.to_string();
    // SAFETY: a constant name; the descriptor is new and ours.
    let file = unsafe {
        let raw = libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC);
        if raw < 0 {
            return Err(format!("memfd: {}", std::io::Error::last_os_error()));
        }
        OwnedFd::from_raw_fd(raw)
    };
    let copy = || file.as_fd().try_clone_to_owned().map_err(|error| error.to_string());
    let new =
        NewRegion { shape: SHAPE, kinds: shelf::kinds(), uuid: [4; 16], created: 4, groups: 1 };
    Region::create(Source::from(copy()?), 0o600, &new).map_err(text)?;
    let open = || {
        let options = Options {
            intents: Some(Box::new(shelf::step)),
            growth_groups: 1,
            ..Options::default()
        };
        Ok::<_, String>(Region::open(
            Source::from(copy()?),
            &shelf::kinds(),
            Access::default(),
            options,
        ))
    };
    let core = open()?.map_err(text)?;
    for id in 0..20 {
        shelf::perform(&core, 7, Op::random(&mut rng, 7, id, 3)).map_err(text)?;
    }
    let geometry = Geometry::new(SHAPE).ok_or("impossible shape")?;
    let raw = File::from(copy()?);
    let stop = AtomicBool::new(false);
    let mut flips = Rng::stream(seed, number ^ 1 << 40);
    std::thread::scope(|scope| {
        scope.spawn(|| flip(&raw, &geometry, &mut flips, &stop));
        for number in 0..200 {
            let op = Op::random(&mut rng, 1, 1000 + number, 400);
            let result = shelf::perform(&core, 1, op);
            let failed = result.is_err();
            count(counts, "real operation", &result);
            if failed && number > 20 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    count(counts, "real recover", &core.recover());
    count(counts, "real examine", &shelf::examine(&core).map(|_| ()));
    let failure = core.memory().failed();
    drop(core);
    count(counts, "real attach", &open()?.map(|core: Arc<Region>| drop(core)));
    match failure {
        Some(reason) if reason.contains("out of bounds") => Err(reason.to_owned()),
        _ => Ok(()),
    }
}

fn flip(file: &File, geometry: &Geometry, rng: &mut Rng, stop: &AtomicBool) {
    let get = |word: u64| {
        let mut bytes = [0; 8];
        let _read = file.read_exact_at(&mut bytes, word * WORD);
        u64::from_le_bytes(bytes)
    };
    // The present generation's.
    let tag = next_tag(&get).wrapping_sub(1);
    for _ in 0..40 {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (_, changes) = corruption(rng, geometry, &get, tag);
        for (word, value) in changes {
            let at = Offset::new(word * WORD).bytes();
            // Never longer than it is.
            if file.metadata().is_ok_and(|file| at < file.len()) {
                let _written = file.write_all_at(&value.to_le_bytes(), at);
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(rng.below(300)));
    }
}
