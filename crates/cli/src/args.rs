//! The command line.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    bench, cat, cp, debug, demo, destroy, df, doctor, export, fsck, import, info, keeper, ln, ls,
    manual, mkdir, mkfs, mount, mv, restore, rm, save, stat, tree, umount, volume, wait,
};
use crate::reason::Reason;
use crate::report::Report;

/// Files in memory that outlive their programs.
///
/// A store is a directory on the host whose files live in memory that every program maps.
/// STORE:/path names a file in a store; what has no `:/` is a path on the host, and so is what
/// begins with ./
#[derive(Parser)]
#[command(
    name = "conquest",
    version,
    max_term_width = 100,
    after_help = "A first tour:
  conquest mkfs store
  conquest import ~/src store:/src
  conquest ls -l store:/src
  conquest export store:/src ~/copy

`conquest help COMMAND` tells more of each. Exit codes: 0, 1 for a failure, 2 for wrong usage."
)]
pub(crate) struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Mkfs),
    Mount(mount::Mount),
    Umount(umount::Umount),
    Info(info::Info),
    Df(df::Df),
    Ls(ls::Ls),
    Tree(tree::Tree),
    Stat(stat::Stat),
    Cat(cat::Cat),
    Cp(cp::Cp),
    Mv(mv::Mv),
    Rm(rm::Rm),
    Mkdir(mkdir::Mkdir),
    Ln(ln::Ln),
    Import(import::Import),
    Export(export::Export),
    Save(save::Save),
    Restore(restore::Restore),
    Destroy(destroy::Destroy),
    Fsck(fsck::Fsck),
    Wait(wait::Wait),
    Volume(volume::Volume),
    Bench(Box<bench::Bench>),
    Doctor(doctor::Doctor),
    Debug(debug::Debug),
    Demo(demo::Demo),
    Man(manual::Man),
    Completions(manual::Completions),
    #[command(hide = true)]
    Keeper(keeper::Keeper),
    #[command(hide = true)]
    DemoWorker(demo::worker::Worker),
    #[command(hide = true)]
    BenchWorker,
    #[command(hide = true)]
    BenchGuardian(bench::Guardian),
}

/// The whole command line, for manuals and completions.
pub(crate) fn program() -> clap::Command {
    Program::command()
}

/// Runs the program.
pub(crate) fn run() -> ExitCode {
    if let Some(code) = crate::names::run() {
        return code;
    }
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(error) => return misused(&error),
    };
    if let Err(error) = raise_limit() {
        let advice = "deep trees may need more descriptors";
        Report::new("start").note(format_args!("limit of open files: {error} ({advice})"));
    }
    match program.command {
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Mv(args) => mv::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Mkdir(args) => mkdir::run(&args),
        Command::Ln(args) => ln::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Save(args) => save::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Destroy(args) => destroy::run(&args),
        Command::Fsck(args) => fsck::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::Volume(args) => volume::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Debug(args) => debug::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Keeper(args) => keeper::run(&args),
        Command::DemoWorker(args) => demo::worker::run(&args),
        Command::BenchWorker => bench::work(),
        Command::BenchGuardian(args) => bench::guard(&args),
    }
}

/// Says what is wrong with the arguments, or helps; the exit code.
fn misused(error: &clap::Error) -> ExitCode {
    // If nobody reads it, nothing else can be done.
    let _ = error.print();
    // fsck(8) has numbers of its own.
    let is = |nth, names: &[&str]| {
        std::env::args_os().nth(nth).is_some_and(|name| names.iter().any(|other| name == *other))
    };
    let is_fsck = is(1, &["fsck"]) || (is(1, &["volume"]) && is(2, &["check", "scrub"]));
    match (error.use_stderr(), is_fsck) {
        (false, _) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(2),
        (true, true) => ExitCode::from(fsck::USAGE),
    }
}

/// Trees are walked with one descriptor for each directory on the way: as many as are permitted.
fn raise_limit() -> Result<(), Reason> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
