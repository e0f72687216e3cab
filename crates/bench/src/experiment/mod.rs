//! The experiments: what is done, in which phases, by which calls.

mod array;
mod attach;
mod bonnie;
mod bundle;
mod effects;
mod files;
mod many;
mod metadata;
mod neighbour;
mod postmark;
mod programs;
mod run;
mod scaling;
mod shared_file;
mod sprite_large;
mod sprite_small;
mod sync;
mod throughput;
mod volume_amplification;
mod volume_filesystems;
mod volume_opening;
mod volume_pair;
mod volume_reads;
mod volume_wear;
mod volume_writes;

use crate::calls::CallError;
use crate::machine::caches::Caches;
use crate::parameters::Parameters;
use crate::target::Name;

pub use many::{Beside, Counter};
pub use run::{Measured, Run, Whole};

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Files per second.
    Files,
    /// Bytes per second.
    Bytes,
    /// Transactions per second.
    Transactions,
    /// Attachments per second.
    Attachments,
    /// Requests to a device or a volume per second.
    Requests,
    /// Not a rate: seconds, of which fewer are better.
    Seconds,
    /// Not a rate: how many of something there are for each of something else; fewer are better.
    Each,
}

impl Unit {
    /// As it stands in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Files => "files/s",
            Unit::Bytes => "bytes/s",
            Unit::Transactions => "transactions/s",
            Unit::Attachments => "attachments/s",
            Unit::Requests => "requests/s",
            Unit::Seconds => "s",
            Unit::Each => "for each",
        }
    }

    /// The one that stands so in reports.
    #[must_use]
    pub fn named(name: &str) -> Option<Unit> {
        const ALL: [Unit; 7] = [
            Unit::Files,
            Unit::Bytes,
            Unit::Transactions,
            Unit::Attachments,
            Unit::Requests,
            Unit::Seconds,
            Unit::Each,
        ];
        ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Whether it is that of a rate, of which more is better.
    #[must_use]
    pub fn is_rate(self) -> bool {
        !matches!(self, Unit::Seconds | Unit::Each)
    }
}

/// A phase of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Its name in reports.
    pub id: &'static str,
    /// What its rate counts.
    pub unit: Unit,
    /// Which part of the experiment it belongs to. Each part has a process of its own, in order.
    pub part: usize,
}

/// Something about a machine that makes two phases of an experiment differ which should not. How
/// many times as fast the first one of a pair is as the second one says how much.
#[derive(Clone, Copy, Debug)]
pub struct Effect {
    /// Its name in reports.
    pub id: &'static str,
    /// What it is, and where the paper describes it, in a line.
    pub about: &'static str,
    /// Whether it makes the first phase of a pair faster; slower if not.
    pub is_gain: bool,
    /// The two phases in which it shows.
    pub original: [&'static str; 2],
    /// The two phases in which it is avoided.
    pub corrected: [&'static str; 2],
}

/// Two phases of an experiment that are done in turn, in short slices, so that whatever the machine
/// does it does to both: how many times as fast the first one is as the second one is to be told.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Its name in reports.
    pub id: &'static str,
    /// The two phases.
    pub phases: [&'static str; 2],
    /// The ratio that was aimed at: the lower end of the interval should not be below it. None if
    /// the ratio is only to be told.
    pub aim: Option<f64>,
    /// Targets, by their names, of which another ratio was aimed at.
    pub other_aims: &'static [(&'static str, f64)],
}

impl Pair {
    /// What was aimed at on `target`, as it stands in reports.
    #[must_use]
    pub fn aim_on(&self, target: &str) -> Option<f64> {
        let other = self.other_aims.iter().find(|(name, _)| is_named(target, name));
        other.map(|(_, aim)| *aim).or(self.aim)
    }
}

/// What a phase that is no rate is not to be more than.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    /// The phase.
    pub phase: &'static str,
    /// The only target that it is said of, if it is not said of all.
    pub target: Option<&'static str>,
    /// What the upper end of the interval is not to be above, in the phase's unit.
    pub most: f64,
}

