//! Rescuing what a volume has when the core and the directory of its store are gone: a store if its
//! core was logged, the data of large files if it was on a battery.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conquest::{
    Error, Id, LargeFile, Medium, NewStore, RescueOptions, Rescued, RestoreOptions, SaveOptions,
    Stays, Store, VolumePlace, Wait, rescue, restore, save,
};
use conquest_flash::OpenOptions as OpenVolume;
use conquest_format::image::LOG;
use conquest_format::label::{LABEL_BYTES, Label, label_block};
use conquest_format::mark::{MARK, MARK_BYTES, Mark};
use conquest_pm::media::{Mapped, OsHost};
use conquest_testkit::Rng;
use support::large::{
    Op, PAGE, THRESHOLD, VOLUME, alone, filler, found, name, new, power_cut, read,
};
use support::{
    Temporary, await_file, check, core_of, indexes, kill, names, populate, private, role, start,
    text, tree, write_file,
};

type Volume = conquest_flash::Volume<Mapped, OsHost>;

#[test]
fn as_child() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["sync", directory, sign] => {
            let store = alone(Path::new(directory));
            let files = store.files().unwrap();
            files.write("/large", filler(1, 700_000)).unwrap();
            write_file(store.fs(), "small", b"as of fsync");
            store.sync().unwrap();
            write_file(store.fs(), "later", b"since fsync");
            std::fs::write(sign, b"").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["work", directory, seed] => {
            let store = alone(Path::new(directory));
            let files = store.files().unwrap();
            let mut rng = Rng::new(seed.parse().unwrap());
            for number in 0.. {
                Op::random(&mut rng).perform(number, &store, &files);
                if rng.chance(1, 10) {
                    store.fs().trim_chunks().unwrap();
                }
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Files that can be the devices of a volume.
fn blank(place: &Temporary, names: &[&str]) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = names.iter().map(|name| place.path().join(name)).collect();
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(VOLUME).unwrap();
    }
    paths
}

fn on(devices: &[PathBuf]) -> Option<VolumePlace> {
    let (paths, mirror) = (devices.to_vec(), devices.len() > 1);
    Some(VolumePlace::Devices { paths, mirror })
}

/// Takes away all of the store in `directory` but its volume.
fn lose(directory: &Path) {
    power_cut(directory);
    std::fs::remove_dir_all(directory).unwrap();
}

fn try_rescue(devices: &[PathBuf], to: &Path) -> Result<Rescued, Error> {
    rescue(devices, to, RescueOptions::default())
}

/// What makes it fail; nothing is left of it.
fn refused(devices: &[PathBuf], to: &Path) -> Error {
    let was_there = to.exists();
    let error = try_rescue(devices, to).unwrap_err();
    assert_eq!(to.exists(), was_there, "{error}");
    error
}

/// How many cores there are of the region `region`.
fn cores(region: Id) -> usize {
    let found = std::fs::read_dir(private()).into_iter().flatten();
    let bytes = found.map(|entry| std::fs::read(entry.unwrap().path()).unwrap_or_default());
    let is_its = |bytes: &Vec<u8>| bytes.windows(16).take(2 * PAGE).any(|part| part == region.0);
    bytes.filter(is_its).count()
}

// --- stores --------------------------------------------------------------------------------------

/// A logged store with files of all kinds, in `directory`; and what is in it.
fn logged(directory: &Path, devices: &[PathBuf]) -> BTreeMap<String, support::Seen> {
    Store::make(directory, &NewStore { volume: on(devices), ..new() }).unwrap();
    let store = alone(directory);
    populate(store.fs(), 3, 40);
    store.files().unwrap().write("/large", filler(1, 900_000)).unwrap();
    write_file(store.fs(), "small", b"content");
    let found = tree(store.fs());
    store.detach().unwrap();
    found
}

#[test]
fn all_of_a_logged_store_is_there_again() {
    let place = Temporary::on_disk("logged");
    let devices = blank(&place, &["device"]);
    let (directory, to) = (place.path().join("store"), place.path().join("to"));
    let expected = logged(&directory, &devices);
    let (was, core) = (alone(&directory).uuid(), core_of(&directory));
    // Gone, as far as anybody knows; under a name that is removed if this fails.
    let (old, old_core) = (place.path().join("old"), core.with_extension("partial"));
    std::fs::rename(&core, &old_core).unwrap();
    std::fs::rename(&directory, &old).unwrap();
    let rescued = try_rescue(&devices, &to).unwrap();
    assert!(rescued.is_whole());
    let Rescued::Store { directory: made, store: uuid, core: new_core } = rescued else {
        panic!("{rescued:?}")
    };
    assert_eq!((&made, &new_core), (&to, &core_of(&to)));
    assert_ne!(uuid, was);
    assert_eq!(indexes(&to), Vec::<PathBuf>::new());
    let store = alone(&to);
    let info = store.info();
    assert_eq!((store.uuid(), info.medium), (uuid, Medium::Logged));
    assert_eq!(store.placement().threshold, THRESHOLD);
    assert_eq!(info.volume.unwrap().devices, devices);
    assert!(tree(store.fs()) == expected);
    check(store.fs());
    // It goes on.
    store.files().unwrap().write("/new", filler(2, 300_000)).unwrap();
    store.detach().unwrap();
    power_cut(&to);
    let store = alone(&to);
    assert!(read(&store.files().unwrap(), "/new") == filler(2, 300_000));
    store.detach().unwrap();
    // And nobody else does.
    std::fs::rename(&old_core, &core).unwrap();
    std::fs::rename(&old, &directory).unwrap();
    let store = alone(&directory);
    write_file(store.fs(), "late", b"bytes");
    let error = store.sync().unwrap_err().to_string();
    assert!(error.contains("brought back") || error.contains("incarnation"), "{error}");
    drop(store);
    lose(&directory);
    assert!(read(&alone(&to).files().unwrap(), "/large") == filler(1, 900_000));
}

#[test]
fn what_was_synced_is_rescued_of_a_store_that_was_killed() {
    let place = Temporary::on_disk("killed");
    let devices = blank(&place, &["device"]);
    let (directory, sign) = (place.path().join("store"), place.path().join("sign"));
    Store::make(&directory, &NewStore { volume: on(&devices), ..new() }).unwrap();
    let child = start(&["sync", text(&directory), text(&sign)]);
    await_file(&sign);
    kill(child);
    lose(&directory);
    // A directory that is there, and empty, does as well.
    let to = place.path().join("to");
    std::fs::create_dir(&to).unwrap();
    assert!(try_rescue(&devices, &to).unwrap().is_whole());
    let store = alone(&to);
    let files = store.files().unwrap();
    assert_eq!(read(&files, "/small"), b"as of fsync");
    assert!(read(&files, "/large") == filler(1, 700_000));
    let all = names(store.fs());
    assert!(all.iter().all(|name| ["small", "large", "later"].contains(&name.as_str())), "{all:?}");
    check(store.fs());
}

#[test]
fn a_store_that_can_not_be_made_leaves_nothing() {
    let place = Temporary::on_disk("fails");
    let devices = blank(&place, &["device"]);
    let (directory, to) = (place.path().join("store"), place.path().join("to"));
    logged(&directory, &devices);
    let region = alone(&directory).info().region;
    assert_eq!(cores(region), 1);
    lose(&directory);
    with(&devices, |volume| {
        let (at, _) = volume.allocated(LOG).unwrap().unwrap();
        volume.write(at, &[0; PAGE]).unwrap();
    });
    let error = refused(&devices, &to);
    assert!(matches!(error, Error::Image(_)), "{error}");
    std::fs::create_dir(&to).unwrap();
    refused(&devices, &to);
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 0);
    assert_eq!(cores(region), 0);
    refused(&devices, &place.path().join("no/such"));
}

