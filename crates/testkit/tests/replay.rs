//! Replaying a log whose items may be anything: what can be is done, and gives the region what it
//! needs for that; what can't be is refused, and changes nothing.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use conquest_format::geometry::{Geometry, STATE, STATE_CHUNKS, STATE_GROUPS, Shape};
use conquest_format::journal::{Action, CHECKSUM, COMMIT, Commit, Entry};
use conquest_format::log::{ItemKind, fragment};
use conquest_format::volatile::holding::PER_CHUNK;
use conquest_format::{GROUP_PAGES, Offset, PAGE, WORD};
use conquest_pm::attach::NewRegion;
use conquest_pm::log::{Origin, Replay, Replayed};
use conquest_pm::memory::Memory;
use conquest_testkit::scenario::shape;
use conquest_testkit::shelf;
use conquest_testkit::{Actor, Image, RecordingMemory, SimHost, World};

/// With more chunks of holdings than a new region has.
const SHAPE: Shape = Shape { log: 24, slots: 5, lanes: 5, chunks: 9, ..shape() };

fn layout() -> Geometry {
    Geometry::new(SHAPE).unwrap()
}

/// The fragment of record `sequence`, with the words of its items.
fn record(sequence: u64, items: &[&[u64]]) -> Vec<u8> {
    let mut words = vec![0, sequence];
    words.extend(items.concat());
    words[0] = fragment(words.len() as u64 * WORD, 0);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn set(at: u64, value: u64) -> Vec<u64> {
    let entry = Entry { target: Offset::new(at), action: Action::Set, operand: value };
    [&[ItemKind::Words.head(1)][..], &entry.pack()].concat()
}

fn zeros(at: u64, len: u64) -> Vec<u64> {
    vec![ItemKind::Zeros.head(len), at]
}

fn pages(at: u64, count: u64) -> Vec<u64> {
    vec![ItemKind::Pages.head(count), at]
}

/// What replaying a log comes to: what was found, groups and chunks, and all bytes of the region.
struct Made {
    found: Replayed,
    groups: u64,
    chunks: u64,
    bytes: Vec<u8>,
    /// The commit words of all lanes and their checksums, when the region is finished.
    lanes: Vec<[u64; 2]>,
}

impl Made {
    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(*self.bytes[at as usize..].first_chunk().unwrap())
    }
}

const ORIGIN: Origin = Origin { first: 100, incarnation: 0 };

/// A memory that has nothing, and what is to be made there.
fn blank() -> (RecordingMemory, World, NewRegion) {
    let geometry = layout();
    let image = Arc::new(Image::new(geometry.len()));
    let memory = RecordingMemory::new(image, geometry.volatile(), false);
    let world = World::new(memory.clock());
    let (shape, kinds) = (SHAPE, shelf::kinds());
    (memory, world, NewRegion { shape, kinds, uuid: [1; 16], created: 1, groups: 1 })
}

fn replayed(fragments: &[u8]) -> Made {
    made(|replay| replay.replay(fragments).unwrap())
}