impl Bound {
    /// Whether it is said of `target`, as that stands in reports.
    #[must_use]
    pub fn is_of(&self, target: &str) -> bool {
        self.target.is_none_or(|name| is_named(target, name))
    }
}

/// Whether `label` is that of the target `name`, be it made slower, measured by another program,
/// or one of several.
fn is_named(label: &str, name: &str) -> bool {
    let rest = label.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '@', '#']))
}

/// How large experiments are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// So small that it shows only that everything works.
    Smoke,
    /// Large enough to be measured in a minute or two.
    Short,
    /// As the papers did it, and at all sizes of the machine.
    Full,
}

/// What an experiment works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Files, or nothing.
    Files,
    /// A device without files.
    Device,
    /// Memory of its own.
    Memory,
    /// A file system on a volume, and the same on a bare device.
    Twins,
    /// Files that are to be durable.
    Durable,
    /// Large files, past all caches.
    Direct,
}

impl On {
    /// The targets of such experiments, if none are named.
    #[must_use]
    pub fn usual(self) -> &'static [&'static str] {
        match self {
            On::Files => &["ramfs", "tmpfs", "ext4", "conquest", "fuse"],
            On::Device => &["disk", "loop"],
            On::Memory => &["memory"],
            On::Durable => &["ext4", "xfs", "logged", "leader"],
            On::Direct => &["device", "volume", "ext4", "hybrid"],
            On::Twins => &["volume-ext3", "volume-ext4", "volume-xfs"],
        }
    }
}

/// What an experiment takes of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// The memory that there is for it; all of the machine's if nothing is said.
    pub memory: Option<Memory>,
}

/// Memory for a target, besides that of the process that measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// All of it, in bytes: a core and every cache, or the page cache.
    pub all: u64,
    /// Bytes of a core, where a target has one.
    pub core: u64,
    /// Bytes of a cache, where a target has to be told how many it may have.
    pub cache: u64,
}

/// An experiment.
pub trait Experiment: Sync {
    /// Its name.
    fn id(&self) -> &'static str;

    /// What it does, and which paper it is from, in a line.
    fn about(&self) -> &'static str;

    /// Its phases, in order.
    fn phases(&self) -> &'static [Phase];

    /// With which parameters it is done at `size`, on a machine with these caches.
    fn points(&self, size: Size, caches: &Caches) -> Vec<Parameters>;

    /// What it takes with `parameters`, or what is wrong with them.
    ///
    /// # Errors
    /// Words that say which parameter, and what it may be.
    fn need(&self, parameters: &Parameters) -> Result<Need, String>;

    /// Whether each target is asked for its files, or there are none.
    fn has_files(&self) -> bool {
        self.on() != On::Memory
    }

    /// Whether it reaches the target's files itself, as that is what it measures.
    fn reaches(&self) -> bool {
        self.on() == On::Device
    }

