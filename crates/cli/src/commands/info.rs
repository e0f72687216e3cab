//! `conquest info`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conquest::{Info as Known, VolumeStands};
use serde::Serialize;

use crate::clock::Clock;
use crate::json::{self, Name};
use crate::place;
use crate::reason::Reason;
use crate::report::Report;
use crate::session;
use crate::size::{grouped, human};

/// Tell what a store is, and what it survives.
#[derive(Args)]
#[command(after_help = "Example:
  conquest info store")]
pub(crate) struct Info {
    /// For programs: schema conquest.info.
    #[arg(long)]
    json: bool,
    /// The store: its directory.
    store: OsString,
}

#[derive(Serialize)]
struct Answer {
    directory: Name,
    uuid: String,
    region: String,
    created_ns: u64,
    core: Name,
    core_kind: String,
    medium: String,
    survives: Survives,
    write_back: String,
    huge_pages: Pages,
    swap: Option<String>,
    threshold_bytes: u64,
    preset: String,
    space: Space,
    shape: Shape,
    mapped_bytes: u64,
    attach_generation: u64,
    was_dirty: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<Volume>,
    attached: Vec<Process>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Survives {
    process_death: bool,
    restart: bool,
    power_failure: bool,
    words: String,
}

#[derive(Serialize)]
struct Pages {
    wanted: bool,
    obtained_bytes: u64,
    mapped_bytes: u64,
}

#[derive(Serialize)]
struct Space {
    total_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    reserved_bytes: u64,
    file_size_max: u64,
    name_max: u64,
}

#[derive(Serialize)]
struct Shape {
    groups: u64,
    lanes: u32,
    slots: u32,
    locks: u32,
}

#[derive(Serialize)]
struct Volume {
    uuid: String,
    devices: Vec<Name>,
    sync: String,
    committed: u64,
    durable: u64,
    lag_bytes: u64,
    lag_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keeper: Option<u32>,
    incarnation: u64,
    was_brought_back: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    loading: Option<Loading>,
}

/// How far loading the core is.
#[derive(Serialize)]
struct Loading {
    resident_bytes: u64,
    total_bytes: u64,
}

#[derive(Serialize)]
struct Process {
    process: u32,
    namespace: u64,
    state: Option<char>,
    is_keeper: bool,
    is_self: bool,
}

pub(crate) fn run(args: &Info) -> ExitCode {
    let report = Report::new("info");
    let directory = place::store(&args.store);
    if let Some(store) = report.take_plain(session::attach(&directory)) {
        let info = store.info();
        let shown = match args.json {
            true => json::print("info", &answer(&info)),
            false => crate::output::all(text(&info).as_bytes()),
        };
        report.take("standard output", shown.map_err(Reason::from));
        report.take_plain(store.detach().map_err(Reason::from));
    }
    report.code()
}

fn answer(info: &Known) -> Answer {
    let path = |path: &std::path::Path| Name::new(path.as_os_str().as_encoded_bytes());
    let attached = info.attached.iter().map(|it| Process {
        process: it.process,
        namespace: it.namespace,
        state: it.state,
        is_keeper: it.is_keeper,
        is_self: it.is_self,
    });
    Answer {
        directory: path(&info.directory),
        uuid: info.uuid.to_string(),
        region: info.region.to_string(),
        created_ns: info.created,
        core: path(&info.core),
        core_kind: info.core_kind.clone(),
        medium: info.medium.to_string(),
        survives: Survives {
            process_death: info.survives.process_death,
            restart: info.survives.restart,
            power_failure: info.survives.power_failure,
            words: info.survives.words.to_owned(),
        },
        write_back: write_back(info).to_owned(),
        huge_pages: Pages {
            wanted: info.huge_pages.wanted,
            obtained_bytes: info.huge_pages.obtained_bytes,
            mapped_bytes: info.huge_pages.mapped_bytes,
        },
        swap: info.swap.as_ref().map(ToString::to_string),
        threshold_bytes: info.placement.threshold,
        preset: info.placement.preset.to_string(),
        space: Space {
            total_bytes: info.usage.total,
            used_bytes: info.usage.used,
            free_bytes: info.usage.free,
            reserved_bytes: info.usage.reserved,
            file_size_max: info.usage.file_size_max,
            name_max: info.usage.name_max,
        },
        shape: Shape {
            groups: info.shape.max_groups,
            lanes: info.shape.lanes,
            slots: info.shape.slots,
            locks: info.shape.locks,
        },
        mapped_bytes: info.mapped,
        attach_generation: info.attach_generation,
        was_dirty: info.was_dirty,
        volume: info.volume.as_ref().map(volume),
        attached: attached.collect(),
        notes: info.notes.clone(),
    }
}

fn volume(volume: &VolumeStands) -> Volume {
    let name = |path: &PathBuf| Name::new(path.as_os_str().as_encoded_bytes());
    Volume {
        uuid: volume.uuid.to_string(),
        devices: volume.devices.iter().map(name).collect(),
        sync: volume.sync.to_string(),
        committed: volume.committed,
        durable: volume.durable,
        lag_bytes: volume.lag_bytes,
        lag_ms: volume.lag.as_millis() as u64,
        keeper: volume.keeper,
        incarnation: volume.incarnation,
        was_brought_back: volume.was_brought_back,
        loading: volume.loading.map(|progress| Loading {
            resident_bytes: progress.resident,
            total_bytes: progress.total,
        }),
    }
}

/// What people are told of a volume.
fn volume_rows(volume: &VolumeStands) -> Vec<(&'static str, String)> {
    let devices: Vec<String> = volume.devices.iter().map(|path| place::host_label(path)).collect();
    let behind = match volume.committed - volume.durable {
        0 if volume.committed == 0 => "large files that are overwritten".to_owned(),
        0 => "all is durable".to_owned(),
        count => format!(
            "{} changes, {}, are not durable yet, for {} ms at most",
            grouped(count),
            human(volume.lag_bytes),
            volume.lag.as_millis(),
        ),
    };
    let mut rows =
        vec![("volume", devices.join(" + ")), ("sync", format!("{}: {behind}", volume.sync))];
    if let Some(process) = volume.keeper {
        rows.push(("keeper", format!("process {process}")));
    }
    if volume.was_brought_back {
        rows.push(("state", "brought back of its volume just now".to_owned()));
    }
    if let Some(progress) = volume.loading {
        let (resident, total) = (human(progress.resident), human(progress.total));
        rows.push(("loading", format!("{resident} of {total} are there, the rest when needed")));
    }
    rows
}

/// How stores are made durable, in one word.
fn write_back(info: &Known) -> &'static str {
    use conquest::WriteBack;
    match info.write_back {
        WriteBack::None => "none",
        WriteBack::Eadr => "eadr",
        WriteBack::Clwb => "clwb",
        WriteBack::ClflushOpt => "clflushopt",
        WriteBack::Clflush => "clflush",
        WriteBack::DcCvap => "dc-cvap",
        WriteBack::DcCvac => "dc-cvac",
        _ => "other",
    }
}