#[test]
fn a_store_needs_all_members_of_its_mirror() {
    let place = Temporary::on_disk("mirror");
    let devices = blank(&place, &["one", "two"]);
    let (directory, to) = (place.path().join("store"), place.path().join("to"));
    let expected = logged(&directory, &devices);
    lose(&directory);
    let error = refused(&devices[..1], &to).to_string();
    assert!(error.contains("--degraded"), "{error}");
    let degraded = RescueOptions { degraded: true, ..RescueOptions::default() };
    let error = rescue(&devices[..1], &to, degraded).unwrap_err().to_string();
    assert!(error.contains("volume replace") && !to.exists(), "{error}");
    // Both are there after all.
    try_rescue(&devices, &to).unwrap();
    assert!(tree(alone(&to).fs()) == expected);
}

// --- large files ---------------------------------------------------------------------------------

/// A store on a battery with large files, which has lost all but its volume: their bytes by their
/// inode numbers.
fn lost(place: &Temporary, devices: &[PathBuf]) -> BTreeMap<u64, Vec<u8>> {
    let (source, copy) = (place.path().join("source"), place.path().join("copy"));
    Store::make(&source, &new()).unwrap();
    let store = alone(&source);
    let files = store.files().unwrap();
    let mut model = support::large::Model::new();
    let ops = [
        Op::Write(0, 0, 1_200_000),
        // Sparse: most of it nowhere.
        Op::Write(1, 0, 300_000),
        Op::Write(1, 2_500_000, 400_001),
        Op::Write(2, 0, 900_000),
        Op::Punch(2, 100_000..400_000),
        // A hole at its end.
        Op::Write(3, 0, 1_000_000),
        Op::Truncate(3, 200_000),
        Op::Truncate(3, 700_000),
    ];
    for (number, op) in (50..).zip(ops) {
        op.perform(number, &store, &files);
        op.apply(number, &mut model);
    }
    files.write("/removed", filler(9, 400_000)).unwrap();
    files.remove_file("/removed").unwrap();
    write_file(store.fs(), "small", b"content");
    store.fs().push_due(|| false).unwrap();
    drop(files);
    store.detach().unwrap();
    save(&source, &copy, SaveOptions::default()).unwrap();
    Store::destroy(&source, Duration::from_secs(5)).unwrap();
    let directory = place.path().join("store");
    let volume = on(devices);
    let options = RestoreOptions { medium: Medium::Battery, volume, ..RestoreOptions::default() };
    restore(&copy, &directory, options).unwrap();
    let store = alone(&directory);
    let files = store.files().unwrap();
    store.fs().push_due(|| false).unwrap();
    let of = |(file, bytes): (u64, Vec<u8>)| {
        let name = name(file);
        assert!(read(&files, &name) == bytes);
        (files.metadata(&name).unwrap().id().number, bytes)
    };
    let lost = model.into_iter().map(of).collect();
    drop(files);
    store.detach().unwrap();
    lose(&directory);
    lost
}

