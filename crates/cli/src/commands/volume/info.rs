//! `conquest volume info`.

use std::process::ExitCode;

use clap::Args;
use conquest::Id;
use conquest_flash::{Identity, Info as Known, Member as KnownMember};
use conquest_format::volume::Arrangement;
use serde::Serialize;

use super::{Common, name};
use crate::clock::Clock;
use crate::json::{self, Name};
use crate::place::host_label;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size::{grouped, human};

/// Tell what a volume is, and how it is used.
#[derive(Args)]
#[command(after_help = "A volume that nobody has open is recovered for that.

Example:
  conquest volume info disk")]
pub(super) struct Info {
    #[command(flatten)]
    common: Common,
}

/// What `--json` tells.
#[derive(Serialize)]
struct Answer {
    uuid: String,
    created_ns: u64,
    arrangement: &'static str,
    members: Vec<Member>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_since_ns: Option<u64>,
    unit_bytes: u64,
    segment_bytes: u64,
    segments: Segments,
    spare_segments: u64,
    capacity_bytes: u64,
    lost_bytes: u64,
    used_bytes: u64,
    reserved_bytes: u64,
    unreadable_bytes: u64,
    written: Written,
    wear: Wear,
    map: Map,
    index: Name,
    index_bytes: u64,
    stream: Stream,
    checkpoint_bytes: u64,
    life: u64,
    writers: u64,
}

#[derive(Serialize)]
struct Member {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Name>,
    bytes: u64,
    state: &'static str,
}

#[derive(Serialize)]
struct Segments {
    all: u64,
    free: u64,
    payload: u64,
    stream: u64,
    checkpoint: u64,
    anchor: u64,
    bad: u64,
}

#[derive(Serialize)]
struct Written {
    asked_bytes: u64,
    packets_bytes: u64,
    placed_bytes: u64,
    copied_bytes: u64,
    checkpoints_bytes: u64,
}

#[derive(Serialize)]
struct Wear {
    least: u64,
    most: u64,
    sum: u64,
}

#[derive(Serialize)]
struct Map {
    extents: u64,
    nodes: u64,
    depth: u64,
}

#[derive(Serialize)]
struct Stream {
    open: u64,
    written: u64,
    durable: u64,
    first: u64,
}

pub(super) fn run(args: &Info) -> ExitCode {
    let report = Report::new("volume info");
    report.take_plain(show(&args.common));
    report.code()
}

/// Opens the volume, and says what it is.
pub(super) fn show(common: &Common) -> Result<()> {
    let volume = common.open()?;
    let missing = || Reason::rule("the volume was not opened by its devices");
    let identity = volume.identity().ok_or_else(missing)?;
    let info = volume.info()?;
    volume.close()?;
    match common.json {
        true => json::print("volume-info", &answer(&identity, &info))?,
        false => crate::output::all(text(&identity, &info).as_bytes())?,
    }
    Ok(())
}

fn arrangement(identity: &Identity) -> &'static str {
    match (identity.members.len(), identity.arrangement) {
        (1, _) => "single",
        (_, Arrangement::Striped) => "striped",
        (_, Arrangement::Mirrored) => "mirrored",
    }
}

fn state(member: &KnownMember) -> &'static str {
    match (&member.path, member.has_failed, member.is_restored) {
        (None, ..) => "missing",
        (_, true, true) => "restored",
        (_, true, false) => "failed",
        (_, false, _) => "good",
    }
}

fn member(member: &KnownMember) -> Member {
    let path = member.path.as_deref().map(name);
    Member { path, bytes: member.bytes, state: state(member) }
}

/// What is said of a member.
fn member_text(member: &KnownMember, since: &str) -> String {
    let path = member.path.as_deref().map(host_label);
    let size = path.map(|path| format!("{path}: {}", human(member.bytes)));
    match (size, state(member)) {
        (None, _) => {
            format!("(missing), failed since {since}; see `conquest volume replace`")
        }
        (Some(size), "good") => size,
        (Some(size), "restored") => format!("{size}, being brought up to date"),
        (Some(size), _) => {
            format!("{size}, failed since {since}; `conquest volume scrub` brings it up to date")
        }
    }
}

