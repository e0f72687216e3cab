//! Saved copies that are damaged, cut off, or not what they seem: each is named, and nothing is
//! touched.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use conquest::{
    Error, NewStore, Placement, RestoreOptions, SaveOptions, Store, VolumePlace, restore, save,
};
use conquest_format::checksum;
use conquest_format::saved::{CHUNK, Chunk, HEADER, Header, KIND_LARGE, TRAILER, trailer};
use support::{Temporary, attach, check, forced, populate, small, tree, write_file};

/// A small saved copy, and the store that it is of.
fn saved(place: &Temporary) -> (PathBuf, PathBuf) {
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    Store::make(&directory, &NewStore { lanes: 2, slots: 2, ..small() }).unwrap();
    let store = attach(&directory);
    populate(store.fs(), 5, 12);
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    (directory, copy)
}

/// The same of a store with large files.
fn saved_large(place: &Temporary) -> (PathBuf, PathBuf) {
    let (directory, copy) = (place.path().join("store"), place.path().join("copy"));
    let new = NewStore {
        size_max: 4 << 20,
        volume: Some(VolumePlace::Size(64 << 20)),
        placement: Placement { threshold: 16384, ..Placement::default() },
        lanes: 2,
        slots: 2,
        ..small()
    };
    Store::make(&directory, &new).unwrap();
    let store = attach(&directory);
    populate(store.fs(), 5, 6);
    for (name, len) in [("one", 40_000), ("two", 90_000)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        store.files().unwrap().write(format!("/{name}"), bytes).unwrap();
    }
    store.detach().unwrap();
    save(&directory, &copy, SaveOptions::default()).unwrap();
    (directory, copy)
}

/// Restoring `bytes` to a directory that is not there fails, and the directory is still not there.
fn refused(place: &Temporary, bytes: &[u8]) -> Error {
    let (bad, directory) = (place.path().join("bad"), place.path().join("other"));
    std::fs::write(&bad, bytes).unwrap();
    let error = restore(&bad, &directory, forced()).expect_err("a damaged copy was restored");
    assert!(!directory.exists(), "{error}");
    error
}

/// Where parts of the copy begin: header, chunks, trailer.
fn parts(bytes: &[u8]) -> Vec<usize> {
    let (header, _) = Header::from_bytes(bytes[..HEADER].try_into().unwrap()).unwrap();
    let mut parts = vec![0];
    let mut at = HEADER;
    for _ in 0..header.chunks {
        parts.push(at);
        let chunk = Chunk::from_bytes(bytes[at..at + CHUNK].try_into().unwrap()).unwrap().0;
        at += CHUNK + chunk.len as usize;
    }
    parts.push(at);
    assert_eq!(at + TRAILER, bytes.len());
    parts
}

#[test]
fn every_flipped_bit_is_found_wherever_it_is() {
    flip_bits(saved);
}

#[test]
fn every_flipped_bit_is_found_with_large_files() {
    flip_bits(saved_large);
}

fn flip_bits(saved: fn(&Temporary) -> (PathBuf, PathBuf)) {
    let place = Temporary::in_memory("flipped");
    let (_, copy) = saved(&place);
    let whole = std::fs::read(&copy).unwrap();
    let mut places: Vec<usize> = (0..whole.len()).step_by(211).collect();
    for part in parts(&whole) {
        // What each part begins with, and the first of its data.
        places.extend(part..(part + CHUNK + 8).min(whole.len()));
    }
    places.extend(HEADER - 8..HEADER);
    for at in places {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let error = refused(&place, &bytes);
        let is_named = match &error {
            Error::NotACopy { .. } => at < 8,
            Error::CopyVersion { .. } => (8..12).contains(&at),
            Error::CopyDamaged { offset, .. } => *offset <= at as u64 || at < HEADER,
            Error::CopyIncomplete { .. } => true,
            _ => false,
        };
        assert!(is_named, "byte {at}: {error}");
    }
}

#[test]
fn a_copy_that_was_cut_off_anywhere_is_incomplete() {
    cut_off(saved);
    cut_off(saved_large);
}

