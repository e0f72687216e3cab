//! Other people's benchmarks, run as they are in a directory: what our own are compared with.

use std::io::{Read, Write};
use std::process::{ChildStderr, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Experiment, Need, Phase, Run, Size, Unit, in_range};
use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::program;
use crate::stopwatch::Batch;
use crate::target::{Kind, Name};

/// One of them.
pub(super) struct Program {
    id: &'static str,
    about: &'static str,
    phases: &'static [Phase],
    /// Its name, and the Debian package that has it.
    binary: (&'static str, &'static str),
    /// Parameters at each size.
    points: fn(Size) -> Vec<Parameters>,
    /// Its arguments, and what it reads from standard input.
    words: fn(&Parameters) -> (Vec<String>, String),
    /// Why it does not work on a target that has a directory, if it doesn't.
    lack: fn(&Name) -> Option<&'static str>,
    /// Phases, each with how much was done, from what it said.
    found: fn(&Said, &Parameters) -> Vec<(&'static str, Batch)>,
}

/// What a program said.
#[derive(Default)]
struct Said {
    /// On standard output.
    printed: String,
    /// On standard error, each piece with when it was heard.
    noted: Vec<(Duration, String)>,
    /// How long it took.
    taken: Duration,
}

impl Said {
    /// When it had noted `words`, after `since` bytes of all that it noted; and how many bytes it
    /// had noted then.
    fn noted_at(&self, words: &str, since: usize) -> Option<(Duration, usize)> {
        let all: String = self.noted.iter().map(|(_, piece)| piece.as_str()).collect();
        let end = since + all.get(since..)?.find(words)? + words.len();
        let mut before = 0;
        let ends_here = |(_, piece): &&(Duration, String)| {
            before += piece.len();
            before >= end
        };
        self.noted.iter().find(ends_here).map(|(time, _)| (*time, end))
    }
}

/// Katcher's PostMark. It tells whole seconds only, so all of it is timed from outside.
pub(super) const POSTMARK: Program = Program {
    id: "program-postmark",
    about: "the program postmark, all of it: creation, transactions and deletion",
    phases: &[Phase { id: "all", unit: Unit::Transactions, part: 0 }],
    binary: ("postmark", "postmark"),
    points: |size| {
        let (files, transactions) = if size == Size::Smoke { (100, 100) } else { (5000, 20_000) };
        vec![Parameters::of(&[
            ("files", files),
            ("transactions", transactions),
            ("low", 512),
            ("high", 16 << 10),
            ("buffering", 1),
        ])]
    },
    words: |parameters| {
        let number = |name: &str| parameters.get(name);
        // With the C library's streams each opening is followed by fstat(2), and appending by
        // lseek(2); without them the same bytes go through calls of its own.
        let buffering = number("buffering") == 1;
        let input = format!(
            "set number {}\nset transactions {}\nset subdirectories {}\nset size {} {}\n\
             set read 4096\nset write 4096\nset bias read 8\nset buffering {buffering}\n\
             set location .\nrun\nquit\n",
            number("files"),
            number("transactions"),
            number("files").isqrt(),
            number("low"),
            number("high")
        );
        (Vec::new(), input)
    },
    lack: |_| None,
    found: |said, parameters| {
        let units = parameters.get("transactions");
        vec![("all", Batch { units, nanoseconds: said.taken.as_nanos() as u64 })]
    },
};

/// Coker's Bonnie++: its six phases on empty files. It tells no rate of what takes less than half a
/// second, so its phases are timed from outside, by what it notes before and after each.
pub(super) const BONNIE: Program = Program {
    id: "program-bonnie",
    about: "the program bonnie++: its six phases on empty files",
    phases: &super::bonnie::PHASES,
    binary: ("bonnie++", "bonnie++"),
    points: |size| {
        // It counts in 1,024 files.
        let (files, directories) = if size == Size::Smoke { (1, 16) } else { (16, 1024) };
        vec![Parameters::of(&[("kibifiles", files), ("directories", directories)])]
    },
    words: |parameters| {
        let files =
            format!("{}:0:0:{}", parameters.get("kibifiles"), parameters.get("directories"));
        let mut words = ["-d", ".", "-s", "0", "-n", &files].map(str::to_owned).to_vec();
        // It wants to be told that root means it.
        if rustix::process::geteuid().is_root() {
            words.extend(["-u".into(), "root".into()]);
        }
        (words, String::new())
    },
    lack: |_| None,
    found: |said, parameters| {
        let units = parameters.get("kibifiles") << 10;
        let mut at = 0;
        let phases = super::bonnie::PHASES.iter().zip(BONNIE_NOTES);
        let phase = |(phase, note): (&Phase, &str)| {
            let (begin, after) = said.noted_at(note, at)?;
            let (end, after) = said.noted_at("done.", after)?;
            at = after;
            let nanoseconds = (end - begin).as_nanos() as u64;
            Some((phase.id, Batch { units, nanoseconds: nanoseconds.max(1) }))
        };
        phases.map_while(phase).collect()
    },
};
/// What Bonnie++ notes when it begins each phase; at the end of each it notes `done.`.
const BONNIE_NOTES: [&str; super::bonnie::PHASES.len()] = [
    "Create files in sequential order...",
    "Stat files in sequential order...",
    "Delete files in sequential order...",
    "Create files in random order...",
    "Stat files in random order...",
    "Delete files in random order...",
];

/// Axboe's fio: transfers of one size.
pub(super) const FIO: Program = Program {
    id: "program-fio",
    about: "the program fio: transfers of one size (latency 1: by how long each took; mapped 1: by \
            copying to and from mappings)",
    phases: &super::throughput::PHASES,
    binary: ("fio", "fio"),
    points: |size| {
        let point = |request, threads, bytes| {
            Parameters::of(&[
                ("request", request),
                ("threads", threads),
                ("bytes", bytes),
                ("passes", 2),
                ("latency", 0),
                ("mapped", 0),
            ])
        };
        match size {
            Size::Smoke => vec![point(4096, 1, 1 << 20)],
            _ => [4 << 10, 64 << 10, 1 << 20].map(|size| point(size, 1, 64 << 20)).to_vec(),
        }
    },
    words: |parameters| {
        let number = |name: &str| parameters.get(name);
        let engine = if number("mapped") == 1 { "mmap" } else { "psync" };
        let mut words: Vec<String> = vec!["--output-format=json".into()];
        for phase in super::throughput::PHASES {
            let kind = match phase.id {
                "read-seq" => "read",
                "read-random" => "randread",
                "write-seq" => "write",
                _ => "randwrite",
            };
            words.extend([
                format!("--name={}", phase.id),
                format!("--rw={kind}"),
                format!("--bs={}", number("request")),
                format!("--size={}", number("bytes")),
                format!("--numjobs={}", number("threads")),
                "--filename_format=file.$jobnum".into(),
                format!("--loops={}", number("passes")),
                "--directory=.".into(),
                format!("--ioengine={engine}"),
                "--invalidate=0".into(),
                // As ours: by default they begin where malloc(3) lets them, and copies take longer.
                "--iomem_align=4096".into(),
                // The same bytes each time, as ours: by default it changes some of them.
                "--scramble_buffers=0".into(),
                "--thread".into(),
                "--group_reporting".into(),
                "--stonewall".into(),
            ]);
        }
        (words, String::new())
    },
    lack: |_| None,
    found: |said, parameters| {
        let printed = said.printed.as_str();
        // Notes may stand before it.
        let json = printed.find('{').and_then(|at| printed.get(at..)).unwrap_or_default();
        let value: Value = serde_json::from_str(json).unwrap_or_default();
        let jobs = value.get("jobs").and_then(Value::as_array).cloned().unwrap_or_default();
        let of = |job: &Value| {
            let name = job.get("jobname")?.as_str()?;
            let phase = super::throughput::PHASES.iter().find(|phase| phase.id == name)?;
            let side = job.get(if name.starts_with("read") { "read" } else { "write" })?;
            // What it does between two transfers, such as choosing an offset and counting, is
            // part of its rate, and not of its latencies.
            let rate = match parameters.get("latency") {
                1 => {
                    let each = side.get("clat_ns")?.get("mean")?.as_f64()?;
                    parameters.get("request") as f64 * 1e9 / each
                }
                _ => side.get("bw_bytes")?.as_f64()?,
            };
            Some((phase.id, per_second(rate)))
        };
        jobs.iter().filter_map(of).collect()
    },
};

/// Tridgell's dbench: a file server's load.
pub(super) const DBENCH: Program = Program {
    id: "program-dbench",
    about: "the program dbench: the calls of a file server with some clients",
    phases: &[Phase { id: "all", unit: Unit::Bytes, part: 0 }],
    binary: ("dbench", "dbench"),
    points: |size| {
        // It tells nothing of the first second.
        let seconds = if size == Size::Smoke { 2 } else { 4 };
        vec![Parameters::of(&[("clients", 1), ("seconds", seconds)])]
    },
    words: |parameters| {
        let seconds = parameters.get("seconds").to_string();
        let clients = parameters.get("clients").to_string();
        (["-D", ".", "-t", &seconds, &clients].map(str::to_owned).to_vec(), String::new())
    },
    lack: |_| None,
    found: |said, _| {
        let line = said.printed.lines().find_map(|line| line.strip_prefix("Throughput "));
        let mebibytes =
            line.and_then(|rest| rest.split(' ').next()).and_then(|one| one.parse().ok());
        let found = mebibytes.filter(|rate: &f64| *rate > 0.0);
        found.map(|rate| ("all", per_second(rate * 1e6))).into_iter().collect()
    },
};

/// Wheeler's fs_mark: files that are made and written.
pub(super) const FS_MARK: Program = Program {
    id: "program-fs_mark",
    about: "the program fs_mark: files made and written",
    phases: &[Phase { id: "create", unit: Unit::Files, part: 0 }],
    binary: ("fs_mark", "fsmark"),
    points: |size| {
        let files = if size == Size::Smoke { 100 } else { 10_000 };
        vec![Parameters::of(&[("files", files), ("bytes", 1024), ("directories", 100)])]
    },
    words: |parameters| {
        let number = |name: &str| parameters.get(name).to_string();
        let (files, bytes, directories) = (number("files"), number("bytes"), number("directories"));
        let words = ["-d", ".", "-S", "0", "-n", &files, "-s", &bytes, "-D", &directories];
        (words.map(str::to_owned).to_vec(), String::new())
    },
    lack: |target| {
        // It divides by the size of the file system.
        let is_ramfs = *target == Name::Kernel(Kind::Ramfs);
        is_ramfs.then_some("it tells no size of itself, by which the program divides")
    },
    found: |said, _| {
        // The row below the heads: use of the space, count, size, files per second, overhead.
        let rows = said.printed.lines().skip_while(|line| !line.contains("Files/sec"));
        let row = rows.skip(1).find(|line| !line.trim().is_empty()).unwrap_or_default();
        let rate = row.split_whitespace().nth(3).and_then(|word| word.parse().ok());
        rate.map(|rate| ("create", per_second(rate))).into_iter().collect()
    },
};

/// All that comes from `from`, each piece with when it came, until it is closed.
fn listen(from: Option<ChildStderr>, begin: Instant) -> JoinHandle<Vec<(Duration, String)>> {
    std::thread::spawn(move || {
        let (mut noted, mut room) = (Vec::new(), [0; 4096]);
        let Some(mut from) = from else { return noted };
        // What can't be read has ended.
        while let Ok(count @ 1..) = from.read(&mut room) {
            let piece = String::from_utf8_lossy(room.get(..count).unwrap_or_default());
            noted.push((begin.elapsed(), piece.into_owned()));
        }
        noted
    })
}

/// `rate` in a second.
fn per_second(rate: f64) -> Batch {
    Batch { units: rate.round() as u64, nanoseconds: 1_000_000_000 }
}

impl Experiment for Program {
    fn id(&self) -> &'static str {
        self.id
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn phases(&self) -> &'static [Phase] {
        self.phases
    }

