//! `conquest volume check` and `conquest volume scrub`.

use std::process::ExitCode;

use clap::Args;
use conquest_flash::{Damage, Verified, Verifying};
use serde::Serialize;

use super::{Common, name};
use crate::commands::fsck::OPERATIONAL;
use crate::json::{self, Name};
use crate::place::host_label;
use crate::progress::Progress;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size::grouped;
use crate::stop;

/// Exit codes, as fsck(8) has them: errors were corrected.
const CORRECTED: u8 = 1;
/// Errors were left as they are.
const UNCORRECTED: u8 = 4;

/// Check a volume: its map, and all copies of all that is in it.
#[derive(Args)]
#[command(
    after_help = "The volume is opened, which recovers it if nobody else has it open, and read from
end to end; nothing is repaired. Exit codes, as of fsck(8): 0 as it should be, 4 not, 8 not checked,
16 wrong usage.

Example:
  conquest volume check disk"
)]
pub(super) struct Check {
    #[command(flatten)]
    common: Common,
}

/// Read all copies of all that is in a volume, and repair those that are damaged.
///
/// What has another copy that is right is written anew from that, to another place. Members of a
/// mirror that have failed, and are named, are brought up to date.
#[derive(Args)]
#[command(
    after_help = "Others may use the volume meanwhile. Exit codes, as of fsck(8): 0 as it should be,
1 all that was damaged is repaired, 4 some is not, 8 not checked, 16 wrong usage.

Example:
  conquest volume scrub /dev/sdx /dev/sdy"
)]
pub(super) struct Scrub {
    #[command(flatten)]
    common: Common,
}

/// What is damaged, for programs.
#[derive(Serialize)]
struct Row {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_byte: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<String>,
    readable: bool,
    repaired: bool,
}

/// What `--json` tells.
#[derive(Serialize)]
struct Answer {
    sound: bool,
    units: u64,
    copies: u64,
    extents: u64,
    damaged: u64,
    repaired: u64,
    damages: Vec<Row>,
}

pub(super) fn check(args: &Check) -> ExitCode {
    run("volume check", "checking", &args.common, false)
}

pub(super) fn scrub(args: &Scrub) -> ExitCode {
    run("volume scrub", "scrubbing", &args.common, true)
}

fn run(command: &'static str, what: &'static str, common: &Common, repair: bool) -> ExitCode {
    let report = Report::with(command, Progress::share(what));
    let done = stop::listen().and_then(|()| verify(common, repair, &report));
    let done = report.take_plain(done);
    // The bar goes before the program does.
    let _ = report.code();
    stop::end_by_signal();
    let Some(damages) = done else {
        return ExitCode::from(OPERATIONAL);
    };
    let is_left = damages.iter().any(|damage| !is_repaired(damage));
    match (damages.is_empty(), is_left) {
        (true, _) => report.code(),
        (false, false) => ExitCode::from(CORRECTED),
        (false, true) => ExitCode::from(UNCORRECTED),
    }
}

fn is_repaired(damage: &Damage) -> bool {
    matches!(
        damage,
        Damage::Payload { is_repaired: true, .. }
            | Damage::Superblock { is_repaired: true, .. }
            | Damage::Member { is_repaired: true, .. }
    )
}

/// Verifies the volume, and says what was found.
fn verify(common: &Common, repair: bool, report: &Report) -> Result<Vec<Damage>> {
    let volume = common.open()?;
    let mut damages = Vec::new();
    let mut found = |damage: Damage| {
        if !common.json {
            report.note(line(&damage));
        }
        damages.push(damage);
    };
    let mut progress = |done: u64, total: u64| {
        if let Some(progress) = report.progress() {
            progress.set(done, total.max(1));
        }
        !stop::requested()
    };
    let how = Verifying { repair, found: &mut found, progress: &mut progress };
    let verified = volume.verify(how)?;
    volume.close()?;
    stop::check().map_err(|_| Reason::rule("interrupted; what is behind was not read"))?;
    if let Some(progress) = report.progress() {
        progress.finish();
    }
    match common.json {
        true => json::print("volume-check", &answer(&verified, &damages))?,
        false => crate::output::all(text(&verified, &damages).as_bytes())?,
    }
    Ok(damages)
}