fn cut_off(saved: fn(&Temporary) -> (PathBuf, PathBuf)) {
    let place = Temporary::in_memory("cut");
    let (_, copy) = saved(&place);
    let whole = std::fs::read(&copy).unwrap();
    let mut lengths: Vec<usize> = (8..whole.len()).step_by(997).collect();
    for part in parts(&whole) {
        lengths.extend([part + 1, part + CHUNK / 2, part + CHUNK - 1].map(|len| len.max(8)));
        lengths.push(part.max(8));
    }
    for len in lengths.into_iter().filter(|len| *len < whole.len()) {
        let error = refused(&place, &whole[..len]);
        let expected = matches!(&error, Error::CopyIncomplete { .. });
        assert!(expected, "{len} of {} bytes: {error}", whole.len());
    }
    for len in 0..8 {
        let error = refused(&place, &whole[..len]);
        assert!(matches!(error, Error::NotACopy { .. }), "{error}");
    }
    let longer = [whole.as_slice(), b"!"].concat();
    let error = refused(&place, &longer);
    assert!(error.to_string().contains("behind the trailer"), "{error}");
}

#[test]
fn parts_of_two_copies_do_not_make_one() {
    let place = Temporary::in_memory("mixed");
    let (directory, copy) = saved(&place);
    let one = std::fs::read(&copy).unwrap();
    write_file(attach(&directory).fs(), "more", &[7; 9000]);
    let options = SaveOptions { force: true, ..SaveOptions::default() };
    save(&directory, &copy, options).unwrap();
    let two = std::fs::read(&copy).unwrap();
    let header_of_other = [&two[..HEADER], &one[HEADER..]].concat();
    assert!(matches!(refused(&place, &header_of_other), Error::CopyDamaged { .. }));
    let end_of_other = [&one[..one.len() - TRAILER], &two[two.len() - TRAILER..]].concat();
    assert!(matches!(refused(&place, &end_of_other), Error::CopyDamaged { .. }));
    // A chunk left out.
    let parts = parts(&one);
    let left_out = [&one[..parts[3]], &one[parts[4]..]].concat();
    assert!(matches!(refused(&place, &left_out), Error::CopyDamaged { .. }));
}

/// The copy `whole` with chunk `nth` changed by `forge`, and all checksums right.
fn forged(whole: &[u8], nth: usize, forge: impl Fn(&mut Chunk)) -> Vec<u8> {
    let (header, mut seed) = Header::from_bytes(whole[..HEADER].try_into().unwrap()).unwrap();
    let mut bytes = whole[..HEADER].to_vec();
    let parts = parts(whole);
    for (number, part) in parts[1..].windows(2).enumerate() {
        let data = &whole[part[0] + CHUNK..part[1]];
        let head: [u8; CHUNK] = whole[part[0]..part[0] + CHUNK].try_into().unwrap();
        let (mut chunk, _) = Chunk::from_bytes(&head).unwrap();
        if number == nth {
            forge(&mut chunk);
        }
        let (head, sum) = chunk.to_bytes(seed, data);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(data);
        seed = sum;
    }
    bytes.extend_from_slice(&trailer(&header, seed));
    bytes
}

#[test]
fn a_copy_whose_sums_are_right_but_not_its_parts_is_refused() {
    let place = Temporary::in_memory("forged");
    let (_, copy) = saved(&place);
    let whole = std::fs::read(&copy).unwrap();
    let chunks = parts(&whole).len() - 2;
    // What somebody could make who knows the format: a chunk somewhere else, with right checksums.
    for forge in [
        |chunk: &mut Chunk| chunk.at += 4096,
        |chunk: &mut Chunk| chunk.at = 1 << 47,
        |chunk: &mut Chunk| chunk.len += 4096,
        |chunk: &mut Chunk| chunk.len = u64::MAX,
        |chunk: &mut Chunk| chunk.kind = 9,
        |chunk: &mut Chunk| chunk.number += 1,
    ] {
        for nth in [1, 2, chunks - 1] {
            let error = refused(&place, &forged(&whole, nth, forge));
            let is_named = matches!(
                error,
                Error::CopyDamaged { .. } | Error::CopyIncomplete { .. } | Error::Settings { .. }
            );
            assert!(is_named, "{error}");
        }
    }
    // As it is, made anew, it is right.
    let again = forged(&whole, 1, |_| {});
    assert!(again == whole);
}

