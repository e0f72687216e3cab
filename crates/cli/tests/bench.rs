//! Measuring: every experiment at its smallest, reports, and what is left behind.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use conquest_bench::calls::Answering;
use conquest_bench::parameters::Parameters;
use conquest_bench::process;
use conquest_bench::worker::{Answer, Purpose, Request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{
    LIMIT, Scratch, USER, command, conquest, conquest_as, finish, need_root, printed, refused,
    text, wait,
};

const EXPERIMENTS: [&str; 15] = [
    "sprite-small",
    "sprite-large-original",
    "sprite-large",
    "array",
    "effects",
    "attach",
    "postmark",
    "postmark-large",
    "bonnie",
    "throughput",
    "metadata",
    "bundle",
    "shared-file",
    "sync",
    "scaling",
];

/// What a report in a file says.
fn report(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn words(value: &Value, key: &str) -> BTreeSet<String> {
    let all = value.as_array().unwrap().iter();
    all.map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn experiments_and_targets_are_listed() {
    let listed = printed(["bench", "list"]);
    for word in EXPERIMENTS.iter().chain(&["ramfs", "ext4", "conquest", "fuse", "syscall"]) {
        assert!(listed.contains(&format!("\n  {word} ")), "{word}: {listed}");
    }
}

/// Measures as small as possible, and keeps the report at `json`.
fn smoke(targets: &str, experiments: &[&str], json: &Path) -> Value {
    let measured = || {
        let mut bench = command(None);
        bench.args(["bench", "--size", "smoke", "--rounds", "1", "--on", targets, "--json"]);
        bench.arg(json).args(experiments);
        finish(bench.stdout(Stdio::piped()).stderr(Stdio::piped()))
    };
    // On a machine that does other work as well so little may be over before all have begun, which
    // is told.
    let is_too_short =
        |output: &Output| text(&output.stderr).contains("they were not at work at the same time");
    let output = (0..5).map(|_| measured()).find(|output| !is_too_short(output));
    let output = output.unwrap_or_else(measured);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let found = report(json.to_str().unwrap());
    for result in found["results"].as_array().unwrap() {
        assert!(result["median"].as_f64().is_some_and(|rate| rate > 0.0), "{result}");
        assert_eq!(result["samples"].as_array().unwrap().len(), 1);
    }
    assert_eq!(found["failures"].as_array().unwrap().len(), 0);
    assert_eq!(words(&found["targets"], "target").len(), targets.split(',').count());
    found
}

/// Each kind of target that has to be made.
#[test]
fn targets_are_made_and_measured() {
    need_root();
    let scratch = Scratch::new();
    let targets = "tmpfs,tmpfs-huge,ext2,ext3,ext4,fuse,logged,hybrid";
    let found = smoke(targets, &["sprite-large", "sync"], &scratch.join("made.json"));
    for target in found["targets"].as_array().unwrap() {
        let options = target["options"].to_string();
        let has_device = options.contains("MiB loop device");
        let name = target["target"].as_str().unwrap();
        assert_eq!(has_device, name.starts_with("ext"), "{target}");
        let is_durable = has_device || matches!(name, "logged" | "hybrid");
        assert!(options.len() > 10, "{target}");
        let survives = if is_durable { "power-after-sync" } else { "process" };
        assert_eq!(target["survives"], survives, "{target}");
    }
    let memory = smoke("memory", &["sprite-large", "throughput"], &scratch.join("memory.json"));
    assert_eq!(memory["results"].as_array().unwrap().len(), 9);
}

/// Other people's programs, in directories.
#[test]
fn programs_are_measured_where_there_are_directories() {
    need_root();
    let scratch = Scratch::new();
    let all =
        ["postmark", "bonnie", "fio", "dbench", "fs_mark"].map(|one| format!("program-{one}"));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let listed = printed(["bench", "list"]);
    assert!(all.iter().all(|name| listed.contains(name)), "{listed}");
    let json = scratch.join("programs.json");
    let mut bench = command(None);
    bench.args(["bench", "--size", "smoke", "--rounds", "1", "--on", "tmpfs,conquest"]);
    let output = finish(
        bench.arg("--json").arg(&json).args(&all).stdout(Stdio::null()).stderr(Stdio::piped()),
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let found = report(json.to_str().unwrap());
    assert_eq!(found["failures"].as_array().unwrap().len(), 0, "{said}");
    let left_out = found["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), all.len(), "{said}");
    for reason in left_out {
        let words = reason.as_str().unwrap();
        assert!(words.contains("on conquest") && words.contains("no directory"), "{words}");
        assert!(said.contains(words), "{said}");
    }
    for result in found["results"].as_array().unwrap() {
        let is_left_out = result["target"] == "conquest";
        assert!(
            is_left_out || result["median"].as_f64().is_some_and(|rate| rate > 0.0),
            "{result}"
        );
    }
}

/// Who measures is another program, in another language; and one that does not know how.
#[test]
fn other_programs_measure_by_the_protocol() {
    need_root();
    let scratch = Scratch::new();
    let plain = scratch.join("loop");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/comparators/loop.c");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&plain).arg(source);
    let compiled = finish(compile.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let json = scratch.join("plain.json");
    let on = format!("tmpfs,tmpfs@{}", plain.display());
    let mut bench = command(None);
    bench.args(["bench", "--size", "smoke", "--rounds", "1", "--set", "threads=1", "--on", &on]);
    bench.args(["sprite-small", "throughput", "--json"]).arg(&json);
    let output = finish(bench.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let found = report(json.to_str().unwrap());
    assert_eq!(found["results"].as_array().unwrap().len(), 16);
    assert_eq!(words(&found["targets"], "target"), ["tmpfs", "tmpfs@loop"].map(Into::into).into());
    for result in found["results"].as_array().unwrap() {
        assert!(result["median"].as_f64().is_some_and(|rate| rate > 0.0), "{result}");
    }
    let whole = found.to_string();
    let directory = scratch.path().to_str().unwrap();
    assert!(whole.contains("calls made by the program loop") && !whole.contains(directory));
    let failing = |experiment: &str, on: &str| {
        let bench = ["bench", experiment, "--size", "smoke", "--rounds", "1", "--on", on];
        refused(1, bench)
    };
    let said = failing("array", &on.replace("tmpfs", "null"));
    assert!(said.contains("directories only, not on a target of the kind null"), "{said}");
    let said = failing("bonnie", &on);
    assert!(said.contains("the C loop has no experiment bonnie"), "{said}");
    let said = failing("sprite-small", "tmpfs@/bin/true");
    assert!(said.contains("/bin/true: measured nothing") && said.contains("answer"), "{said}");
    let said = failing("sprite-small", "tmpfs@/nowhere/loop");
    assert!(said.contains("/nowhere/loop") && said.contains("No such file"), "{said}");
}

/// Each experiment, and a report that keeps to the schema.
#[test]
fn every_experiment_can_be_done() {
    need_root();
    let scratch = Scratch::new();
    let (json, schema) = (scratch.join("all.json"), scratch.join("schema.json"));
    let (json, schema) = (json.to_str().unwrap(), schema.to_str().unwrap());
    let found = smoke("null,syscall,ramfs,conquest", &EXPERIMENTS, json.as_ref());
    assert_eq!(found["experiment"], EXPERIMENTS.join(" "));
    assert_eq!(words(&found["results"], "experiment").len(), EXPERIMENTS.len());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let whole = std::fs::read_to_string(json).unwrap();
    assert!(!whole.contains("/dev/shm") && !whole.contains("/var/tmp"), "{whole}");
    assert!(host.trim().len() < 4 || !whole.contains(host.trim()), "{whole}");
    std::fs::write(schema, printed(["bench", "schema"])).unwrap();
    let judge = |instance: &str| {
        let mut judge = Command::new("jsonschema");
        judge.args(["-i", instance, schema]).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(&mut judge)
    };
    let judged = judge(json);
    assert!(judged.status.success(), "{}{}", text(&judged.stdout), text(&judged.stderr));
    // It can tell.
    let bad = scratch.join("bad.json");
    std::fs::write(&bad, whole.replace("\"median\"", "\"mean\"")).unwrap();
    assert!(!judge(bad.to_str().unwrap()).status.success());
}

/// A part of an experiment on a floor, with its system calls counted.
fn to_trace(experiment: &str, part: usize, parameters: Parameters) -> Request {
    Request {
        answering: Answering::SystemCall,
        experiment: experiment.into(),
        part,
        beside: None,
        takes_turns: false,
        parameters,
        seed: 1,
        user: None,
        processor: None,
        sweep: 0,
        delay: 0.0,
        purpose: Purpose::Calls,
    }
}

/// How many there are in its phases.
fn traced(experiment: &str, part: usize, parameters: Parameters) -> Vec<(String, u64)> {
    let request = to_trace(experiment, part, parameters);
    let program = Path::new(env!("CARGO_BIN_EXE_conquest"));
    match process::run(program, &request, LIMIT, &|| false).unwrap() {
        Answer::Done { measured, .. } => measured
            .into_iter()
            .map(|one| (one.phase, one.whole.unwrap().system_calls.unwrap()))
            .collect(),
        Answer::Failed(reason) => panic!("{reason}"),
    }
}

/// The floor makes one for each call: all are counted, and none of what is around the phases.
#[test]
fn system_calls_are_counted_one_by_one() {
    let small = Parameters::of(&[("files", 300), ("bytes", 10), ("directories", 3)]);
    for (part, phase, calls) in [(0, "create", 900), (1, "read", 900), (2, "stat", 300)] {
        assert_eq!(traced("sprite-small", part, small.clone()), [(phase.to_owned(), calls)]);
    }
    // Two threads, each of which opens a file, transfers 256 times, and closes it.
    let [request, threads, bytes, passes] =
        [("request", 4096), ("threads", 2), ("bytes", 1 << 20), ("passes", 1)];
    let found = traced("throughput", 0, Parameters::of(&[request, threads, bytes, passes]));
    assert_eq!(found.len(), 4);
    for (phase, calls) in found {
        // New threads may ask for memory.
        assert!((516..540).contains(&calls), "{phase}: {calls}");
    }
}

/// Who gives up ends a traced process with all of its threads, and waits for nobody.
#[test]
fn traced_processes_are_ended_in_the_middle() {
    let large = [("request", 4096), ("threads", 3), ("bytes", 1 << 26), ("passes", 1000)];
    let request = to_trace("throughput", 0, Parameters::of(&large));
    let program = Path::new(env!("CARGO_BIN_EXE_conquest"));
    let begin = Instant::now();
    let is_late = || begin.elapsed() > Duration::from_millis(700);
    let stopped = process::run(program, &request, LIMIT, &is_late);
    assert!(matches!(stopped, Err(conquest_bench::Error::Stopped)), "{stopped:?}");
    let slow = process::run(program, &request, Duration::from_millis(700), &|| false);
    assert!(matches!(slow, Err(conquest_bench::Error::Slow(_))), "{slow:?}");
    assert!(begin.elapsed() < LIMIT / 2, "{:?}", begin.elapsed());
}

/// Of the library, more is counted than of others.
#[test]
fn what_operations_cost_besides_time_is_told() {
    let scratch = Scratch::new();
    let (json, html) = (scratch.join("cost.json"), scratch.join("cost.html"));
    let args = ["bench", "sprite-small", "--size", "smoke", "--rounds", "1"];
    let mut bench = command(None);
    bench.args(args).args(["--on", "null,conquest", "--json"]).arg(&json).arg("--html").arg(&html);
    let output = finish(bench.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("per operation: 3"), "{said}");
    assert!(said.contains(" fences (none in RAM), 0 system calls, "), "{said}");
    let found = report(json.to_str().unwrap());
    for result in found["results"].as_array().unwrap() {
        let (per, phase) = (&result["per_operation"], result["phase"].as_str().unwrap());
        let number = |name: &str| per[name].as_f64();
        assert!(number("page_faults").is_some(), "{result}");
        if result["target"] == "null" {
            assert!(per["fences"].is_null() && per["system_calls"].is_null(), "{result}");
            continue;
        }
        // How it is shared out between both is a guess of the kernel, by ticks.
        assert!(number("user_ns").unwrap() + number("system_ns").unwrap() > 100.0, "{result}");
        assert!(number("system_calls").unwrap() < 0.5, "{result}");
        let changes = phase == "create" || phase == "unlink";
        for name in ["fences", "written_back", "journal_bytes", "shared_lines"] {
            let most = if changes { 3.0..1000.0 } else { 0.0..100.0 };
            assert!(most.contains(&number(name).unwrap()), "{name}: {result}");
        }
        assert!(phase != "stat" || number("shared_lines") == Some(0.0), "{result}");
    }
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<caption>Per operation</caption>"), "{page}");
}

/// Instructions are counted where that is asked for, in a simulated processor.
#[test]
fn instructions_are_counted_in_a_simulated_processor() {
    let scratch = Scratch::new();
    let json = scratch.join("instructions.json");
    let mut bench = command(None);
    bench.args(["bench", "sprite-small", "--size", "smoke", "--rounds", "1", "--instructions"]);
    bench.args(["--on", "conquest", "--json"]).arg(&json);
    // What it leaves behind would be there, where nobody removes what is root's.
    let temporary = scratch.join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o1777)).unwrap();
    bench.env("TMPDIR", &temporary);
    let output = finish(bench.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let left: Vec<_> = std::fs::read_dir(&temporary).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains(" misses of the first cache, "), "{said}");
    let found = report(json.to_str().unwrap());
    for result in found["results"].as_array().unwrap() {
        let number = |name: &str| result["per_operation"][name].as_f64().unwrap();
        let instructions = number("instructions");
        assert!((100.0..1e6).contains(&instructions), "{result}");
        assert!(number("first_misses") < instructions, "{result}");
        assert!(number("last_misses") <= number("first_misses"), "{result}");
    }
}

/// Who may not trace his own processes, because nobody may read the program, measures all the same.
#[test]
fn without_the_right_to_trace_the_rest_is_counted() {
    need_root();
    let scratch = Scratch::new();
    let (program, json) = (scratch.join("conquest"), scratch.join("untraced.json"));
    std::fs::copy(env!("CARGO_BIN_EXE_conquest"), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o711)).unwrap();
    let mut bench = Command::new(&program);
    bench.uid(USER).gid(USER).env("TMPDIR", scratch.path());
    bench.args(["bench", "sprite-small", "--size", "smoke", "--rounds", "1", "--on", "conquest"]);
    let output =
        finish(bench.arg("--json").arg(&json).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("not counted: system calls"), "{said}");
    let found = report(json.to_str().unwrap());
    for result in found["results"].as_array().unwrap() {
        let per = &result["per_operation"];
        assert!(per["system_calls"].is_null() && per["fences"].is_number(), "{result}");
    }
}

/// Enough samples for intervals, and targets that are the same.
#[test]
fn targets_are_compared_with_the_first() {
    let scratch = Scratch::new();
    let json = scratch.join("two.json");
    let json = json.to_str().unwrap();
    let on = ["bench", "array", "--size", "smoke", "--rounds", "5"];
    let output = conquest([&on[..], &["--on", "null,null+1000%", "--json", json]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("x null"), "{said}");
    let found = report(json);
    for compared in found["comparisons"].as_array().unwrap() {
        let (ratio, ends) = (compared["ratio"].as_f64().unwrap(), &compared["ci90"]);
        assert!(ratio < 0.9, "{compared}");
        assert!(ends[0].as_f64().unwrap() <= ratio && ratio <= ends[1].as_f64().unwrap());
        // On a busy machine five samples may not be enough.
        let is_slower = ends[1].as_f64().unwrap() < 0.99;
        assert_eq!(compared["verdict"] == "slower", is_slower, "{compared}");
        assert_eq!(compared["same_class"], true, "{compared}");
    }
    let beside = printed(["bench", "compare", json, json]);
    assert!(beside.contains("read-again") && beside.contains("x 1.00"), "{beside}");
    assert!(beside.contains("not significant"), "{beside}");
}

/// Two phases of one target are compared too, where they show what a machine does to a benchmark.
#[test]
fn effects_are_looked_for() {
    let scratch = Scratch::new();
    let (json, html) = (scratch.join("effects.json"), scratch.join("effects.html"));
    let (json, html) = (json.to_str().unwrap(), html.to_str().unwrap());
    let on = ["bench", "effects", "--size", "smoke", "--rounds", "9", "--on", "null,syscall"];
    let output = conquest([&on[..], &["--json", json, "--html", html]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("after-write: ") && said.contains("; corrected x "), "{said}");
    let found = report(json);
    let effects = found["effects"].as_array().unwrap();
    assert_eq!(effects.len(), 8);
    assert_eq!(words(&found["effects"], "effect").len(), 4);
    for effect in effects {
        let of = |pair: &str, key: &str| effect[pair][key].as_f64().unwrap();
        for pair in ["original", "corrected", "change"] {
            assert!(of(pair, "low") <= of(pair, "value") && of(pair, "value") <= of(pair, "high"));
        }
        let is_far = match effect["effect"] == "reuse" {
            true => of("change", "low") > 1.01,
            false => of("change", "high") < 0.99,
        };
        assert_eq!(effect["present"], is_far, "{effect}");
    }
    // The phase that makes a call less needs half the time where calls are all. So few samples only
    // say that it may be so, if the machine does other work as well.
    let call =
        effects.iter().find(|one| one["effect"] == "extra-call" && one["target"] == "syscall");
    assert!(call.unwrap()["original"]["low"].as_f64().unwrap() < 1.0, "{call:?}");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<caption>effects</caption>"));
    // Which are present depends on what else the machine does.
    let has_present = effects.iter().any(|effect| effect["present"] == true);
    assert_eq!(page.contains("<td>present</td>"), has_present);
}

#[test]
fn reports_that_are_none_are_refused() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &str| {
        let path = scratch.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let newer = file("newer", "{\"schema\":\"conquest-bench\",\"schema_version\":99}");
    let damaged = file("damaged", "{\"schema\":\"conquest-bench\",\"schema_version\":1}");
    for (path, words) in [
        (file("none", "x"), "no JSON"),
        (file("other", "{}"), "not a report of conquest bench"),
        (newer, "version 99"),
        (damaged, "a damaged report"),
        (scratch.join("nowhere").to_str().unwrap().to_owned(), "No such file"),
    ] {
        let said = refused(1, ["bench", "compare", &path, &path]);
        assert!(said.contains(&path) && said.contains(words), "{said}");
    }
    let said = refused(1, ["bench", "compare", "one"]);
    assert!(said.contains("two files"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    for (args, words) in [
        (&["sprite"][..], "no experiment \"sprite\""),
        (&["array", "--on", "zfs"], "no target \"zfs\""),
        (&["array", "--set", "colour=1"], "no"),
        (&["array", "--on", "null", "--set", "bytes=1"], "bytes is 1, not 4096 to"),
        (&["bonnie", "--on", "null", "--set", "files=0"], "files is 0, not 1 to"),
    ] {
        let output = conquest([&["bench"], args].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(text(&output.stdout), "");
    }
    assert_eq!(conquest(["bench"]).status.code(), Some(2));
    assert_eq!(conquest(["bench", "array", "--set", "bytes"]).status.code(), Some(2));
}

/// Who may not mount measures directories, stores, and what is in memory, and is told how to get
/// the others.
#[test]
fn ordinary_users_measure_what_they_may() {
    need_root();
    let scratch = Scratch::new();
    let (here, json) = (scratch.join("here"), scratch.join("user.json"));
    std::fs::create_dir(&here).unwrap();
    std::os::unix::fs::chown(&here, Some(USER), Some(USER)).unwrap();
    let on = format!("{},ramfs,tmpfs,ext4,fuse,conquest", here.display());
    let mut bench = command(Some(USER));
    bench.args(["bench", "sprite-small", "--size", "smoke", "--rounds", "1", "--on", &on]);
    bench.arg("--json").arg(&json).env("TMPDIR", scratch.path());
    let output = finish(bench.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ext4: left out: mounting needs root (run it by sudo"), "{said}");
    assert!(said.contains("fuse: left out: "), "{said}");
    let found = report(json.to_str().unwrap());
    let targets: Vec<String> = words(&found["targets"], "target").into_iter().collect();
    assert_eq!(targets, ["conquest", "directory", "ramfs", "tmpfs"], "{said}");
    for target in found["targets"].as_array().unwrap() {
        assert_eq!(target["survives"], "process", "{target}");
    }
    assert_eq!(std::fs::read_dir(&here).unwrap().count(), 0);
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // A directory of somebody else.
    std::os::unix::fs::chown(&here, Some(0), Some(0)).unwrap();
    let denied = conquest_as(
        Some(USER),
        ["bench", "bonnie", "--size", "smoke", "--on", here.to_str().unwrap()],
    );
    assert_eq!(denied.status.code(), Some(1));
    let said = text(&denied.stderr);
    assert!(said.contains("Permission denied") && said.contains("directory"), "{said}");
}

/// One that is full is left out; the others are measured.
#[test]
fn a_target_that_fails_does_not_take_the_others_with_it() {
    need_root();
    let scratch = Scratch::new();
    let json = scratch.join("full.json");
    let small = scratch.join("small");
    std::fs::create_dir(&small).unwrap();
    let mut bench = Command::new("unshare");
    bench.args(["--mount", "sh", "-ec"]);
    bench.arg("mount -t tmpfs -o size=64k,nr_inodes=50 small \"$1\"; shift; exec \"$@\"");
    bench.arg("sh").arg(&small).arg(env!("CARGO_BIN_EXE_conquest"));
    let on = format!("ramfs,{}", small.display());
    bench.args(["bench", "bonnie", "--size", "smoke", "--rounds", "2", "--on", &on, "--json"]);
    let output = finish(bench.arg(&json).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("bonnie on directory") && said.contains("No space left"), "{said}");
    let found = report(json.to_str().unwrap());
    for result in found["results"].as_array().unwrap() {
        assert_eq!(result["median"].is_null(), result["target"] == "directory", "{result}");
    }
    let failures = found["failures"].to_string();
    assert!(failures.contains("No space left") && !failures.contains("/dev/shm"), "{failures}");
    // What would not fit into the memory is not even begun.
    let vast = ["bench", "sprite-small", "--on", "ramfs,conquest", "--set", "bytes=1073741824"];
    let output = conquest([&vast[..], &["--set", "files=100000"]].concat());
    let said = text(&output.stderr);
    for target in ["ramfs", "conquest"] {
        let begin = format!("sprite-small on {target}: {target}: ");
        let line = said.lines().find(|line| line.contains(&begin)).unwrap_or_default();
        assert!(line.contains("of memory are needed") && line.contains("--set"), "{said}");
    }
}

/// The loop devices that there are, and what is behind them.
fn loops() -> String {
    let mut list = Command::new("losetup");
    list.args(["--list", "--noheadings", "-O", "NAME,BACK-FILE"]);
    text(&finish(list.stdout(Stdio::piped())).stdout)
}

/// Processes that `parent` has started, or that this program has become.
fn children(parent: u32) -> Vec<u32> {
    let is_of = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let above = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        above.and_then(|word| word.parse().ok()) == Some(parent)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    numbers.filter(is_of).collect()
}

/// Whatever it is doing when it is killed: nothing mounted, no device, no process, no file.
#[test]
fn a_killed_run_leaves_nothing() {
    need_root();
    let scratch = Scratch::new();
    let here = scratch.join("disk");
    std::fs::create_dir(&here).unwrap();
    for delay in [300, 900, 2500] {
        let mut bench = command(None);
        bench.args(["bench", "bonnie", "sprite-small", "--on", "ext4,fuse,tmpfs,conquest"]);
        bench.args(["--rounds", "100"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = bench.arg("--disk").arg("/var/tmp").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        let started = children(child.id());
        child.kill().unwrap();
        wait(&mut child);
        let begin = Instant::now();
        loop {
            // Devices of other tests come and go; ours are files without a name.
            let left = loops();
            let devices = left.lines().filter(|line| line.contains("/var/tmp/#")).count();
            let is_alive = |one: &&u32| std::fs::read_link(format!("/proc/{one}/exe")).is_ok();
            let processes = started.iter().filter(is_alive).count();
            if devices == 0 && processes == 0 {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "after {delay} ms: {left}; {processes} processes");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What was measured until then is kept.
#[test]
fn an_interrupted_run_keeps_what_it_has() {
    let scratch = Scratch::new();
    let json = scratch.join("half.json");
    let mut bench = command(None);
    bench.args(["bench", "array", "--size", "smoke", "--rounds", "100000", "--on", "null"]);
    bench.arg("--json").arg(&json).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = bench.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    // Two at once, as timeout(1) sends them; of the same kind they might become one.
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    let status = wait(&mut child);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    let by = status.signal();
    let is_asked = by == Some(Signal::TERM.as_raw()) || by == Some(Signal::INT.as_raw());
    assert!(is_asked, "{status} {said}");
    assert!(said.contains("interrupted; what was measured until then is"), "{said}");
    let found = report(json.to_str().unwrap());
    let samples = found["results"][0]["samples"].as_array().unwrap().len();
    assert!((1..100_000).contains(&samples), "{samples}");
}