/// Does `work` with the volume on `devices`.
fn with<T>(devices: &[PathBuf], work: impl FnOnce(&Volume) -> T) -> T {
    let volume = Volume::open(devices, &OpenVolume::default()).unwrap();
    let done = work(&volume);
    volume.close().unwrap();
    done
}

fn mark(volume: &Volume) -> Mark {
    let mut bytes = [0; MARK_BYTES];
    volume.read(MARK, &mut bytes).unwrap();
    Mark::from_bytes(&bytes).unwrap()
}

fn label(volume: &Volume, chunk: u64) -> Label {
    let mut bytes = [0; LABEL_BYTES];
    volume.read(label_block(chunk, mark(volume).chunk_blocks), &mut bytes).unwrap();
    Label::from_bytes(&bytes).unwrap()
}

fn put_label(volume: &Volume, chunk: u64, label: &Label) {
    volume.write(label_block(chunk, mark(volume).chunk_blocks), &label.to_bytes()).unwrap();
}

/// What was rescued of large files, and the chunks without labels.
fn files_of(devices: &[PathBuf], to: &Path) -> (Vec<LargeFile>, Vec<u64>) {
    let rescued = try_rescue(devices, to).unwrap();
    let is_whole = rescued.is_whole();
    let Rescued::Files { directory, files, unlabelled, .. } = rescued else { panic!("a store") };
    assert_eq!(directory, to);
    assert_eq!(is_whole, unlabelled.is_empty() && files.iter().all(|file| file.lost == 0));
    let count = std::fs::read_dir(to).unwrap().count();
    assert_eq!(count, files.len());
    for file in &files {
        assert_eq!(std::fs::metadata(&file.path).unwrap().len(), file.bytes, "{file:?}");
    }
    (files, unlabelled)
}

/// The file of inode `inode`, which is there once; its bytes.
fn one(files: &[LargeFile], inode: u64) -> (&LargeFile, Vec<u8>) {
    let [file] = files.iter().filter(|file| file.inode == inode).collect::<Vec<_>>()[..] else {
        panic!("{inode}: {files:?}")
    };
    assert_eq!(file.path.file_name().unwrap().to_str(), Some(inode.to_string().as_str()));
    (file, std::fs::read(&file.path).unwrap())
}

