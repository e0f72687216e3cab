//! The members of a volume: what it can be made of, and what is refused; and odd ones.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod volumes;

use std::io;
use std::path::Path;
use std::sync::Arc;

use conquest_flash::device::{
    Device, Faults, Faulty, Geometry, Inset, Limits, MemoryDevice, Mirrored, Nand, Striped, Work,
};
use conquest_flash::{Body, Error, NewVolume, Volume, assemble, assemble_degraded, create};
use conquest_format::volume::{Arrangement, SIZE, Superblock};
use conquest_testkit::flash::{Request, Watched};
use volumes::{Model, TestVolume};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const LIMITS: Limits = Limits::of_blocks(BLOCK as u32);
/// Segments that a volume has at most.
const SEGMENTS_MAX: u64 = 262_144;

fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> Option<i32> {
    outcome.unwrap_err().raw_os_error()
}

fn memory(len: u64, limits: Limits) -> MemoryDevice {
    MemoryDevice::new("memory", len, limits).unwrap()
}

fn block(device: &dyn Device, at: u64) -> [u8; BLOCK] {
    let mut found = [0xA5; BLOCK];
    device.read(at, &mut found).unwrap();
    found
}

/// A device in memory with limits that none has.
struct Odd {
    device: MemoryDevice,
    limits: Limits,
}

impl Odd {
    fn new(limits: Limits) -> Odd {
        Odd { device: memory(MIB, LIMITS), limits }
    }
}

impl Device for Odd {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
}

// --- devices of several --------------------------------------------------------------------------

#[test]
fn what_makes_no_sense_for_one_of_several_makes_none_for_all() {
    let whole = Limits { erase: Some(8192), ..LIMITS };
    for (limits, is_taken) in [
        (LIMITS, true),
        (whole, true),
        (Limits { erase: Some(0), ..LIMITS }, false),
        (Limits { erase: Some(6144), ..LIMITS }, false),
        (Limits { block: 6144, physical: 8192, ..LIMITS }, false),
        (Limits { physical: 12_288, ..whole }, false),
        (Limits { physical: 12_288, erase: Some(12_288), ..LIMITS }, false),
    ] {
        let members =
            || vec![Arc::new(Odd::new(limits)) as Arc<dyn Device>, Arc::new(memory(MIB, LIMITS))];
        let refused = Mirrored::new(members()).err().map(|error| error.raw_os_error());
        assert_eq!(refused, (!is_taken).then_some(Some(libc::EINVAL)), "{limits:?}");
        assert_eq!(Striped::new(members(), 65_536).is_ok(), is_taken, "{limits:?}");
    }
}

/// What is on a member alone that somebody has seen fail meanwhile is nowhere.
#[test]
fn a_member_that_has_failed_meanwhile_has_done_nothing() {
    let (one, faults) = (Watched::new(Arc::new(memory(MIB, LIMITS))), Arc::new(Faults::default()));
    let other = Arc::new(Faulty::new(memory(MIB, LIMITS), Arc::clone(&faults)));
    let mirrored = Arc::new(Mirrored::new(vec![Arc::clone(&one) as _, other]).unwrap());
    let mirror = Arc::clone(&mirrored);
    one.in_next(Work::Write, 0, move || mirror.fail(0).unwrap());
    faults.fail(Work::Write, 0, libc::ENOSPC);
    assert_eq!(errno(mirrored.write(0, &[1; BLOCK])), Some(libc::ENOSPC));
    assert_eq!(mirrored.failed_members(), [0], "the other one is the last");
    mirrored.write(0, &[2; BLOCK]).unwrap();
    assert_eq!((block(&*one, 0), block(&*mirrored, 0)), ([1; BLOCK], [2; BLOCK]));
}

