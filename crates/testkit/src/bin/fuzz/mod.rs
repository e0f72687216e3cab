//! What fuzz targets share: arguments, cases one after the other until the time is over, limits of
//! time and memory, panics that are told by the case that they end, and counting.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Longest time of one case.
const LIMIT: Duration = Duration::from_secs(60);
/// Failures that are described.
const DESCRIBED: usize = 20;
/// Failures that are enough.
const ENOUGH: usize = 200;
/// Bytes of memory for all of it.
const MEMORY: u64 = 4 << 30;

/// Outcomes by name.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The case at work and since when.
static NOW: Mutex<Option<(u64, u64, Instant)>> = Mutex::new(None);
/// Where the last panic was.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// What to do.
struct Bounds {
    seconds: Option<u64>,
    cases: u64,
    seed: u64,
    first: u64,
}

fn bounds() -> Option<Bounds> {
    let mut bounds = Bounds { seconds: None, cases: u64::MAX, seed: 1, first: 0 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next()?;
        let number = value.parse::<u64>().ok();
        match argument.as_str() {
            "--seconds" => bounds.seconds = Some(number?),
            "--cases" => bounds.cases = number?,
            "--seed" => bounds.seed = number?,
            "--replay" => {
                let (seed, case) = value.split_once(':')?;
                (bounds.seed, bounds.first) = (seed.parse().ok()?, case.parse().ok()?);
                bounds.cases = 1;
            }
            _ => return None,
        }
    }
    // With a number of cases, they are what ends it.
    let seconds = if bounds.cases == u64::MAX { 60 } else { u64::MAX };
    bounds.seconds = bounds.seconds.or(Some(seconds));
    Some(bounds)
}

/// Runs cases of `program`: `prepare` makes of a seed what runs the case of a number.
pub(crate) fn run<F>(program: &str, prepare: impl FnOnce(u64) -> Result<F, String>) -> ExitCode
where
    F: FnMut(u64, &mut Counts) -> Result<(), String>,
{
    let Some(bounds) = bounds() else {
        eprintln!("usage: {program} [--seconds N] [--cases N] [--seed S] [--replay SEED:CASE]");
        return ExitCode::from(2);
    };
    limit_memory();
    keep_panics();
    watch();
    match prepare(bounds.seed) {
        Ok(case) => cases(&bounds, case),
        Err(error) => {
            println!("FAILED {error}\n0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}

fn cases(
    bounds: &Bounds,
    mut case: impl FnMut(u64, &mut Counts) -> Result<(), String>,
) -> ExitCode {
    let begin = Instant::now();
    let time = bounds.seconds.map(Duration::from_secs);
    let mut counts = Counts::new();
    let (mut passed, mut failures) = (0_u64, 0);
    let end = bounds.first.saturating_add(bounds.cases);
    for number in bounds.first..end {
        if time.is_some_and(|time| begin.elapsed() > time) || failures > ENOUGH {
            break;
        }
        note(Some((bounds.seed, number, Instant::now())));
        match case(number, &mut counts) {
            Ok(()) => passed += 1,
            Err(error) => {
                if failures < DESCRIBED {
                    println!("FAILED --replay {}:{number}: {error}", bounds.seed);
                }
                failures += 1;
            }
        }
    }
    note(None);
    for (outcome, count) in &counts {
        println!("{count:>9} {outcome}");
    }
    println!("{passed} passed, {failures} failed");
    ExitCode::from(u8::from(failures > 0))
}

/// Does `body`, and says why if it panics.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, (Box<dyn Any + Send>, String)> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|reason| {
        let place = PANIC.lock().map(|place| place.clone()).unwrap_or_default();
        (reason, place)
    })
}

fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut place) = PANIC.lock() {
            *place = info.to_string().replace('\n', " ");
        }
    }));
}

fn note(case: Option<(u64, u64, Instant)>) {
    if let Ok(mut now) = NOW.lock() {
        *now = case;
    }
}

/// Ends the program if one case takes too long.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = NOW.lock().map_or(None, |now| *now);
            if let Some((seed, number, since)) = now
                && since.elapsed() > LIMIT
            {
                println!("FAILED --replay {seed}:{number}: does not end\n0 passed, 1 failed");
                std::process::exit(1);
            }
        }
    });
}

/// An absurd allocation fails instead of taking the machine down.
fn limit_memory() {
    let limit = libc::rlimit { rlim_cur: MEMORY, rlim_max: MEMORY };
    // SAFETY: the structure is ours and outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
}