#[test]
fn large_files_that_are_not_where_they_belong_are_refused() {
    let place = Temporary::in_memory("forged-large");
    let (_, copy) = saved_large(&place);
    let whole = std::fs::read(&copy).unwrap();
    let (header, _) = Header::from_bytes(whole[..HEADER].try_into().unwrap()).unwrap();
    assert_eq!((header.large_files, header.volume_bytes), (2, 64 << 20));
    let chunks = parts(&whole).len() - 2;
    let first = chunks - header.large_chunks as usize;
    let part = parts(&whole)[1 + first];
    let chunk = Chunk::from_bytes(whole[part..part + CHUNK].try_into().unwrap()).unwrap().0;
    assert_eq!((chunk.kind, chunk.at), (KIND_LARGE, 0));
    // Of no file, of another one, beyond the end, into the core's image.
    let forges: [&dyn Fn(&mut Chunk); 7] = [
        &|chunk| chunk.file += 2,
        &|chunk| chunk.file ^= 1,
        &|chunk| chunk.file = 0,
        &|chunk| chunk.file = u64::MAX,
        &|chunk| chunk.at += 1 << 20,
        &|chunk| chunk.at += 512,
        &|chunk| chunk.at = u64::MAX - 4095,
    ];
    for (forge, number) in forges.iter().zip(0..) {
        for nth in first..chunks {
            let error = refused(&place, &forged(&whole, nth, forge));
            let is_named = matches!(error, Error::CopyDamaged { .. });
            assert!(is_named, "forge {number} of {nth}: {error}");
        }
    }
    // As many bytes, files and chunks as the header says.
    let lies: [&dyn Fn(&mut Header); 4] = [
        &|header| header.large_files += 1,
        &|header| header.large_chunks -= 1,
        &|header| header.large_bytes += 4096,
        &|header| {
            (header.large_bytes, header.bytes) = (header.large_bytes + 4096, header.bytes + 4096)
        },
    ];
    for (lie, number) in lies.iter().zip(0..) {
        let mut header = header.clone();
        lie(&mut header);
        let error = refused(&place, &with_header(&whole, &header.to_bytes()));
        assert!(matches!(error, Error::CopyDamaged { .. }), "lie {number}: {error}");
    }
    let again = with_header(&whole, &header.to_bytes());
    assert!(again == whole);
}

/// The copy `whole` with another header, and all checksums right.
fn with_header(whole: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    let mut seed = u64::from_le_bytes(*bytes.last_chunk().unwrap());
    for part in parts(whole)[1..].windows(2) {
        let data = &whole[part[0] + CHUNK..part[1]];
        let head: [u8; CHUNK] = whole[part[0]..part[0] + CHUNK].try_into().unwrap();
        let (head, sum) = Chunk::from_bytes(&head).unwrap().0.to_bytes(seed, data);
        copy.extend_from_slice(&head);
        copy.extend_from_slice(data);
        seed = sum;
    }
    let (header, _) = Header::from_bytes(bytes.try_into().unwrap()).unwrap();
    copy.extend_from_slice(&trailer(&header, seed));
    copy
}