/// Somebody comes in between the look whether anybody is there and the entering.
#[test]
fn who_can_not_enter_one_member_has_not_entered() {
    let device = memory(MIB, LIMITS);
    let other = device.as_other();
    let shut: Arc<dyn Device> = Watched::each(Arc::new(device), move |request| match request {
        Request::Enter(writer) => other.enter(writer).map(drop),
        _ => Ok(()),
    });
    for members in
        [[Arc::new(memory(MIB, LIMITS)) as _, shut.clone()], [shut, Arc::new(memory(MIB, LIMITS))]]
    {
        assert!(!Striped::new(members.to_vec(), 4096).unwrap().enter(1).unwrap());
        assert!(!Mirrored::new(members.to_vec()).unwrap().enter(1).unwrap());
    }
}

// --- volumes -------------------------------------------------------------------------------------

fn new_volume(arrangement: Arrangement, segment: Option<u64>) -> NewVolume {
    NewVolume { uuid: *b"a volume to test", created: 1, arrangement, segment }
}

/// What a volume that is to be made of `device` is refused for, in segments of so many units.
#[track_caller]
fn refusal(device: &Arc<dyn Device>, segment: Option<u64>) -> String {
    let new = new_volume(Arrangement::Striped, segment);
    create(std::slice::from_ref(device), &new).unwrap_err().to_string()
}

/// Makes a volume of `device`: its superblock.
#[track_caller]
fn made(device: &Arc<dyn Device>, segment: Option<u64>) -> Superblock {
    let new = new_volume(Arrangement::Striped, segment);
    create(std::slice::from_ref(device), &new).unwrap();
    superblock(device.as_ref())
}

fn superblock(device: &dyn Device) -> Superblock {
    let mut bytes = vec![0; SIZE.next_multiple_of(device.limits().block as usize)];
    device.read(0, &mut bytes).unwrap();
    Superblock::from_bytes(bytes.first_chunk().unwrap()).unwrap()
}

/// Writes to a volume on `members`, and reads it before and after a restart.
fn keeps_what_is_written(members: &[Arc<dyn Device>]) {
    let opened = || -> TestVolume {
        let body = assemble(members.to_vec()).unwrap();
        Volume::recover(volumes::region(&body), &body).unwrap()
    };
    let (volume, mut model) = (opened(), Model::default());
    for number in 0..40 {
        let bytes = model.write(number * 100, 150, number);
        volume.write(number * 100, &bytes).unwrap();
    }
    model.compare(&volume, 4100, "written");
    volume.flush().unwrap();
    drop(volume);
    model.compare(&opened(), 4100, "recovered");
}

#[test]
fn a_unit_is_as_large_as_a_physical_block_from_4_to_64_kib() {
    let limits = |block, physical| Limits { physical, ..Limits::of_blocks(block) };
    for (limits, unit) in [
        (limits(512, 512), 4096),
        (limits(512, 4096), 4096),
        (limits(8192, 8192), 8192),
        (limits(512, 65_536), 65_536),
    ] {
        let device: Arc<dyn Device> = Arc::new(memory(64 * MIB, limits));
        assert_eq!(made(&device, Some(16)).unit, unit);
        keeps_what_is_written(&[device]);
    }
    // Where one writes more at once than the others, that is the unit of all.
    let members: [Arc<dyn Device>; 2] =
        [4096, 16_384].map(|physical| Arc::new(memory(16 * MIB, limits(512, physical))) as _);
    create(&members, &new_volume(Arrangement::Striped, Some(16))).unwrap();
    assert_eq!(superblock(members[0].as_ref()).unit, 16_384);
    for physical in [131_072, 12_288] {
        let device = Arc::new(Odd::new(Limits { physical, ..LIMITS })) as Arc<dyn Device>;
        let refused = refusal(&device, Some(8));
        assert!(refused.contains("larger than 64 KiB"), "{refused}");
    }
}