fn line(damage: &Damage) -> String {
    match damage {
        Damage::Payload { block, count, device, at, is_elsewhere, is_repaired, .. } => {
            let outcome = match (is_elsewhere, is_repaired) {
                (_, true) => "written anew from another copy",
                (true, false) => "another copy is right (repair it by conquest volume scrub)",
                (false, _) => "no copy is right (restore it from elsewhere, or trim it)",
            };
            format!(
                "{}: byte {at}: blocks {block} to {} are not what was written; {outcome}",
                host_label(device),
                block + count - 1
            )
        }
        Damage::Superblock { device, at, is_elsewhere, is_repaired, .. } => {
            let outcome = match (is_elsewhere, is_repaired) {
                (_, true) => "written anew from the other one",
                (true, false) => "the other one is right (repair it by conquest volume scrub)",
                (false, _) => "so is the other one (copy what is in the volume elsewhere)",
            };
            format!(
                "{}: byte {at}: this copy of the superblock is damaged; {outcome}",
                host_label(device)
            )
        }
        Damage::Member { number, device, is_repaired, .. } => {
            let outcome = match (device, is_repaired) {
                (_, true) => "brought up to date",
                (Some(_), false) => "conquest volume scrub brings it up to date",
                (None, false) => "it is missing (conquest volume replace puts another one there)",
            };
            let device = device.as_deref().map_or_else(|| "the mirror".into(), host_label);
            format!("{device}: member {number} has failed, and lacks what others have; {outcome}")
        }
        Damage::Structure { what, .. } => format!("the index contradicts itself: {what}"),
        _ => "damaged in a way that this program does not know".to_owned(),
    }
}

fn row(damage: &Damage) -> Row {
    let row = Row {
        kind: "other",
        block: None,
        blocks: None,
        device: None,
        device_byte: None,
        what: None,
        readable: false,
        repaired: is_repaired(damage),
    };
    match damage {
        Damage::Payload { block, count, device, at, is_elsewhere, .. } => Row {
            kind: "payload",
            block: Some(*block),
            blocks: Some(*count),
            device: Some(name(device)),
            device_byte: Some(*at),
            readable: *is_elsewhere,
            ..row
        },
        Damage::Superblock { device, at, is_elsewhere, .. } => Row {
            kind: "superblock",
            device: Some(name(device)),
            device_byte: Some(*at),
            readable: *is_elsewhere,
            ..row
        },
        Damage::Member { device, .. } => {
            Row { kind: "member", device: device.as_deref().map(name), readable: true, ..row }
        }
        Damage::Structure { what, .. } => Row { kind: "index", what: Some(what.clone()), ..row },
        _ => row,
    }
}

fn answer(verified: &Verified, damages: &[Damage]) -> Answer {
    Answer {
        sound: damages.is_empty(),
        units: verified.units,
        copies: verified.copies,
        extents: verified.extents,
        damaged: damages.len() as u64,
        repaired: damages.iter().filter(|damage| is_repaired(damage)).count() as u64,
        damages: damages.iter().map(row).collect(),
    }
}

fn text(verified: &Verified, damages: &[Damage]) -> String {
    let counts = format!(
        "{} units in {} extents, {} copies read: ",
        grouped(verified.units),
        grouped(verified.extents),
        grouped(verified.copies)
    );
    let repaired = damages.iter().filter(|damage| is_repaired(damage)).count() as u64;
    let all = damages.len() as u64;
    counts
        + &match (all, all - repaired) {
            (0, _) => "as it should be\n".to_owned(),
            (all, 0) => format!("{} damages, all repaired\n", grouped(all)),
            (all, left) => {
                format!("{} damages, {} of them left\n", grouped(all), grouped(left))
            }
        }
}
