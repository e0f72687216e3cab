//! PostgreSQL, as it is set up by default, in a small space: clients whose transactions are
//! acknowledged, pgbench, and checkpoints.
//!
//! Client `c` does transactions 1, 2, 3 and so on. Each adds a row and counts itself in a second
//! table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Outcome;
use crate::crew::Crew;
use crate::machine::{LIMIT, Machine, Shape};
use crate::processes::{run, until};
use crate::suite::Suite;

/// An ordinary user: the server refuses to be root's.
const USER: &str = "fsgqa";
const CLIENTS: u64 = 3;
/// How long setting up may take.
const SETUP_LIMIT: Duration = Duration::from_secs(600);

/// What row `i` of client `c` has: hundreds of bytes, and sometimes ones that have their own table.
const FILLER: &str = "CASE WHEN i%16=0 THEN (SELECT string_agg(md5(c||':'||i||':'||k), '') FROM \
                      generate_series(1, 600) AS k) ELSE repeat(md5(c||':'||i), 10) END";

pub(crate) struct Postgresql;

/// The newest version that is installed.
fn programs() -> Outcome<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<f64>().ok();
    let found = versions.filter_map(|entry| Some((number(&entry.path())?, entry.path())));
    let newest = found.max_by(|one, other| one.0.total_cmp(&other.0));
    newest.map(|(_, path)| path.join("bin")).ok_or_else(|| "no postgresql is installed".into())
}

/// A program of PostgreSQL, run by the user.
fn command(machine: &Machine, name: &str) -> Outcome<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "stdbuf", "-oL"]);
    command.arg(programs()?.join(name)).current_dir(directory(machine));
    command.env("PGHOST", machine.beside("sockets")).env("PGUSER", USER);
    command.env("PGDATABASE", "postgres").env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    Ok(command)
}

fn psql(machine: &Machine) -> Outcome<Command> {
    let mut command = command(machine, "psql")?;
    command.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]);
    Ok(command)
}

fn sql(machine: &Machine, text: &str) -> Outcome<String> {
    run(psql(machine)?.arg("-c").arg(text), SETUP_LIMIT)
}

fn directory(machine: &Machine) -> PathBuf {
    machine.mount_point().join("pg")
}

/// Makes `path`, the user's own.
fn make(path: &Path) -> Outcome<()> {
    let path = path.to_string_lossy();
    run(Command::new("install").args(["-d", "-m", "700", "-o", USER, "-g", USER, &path]), LIMIT)?;
    Ok(())
}

/// Starts the server, and waits until it takes clients. It ends with the power.
fn start(machine: &Machine) -> Outcome<()> {
    let sockets = machine.beside("sockets");
    make(&sockets)?;
    let log = machine.beside("server.log");
    let file = std::fs::File::create(&log).map_err(|e| e.to_string())?;
    let mut server = command(machine, "postgres")?;
    server.args(["-D", "data", "-k"]).arg(&sockets);
    for setting in [
        "listen_addresses=",
        "fsync=on",
        "synchronous_commit=on",
        "full_page_writes=on",
        "shared_buffers=8MB",
        "min_wal_size=4MB",
        "max_wal_size=16MB",
        "max_connections=20",
    ] {
        server.args(["-c", setting]);
    }
    let copy = file.try_clone().map_err(|e| e.to_string())?;
    server.stdin(Stdio::null()).stdout(copy).stderr(file);
    let mut server = server.spawn().map_err(|e| e.to_string())?;
    let mut ready = command(machine, "pg_isready")?;
    ready.arg("-q").stdin(Stdio::null());
    until("the server", LIMIT, || {
        if let Some(status) = server.try_wait().map_err(|e| e.to_string())? {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("the server has ended: {status}: {said}"));
        }
        let is_ready = ready.status().map_err(|e| e.to_string())?.success();
        if !is_ready {
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(is_ready)
    })
}

fn transaction(c: u64, i: u64) -> String {
    format!(
        "BEGIN; INSERT INTO t SELECT c, i, {FILLER} FROM (SELECT {c} AS c, {i} AS i) AS of; \
         UPDATE tally SET last={i} WHERE c={c}; COMMIT;\n\\echo done {c} {i}\n"
    )
}