#[test]
fn a_volume_has_32_segments_at_least_and_262144_at_most() {
    let device = |bytes: u64| -> Arc<dyn Device> {
        Arc::new(memory(65_536 + bytes + 4096, Limits::of_blocks(4096)))
    };
    let bytes = 8 * 4096;
    for segments in [32, 33, SEGMENTS_MAX - 1, SEGMENTS_MAX] {
        assert_eq!(made(&device(segments * bytes), Some(8)).segments, segments);
    }
    let refused = refusal(&device(32 * bytes - 4096), Some(8));
    assert!(refused.contains("32 segments at least"), "{refused}");
    let refused = refusal(&device((SEGMENTS_MAX + 1) * bytes), Some(8));
    assert!(refused.contains("more than 262,144"), "{refused}");
    // Segments of a size that there is not.
    for segment in [0, 4, 12, 131_072] {
        let refused = refusal(&device(40 * 4096 * segment), Some(segment));
        assert!(refused.contains("segment"), "{segment}: {refused}");
    }
    // Unless it is said, there are as many as cleaning needs, if they are not too small then.
    for (mib, segment) in [(8, 16), (512, 16), (1023, 16), (1024, 32), (3000, 64), (4096, 128)] {
        assert_eq!(made(&device(mib * MIB), None).segment, segment, "{mib} MiB");
    }
}

#[test]
fn segments_are_whole_erase_blocks() {
    let geometry = Geometry { page: 4096, pages: 16, blocks: 80 };
    let device: Arc<dyn Device> = Arc::new(Nand::new("nand", geometry).unwrap());
    for segment in [8, 24] {
        let refused = refusal(&device, Some(segment));
        assert!(refused.contains("whole erase blocks"), "{segment}: {refused}");
    }
    assert_eq!(made(&device, None).segment, 16);
    assert_eq!(made(&device, Some(32)).segment, 32);
}

/// Of one that is in use, too: what has to be is erased, nothing else.
#[test]
fn a_volume_is_made_of_what_has_been_one() {
    for arrangement in [Arrangement::Striped, Arrangement::Mirrored] {
        let nands = [(); 2].map(|()| {
            let geometry = Geometry { page: 4096, pages: 16, blocks: 80 };
            Nand::new("nand", geometry).unwrap()
        });
        for _ in 0..3 {
            let members = nands.each_ref().map(|nand| Arc::new(nand.as_other()) as _);
            create(&members, &new_volume(arrangement, None)).unwrap();
            keeps_what_is_written(&members);
        }
    }
    // What can be written at any time is.
    let faults = Arc::new(Faults::default());
    let device = Faulty::new(memory(8 * MIB, LIMITS), Arc::clone(&faults));
    let device: Arc<dyn Device> = Arc::new(device);
    for _ in 0..2 {
        made(&device, Some(8));
        keeps_what_is_written(std::slice::from_ref(&device));
    }
    assert_eq!(faults.made(Work::Discard), 0);
}

#[test]
fn a_volume_is_made_when_all_of_it_is_written_and_flushed() {
    for work in [Work::Write, Work::Flush] {
        let faults = Arc::new(Faults::default());
        let device = Faulty::new(memory(8 * MIB, LIMITS), Arc::clone(&faults));
        let device: Arc<dyn Device> = Arc::new(device);
        made(&device, Some(8));
        let all = faults.made(work);
        assert!(all > 0);
        for nth in 0..all {
            faults.fail(work, nth, libc::ENOSPC);
            let refused = refusal(&device, Some(8));
            assert!(refused.contains("No space left"), "{work:?} {nth}: {refused}");
        }
        made(&device, Some(8));
    }
}

/// What is wrong with `members`.
#[track_caller]
fn wrong(members: &[Arc<dyn Device>]) -> String {
    assemble(members.to_vec()).err().unwrap().to_string()
}

/// Changes all superblocks of `device`.
fn edit(device: &dyn Device, change: impl Fn(&mut Superblock)) {
    let mut superblock = superblock(device);
    change(&mut superblock);
    for at in [0, device.len() - 4096] {
        device.write(at, &superblock.to_bytes()).unwrap();
    }
}

fn several(count: usize, uuid: [u8; 16], arrangement: Arrangement) -> Vec<Arc<dyn Device>> {
    let devices = (0..count).map(|_| Arc::new(memory(4 * MIB, LIMITS)) as Arc<dyn Device>);
    let members: Vec<_> = devices.collect();
    create(&members, &NewVolume { uuid, ..new_volume(arrangement, Some(16)) }).unwrap();
    members
}