fn text(info: &Known) -> String {
    let usage = &info.usage;
    let created = Clock::new().long(i64::try_from(info.created).unwrap_or(i64::MAX));
    let mut rows = vec![
        ("store", place::host_label(&info.directory)),
        ("identity", info.uuid.to_string()),
        ("made", created),
        ("core", format!("{}: {}", place::host_label(&info.core), info.core_kind)),
        ("medium", info.medium.to_string()),
        ("survives", info.survives.words.to_owned()),
        (
            "space",
            format!(
                "{} used, {} free, {} at most",
                human(usage.used),
                human(usage.free),
                human(usage.total)
            ),
        ),
        ("huge pages", info.huge_pages.to_string()),
        ("swap", info.swap.as_ref().map_or("not asked".into(), ToString::to_string)),
        ("write-back", write_back(info).to_owned()),
        (
            "shape",
            format!(
                "{} groups, {} lanes, {} slots, {} locks",
                info.shape.max_groups, info.shape.lanes, info.shape.slots, info.shape.locks
            ),
        ),
    ];
    rows.extend(info.volume.iter().flat_map(volume_rows));
    if info.was_dirty {
        rows.push(("state", "attached by others, or recovered just now".into()));
    }
    let others = info.attached.iter().filter(|it| !it.is_self && !it.is_keeper);
    rows.extend(others.map(|it| ("attached by", it.to_string())));
    rows.extend(info.notes.iter().map(|note| ("note", note.clone())));
    rows.into_iter().map(|(key, value)| format!("{key:>12}  {value}\n")).collect()
}
