//! What becomes of a mount whose server is asked to end: with a server of the test's, and real
//! signals.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::process::{Signal, getpid, kill_process};

use super::super::options::MountOptions;
use super::*;
use crate::log::Sink;

/// Signals are for the whole process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());
/// Longest wait for anything.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Default)]
struct State {
    is_mounted: bool,
    is_over: bool,
    /// Tries to unmount that still fail.
    busy: u32,
    /// Whether serving panics.
    is_broken: bool,
    /// Whether users stay after a lazy end.
    users_stay: bool,
    calls: Vec<&'static str>,
}

/// A mount that is only said to be there.
#[derive(Clone, Default)]
struct Fake(Arc<(Mutex<State>, Condvar)>);

impl Fake {
    fn new(busy: u32, users_stay: bool) -> Fake {
        let fake = Fake::default();
        fake.change(|state| (state.busy, state.users_stay) = (busy, users_stay));
        fake
    }

    fn change<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let (state, changed) = &*self.0;
        let result = work(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
        result
    }

    fn wait(&self, is_so: impl Fn(&State) -> bool) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (_state, timeout) =
            changed.wait_timeout_while(state, LIMIT, |state| !is_so(state)).unwrap();
        assert!(!timeout.timed_out());
    }

    fn calls(&self) -> Vec<&'static str> {
        self.change(|state| state.calls.clone())
    }
}

impl Serve for Fake {
    fn mount(&mut self, request: &MountRequest) -> Result<Box<dyn End>> {
        if request.options.read_only {
            return Err(Reason::rule("it can't be read only"));
        }
        self.change(|state| state.is_mounted = true);
        Ok(Box::new(self.clone()))
    }

    fn run(&mut self) -> Result<()> {
        assert!(!self.change(|state| state.is_broken), "broken");
        self.wait(|state| state.is_over);
        Ok(())
    }
}

impl End for Fake {
    fn unmount(&self, is_lazy: bool) -> Result<()> {
        self.change(|state| {
            state.calls.push(if is_lazy { "lazy" } else { "unmount" });
            if !is_lazy && state.busy > 0 {
                state.busy -= 1;
                return Err(Errno::EBUSY.into());
            }
            state.is_over = !is_lazy || !state.users_stay;
            Ok(())
        })
    }

    fn abort(&self) -> Result<()> {
        self.change(|state| {
            state.calls.push("abort");
            state.is_over = true;
        });
        Ok(())
    }
}

fn request(read_only: bool) -> MountRequest {
    MountRequest {
        source: "/store".into(),
        point: Path::new("/proc").into(),
        options: MountOptions { read_only, ..MountOptions::default() },
        log: Arc::new(Log::new(Level::Info, Sink::Nowhere)),
    }
}

/// Serves, and does `meanwhile` once it is mounted.
fn served(fake: &Fake, meanwhile: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let mut server = fake.clone();
        let serving = scope.spawn(move || serve(&mut server, &request(false), None));
        fake.wait(|state| state.is_mounted);
        meanwhile();
        serving.join().unwrap().unwrap();
    });
}

fn send(signal: Signal) {
    kill_process(getpid(), signal).unwrap();
}

#[test]
fn the_first_signal_unmounts() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let fake = Fake::new(0, false);
        served(&fake, || send(signal));
        assert_eq!(fake.calls(), ["unmount"]);
    }
}

#[test]
fn users_are_waited_for() {
    let fake = Fake::new(2, false);
    served(&fake, || send(Signal::TERM));
    assert_eq!(fake.calls(), ["unmount"; 3]);
}

#[test]
fn users_that_stay_keep_what_they_have() {
    let fake = Fake::new(u32::MAX, false);
    let begin = Instant::now();
    served(&fake, || send(Signal::TERM));
    assert!(begin.elapsed() >= PATIENCE);
    let calls = fake.calls();
    assert_eq!(calls.last(), Some(&"lazy"));
    assert_eq!(calls.iter().filter(|call| **call != "unmount").count(), 1);
}

#[test]
fn the_second_signal_ends_it_at_once() {
    let fake = Fake::new(u32::MAX, true);
    let begin = Instant::now();
    served(&fake, || {
        send(Signal::TERM);
        fake.wait(|state| !state.calls.is_empty());
        send(Signal::TERM);
    });
    assert!(begin.elapsed() < PATIENCE);
    assert!(fake.calls().ends_with(&["lazy", "abort"]), "{:?}", fake.calls());
}

#[test]
fn who_unmounts_otherwise_ends_it_too() {
    let fake = Fake::new(0, false);
    served(&fake, || fake.change(|state| state.is_over = true));
    assert!(fake.calls().is_empty());
}

#[test]
fn a_panic_ends_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fake = Fake::default();
    fake.change(|state| state.is_broken = true);
    let begin = Instant::now();
    let request = request(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || serve(&mut fake, &request, None));
        assert!(serving.join().is_err());
    });
    assert!(begin.elapsed() < LIMIT);
}

#[test]
fn what_can_not_be_mounted_is_not_served() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut fake = Fake::default();
    let failure = serve(&mut fake, &request(true), None).unwrap_err();
    assert!(matches!(&failure, Failure::Failed(why) if why.to_string().contains("read only")));
}