fn made(act: impl FnOnce(&mut Replay<'_, Actor, SimHost>) -> Replayed) -> Made {
    let (geometry, (memory, world, new)) = (layout(), blank());
    let (actor, host) = (memory.this_thread(), world.process(9));
    let mut replay = Replay::new(&actor, &host, Path::new("replayed"), &new, ORIGIN).unwrap();
    let found = act(&mut replay);
    let groups = replay.groups();
    let mut bytes = vec![0; geometry.len() as usize];
    let end = geometry.len_at(groups);
    for at in (0..end).step_by(WORD as usize) {
        let word = actor.load(Offset::new(at), Ordering::Relaxed);
        bytes[at as usize..(at + WORD) as usize].copy_from_slice(&word.to_le_bytes());
    }
    let (finished, chunks) = replay.finish().unwrap();
    assert_eq!(finished, groups);
    memory.violation().map_or(Ok(()), Err).unwrap();
    let load = |at: Offset| actor.load(at, Ordering::Relaxed);
    let lanes = (0..SHAPE.lanes).map(|lane| geometry.lane(lane));
    let lanes = lanes.map(|lane| [load(lane.plus(COMMIT)), load(lane.plus(CHECKSUM))]).collect();
    Made { found, groups, chunks, bytes, lanes }
}

#[test]
fn what_can_be_is_put_there_and_has_space() {
    let geometry = layout();
    let (first, second) = (GROUP_PAGES - 1, GROUP_PAGES);
    let all = u64::from(SHAPE.chunks);
    let begin = replayed(&[]);
    assert_eq!((begin.found, begin.groups), (Replayed::default(), 1));
    let last_of = |at: Offset| at.bytes() - WORD;
    // A word; groups and chunks that there have to be.
    let cases = [
        (geometry.lane(0).bytes(), 1, 0),
        (geometry.bitmap(0).bytes(), 1, 0),
        (last_of(geometry.bitmap(1)), 1, 0),
        (geometry.bitmap(1).bytes(), 2, 0),
        (geometry.bitmap(2).bytes(), 3, 0),
        (geometry.descriptor(0).bytes(), 1, 0),
        (geometry.descriptor(first).bytes(), 1, 0),
        (geometry.descriptor(second).bytes(), 2, 0),
        (last_of(geometry.descriptor(2 * second)), 2, 0),
        (geometry.slab_map(0).bytes(), 1, 0),
        (geometry.slab_map(first).bytes(), 1, 0),
        (geometry.slab_map(second).bytes(), 2, 0),
        (geometry.slab_map(2 * second + 7).bytes(), 3, 0),
        (geometry.orphan(0).bytes(), 1, 1),
        (geometry.orphan(PER_CHUNK as u32 - 1).bytes(), 1, 1),
        (last_of(geometry.orphan(7 * PER_CHUNK as u32)), 1, 7),
        (geometry.orphan(7 * PER_CHUNK as u32).bytes(), 1, 8),
        (geometry.orphan(all as u32 * PER_CHUNK as u32 - 1).bytes(), 1, all),
        (geometry.page(0).bytes(), 1, 0),
        (last_of(geometry.page(second)), 1, 0),
        (geometry.page(second).bytes(), 2, 0),
        (geometry.len() - WORD, 3, 0),
    ];
    for (at, groups, chunks) in cases {
        let made = replayed(&record(1, &[&set(at, 77)]));
        assert_eq!(made.found, Replayed { records: 1, refused: 0 }, "{at}");
        assert_eq!((made.groups, made.chunks), (groups, chunks.max(begin.chunks)), "{at}");
        assert_eq!(made.word(at), 77, "{at}");
        // As little as can be takes the same.
        let least = replayed(&record(1, &[&zeros(at, 1)]));
        assert_eq!(least.found, made.found, "{at}");
        assert_eq!((least.groups, least.chunks), (made.groups, made.chunks), "{at}");
    }
}

#[test]
fn what_can_not_be_is_refused_and_changes_nothing() {
    let geometry = layout();
    let (heap, end) = (geometry.page(0).bytes(), geometry.len());
    let images = geometry.image_page(0).bytes();
    let behind_orphans = geometry.orphan(SHAPE.chunks * PER_CHUNK as u32).bytes();
    let begin = replayed(&[]);
    let mut cases: Vec<Vec<u64>> = [0, STATE.bytes() - WORD, images, heap - WORD, end, end + PAGE]
        .into_iter()
        .map(|at| set(at, 77))
        .collect();
    let log = geometry.log_head(0).bytes();
    cases.extend([
        // In the last page of the orphans there is room for none of them.
        set(behind_orphans, 77),
        set(log, 77),
        // What begins or ends where it can't be, and what only its middle may not be.
        zeros(STATE.bytes() - WORD, 2 * WORD),
        zeros(images - WORD, 2 * WORD),
        zeros(images - WORD, heap - images + 2 * WORD),
        zeros(heap - WORD, 2 * WORD),
        zeros(end - WORD, 2 * WORD),
        vec![ItemKind::Bytes.head(16), heap - WORD, 5, 6],
        vec![ItemKind::Bytes.head(16), end - WORD, 5, 6],
        pages(end - PAGE, 2),
        pages(heap - PAGE, 1),
        pages(0, 1),
    ]);
    for case in cases {
        // What comes before and behind it is done.
        let around = [set(heap, 1), case.clone(), set(heap + WORD, 2)];
        let made = replayed(&record(1, &around.each_ref().map(Vec::as_slice)));
        assert_eq!(made.found, Replayed { records: 1, refused: 1 }, "{case:?}");
        assert_eq!((made.word(heap), made.word(heap + WORD)), (1, 2));
        let expected = replayed(&record(1, &[&around[0], &around[2]]));
        let shared = geometry.len_at(begin.groups) as usize;
        assert!(made.bytes[..shared] == expected.bytes[..shared], "{case:?}");
        assert!(made.bytes[shared..].iter().all(|byte| *byte == 0), "{case:?}");
    }
}

#[test]
fn what_a_page_was_before_it_was_named_does_not_count() {
    let at = layout().page(3).bytes();
    let other = layout().page(4).bytes();
    let words = |value: u64| [set(at, value), set(other, value)];
    let older = record(4, &[&words(1).concat(), &set(at + 8, 1), &zeros(other, 8)]);
    // Its own words come to what it names.
    let names = record(5, &[&pages(at, 1), &set(at + 16, 5)]);
    let newer = record(6, &[&set(at + 24, 6), &set(other, 6)]);
    let expected = [0, 0, 5, 6].map(u64::to_le_bytes).concat();
    // In whatever order they are.
    for log in [[&older, &names, &newer], [&newer, &names, &older], [&names, &newer, &older]] {
        let made = replayed(&log.map(|record| record.as_slice()).concat());
        assert_eq!(made.found, Replayed { records: 3, refused: 0 });
        assert_eq!(made.bytes[at as usize..][..32], expected);
        assert_eq!(made.word(other), 6);
    }
}

/// A page with the words `words` at their places, all else of it `fill`.
fn page(fill: u8, words: &[(Offset, u64)]) -> [u8; PAGE as usize] {
    let mut page = [fill; PAGE as usize];
    for (at, word) in words {
        let start = (at.bytes() % PAGE) as usize;
        page[start..start + 8].copy_from_slice(&word.to_le_bytes());
    }
    page
}

#[test]
fn pages_of_the_image_are_put_where_they_can_be() {
    let geometry = layout();
    let begin = replayed(&[]);
    let put = |at: u64, page: &[u8; PAGE as usize]| {
        let mut is_put = false;
        let made = made(|replay| {
            is_put = replay.put_page(Offset::new(at), page).unwrap();
            Replayed::default()
        });
        (is_put, made)
    };
    // How many groups and chunks there are stands in one of them; not more than there can be.
    for (groups, chunks, has) in [(0, 0, (1, begin.chunks)), (2, 7, (2, 7)), (9, 99, (3, 9))] {
        let state = page(0, &[(STATE_GROUPS, groups), (STATE_CHUNKS, chunks)]);
        let (is_put, made) = put(STATE.bytes(), &state);
        assert!(is_put);
        assert_eq!((made.groups, made.chunks), has);
    }
    // Any other page says nothing of that.
    let other = page(9, &[]);
    let second = GROUP_PAGES;
    for (at, groups) in [
        (geometry.lane(0).bytes() / PAGE * PAGE, 1),
        (geometry.bitmap(0).bytes() / PAGE * PAGE, 1),
        (geometry.page(0).bytes(), 1),
        (geometry.page(second - 1).bytes(), 1),
        (geometry.page(second).bytes(), 2),
        (geometry.len() - PAGE, 3),
    ] {
        let (is_put, made) = put(at, &other);
        assert!(is_put, "{at}");
        assert_eq!((made.groups, made.chunks), (groups, begin.chunks), "{at}");
        assert!(made.bytes[at as usize..][..PAGE as usize] == other, "{at}");
    }
    let heap = geometry.page(0).bytes();
    let images = geometry.image_page(0).bytes();
    for at in [0, images, heap - PAGE, heap + WORD, heap + PAGE / 2, geometry.len()] {
        let (is_put, made) = put(at, &other);
        assert!(!is_put, "{at}");
        assert_eq!((made.groups, made.chunks), (begin.groups, begin.chunks), "{at}");
        assert!(made.bytes == begin.bytes, "{at}");
    }
}

#[test]
fn no_record_is_under_way_in_a_region_that_is_finished() {
    let lane = layout().lane(2);
    let was = [set(lane.plus(COMMIT).bytes(), 12_345), set(lane.plus(CHECKSUM).bytes(), 678)];
    let made = replayed(&record(1, &was.each_ref().map(Vec::as_slice)));
    assert_eq!(made.found.refused, 0);
    assert_eq!(made.word(lane.plus(CHECKSUM).bytes()), 678);
    // The log has given no number from this one on.
    let retired = Commit { sequence: 100, ..Commit::default() }.pack();
    assert_eq!(made.lanes, vec![[retired, 0]; SHAPE.lanes as usize]);
}

/// Replays what needs a second group and eight chunks of holdings, and looks which of the ranges
/// that these have `has_space` beside.
fn space_of(is_loading: bool, has_space: impl Fn(u64) -> bool) {
    let (geometry, (memory, world, new)) = (layout(), blank());
    let (actor, host) = (memory.this_thread(), world.process(9));
    let make = if is_loading { Replay::loading } else { Replay::new };
    let mut replay = make(&actor, &host, Path::new("replayed"), &new, ORIGIN).unwrap();
    let page = set(geometry.page(GROUP_PAGES).bytes(), 1);
    let orphan = set(geometry.orphan(7 * PER_CHUNK as u32).bytes(), 1);
    assert_eq!(replay.replay(&record(1, &[&page, &orphan])).unwrap().refused, 0);
    let chunks = geometry.chunk_space(0, 8);
    for range in geometry.space(0, 2).into_iter().chain(chunks) {
        let is_backed = world.is_backed(range.clone());
        assert_eq!(is_backed, has_space(range.start), "loading {is_loading}: {range:?}");
    }
}

#[test]
fn what_is_replayed_has_space_but_for_what_has_it_when_it_is_loaded() {
    space_of(false, |_| true);
    let geometry = layout();
    space_of(true, |start| !geometry.is_logged(start));
}
