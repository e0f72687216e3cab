//! Work that is done by one at a time, of all processes: who waits for it, and for how long.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod hooked;
mod volumes;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use conquest_flash::{Error, Result, assemble};
use conquest_format::volume::Arrangement;
use hooked::{Hooked, new_volume, open};
use volumes::{Model, TestVolume, UNIT};

/// What others do is under way by then, or they are late: both have to be right.
const A_WHILE: Duration = Duration::from_millis(50);
/// One whose turn it is for long is waited for ten seconds.
const SOON: Duration = Duration::from_secs(5);

/// The volume on a device of `segments` segments, as so many processes have it.
fn several(processes: usize, segments: u64) -> (Vec<Arc<Hooked>>, Vec<Arc<TestVolume>>) {
    let device = &new_volume(1, Arrangement::Striped, segments)[0];
    let devices: Vec<_> = (0..processes).map(|_| Hooked::new(device, false)).collect();
    let body = |device: &Arc<Hooked>| assemble(vec![Arc::clone(device) as _]).unwrap();
    let bodies: Vec<_> = devices.iter().map(body).collect();
    (devices, open(&bodies))
}

/// Lets the first of the processes be stopped while it writes a checkpoint, and does `meanwhile`:
/// what comes of the checkpoint.
fn stopped(
    devices: &[Arc<Hooked>],
    volumes: &[Arc<TestVolume>],
    meanwhile: impl FnOnce(),
) -> Result<()> {
    let (stopped, is_stopped) = channel();
    let (go_on, goes_on) = channel::<()>();
    devices[0].in_next_write(move || {
        stopped.send(()).unwrap();
        // Whoever fails lets it go on, too.
        let _ = goes_on.recv();
        Ok(())
    });
    thread::scope(|scope| {
        let writing = scope.spawn(|| volumes[0].checkpoint());
        is_stopped.recv().unwrap();
        meanwhile();
        drop(go_on);
        writing.join().unwrap()
    })
}

fn begin(volume: &Arc<TestVolume>) -> JoinHandle<Result<()>> {
    let volume = Arc::clone(volume);
    thread::spawn(move || volume.checkpoint())
}

/// What comes of `work`, which ends soon.
fn ended(work: JoinHandle<Result<()>>) -> Result<()> {
    let since = Instant::now();
    while !work.is_finished() {
        assert!(since.elapsed() < SOON, "it is not over");
        thread::sleep(Duration::from_millis(1));
    }
    work.join().unwrap()
}

#[test]
fn checkpoints_are_written_one_at_a_time() {
    let (devices, volumes) = several(2, 100);
    for other in &volumes {
        let mut waiting = None;
        stopped(&devices, &volumes, || {
            let work = begin(other);
            thread::sleep(A_WHILE);
            assert!(!work.is_finished(), "it does not wait");
            waiting = Some(work);
        })
        .unwrap();
        ended(waiting.unwrap()).unwrap();
        // It is nobody's turn any more.
        volumes.iter().for_each(|volume| ended(begin(volume)).unwrap());
    }
}

#[test]
fn one_who_is_stopped_for_long_is_not_waited_for() {
    let (devices, volumes) = several(2, 100);
    let mut model = Model::default();
    volumes[0].write(0, &model.write(0, 80, 1)).unwrap();
    stopped(&devices, &volumes, || {
        let since = Instant::now();
        volumes[1].checkpoint().unwrap();
        assert!(since.elapsed() > SOON, "{:?}", since.elapsed());
        // It is its turn now.
        ended(begin(&volumes[1])).unwrap();
    })
    .unwrap();
    for volume in &volumes {
        ended(begin(volume)).unwrap();
        model.compare(volume, 80, "both have written one");
    }
}

#[test]
fn who_waits_is_told_that_the_volume_has_failed() {
    let (devices, volumes) = several(3, 100);
    let outcome = stopped(&devices, &volumes, || {
        let waiting = [0, 1].map(|number| begin(&volumes[number]));
        thread::sleep(A_WHILE);
        volumes[2].write(0, &[1; UNIT as usize]).unwrap();
        devices[2].in_next_flush(|| Err(io::Error::from_raw_os_error(libc::EIO)));
        assert!(matches!(volumes[2].flush(), Err(Error::Device { .. })));
        for work in waiting {
            assert!(matches!(ended(work), Err(Error::Failed { .. })));
        }
    });
    assert!(matches!(outcome, Err(Error::Failed { .. })), "{outcome:?}");
}