/// The inode of the file that has `len` bytes, and its bytes.
fn of_len(lost: &BTreeMap<u64, Vec<u8>>, len: usize) -> (u64, &Vec<u8>) {
    let (inode, bytes) = lost.iter().find(|(_, bytes)| bytes.len() == len).unwrap();
    (*inode, bytes)
}

#[test]
fn large_files_are_rescued_by_their_numbers() {
    let place = Temporary::on_disk("files");
    let devices = blank(&place, &["device"]);
    let lost = lost(&place, &devices);
    let to = place.path().join("to");
    let (files, unlabelled) = files_of(&devices, &to);
    assert_eq!((files.len(), unlabelled), (4, vec![]));
    for (inode, bytes) in &lost {
        let (file, found) = one(&files, *inode);
        assert_eq!((file.bytes, file.lost), (bytes.len() as u64, 0));
        assert!(found == *bytes, "{file:?}");
        assert_ne!(file.generation, 0);
    }
    // Holes are holes.
    for (len, most) in [(2_900_001, 720_000), (900_000, 620_000), (700_000, 210_000)] {
        let (inode, _) = of_len(&lost, len);
        let found = std::fs::metadata(to.join(inode.to_string())).unwrap();
        assert!(found.blocks() * 512 <= most, "{len}: {}", found.blocks() * 512);
        assert_eq!(found.mode() & 0o777, 0o600);
    }
    // The volume is as it was.
    let again = files_of(&devices, &place.path().join("again")).0;
    let strip = |files: Vec<LargeFile>| files.into_iter().map(|file| (file.inode, file.bytes));
    assert!(strip(again).eq(strip(files)));
}

/// Processes do anything to large files, and are killed; the volume loses its power as well. What
/// the volume has then is rescued as it is, with nothing behind it.
#[test]
fn large_files_are_rescued_as_they_are() {
    let place = Temporary::on_disk("random");
    let (mut rng, mut rescued) = (Rng::new(9), 0);
    for seed in 0..6 {
        let devices = blank(&place, &["device"]);
        let (directory, to) = (place.path().join("store"), place.path().join("to"));
        let new = NewStore { medium: Medium::Battery, volume: on(&devices), ..new() };
        Store::make(&directory, &new).unwrap();
        let child = start(&["work", text(&directory), &seed.to_string()]);
        std::thread::sleep(Duration::from_millis(150 + rng.below(1500)));
        kill(child);
        indexes(&directory).iter().for_each(|index| std::fs::remove_file(index).unwrap());
        let store = alone(&directory);
        let files = store.files().unwrap();
        let mut expected = BTreeMap::new();
        for (file, bytes) in found(&files) {
            let id = files.metadata(name(file)).unwrap().id();
            store.fs().push(id, Wait::Forever).unwrap();
            let placed = store.fs().placement(id, THRESHOLD).unwrap();
            let stat = store.fs().stat(id).unwrap();
            // One that got a larger threshold when it was large has pages that stay in the core.
            let is_pushed = stat.size > placed.threshold.unwrap_or(THRESHOLD);
            if placed.stays == Stays::OnVolume && is_pushed && stat.blocks > 0 {
                expected.insert(id.number, bytes);
            }
        }
        store.fs().trim_chunks().unwrap();
        drop(files);
        store.detach().unwrap();
        lose(&directory);
        let (there, unlabelled) = files_of(&devices, &to);
        let mut unrecorded = unlabelled.len();
        for (inode, mut bytes) in expected {
            let (file, mut found) = one(&there, inode);
            assert_eq!(file.lost, 0);
            // A hole at the end is in no label.
            let len = found.len().max(bytes.len());
            found.resize(len, 0);
            bytes.resize(len, 0);
            let other =
                found.iter().zip(&bytes).position(|(found, byte)| found != byte && *byte != 0);
            assert_eq!(other, None, "seed {seed}, inode {inode}");
            unrecorded += usize::from(found != bytes);
            rescued += 1;
        }
        // What was being written to a hole, or behind the end, when the process was killed; in a
        // new chunk its label may be missing.
        assert!(unrecorded <= 1, "seed {seed}: {unrecorded} files");
        std::fs::remove_dir_all(&to).unwrap();
    }
    assert!(rescued > 6, "{rescued}");
}