#[test]
fn members_are_put_together_in_whatever_order() {
    for arrangement in [Arrangement::Striped, Arrangement::Mirrored] {
        let members = several(3, [1; 16], arrangement);
        let [one, two, three] = <&[_; 3]>::try_from(members.as_slice()).unwrap().clone();
        keeps_what_is_written(&[two.clone(), three.clone(), one.clone()]);
        let volume = |members| -> TestVolume {
            let body: Body = assemble(members).unwrap();
            assert_eq!(body.uuid(), [1; 16]);
            Volume::recover(volumes::region(&body), &body).unwrap()
        };
        volume(members.clone()).write(0, &[7; 4096]).unwrap();
        let written = volume(vec![three.clone(), one.clone(), two.clone()]);
        written.write(0, &[7; 4096]).unwrap();
        written.flush().unwrap();
        drop(written);
        let mut found = [0; 4096];
        volume(vec![two, one, three]).read(0, &mut found).unwrap();
        assert_eq!(found, [7; 4096]);
    }
}

#[test]
fn members_that_do_not_belong_together_are_refused() {
    let members = several(3, [1; 16], Arrangement::Striped);
    let others = several(3, [2; 16], Arrangement::Striped);
    let pick = |which: [(bool, usize); 3]| {
        which.map(|(is_ours, at)| if is_ours { members[at].clone() } else { others[at].clone() })
    };
    let refused = wrong(&pick([(true, 0), (true, 1), (false, 2)]));
    assert!(refused.contains("belongs to another volume"), "{refused}");
    for twice in [[0, 1, 1], [0, 0, 1], [0, 2, 2], [1, 1, 2]] {
        let refused = wrong(&pick(twice.map(|at| (true, at))));
        assert!(refused.contains("the same member"), "{refused}");
    }
    for (few, why) in [(&members[..2], "are missing"), (&members[1..], "are missing")] {
        let refused = wrong(few);
        assert!(refused.contains(why), "{refused}");
    }
    assert!(wrong(&[]).contains("at least one"));
    // What one says of the volume the others have to say.
    let changes: [fn(&mut Superblock); 3] =
        [|said| said.created += 1, |said| said.segments -= 3, |said| said.segment /= 2];
    for change in changes {
        for odd in 0..3 {
            let members = several(3, [1; 16], Arrangement::Striped);
            edit(members[odd].as_ref(), change);
            let refused = wrong(&members);
            assert!(refused.contains("what the others don't"), "{refused}");
        }
    }
}

#[test]
fn a_volume_of_more_segments_than_can_be_managed_is_refused() {
    let len = 65_536 + (SEGMENTS_MAX + 1) * 8 * 4096 + 4096;
    let device: Arc<dyn Device> = Arc::new(memory(len, LIMITS));
    made(&device, Some(16));
    edit(device.as_ref(), |said| (said.segment, said.segments) = (8, SEGMENTS_MAX));
    assemble(vec![device.clone()]).ok().unwrap();
    edit(device.as_ref(), |said| said.segments = SEGMENTS_MAX + 1);
    let refused = wrong(&[device]);
    assert!(refused.contains("more segments than"), "{refused}");
}

#[test]
fn one_superblock_is_enough() {
    let faults = Arc::new(Faults::default());
    let inner = memory(4 * MIB, LIMITS);
    let device: Arc<dyn Device> = Arc::new(Faulty::new(inner.clone(), Arc::clone(&faults)));
    made(&device, Some(8));
    let found = superblock(device.as_ref());
    let members = || vec![device.clone()];
    for at in [0, 4 * MIB - 4096] {
        inner.write(at, &[0; 4096]).unwrap();
        assemble(members()).ok().unwrap();
        inner.write(at, &found.to_bytes()).unwrap();
    }
    faults.fail(Work::Read, 0, libc::EIO);
    assemble(members()).ok().unwrap();
    // What is told of none is the reason of the first that has one.
    faults.fail(Work::Read, 0, libc::EIO);
    faults.fail(Work::Read, 1, libc::EIO);
    assert!(wrong(&members()).contains("it can't be read"));
    inner.write(0, &[0; 4096]).unwrap();
    faults.fail(Work::Read, 1, libc::EIO);
    assert!(wrong(&members()).contains("no member of a volume"));
    inner.write(4 * MIB - 4096, &[0; 4096]).unwrap();
    assert!(wrong(&members()).contains("no member of a volume"));
    // One that has become shorter has the first one still.
    let shorter: Arc<dyn Device> = Arc::new(memory(4 * MIB - 4096, LIMITS));
    shorter.write(0, &found.to_bytes()).unwrap();
    assert!(wrong(&[shorter]).contains("shorter than it was"));
}

