//! Programs that work at once, some of which are fed by us, until the time is up.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::machine::LIMIT;
use crate::processes::{scratch, text, wait};

/// How often they are looked at.
const POLL: Duration = Duration::from_millis(50);

/// The part of the time in which one works alone.
const ALONE: u32 = 4;

struct Member {
    name: String,
    child: Child,
    errors: std::fs::File,
}

/// Programs at work.
#[derive(Default)]
pub(crate) struct Crew(Vec<Member>);

impl Crew {
    /// Starts `command`, which is called `name`.
    pub(crate) fn start(&mut self, name: String, mut command: Command) -> Outcome<()> {
        let errors = scratch()?;
        command.stderr(errors.try_clone().map_err(|e| e.to_string())?).process_group(0);
        let child = command.spawn().map_err(|e| format!("{name}: {e}"))?;
        self.0.push(Member { name, child, errors });
        Ok(())
    }

    /// Lets those who have been started so far work alone for a while, of `time` in all: who syncs
    /// is alone then.
    pub(crate) fn work_alone(&mut self, time: Duration) -> Outcome<()> {
        self.work_for(time / ALONE)
    }

    /// Starts `command`, and writes to its standard input what `next` makes of 1, 2, 3 and so on,
    /// until nobody reads it.
    pub(crate) fn feed(
        &mut self,
        name: String,
        mut command: Command,
        next: impl Fn(u64) -> String + Send + 'static,
    ) -> Outcome<()> {
        command.stdin(Stdio::piped());
        self.start(name, command)?;
        let input = self.0.last_mut().and_then(|member| member.child.stdin.take());
        let mut input = input.ok_or("no pipe")?;
        std::thread::spawn(move || {
            let mut numbers = 1..;
            // It ends with who reads.
            while numbers.next().is_some_and(|n| input.write_all(next(n).as_bytes()).is_ok()) {}
        });
        Ok(())
    }

    /// Lets them work for `time`, and kills them: none may end by itself.
    pub(crate) fn work(mut self, time: Duration) -> Outcome<()> {
        self.work_for(time - time / ALONE)
    }

    fn work_for(&mut self, time: Duration) -> Outcome<()> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            std::thread::sleep(POLL);
            for Member { name, child, errors } in &mut self.0 {
                if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                    let said = errors.try_clone().map(text).unwrap_or_default();
                    return Err(format!("{name} has ended: {status}: {said}"));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for Member { child, .. } in &mut self.0 {
            let _ = child.kill();
            let _ = wait(child, LIMIT);
        }
    }
}
