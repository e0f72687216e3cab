//! A mail spool: several writers deliver to a maildir, others to a queue, which a manager delivers
//! from.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::crew::Crew;
use crate::machine::{LIMIT, Machine, Shape};
use crate::processes::run;
use crate::suite::Suite;
use crate::{Outcome, mail};

/// Writers of each kind.
const WRITERS: [(&str, u64); 2] = [("maildir", 4), ("queue", 2)];

pub(crate) struct Spool;

/// This program in the role `words`.
fn role(words: &[&str]) -> Outcome<Command> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(own);
    command.arg("mail").args(words).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

impl Suite for Spool {
    fn name(&self) -> &'static str {
        "spool"
    }

    fn shape(&self, sync: &'static str) -> Shape {
        Shape { disk: 192 << 20, core: "48M", threshold: "64K", sync }
    }

    fn prepare(&self, machine: &mut Machine) -> Outcome<()> {
        mail::make(&machine.mount_point())
    }

    fn work(&self, machine: &mut Machine, time: Duration) -> Outcome<()> {
        let (mount, acknowledged) = (machine.mount_point(), machine.acknowledged());
        let (mount, acknowledged) = (mount.to_string_lossy(), acknowledged.to_string_lossy());
        let mut crew = Crew::default();
        let mut number = 0;
        for (kind, count) in WRITERS {
            for _ in 0..count {
                number += 1;
                let command = role(&[kind, &mount, &acknowledged, &number.to_string()])?;
                crew.start(format!("writer {number}"), command)?;
                if number == 1 {
                    crew.work_alone(time)?;
                }
            }
        }
        crew.start("the manager".into(), role(&["manager", &mount])?)?;
        crew.work(time)
    }

    /// By a process: this one must not be stuck in a call on the mount.
    fn judge(&self, machine: &mut Machine, acknowledged: &[&str]) -> Outcome<()> {
        let lines = machine.beside("acknowledged");
        std::fs::write(&lines, acknowledged.join("\n")).map_err(|e| e.to_string())?;
        let (mount, lines) = (machine.mount_point(), lines.to_string_lossy().into_owned());
        run(&mut role(&["judge", &mount.to_string_lossy(), &lines])?, LIMIT).map(drop)
    }
}
