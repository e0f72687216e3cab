//! The project's own tools: `cargo xtask COMMAND`.
//!
//! Every command prints what it counted and ends with a line `N passed, N failed`; it exits with 0
//! if nothing failed, with 1 if something did, and with 2 if it was not understood.

mod child;
mod comparators;
mod conform;
mod harness;
mod lines;
mod mutants;
mod packages;
mod suite;
mod tally;
mod tidy;
mod tree;

use std::process::ExitCode;

use tally::Tally;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test
      Everything that a change must pass: format, lints, house rules, tests, documentation, and a
      slice of each crash explorer and kill test. Installs missing system packages if run as root.
  tidy
      The house rules that a machine can check.
  explore CRATE [ARGUMENT...]
      The crash explorer of CRATE (testkit's explore-CRATE), for example: explore pm --states 30000
  kill CRATE [ARGUMENT...]
      The kill test of CRATE (testkit's kill-CRATE), for example: kill pm --kills 300
  measure CRATE [ARGUMENT...]
      The measurements of CRATE (testkit's measure-CRATE), for example: measure pm --quick
  lines CRATE
      Lines of code of CRATE, module by module; flash is shown beside Figure 6 of DFS.
  comparators [--rounds N] [--only SUBSTR] [--processor N]
      Whether measurements are to be believed: how often the method errs, and our measuring loop
      beside plain C, postmark, bonnie++ and fio. As root.
  fuzz TARGET [--seconds N | --cases N] [--seed S] [ARGUMENT...]
      The fuzz target TARGET (testkit's fuzz-TARGET), for example: fuzz flash --cases 100000
  mutants CRATE [--jobs N] [--only SUBSTR]... [--list] [--seconds-per-mutant S] [--all]
                [--accepted] [--sample N [--seed S]] [--resume] [--without PROGRAM]...
      Breaks CRATE in many small ways and reports which breakages no test notices. `store` is parts
      of several crates: large files and the logged core.
  conform SUITE [--on conquest|conquest-unprivileged|tmpfs|ext4|space|
          volume|volume-ext3|volume-xfs]
                [--only SUBSTR]... [--program CONQUEST] [--mount-option OPTION]... [OPTION...]
      Lets other people's suites and real programs judge a mounted file system. As root. Suites and
      their options:
      smoke [--hold SECONDS]
      pjdfstest
      fsx [--seeds N] [--operations N]
      programs [--quick]
      stress [--seconds N]
      xfstests --xfstests DIR
      cuts [--cuts N] [--seed S] [--seconds N] [--replay RECORD@EVENT:SEED]
  help
      This text.
";

/// Why a command did not get as far as counting.
#[derive(Debug)]
enum Failure {
    /// The arguments make no sense.
    Usage(String),
    /// Something that has nothing to do with the thing tested.
    Broken(String),
}

impl Failure {
    /// What to tell the user.
    fn text(&self) -> &str {
        match self {
            Failure::Usage(what) | Failure::Broken(what) => what,
        }
    }

    /// A failure of `action` on `subject`.
    fn system(action: &str, subject: &std::path::Path, error: &std::io::Error) -> Failure {
        Failure::Broken(format!("{action} {}: {error}", subject.display()))
    }
}

fn dispatch(arguments: &[String]) -> Result<Tally, Failure> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(Failure::Usage("no command".into()));
    };
    let none = |rest: &[String]| match rest.first() {
        Some(extra) => Err(Failure::Usage(format!("unexpected argument {extra:?}"))),
        None => Ok(()),
    };
    match command.as_str() {
        "test" => none(rest).and_then(|()| suite::run()),
        "tidy" => none(rest).and_then(|()| tidy::run()),
        "explore" | "kill" | "measure" | "fuzz" => harness::run(command, rest),
        "lines" => lines::run(rest),
        "mutants" => mutants::run(rest),
        "comparators" => comparators::run(rest),
        "conform" => conform::run(rest),
        conform::INSIDE => conform::run_inside(rest),
        other => Err(Failure::Usage(format!("unknown command {other:?}"))),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some("help" | "--help" | "-h") = arguments.first().map(String::as_str) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match dispatch(&arguments) {
        Ok(tally) => {
            println!("{tally}");
            if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(Failure::Usage(what)) => {
            eprint!("error: {what}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Broken(what)) => {
            eprintln!("error: {what}");
            println!("{}", Tally::one(false));
            ExitCode::FAILURE
        }
    }
}
