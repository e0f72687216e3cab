//! `conquest doctor`: whether this machine has what stores need.

mod checks;
mod mounting;

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::json;
use crate::reason::Reason;
use crate::report::Report;

/// Check whether this machine has what stores need.
#[derive(Args)]
#[command(
    after_help = "ok: fine. warn: works, but not at its best, or something optional is missing.
bad: stores can't work; the exit code is 1 then."
)]
pub(crate) struct Doctor {
    /// For programs: schema conquest.doctor.
    #[arg(long)]
    json: bool,
}

/// How something stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Bad,
}

/// What was found about one thing.
#[derive(Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

#[derive(Serialize)]
struct Findings {
    checks: Vec<Finding>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, state: State::Ok, found: found.into(), remedy: None }
    }

    fn warn(check: &'static str, found: impl Into<String>, remedy: &'static str) -> Finding {
        Finding { check, state: State::Warn, found: found.into(), remedy: Some(remedy) }
    }

    fn bad(check: &'static str, found: impl Into<String>, remedy: &'static str) -> Finding {
        Finding { check, state: State::Bad, found: found.into(), remedy: Some(remedy) }
    }
}

pub(crate) fn run(args: &Doctor) -> ExitCode {
    let report = Report::new("doctor");
    let findings = Findings { checks: checks::all() };
    let shown = match args.json {
        true => json::print("doctor", &findings),
        false => crate::output::all(text(&findings.checks).as_bytes()),
    };
    report.take("standard output", shown.map_err(Reason::from));
    let is_bad = findings.checks.iter().any(|finding| finding.state == State::Bad);
    if is_bad { ExitCode::from(1) } else { report.code() }
}

fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok  ",
            State::Warn => "warn",
            State::Bad => "bad ",
        };
        out += &format!("{state}  {:<18} {}\n", finding.check, finding.found);
        if let Some(remedy) = finding.remedy {
            out += &format!("{:25}{remedy}\n", "");
        }
    }
    out
}
