//! Processes that do what they are told, while the test goes on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use conquest_peers::child::{Child, end_with_parent, fork};
use conquest_peers::process::{Process, readable};

use super::{SOON, eventually};

/// How long somebody has to be silent who is taken to be waiting.
const SILENCE: Duration = Duration::from_millis(150);

/// Calls that wait for locks: the kernel's, and those of the library.
const WAITS: [i64; 3] = [libc::SYS_fcntl, libc::SYS_flock, libc::SYS_futex];

/// A process that carries out orders, one after the other. Killed when this is dropped.
pub(crate) struct Actor {
    line: UnixStream,
    process: Process,
    child: Option<Child>,
}

impl Actor {
    /// One that answers each order by what `work` says.
    pub(crate) fn new(mut work: impl FnMut(&str) -> String) -> Actor {
        let (line, theirs) = UnixStream::pair().unwrap();
        let child = fork(|| {
            end_with_parent();
            let mut theirs = &theirs;
            while let Some(order) = receive(theirs) {
                send(&mut theirs, &work(&order));
            }
        });
        Actor { line, process: Process::find(child.number()), child: Some(child) }
    }

    /// Its process id.
    pub(crate) fn number(&self) -> u32 {
        self.child.as_ref().unwrap().number()
    }

    /// Orders something, and does not wait for it.
    pub(crate) fn begin(&self, order: &str) {
        send(&mut &self.line, order);
    }

    /// What came of it; fails if it does not come soon.
    pub(crate) fn answer(&self) -> String {
        self.line.set_read_timeout(Some(SOON)).unwrap();
        receive(&self.line).unwrap_or_else(|| panic!("an actor does not answer, or has ended"))
    }

    /// Orders something: what came of it.
    pub(crate) fn ask(&self, order: &str) -> String {
        self.begin(order);
        self.answer()
    }

    /// Whether it is busy with what it was ordered, and stays so for a while.
    pub(crate) fn is_waiting(&self) -> bool {
        !readable(&self.line, SILENCE)
    }

    /// Whether it has done what it was ordered, or has ended.
    pub(crate) fn has_answer(&self) -> bool {
        readable(&self.line, Duration::ZERO)
    }

    /// Orders something that has to wait for a lock, and waits until it does.
    pub(crate) fn begin_waiting(&self, order: &str) {
        self.begin(order);
        eventually(order, || self.has_answer() || self.is_in_call());
        assert!(self.is_waiting(), "{order} did not wait, but said: {}", self.answer());
    }

    /// Whether it is in a call by which it may wait for a lock, or has just been.
    fn is_in_call(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.number())).unwrap();
        let number = call.split(' ').next().and_then(|number| number.trim().parse().ok());
        number.is_some_and(|number: i64| WAITS.contains(&number))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: i32) {
        self.process.send(signal);
    }

    /// Kills it, and waits until nothing is left of it.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(child) = self.child.take() {
            self.process.kill();
            child.end();
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.end();
    }
}

fn send(line: &mut &UnixStream, text: &str) {
    let len = u32::try_from(text.len()).unwrap();
    line.write_all(&[&len.to_ne_bytes()[..], text.as_bytes()].concat()).unwrap();
}

fn receive(mut line: &UnixStream) -> Option<String> {
    let mut len = [0; 4];
    line.read_exact(&mut len).ok()?;
    let mut text = vec![0; u32::from_ne_bytes(len) as usize];
    line.read_exact(&mut text).ok()?;
    String::from_utf8(text).ok()
}