fn answer(identity: &Identity, info: &Known) -> Answer {
    let Known { unit, segments, map, stream, .. } = *info;
    let members = identity.members.iter();
    Answer {
        uuid: Id(identity.uuid).to_string(),
        created_ns: identity.created,
        arrangement: arrangement(identity),
        members: members.map(member).collect(),
        failed_since_ns: (info.failed != 0).then_some(info.failed_since),
        unit_bytes: unit,
        segment_bytes: info.segment * unit,
        segments: Segments {
            all: segments.all,
            free: segments.free,
            payload: segments.payload,
            stream: segments.stream,
            checkpoint: segments.checkpoint,
            anchor: segments.anchor,
            bad: segments.bad,
        },
        spare_segments: segments.spare,
        capacity_bytes: info.capacity * unit,
        lost_bytes: info.lost * unit,
        used_bytes: info.used * unit,
        reserved_bytes: info.reserved * unit,
        unreadable_bytes: info.unreadable * unit,
        written: Written {
            asked_bytes: info.written.asked * unit,
            packets_bytes: info.written.packets * unit,
            placed_bytes: info.written.placed * unit,
            copied_bytes: info.written.copied * unit,
            checkpoints_bytes: info.written.checkpoints * unit,
        },
        wear: Wear { least: info.wear.least, most: info.wear.most, sum: info.wear.sum },
        map: Map { extents: map.extents, nodes: map.nodes, depth: map.depth },
        index: name(&identity.index),
        index_bytes: identity.index_bytes,
        stream: Stream {
            open: stream.open,
            written: stream.written,
            durable: stream.durable,
            first: stream.first,
        },
        checkpoint_bytes: info.checkpoint * unit,
        life: info.life,
        writers: info.writers,
    }
}

fn text(identity: &Identity, info: &Known) -> String {
    let Known { unit, map, stream, .. } = *info;
    let bytes = |units: u64| human(units * unit);
    let created = i64::try_from(identity.created).unwrap_or(i64::MAX);
    let mut rows = vec![
        ("volume", Id(identity.uuid).to_string()),
        ("made", Clock::new().long(created)),
        ("arrangement", format!("{}, life {}", arrangement(identity), grouped(info.life))),
    ];
    let since = Clock::new().long(i64::try_from(info.failed_since).unwrap_or(i64::MAX));
    let members = identity.members.iter();
    rows.extend(members.map(|member| ("device", member_text(member, &since))));
    let each = match map.extents {
        0 => String::new(),
        extents => format!(" ({} bytes an extent)", grouped(identity.index_bytes / extents)),
    };
    rows.extend([
        (
            "space",
            format!(
                "{} used, {} reserved, {} at most, in units of {}",
                bytes(info.used),
                bytes(info.reserved),
                bytes(info.capacity - info.lost),
                human(unit)
            ),
        ),
        ("segments", segments_text(info)),
        ("written", written(info)),
        ("wear", wear(info)),
        (
            "map",
            format!(
                "{} extents, {} nodes, {} levels",
                grouped(map.extents),
                grouped(map.nodes),
                map.depth
            ),
        ),
        (
            "index",
            format!("{}: {}{each}", host_label(&identity.index), human(identity.index_bytes)),
        ),
        (
            "stream",
            format!(
                "packet {} is open; below {} all are written, below {} durable; recovery reads \
                 from {} on",
                stream.open, stream.written, stream.durable, stream.first
            ),
        ),
        ("checkpoint", bytes(info.checkpoint)),
    ]);
    if info.segments.bad > 0 {
        rows.push(("bad places", bad_places(info)));
    }
    if info.unreadable > 0 {
        let told = "can't be read; run `conquest volume scrub` to see which";
        rows.push(("damage", format!("{} {told}", bytes(info.unreadable))));
    }
    rows.into_iter().map(|(key, value)| format!("{key:>12}  {value}\n")).collect()
}

/// Segments, by their use.
fn segments_text(info: &Known) -> String {
    let segments = &info.segments;
    format!(
        "{} of {}: {} free, {} payload, {} stream, {} checkpoint, {} roots, {} bad",
        grouped(segments.all),
        human(info.segment * info.unit),
        grouped(segments.free),
        grouped(segments.payload),
        grouped(segments.stream),
        grouped(segments.checkpoint),
        grouped(segments.anchor),
        grouped(segments.bad)
    )
}

/// What bad segments mean.
fn bad_places(info: &Known) -> String {
    let bad = format!("{} segments can't be written any more", grouped(info.segments.bad));
    match info.lost {
        0 => format!("{bad}; {} more may go before space does", grouped(info.segments.spare)),
        lost => format!(
            "{bad}, too many: {} less can be written; replace the device",
            human(lost * info.unit)
        ),
    }
}

/// What was written, and how much more than users have asked for.
fn written(info: &Known) -> String {
    let written = &info.written;
    let bytes = |units: u64| human(units * info.unit);
    let times = match written.asked {
        0 => String::new(),
        asked => format!(", {:.2} times that", written.all() as f64 / asked as f64),
    };
    format!(
        "since it was opened first: {} by users, {} in all{times} (packets {}, payload {}, copies \
         {}, checkpoints {})",
        bytes(written.asked),
        bytes(written.all()),
        bytes(written.packets),
        bytes(written.placed),
        bytes(written.copied),
        bytes(written.checkpoints)
    )
}

/// How often segments were begun.
fn wear(info: &Known) -> String {
    let worn = info.segments.all - info.segments.anchor - info.segments.bad;
    let average = info.wear.sum as f64 / worn.max(1) as f64;
    let (least, most) = (grouped(info.wear.least), grouped(info.wear.most));
    format!("segments were begun {least} to {most} times, {average:.1} on average")
}