    fn points(&self, size: Size, _: &Caches) -> Vec<Parameters> {
        (self.points)(size)
    }

    fn need(&self, parameters: &Parameters) -> Result<Need, String> {
        for (name, _) in parameters.iter() {
            match name {
                "buffering" | "latency" | "mapped" => in_range(parameters, name, 0..=1)?,
                _ => in_range(parameters, name, 1..=1 << 40)?,
            };
        }
        let number = |name: &str| parameters.get(name);
        let files = (number("files") + 4 * number("transactions").isqrt()).max(1024)
            + 1024 * number("kibifiles");
        let each = number("bytes").max(number("high"));
        let transfers = if number("request") > 0 { number("threads") * number("bytes") } else { 0 };
        // What dbench has: 25 MiB a client.
        let clients = number("clients") * (64 << 20);
        let bytes = if number("request") > 0 { 0 } else { files.saturating_mul(each) };
        Ok(Need { bytes: bytes + transfers + clients, files: files + 2048, ..Need::default() })
    }

    fn lack(&self, target: &Name) -> Option<&'static str> {
        match target {
            Name::Null
            | Name::SystemCall
            | Name::Memory
            | Name::Leader
            | Name::Raw
            | Name::Volume
            | Name::Conquest
            | Name::Logged
            | Name::Hybrid
            | Name::Device(_) => Some("it has no directory, in which a program could work"),
            Name::Fuse
            | Name::HybridFuse
            | Name::Kernel(_)
            | Name::Directory(_)
            | Name::Twins(_) => (self.lack)(target),
        }
    }

    fn program(&self) -> Option<(&'static str, &'static str)> {
        Some(self.binary)
    }

    fn run(&self, _: usize, run: &mut Run<'_>) -> Result<(), CallError> {
        let named = |source| CallError { call: "run", path: Some(self.binary.0.into()), source };
        let (words, input) = (self.words)(&run.parameters);
        let mut command = Command::new(self.binary.0);
        command.args(words).env("PATH", program::path()).env("LC_ALL", "C").env("HOME", ".");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run.clean_caches();
        run.begin_all();
        let begin = Instant::now();
        let mut child = command.spawn().map_err(named)?;
        if let Some(mut to) = child.stdin.take() {
            // Who does not read it has no need of it.
            let _ = to.write_all(input.as_bytes());
        }
        let noted = listen(child.stderr.take(), begin);
        let output = child.wait_with_output().map_err(named)?;
        let taken = begin.elapsed();
        let noted = noted.join().unwrap_or_default();
        if !output.status.success() {
            let all: String = noted.into_iter().map(|(_, piece)| piece).collect();
            let last = all.trim().lines().last().unwrap_or("without a word").to_owned();
            let reason = format!("{}: {last}", output.status);
            return Err(named(std::io::Error::other(reason)));
        }
        let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let said = Said { printed, noted, taken };
        let found = (self.found)(&said, &run.parameters);
        run.end_all(found.into_iter().map(|(phase, batch)| (phase, vec![batch])).collect());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program: &Program, printed: &str) -> Vec<(&'static str, u64)> {
        let said = Said { printed: printed.into(), ..Said::default() };
        let all = (program.found)(&said, &Parameters::default());
        all.into_iter().map(|(phase, batch)| (phase, batch.units)).collect()
    }

    #[test]
    fn what_programs_print_is_understood() {
        let fio = "note: x\n{\"jobs\": [{\"jobname\": \"read-seq\", \"read\": {\"bw_bytes\": 5},\
                   \"write\": {\"bw_bytes\": 0}}, {\"jobname\": \"write-random\", \"write\":\
                   {\"bw_bytes\": 7}}]}";
        assert_eq!(found(&FIO, fio), [("read-seq", 5), ("write-random", 7)]);
        let dbench =
            "Operation Count\n\nThroughput 12.5 MB/sec  1 clients  1 procs  max_latency=1 ms";
        assert_eq!(found(&DBENCH, dbench), [("all", 12_500_000)]);
        let fs_mark = "#  x\nFSUse%        Count         Size    Files/sec     App Overhead\n\
                       \n     0         1000         1024      51234.5            12345\n";
        assert_eq!(found(&FS_MARK, fs_mark), [("create", 51_235)]);
        for program in [&BONNIE, &FIO, &DBENCH, &FS_MARK] {
            assert_eq!(found(program, ""), []);
        }
    }

    #[test]
    fn phases_are_timed_by_what_is_noted() {
        let noted = [
            (1, "Using uid:0, gid:0.\nCreate files in sequential"),
            (2, " order..."),
            (5, "done.\nStat files in sequential order..."),
            (9, "done."),
            (10, "\nDelete files in sequential order..."),
        ];
        let noted = noted.map(|(ms, piece)| (Duration::from_millis(ms), piece.to_owned()));
        let said = Said { noted: noted.to_vec(), ..Said::default() };
        let found = (BONNIE.found)(&said, &Parameters::of(&[("kibifiles", 3)]));
        let batch = |ms: u64| Batch { units: 3072, nanoseconds: ms * 1_000_000 };
        // The third one has not ended.
        assert_eq!(found, [("create-seq", batch(3)), ("stat-seq", batch(4))]);
    }
}