#[test]
fn a_file_that_has_grown_since_its_label_is_whole() {
    let place = Temporary::on_disk("grown");
    let devices = blank(&place, &["device"]);
    let lost = lost(&place, &devices);
    let (inode, bytes) = of_len(&lost, 1_200_000);
    let whole = bytes.len().next_multiple_of(PAGE) as u64;
    let (files, _) = files_of(&devices, &place.path().join("to"));
    let chunk = one(&files, inode).0.chunk;
    let blocks = with(&devices, |volume| mark(volume).chunk_blocks);
    let was = with(&devices, |volume| label(volume, chunk));
    assert_eq!((was.size, was.end), (1_200_000, whole / PAGE as u64));
    // What the label says, and what the file has then.
    let pages = was.end + 3;
    let cases = [
        // In the last page, or many pages before.
        (Label { size: 1_199_990, ..was }, whole),
        (Label { size: 400_000, ..was }, whole),
        (Label { size: 0, ..was }, whole),
        // Nothing behind the end counts.
        (Label { size: 400_000, end: 100, ..was }, 100 * PAGE as u64),
        (Label { end: 100, ..was }, 1_200_000),
        (Label { size: 0, end: 0, ..was }, 0),
        // Nor zeros, or what is nowhere, in front of it.
        (Label { end: pages, ..was }, 1_200_000),
        (Label { size: 5_000_000, ..was }, 5_000_000),
    ];
    with(&devices, |volume| {
        volume.write(chunk * blocks + was.end * 8, &[0; 2 * PAGE]).unwrap();
    });
    for (number, (new, expected)) in cases.into_iter().enumerate() {
        with(&devices, |volume| put_label(volume, chunk, &new));
        let (files, unlabelled) = files_of(&devices, &place.path().join(format!("to {number}")));
        let (file, found) = one(&files, inode);
        assert_eq!((file.bytes, &unlabelled), (expected, &vec![]), "{new:?}");
        let has = (new.end as usize * PAGE).min(bytes.len()).min(found.len());
        assert!(found[..has] == bytes[..has], "{new:?}");
        assert!(found[has..].iter().all(|byte| *byte == 0), "{new:?}");
    }
}

#[test]
fn chunks_of_one_inode_and_chunks_of_nobody_are_told_apart() {
    let place = Temporary::on_disk("chunks");
    let devices = blank(&place, &["device"]);
    let lost = lost(&place, &devices);
    let (inode, bytes) = of_len(&lost, 900_000);
    let (files, _) = files_of(&devices, &place.path().join("first"));
    let chunk = one(&files, inode).0.chunk;
    let (last, nobody, twin) = (u64::MAX / (1 << 35), chunk + 200, chunk + 100);
    with(&devices, |volume| {
        let blocks = mark(volume).chunk_blocks;
        assert_eq!(blocks, 1 << 35);
        volume.write(twin * blocks, &filler(7, PAGE as u64)).unwrap();
        let was = label(volume, chunk);
        let new = Label { chunk: twin, generation: was.generation + 1, size: 100, end: 1, ..was };
        put_label(volume, twin, &Label { size: PAGE as u64, ..new });
        volume.write(nobody * blocks + 8000, &filler(8, PAGE as u64)).unwrap();
        // The last one of all has no place for a label.
        volume.write(last * blocks, &filler(8, PAGE as u64)).unwrap();
    });
    let to = place.path().join("to");
    let (files, unlabelled) = files_of(&devices, &to);
    assert_eq!((files.len(), unlabelled), (5, vec![nobody, last]));
    let in_chunk = |number: u64| std::fs::read(to.join(format!("{inode}-chunk-{number}"))).unwrap();
    assert!(in_chunk(chunk) == *bytes);
    assert!(in_chunk(twin) == filler(7, PAGE as u64));
    assert!(!to.join(inode.to_string()).exists());
    let generations = files.iter().filter(|file| file.inode == inode).map(|file| file.generation);
    let [one, other] = generations.collect::<Vec<_>>()[..] else { panic!("two") };
    assert_eq!(one + 1, other);
}