/// The header `bytes` as one of `version`, with whatever that had there.
fn of_version(bytes: &[u8], version: u32) -> Vec<u8> {
    let mut header = bytes.to_vec();
    header[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = checksum(0, &header[..HEADER - 8]);
    header[HEADER - 8..].copy_from_slice(&sum.to_le_bytes());
    header
}

#[test]
fn copies_of_older_versions_are_restored_and_newer_ones_named() {
    let place = Temporary::in_memory("versions");
    let (directory, copy) = saved(&place);
    let before = tree(attach(&directory).fs());
    let whole = std::fs::read(&copy).unwrap();
    let older = with_header(&whole, &of_version(&whole[..HEADER], 1));
    let (path, other) = (place.path().join("older"), place.path().join("other"));
    std::fs::write(&path, older).unwrap();
    let options = RestoreOptions { new_identity: true, ..RestoreOptions::default() };
    restore(&path, &other, options).unwrap();
    assert_eq!(tree(attach(&other).fs()), before);
    std::fs::remove_file(other.join("core")).unwrap();
    std::fs::remove_dir_all(&other).unwrap();
    let newer = [&of_version(&whole[..HEADER], 3), &whole[HEADER..]].concat();
    let error = refused(&place, &newer);
    assert!(matches!(error, Error::CopyVersion { found: 3, known: 2, .. }), "{error}");
    assert_eq!(error.raw_os_error(), libc::EPROTONOSUPPORT);
}

#[test]
fn a_copy_that_changes_while_it_is_restored_replaces_nothing() {
    change_meanwhile(saved);
    // The last thing in it is a large file then.
    change_meanwhile(saved_large);
}

fn change_meanwhile(saved: fn(&Temporary) -> (PathBuf, PathBuf)) {
    let place = Temporary::in_memory("changing");
    let (directory, copy) = saved(&place);
    let before = {
        let store = attach(&directory);
        write_file(store.fs(), "later", b"than the copy");
        tree(store.fs())
    };
    let whole = std::fs::read(&copy).unwrap();
    let last = parts(&whole);
    let at = last[last.len() - 2] + CHUNK + 5;
    let mut progress = |done, total| {
        // Checked to the end, not yet read again.
        if done * 2 > total {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&copy, bytes).unwrap();
        }
        ControlFlow::Continue(())
    };
    let options = RestoreOptions { progress: Some(&mut progress), ..forced() };
    let error = restore(&copy, &directory, options).unwrap_err();
    assert!(matches!(error, Error::CopyDamaged { .. }), "{error}");
    no_partials(&directory);
    let store = attach(&directory);
    assert_eq!(tree(store.fs()), before);
    check(store.fs());
}

#[test]
fn a_cancelled_restore_changes_nothing() {
    cancel(saved);
    cancel(saved_large);
}

fn cancel(saved: fn(&Temporary) -> (PathBuf, PathBuf)) {
    let place = Temporary::in_memory("cancelled");
    let (directory, copy) = saved(&place);
    let before = tree(attach(&directory).fs());
    for at in [0, 30, 60, 90, 100] {
        let mut progress = |done: u64, total: u64| {
            if done * 100 >= total * at {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let options = RestoreOptions { progress: Some(&mut progress), ..forced() };
        let error = restore(&copy, &directory, options).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert_eq!(error.raw_os_error(), libc::ECANCELED);
        no_partials(&directory);
        assert_eq!(tree(attach(&directory).fs()), before);
    }
}

#[test]
fn what_is_no_copy_is_refused() {
    let place = Temporary::in_memory("none");
    let missing = restore(Path::new("/nowhere/copy"), place.path(), forced()).unwrap_err();
    assert_eq!(missing.raw_os_error(), libc::ENOENT, "{missing}");
    let directory = restore(place.path(), place.path(), forced()).unwrap_err();
    assert_eq!(directory.raw_os_error(), libc::EISDIR, "{directory}");
    let (store, _) = saved(&place);
    let core = restore(&store.join("core"), &place.path().join("other"), forced()).unwrap_err();
    assert!(matches!(core, Error::NotACopy { .. }), "{core}");
}

#[test]
fn a_core_that_is_cut_off_is_not_saved() {
    let place = Temporary::in_memory("torn-core");
    let (directory, copy) = saved(&place);
    std::fs::remove_file(&copy).unwrap();
    let store = attach(&directory);
    for number in 0..6 {
        write_file(store.fs(), &format!("large {number}"), &vec![1; 1 << 20]);
    }
    store.detach().unwrap();
    let core = std::fs::File::options().write(true).open(directory.join("core")).unwrap();
    let cut = |len| core.set_len(len).unwrap();
    let mut progress = |done: u64, _| {
        if done > 1 << 20 {
            cut(4 << 20);
        }
        ControlFlow::Continue(())
    };
    let options = SaveOptions { progress: Some(&mut progress), ..SaveOptions::default() };
    for options in [options, SaveOptions::default()] {
        let error = save(&directory, &copy, options).unwrap_err();
        assert!(matches!(error, Error::Core(_)), "{error}");
        assert!(!copy.exists() && !place.path().join("copy.partial").exists());
    }
}

fn no_partials(directory: &Path) {
    let names = ["core.partial", "store.toml.partial", "store.toml.new", "volume.partial"];
    for name in names.into_iter().chain(["volume2", "volume2.partial"]) {
        assert!(!directory.join(name).exists(), "{name}");
    }
}