/// A volume of `members` devices with these limits.
fn created(members: usize, limits: Limits, arrangement: Arrangement) -> Result<(), Error> {
    let len = 2 * 65_536 + 64 * 16 * u64::from(limits.physical.max(4096));
    let one = || -> Arc<dyn Device> {
        Arc::new(Odd { device: memory(len, Limits::of_blocks(512)), limits })
    };
    let members: Vec<_> = (0..members).map(|_| one()).collect();
    let new = NewVolume { uuid: [7; 16], created: 1, arrangement, segment: Some(16) };
    create(&members, &new)
}

#[test]
fn units_and_mirrors_are_bounded() {
    let large = |physical| Limits { physical, ..Limits::of_blocks(512) };
    created(1, large(65_536), Arrangement::Striped).unwrap();
    for physical in [12_288, 131_072] {
        let error = created(1, large(physical), Arrangement::Striped).unwrap_err();
        assert!(error.to_string().contains("larger than 64 KiB"), "{physical}: {error}");
    }
    created(64, LIMITS, Arrangement::Mirrored).unwrap();
    let error = created(65, LIMITS, Arrangement::Mirrored).unwrap_err();
    assert!(error.to_string().contains("64 members at most"), "{error}");
    created(65, LIMITS, Arrangement::Striped).unwrap();
}

/// Only of a mirror all that is needed is on the others.
#[test]
fn of_several_that_are_used_in_turn_none_may_be_missing() {
    let devices = [0, 1].map(|_| memory(4 * MIB, Limits::of_blocks(512)));
    let all = |devices: &[MemoryDevice]| -> Vec<Arc<dyn Device>> {
        devices.iter().map(|device| Arc::new(device.as_other()) as _).collect()
    };
    for (arrangement, is_possible) in [(Arrangement::Striped, false), (Arrangement::Mirrored, true)]
    {
        let new = NewVolume { uuid: [7; 16], created: 1, arrangement, segment: Some(16) };
        create(&all(&devices), &new).unwrap();
        assert_eq!(assemble_degraded(all(&devices[..1])).is_ok(), is_possible);
    }
}

#[test]
fn what_consists_of_several_is_called_by_all_their_names() {
    let members = || -> Vec<Arc<dyn Device>> {
        let named = |name| Arc::new(MemoryDevice::new(name, MIB, LIMITS).unwrap()) as _;
        vec![named("one"), named("other"), named("third")]
    };
    assert_eq!(Striped::new(members(), 4096).unwrap().name(), Path::new("one+other+third"));
    assert_eq!(Mirrored::new(members()).unwrap().name(), Path::new("one+other+third"));
}

#[test]
fn a_part_of_a_device_ends_where_it_is_said() {
    let device = Arc::new(memory(MIB, LIMITS));
    let part = Inset::new(Arc::clone(&device) as _, 65_536, 65_536);
    part.write(65_536 - 4096, &[7; BLOCK]).unwrap();
    assert_eq!(block(device.as_ref(), 131_072 - 4096), [7; BLOCK]);
    assert_eq!(block(&part, 65_536 - 4096), [7; BLOCK]);
    assert!(part.write(65_536, &[7; BLOCK]).is_err());
    assert!(part.read(65_536 - 4096, &mut [0; 2 * BLOCK]).is_err());
}