#[test]
fn labels_are_not_believed_unchecked() {
    let place = Temporary::on_disk("labels");
    let devices = blank(&place, &["device"]);
    let lost = lost(&place, &devices);
    let (inode, _) = of_len(&lost, 700_000);
    let (files, _) = files_of(&devices, &place.path().join("to"));
    let chunk = one(&files, inode).0.chunk;
    let was = with(&devices, |volume| label(volume, chunk));
    let pages = (1 << 35) / 8;
    let bad = [
        Label { region: [1; 16], ..was },
        Label { chunk: chunk + 1, ..was },
        Label { inode: 0, ..was },
        Label { inode: u64::MAX, ..was },
        Label { end: pages + 1, ..was },
        Label { size: pages * PAGE as u64, ..was },
    ];
    let mut flipped = was.to_bytes();
    flipped[60] ^= 4;
    let all = bad.iter().map(Label::to_bytes).chain([flipped, [0; LABEL_BYTES]]);
    for (number, bytes) in all.enumerate() {
        with(&devices, |volume| volume.write(label_block(chunk, 1 << 35), &bytes).unwrap());
        let (files, unlabelled) = files_of(&devices, &place.path().join(format!("to {number}")));
        assert_eq!((files.len(), unlabelled), (3, vec![chunk]), "{number}");
    }
    // What can be is taken, and the label is no data.
    let most = Label { end: pages, size: pages * PAGE as u64 - PAGE as u64, ..was };
    with(&devices, |volume| put_label(volume, chunk, &most));
    let to = place.path().join("last");
    if let Ok(Rescued::Files { files, .. }) = try_rescue(&devices, &to) {
        let file = files.iter().find(|file| file.inode == inode).unwrap();
        assert_eq!(file.bytes, pages * PAGE as u64 - PAGE as u64);
        let found = std::fs::metadata(&file.path).unwrap();
        assert!(found.blocks() * 512 < 1 << 20, "{}", found.blocks());
    } else {
        // The file system has no files that are so large.
        assert!(!to.exists());
    }
}

