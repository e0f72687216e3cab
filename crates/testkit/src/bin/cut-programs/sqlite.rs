//! SQLite: several databases with several writers, each in a journal mode with the setting that
//! promises what was committed to outlive the power.
//!
//! Writer `w` does transactions 1, 2, 3 and so on. Each adds a row, removes most of the older ones,
//! and counts itself in a second table, all at once; so what has to be there follows from the
//! count.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use crate::Outcome;
use crate::crew::Crew;
use crate::machine::{LIMIT, Machine, Shape};
use crate::processes::run;
use crate::suite::Suite;

/// A database.
struct Database {
    name: &'static str,
    mode: &'static str,
    synchronous: &'static str,
    writers: u64,
    /// Transactions that may be missing although they were acknowledged.
    slack: u64,
}

const fn database(name: &'static str, mode: &'static str, writers: u64) -> Database {
    Database { name, mode, synchronous: "FULL", writers, slack: 0 }
}

/// With `FULL`, SQLite does not sync the directory when it has removed a journal to commit: so its
/// last transaction may be missing by its own rules, and none before. `EXTRA` is for that.
const DATABASES: [Database; 5] = [
    database("wal", "wal", 2),
    database("truncate", "truncate", 2),
    database("persist", "persist", 1),
    Database { synchronous: "EXTRA", ..database("delete", "delete", 1) },
    Database { slack: 1, ..database("delete-full", "delete", 1) },
];

/// Rows that are all kept; of older ones, one in `FEW` is.
const RECENT: u64 = 40;
const FEW: u64 = 4;

/// What row `i` of writer `w` has: hundreds of bytes, and sometimes more than a store's threshold.
const FILLER: &str = "printf('%.*c', CASE WHEN i%16=0 THEN 90000 ELSE 200+(i*37)%900 END, \
                      char(97+(w*7+i)%26)) || ':' || w || ':' || i";

pub(crate) struct Sqlite;

impl Database {
    fn open(&self, machine: &Machine) -> Command {
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "sqlite3", "-batch", "-bail", "-cmd", ".timeout 60000"]);
        let (mode, synchronous) = (self.mode, self.synchronous);
        let pragmas = format!(
            "PRAGMA journal_mode={mode}; PRAGMA synchronous={synchronous}; \
             PRAGMA wal_autocheckpoint=200;"
        );
        command.arg("-cmd").arg(pragmas);
        command.arg(machine.mount_point().join(format!("{}.db", self.name)));
        command
    }

    /// The SQL of transaction `i` of writer `w`.
    fn transaction(&self, w: u64, i: u64) -> String {
        let name = self.name;
        format!(
            "BEGIN IMMEDIATE; \
             INSERT INTO t SELECT w, i, {FILLER} FROM (SELECT {w} AS w, {i} AS i); \
             DELETE FROM t WHERE w={w} AND i={i}-{RECENT} AND i%{FEW}<>0; \
             UPDATE tally SET last={i}, sum=sum+{i} WHERE w={w}; COMMIT; \
             SELECT 'done {name} {w} {i}';\n"
        )
    }

    fn judge(&self, machine: &Machine, done: &BTreeMap<(String, u64), u64>) -> Outcome<()> {
        let sql = format!(
            "PRAGMA integrity_check; SELECT w, last, sum, (SELECT count(*) FROM t WHERE w=s.w), \
             (SELECT total(i) FROM t WHERE w=s.w), \
             (SELECT count(*) FROM t WHERE w=s.w AND filler IS NOT {FILLER}) FROM tally s;"
        );
        let mut command = Command::new("sqlite3");
        command.args(["-batch", "-bail", "-cmd", ".timeout 60000"]);
        command.arg(machine.mount_point().join(format!("{}.db", self.name))).arg(sql);
        let said = run(&mut command, LIMIT)?;
        let mut lines = said.lines();
        if lines.next() != Some("ok") {
            return Err(format!("{}: it is damaged: {said}", self.name));
        }
        let mut writers = 0;
        for line in lines {
            writers += 1;
            let numbers = line.split('|').map(|word| word.parse::<f64>().unwrap_or(-1.0) as u64);
            let &[w, last, sum, count, total, wrong] = numbers.collect::<Vec<_>>().as_slice()
            else {
                return Err(format!("{}: {line:?}", self.name));
            };
            let acknowledged = done.get(&(self.name.to_owned(), w)).copied().unwrap_or(0);
            let kept = || (1..=last).filter(|i| i % FEW == 0 || i + RECENT > last);
            let is_whole = wrong == 0
                && sum == (1..=last).sum::<u64>()
                && count == kept().count() as u64
                && total == kept().sum::<u64>();
            if !is_whole {
                return Err(format!("{}: a transaction is there in part: {line}", self.name));
            }
            if last + self.slack < acknowledged {
                return Err(format!(
                    "{}: writer {w} was told of {acknowledged} transactions, {last} are there",
                    self.name
                ));
            }
            if last > acknowledged + 1 {
                return Err(format!("{}: {last} are there of {acknowledged}", self.name));
            }
        }
        if writers != self.writers {
            return Err(format!("{}: {writers} writers are there", self.name));
        }
        Ok(())
    }
}

impl Suite for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn shape(&self, sync: &'static str) -> Shape {
        Shape { disk: 160 << 20, core: "40M", threshold: "64K", sync }
    }

    fn prepare(&self, machine: &mut Machine) -> Outcome<()> {
        for database in DATABASES {
            let writers = (1..=database.writers).map(|w| format!("({w}, 0, 0)"));
            let writers: Vec<String> = writers.collect();
            let sql = format!(
                "CREATE TABLE t(w INTEGER, i INTEGER, filler TEXT, PRIMARY KEY(w, i)); \
                 CREATE INDEX by_filler ON t(substr(filler, 1, 50)); \
                 CREATE TABLE tally(w INTEGER PRIMARY KEY, last INTEGER, sum INTEGER); \
                 INSERT INTO tally VALUES {};",
                writers.join(", ")
            );
            run(database.open(machine).arg(sql), LIMIT)?;
        }
        Ok(())
    }

    fn work(&self, machine: &mut Machine, time: Duration) -> Outcome<()> {
        let mut crew = Crew::default();
        for (number, database) in DATABASES.iter().enumerate() {
            for w in 1..=database.writers {
                let mut command = database.open(machine);
                command.stdout(machine.acknowledged_output()?);
                let name = format!("writer {w} of {}", database.name);
                crew.feed(name, command, move |i| database.transaction(w, i))?;
                if number == 0 && w == 1 {
                    crew.work_alone(time)?;
                }
            }
        }
        crew.work(time)
    }

    fn judge(&self, machine: &mut Machine, acknowledged: &[&str]) -> Outcome<()> {
        let mut done = BTreeMap::new();
        for line in acknowledged {
            if let ["done", name, w, i] = line.split(' ').collect::<Vec<_>>().as_slice()
                && let (Ok(w), Ok(i)) = (w.parse(), i.parse())
            {
                done.insert(((*name).to_owned(), w), i);
            }
        }
        DATABASES.iter().try_for_each(|database| database.judge(machine, &done))
    }
}