    /// Effects that its phases show.
    fn effects(&self) -> &'static [Effect] {
        &[]
    }

    /// Phases that are compared with each other, on each target.
    fn pairs(&self) -> &'static [Pair] {
        &[]
    }

    /// What its amounts are not to be more than, with `parameters`.
    fn bounds(&self, _: &Parameters) -> Vec<Bound> {
        Vec::new()
    }

    /// What it works on.
    fn on(&self) -> On {
        On::Files
    }

    /// Why it can't be done on a target, if it can't.
    fn lack(&self, _: &Name) -> Option<&'static str> {
        None
    }

    /// The program that it runs, if it is one, and the Debian package that has it. Programs need a
    /// directory.
    fn program(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Does part `part`.
    ///
    /// # Errors
    /// The call that failed.
    fn run(&self, part: usize, run: &mut Run<'_>) -> Result<(), CallError>;

    /// Does what one of several processes does in a phase that is done by [`Run::processes`].
    ///
    /// # Errors
    /// The call that failed.
    fn beside(&self, _: Beside, _: &mut Run<'_>) -> Result<(), CallError> {
        Ok(())
    }
}

/// All of them.
pub const ALL: [&dyn Experiment; 28] = [
    &sprite_small::SpriteSmall,
    &sprite_large::ORIGINAL,
    &sprite_large::CORRECTED,
    &array::Array,
    &effects::Effects,
    &attach::Attach,
    &postmark::SMALL,
    &postmark::LARGE,
    &bonnie::Bonnie,
    &throughput::BUFFERED,
    &throughput::DIRECT,
    &metadata::Metadata,
    &bundle::Bundle,
    &shared_file::SharedFile,
    &sync::Sync,
    &neighbour::Neighbour,
    &scaling::Scaling,
    &volume_reads::VolumeReads,
    &volume_writes::VolumeWrites,
    &volume_amplification::VolumeAmplification,
    &volume_opening::VolumeOpening,
    &volume_wear::VolumeWear,
    &volume_filesystems::VolumeFilesystems,
    &programs::POSTMARK,
    &programs::BONNIE,
    &programs::FIO,
    &programs::DBENCH,
    &programs::FS_MARK,
];

/// The one of that name.
#[must_use]
pub fn find(id: &str) -> Option<&'static dyn Experiment> {
    ALL.into_iter().find(|experiment| experiment.id() == id)
}

/// `parameters`' number `name`, if it lies in `range`.
fn in_range(
    parameters: &Parameters,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, String> {
    let number = parameters.get(name);
    match range.contains(&number) {
        true => Ok(number),
        false => Err(format!("{name} is {number}, not {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_what_they_say() {
        for experiment in ALL {
            let phases = experiment.phases();
            assert!(phases.iter().is_sorted_by_key(|phase| phase.part), "{}", experiment.id());
            assert_eq!(phases.first().map(|phase| phase.part), Some(0));
            let names: std::collections::BTreeSet<_> = phases.iter().map(|one| one.id).collect();
            assert_eq!(names.len(), phases.len(), "{}", experiment.id());
            assert_eq!(find(experiment.id()).map(Experiment::id), Some(experiment.id()));
            for size in [Size::Smoke, Size::Short, Size::Full] {
                let points = experiment.points(size, &Caches::default());
                assert!(!points.is_empty(), "{}", experiment.id());
                for point in points {
                    experiment.need(&point).unwrap();
                }
            }
        }
        assert!(find("sprite").is_none());
    }

    /// Aims and bounds are of phases that there are.
    #[test]
    fn what_is_aimed_at_is_measured() {
        for experiment in ALL {
            let has = |phase: &str| experiment.phases().iter().find(|one| one.id == phase);
            for phase in experiment.pairs().iter().flat_map(|pair| pair.phases) {
                assert!(has(phase).is_some_and(|phase| phase.unit.is_rate()), "{phase}");
            }
            for size in [Size::Smoke, Size::Short, Size::Full] {
                let points = experiment.points(size, &Caches::default());
                for bound in points.iter().flat_map(|point| experiment.bounds(point)) {
                    assert!(has(bound.phase).is_some_and(|phase| !phase.unit.is_rate()));
                }
            }
        }
    }

    #[test]
    fn targets_have_their_own_aims() {
        let pair =
            Pair { id: "x", phases: ["a", "b"], aim: Some(0.9), other_aims: &[("disk", 0.95)] };
        let aims = ["loop", "disk", "disk+5%", "disk#2", "disks"].map(|label| pair.aim_on(label));
        assert_eq!(aims, [0.9, 0.95, 0.95, 0.95, 0.9].map(Some));
        assert_eq!(Pair { aim: None, ..pair }.aim_on("loop"), None);
        let bound = Bound { phase: "x", target: Some("loop"), most: 2.0 };
        assert!(bound.is_of("loop+5%") && !bound.is_of("disk"));
        assert!(Bound { target: None, ..bound }.is_of("disk"));
    }
}