/// Flips a bit of all copies of `page` on the device.
fn spoil(device: &Path, page: &[u8]) {
    let mut bytes = std::fs::read(device).unwrap();
    let part = &page[..64];
    let places: Vec<usize> =
        (0..bytes.len()).step_by(PAGE).filter(|at| bytes[*at..].starts_with(part)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(device, bytes).unwrap();
}

#[test]
fn pages_that_are_damaged_are_told_and_the_rest_is_there() {
    let place = Temporary::on_disk("damaged");
    let devices = blank(&place, &["device"]);
    let lost = lost(&place, &devices);
    let (first, bytes) = of_len(&lost, 1_200_000);
    let (second, other) = of_len(&lost, 900_000);
    let (files, _) = files_of(&devices, &place.path().join("whole"));
    let unlabelled_one = files.iter().find(|file| file.bytes == 700_000).unwrap().chunk;
    let label = with(&devices, |volume| label(volume, unlabelled_one));
    // Two in the middle, the last one of a file, of which a part counts, and a label.
    spoil(&devices[0], &bytes[40 * PAGE..]);
    spoil(&devices[0], &bytes[200 * PAGE..]);
    let at = other.len() / PAGE * PAGE;
    spoil(&devices[0], &other[at..]);
    spoil(&devices[0], &label.to_bytes());
    let (files, unlabelled) = files_of(&devices, &place.path().join("to"));
    assert_eq!((files.len(), unlabelled), (3, vec![unlabelled_one]));
    let mut expected = bytes.clone();
    expected[40 * PAGE..41 * PAGE].fill(0);
    expected[200 * PAGE..201 * PAGE].fill(0);
    let (file, found) = one(&files, first);
    assert_eq!((file.bytes, file.lost), (1_200_000, 2 * PAGE as u64));
    assert!(found == expected);
    let mut expected = other.clone();
    expected[at..].fill(0);
    let (file, found) = one(&files, second);
    assert_eq!((file.bytes, file.lost), (900_000, (other.len() - at) as u64));
    assert!(found == expected);
}

#[test]
fn files_of_a_mirror_are_rescued_without_a_member() {
    let place = Temporary::on_disk("degraded");
    let devices = blank(&place, &["one", "two"]);
    let lost = lost(&place, &devices);
    let to = place.path().join("to");
    refused(&devices[1..], &to);
    let degraded = RescueOptions { degraded: true, ..RescueOptions::default() };
    let rescued = rescue(&devices[1..], &to, degraded).unwrap();
    let Rescued::Files { files, .. } = rescued else { panic!("a store") };
    for (inode, bytes) in &lost {
        assert!(one(&files, *inode).1 == *bytes);
    }
}

// --- what is refused -----------------------------------------------------------------------------

#[test]
fn what_is_there_is_not_touched() {
    let place = Temporary::on_disk("occupied");
    let devices = blank(&place, &["device"]);
    lost(&place, &devices);
    let full = place.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), b"bytes").unwrap();
    let error = refused(&devices, &full);
    assert!(matches!(&error, Error::NotEmptyDirectory { name, .. } if name == "mine"), "{error}");
    assert_eq!(error.raw_os_error(), libc::ENOTEMPTY);
    assert_eq!(std::fs::read(full.join("mine")).unwrap(), b"bytes");
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
    let file = full.join("mine");
    refused(&devices, &file);
    assert_eq!(std::fs::read(&file).unwrap(), b"bytes");
    let link = place.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    try_rescue(&devices, &link).unwrap_err();
    assert!(link.is_symlink());
    // Nor does what was begun stay.
    let mut told = 0;
    for least in [0, 1_500_000] {
        let to = place.path().join("to");
        let mut progress = |done: u64, total: u64| {
            assert!(done <= total);
            told += 1;
            if done > least { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = RescueOptions { progress: Some(&mut progress), ..RescueOptions::default() };
        let error = rescue(&devices, &to, options).unwrap_err();
        assert!(matches!(error, Error::Cancelled) && !to.exists(), "{error}");
    }
    assert!(told > 3, "{told}");
}

#[test]
fn a_volume_that_others_have_open_is_refused() {
    let place = Temporary::on_disk("open");
    let devices = blank(&place, &["device"]);
    let (directory, to) = (place.path().join("store"), place.path().join("to"));
    logged(&directory, &devices);
    let store = alone(&directory);
    write_file(store.fs(), "file", b"bytes");
    store.sync().unwrap();
    let error = refused(&devices, &to);
    assert!(matches!(error, Error::VolumeOpen { .. }), "{error}");
    assert_eq!(error.raw_os_error(), libc::EBUSY);
    // It is as it was.
    write_file(store.fs(), "other", b"bytes");
    store.sync().unwrap();
    store.detach().unwrap();
    lose(&directory);
    try_rescue(&devices, &to).unwrap();
    let names = names(alone(&to).fs());
    assert!(["file", "other"].iter().all(|name| names.contains(&(*name).to_owned())));
}

#[test]
fn a_volume_that_no_store_had_is_refused_with_what_to_do() {
    let place = Temporary::on_disk("nothing");
    let devices = blank(&place, &["device"]);
    let to = place.path().join("to");
    // None at all.
    let error = refused(&devices, &to);
    assert!(matches!(error, Error::Volume(_)), "{error}");
    let uuid = Id::random().unwrap().0;
    let arrangement = conquest_format::volume::Arrangement::Striped;
    let volume = conquest_flash::NewVolume { uuid, created: 1, arrangement, segment: None };
    conquest_flash::create_at(&devices, &volume, false).unwrap();
    let says = |why: &str, what: &str| {
        let error = refused(&devices, &to);
        assert!(matches!(error, Error::NothingToRescue { .. }), "{error}");
        assert_eq!(error.raw_os_error(), libc::ENODATA);
        let error = error.to_string();
        assert!(error.contains(text(&devices[0])), "{error}");
        assert!(error.contains(why) && error.contains(what), "{error}");
    };
    says("neither the image of a core nor the mark", "name the devices");
    let put = |bytes: &[u8; MARK_BYTES]| {
        with(&devices, |volume| volume.write(MARK, bytes).unwrap());
    };
    let mark = Mark { region: [3; 16], number: 4, chunk_blocks: 1 << 35 };
    for chunk_blocks in [0, 1 << 20, 1 << 52, (1 << 35) + 8] {
        put(&Mark { chunk_blocks, ..mark }.to_bytes());
        says("can't be", "saved copy");
    }
    let mut bytes = mark.to_bytes();
    bytes[8] += 1;
    put(&bytes);
    says("another version", "release");
    let mut bytes = mark.to_bytes();
    bytes[100] += 1;
    put(&bytes);
    says("damaged", "saved copy");
    // A right one, and no large file.
    put(&mark.to_bytes());
    assert_eq!(files_of(&devices, &to), (vec![], vec![]));
}
