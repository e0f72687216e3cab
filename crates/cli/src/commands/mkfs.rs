//! `conquest mkfs`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conquest::{CorePlace, Medium, NewStore, Placement, Preset, Store, SyncMode, VolumePlace};

use crate::place;
use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::size;

/// Make a store.
#[derive(Args)]
#[command(
    after_help = "A store is a directory. Its core, with all metadata and small files, is put into
shared RAM unless --core names a file or a device of persistent memory. With a volume, a core in RAM
outlives power failures, and large files take no RAM; on a disk, the directory has one by itself.

Examples:
  conquest mkfs store
  conquest mkfs --size-max 2G --volume 8G store
  conquest mkfs --volume none store
  conquest mkfs --core /mnt/pmem/core --medium dax /srv/store"
)]
pub(crate) struct Mkfs {
    /// File or device for the core.
    #[arg(long, value_name = "PATH")]
    core: Option<PathBuf>,
    /// Most bytes that it may grow to, for life [default: half of the RAM, or what there is room
    /// for].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    size_max: Option<u64>,
    /// Bytes that it has from the start [default: 16M].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    size: Option<u64>,
    /// A volume, on which a core in RAM outlives a power failure, and large files are: a file of
    /// SIZE in the store's directory, or devices, or none [default: where the directory is on a
    /// disk, a file, of four times what the core may grow to, or a quarter of what is free].
    #[arg(long, value_name = "SIZE|PATH|none")]
    volume: Vec<OsString>,
    /// Keep all of the volume on each of several devices.
    #[arg(long, requires = "volume")]
    mirror: bool,
    /// When what was done is durable on the volume: after a time at the latest, when somebody asks
    /// for it (fsync), or always before an operation returns [default: interval=1s].
    #[arg(long, value_name = "interval=TIME|fsync|always")]
    sync: Option<SyncMode>,
    /// Bytes of RAM that what was read from the volume, or written to it, may take [default: a
    /// sixteenth of the RAM, at most 512M].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    cache: Option<u64>,
    /// What the core is kept on: auto, ram, battery, dax, disk, logged.
    #[arg(long, default_value_t = Medium::Auto)]
    medium: Medium,
    /// Where contents of files go: conquest, simfs, dfs.
    #[arg(long, default_value_t = Preset::Conquest)]
    preset: Preset,
    /// Most bytes of a file that stays in the core, if there is a volume [default: 1M].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    threshold: Option<u64>,
    /// Bytes of the volume's space for each large file: a power of two from 1G to 1E, and what such
    /// a file can have at most [default: 16T].
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    chunk: Option<u64>,
    /// Most bytes in a regular file.
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    file_size_max: Option<u64>,
    /// Percentage of the space that only root may use (CAP_SYS_RESOURCE), 0 to 50.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=50), value_name = "PERCENT",
          default_value_t = 1)]
    reserve: u64,
    /// Permissions of the store's own files, octal.
    #[arg(long, value_parser = octal, value_name = "MODE", default_value = "600")]
    mode: u32,
    /// Permissions of the root directory in the store, octal.
    #[arg(long, value_parser = octal, value_name = "MODE", default_value = "755")]
    root_mode: u32,
    /// Operations that can change it at the same time [default: by the processors].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    lanes: u32,
    /// Processes that can attach it at the same time [default: by the processors].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    slots: u32,
    /// Locks that its files share, a power of two [default: by the size].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    locks: u32,
    /// Replace a store that is there already. Everything in it is lost.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Say nothing of success.
    #[arg(short, long)]
    quiet: bool,
    /// The directory: a new or an empty one.
    store: OsString,
}

fn octal(text: &str) -> core::result::Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text:?} is no mode: octal digits, 0 to 7777")),
    }
}

pub(crate) fn run(args: &Mkfs) -> ExitCode {
    let report = Report::new("mkfs");
    make(&report, args);
    report.code()
}

impl Mkfs {
    /// The directory of the store.
    pub(crate) fn directory(&self) -> PathBuf {
        place::store(&self.store)
    }
}

/// The volume that `--volume` and `--mirror` describe, if they do.
pub(super) fn volume(given: &[OsString], mirror: bool) -> Result<Option<VolumePlace>> {
    let size = |text: &OsString| text.to_str().and_then(|text| size::parse(text).ok());
    match given {
        [] if mirror => Err(Reason::rule("--mirror takes two devices or more")),
        [] => Ok(Some(VolumePlace::Auto)),
        [one] if one == "none" && !mirror => Ok(None),
        [one] if size(one).is_some() && !mirror => {
            Ok(Some(VolumePlace::Size(size(one).unwrap_or(0))))
        }
        [_] if mirror => Err(Reason::rule("--mirror takes two devices or more")),
        all => {
            let paths = all.iter().map(PathBuf::from).collect();
            Ok(Some(VolumePlace::Devices { paths, mirror }))
        }
    }
}

/// Makes the store that `args` describe.
pub(crate) fn make(report: &Report, args: &Mkfs) {
    let Some(volume) = report.take_plain(volume(&args.volume, args.mirror)) else {
        return;
    };
    let directory = args.directory();
    let defaults = NewStore::default();
    let preset = Placement::of(args.preset);
    let new = NewStore {
        core: args.core.clone().map_or(CorePlace::Default, CorePlace::Path),
        size_max: args.size_max.unwrap_or(0),
        size: args.size.unwrap_or(0),
        medium: args.medium,
        volume,
        sync: args.sync,
        cache: args.cache,
        file_size_max: args.file_size_max.unwrap_or(defaults.file_size_max),
        reserve: args.reserve,
        placement: Placement { threshold: args.threshold.unwrap_or(preset.threshold), ..preset },
        chunk: args.chunk,
        mode: args.mode,
        root_mode: args.root_mode,
        lanes: args.lanes,
        slots: args.slots,
        locks: args.locks,
        force: args.force,
        ..defaults
    };
    let made = Store::make(&directory, &new).map_err(Reason::from);
    if report.take_plain(made).is_some() && !args.quiet {
        report.take_plain(tell(&directory));
    }
}

/// Says what was made, as it is found.
fn tell(directory: &std::path::Path) -> Result<()> {
    let store = crate::session::attach(directory)?;
    let info = store.info();
    let label = place::host_label(directory);
    let text = format!(
        "made the store {label}, for up to {} in {}\nits core is {}\nsurvives {}\n",
        size::human(info.usage.total),
        info.core_kind,
        place::host_label(&info.core),
        info.survives.words,
    );
    crate::output::all(text.as_bytes())?;
    Ok(store.detach()?)
}