/// Whether what is there of the clients is whole, and all that was acknowledged.
fn judge_rows(machine: &Machine, done: &BTreeMap<u64, u64>) -> Outcome<()> {
    let text = format!(
        "SET max_parallel_workers_per_gather=0; SET enable_indexscan=off; \
         SET enable_indexonlyscan=off; SET enable_bitmapscan=off; \
         SELECT s.c, s.last, count(t.i), coalesce(sum(t.i), 0), \
         count(*) FILTER (WHERE t.filler <> {FILLER_OF_T}) \
         FROM tally s LEFT JOIN t ON t.c=s.c GROUP BY s.c, s.last ORDER BY s.c; \
         RESET ALL; SET enable_seqscan=off; SET enable_bitmapscan=off; \
         SELECT 'index', (SELECT count(*) FROM (SELECT c, i FROM t ORDER BY c, i) AS o), \
         (SELECT sum(last) FROM tally); \
         SELECT 'sums', (SELECT sum(abalance) FROM pgbench_accounts), \
         (SELECT sum(bbalance) FROM pgbench_branches), \
         (SELECT sum(tbalance) FROM pgbench_tellers), \
         (SELECT coalesce(sum(delta), 0) FROM pgbench_history);"
    );
    let said = sql(machine, &text)?;
    let mut clients = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split('|').collect();
        let are_same = |words: &[&str]| words.windows(2).all(|pair| pair[0] == pair[1]);
        match words.as_slice() {
            ["index" | "sums", numbers @ ..] => {
                if !are_same(numbers) {
                    return Err(format!("numbers that have to be the same: {line}"));
                }
            }
            words => {
                clients += 1;
                let numbers: Vec<u64> = words.iter().filter_map(|w| w.parse().ok()).collect();
                let &[c, last, count, sum, wrong] = numbers.as_slice() else {
                    return Err(format!("{line:?}"));
                };
                if count != last || sum != last * (last + 1) / 2 || wrong != 0 {
                    return Err(format!("a transaction is there in part: {line}"));
                }
                let acknowledged = done.get(&c).copied().unwrap_or(0);
                if last < acknowledged || last > acknowledged + 1 {
                    return Err(format!(
                        "client {c} was told of {acknowledged} transactions, {last} are there"
                    ));
                }
            }
        }
    }
    if clients != CLIENTS { Err(format!("{clients} clients are there")) } else { Ok(()) }
}

/// [`FILLER`] of a row of `t`.
const FILLER_OF_T: &str = "(SELECT CASE WHEN t.i%16=0 THEN (SELECT string_agg(md5(t.c||':'||t.i||\
                           ':'||k), '') FROM generate_series(1, 600) AS k) ELSE \
                           repeat(md5(t.c||':'||t.i), 10) END)";

impl Suite for Postgresql {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn shape(&self, sync: &'static str) -> Shape {
        Shape { disk: 384 << 20, core: "96M", threshold: "64K", sync }
    }

    fn prepare(&self, machine: &mut Machine) -> Outcome<()> {
        make(&directory(machine))?;
        let mut initdb = command(machine, "initdb")?;
        initdb.args(["-D", "data", "-k", "-A", "trust", "-E", "UTF8", "--no-locale"]);
        run(initdb.arg("--wal-segsize=1"), SETUP_LIMIT)?;
        start(machine)?;
        let clients: Vec<String> = (1..=CLIENTS).map(|c| format!("({c}, 0)")).collect();
        let text = format!(
            "CREATE TABLE t(c int, i int, filler text, PRIMARY KEY(c, i)); \
             CREATE INDEX by_filler ON t(md5(filler)); \
             CREATE TABLE tally(c int PRIMARY KEY, last int); INSERT INTO tally VALUES {};",
            clients.join(", ")
        );
        sql(machine, &text)?;
        run(command(machine, "pgbench")?.args(["-i", "-q", "-s", "1"]), SETUP_LIMIT)?;
        sql(machine, "CHECKPOINT").map(drop)
    }

    fn work(&self, machine: &mut Machine, time: Duration) -> Outcome<()> {
        let mut crew = Crew::default();
        for c in 1..=CLIENTS {
            let mut client = psql(machine)?;
            client.stdout(machine.acknowledged_output()?);
            crew.feed(format!("client {c}"), client, move |i| transaction(c, i))?;
            if c == 1 {
                crew.work_alone(time)?;
            }
        }
        let mut bench = command(machine, "pgbench")?;
        bench.args(["-n", "-c", "2", "-T", "86400"]).stdin(Stdio::null()).stdout(Stdio::null());
        crew.start("pgbench".into(), bench)?;
        let mut checkpoints = psql(machine)?;
        checkpoints.stdout(Stdio::null());
        let text = |_| "SELECT pg_sleep(1.5); CHECKPOINT;\n".to_owned();
        crew.feed("checkpoints".into(), checkpoints, text)?;
        crew.work(time)
    }

    fn judge(&self, machine: &mut Machine, acknowledged: &[&str]) -> Outcome<()> {
        let mut done = BTreeMap::new();
        for line in acknowledged {
            if let ["done", c, i] = line.split(' ').collect::<Vec<_>>().as_slice()
                && let (Ok(c), Ok(i)) = (c.parse(), i.parse())
            {
                done.insert(c, i);
            }
        }
        start(machine)?;
        judge_rows(machine, &done)?;
        // The server is not asked to end in order: nothing more of it is needed.
        crate::processes::end_named(&programs()?)
    }
}
