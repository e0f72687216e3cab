//! Every structure and field of a store changed on purpose: each change is found, under the code
//! that is meant for it, and nothing else is found but what follows from it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod files;
mod names;
mod region;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;

use conquest_format::fs::DATA;
use conquest_format::fs::attributes::Header;
use conquest_format::journal::{self, Action, CHECKSUM, COMMIT, Commit, Entry};
use conquest_format::{Offset, WORD, checksum, geometry, pointer};
use conquest_fsck::Code;
use support::{Store, codes, everything, examine};

/// A change, and the codes of all that is then found.
struct Case {
    what: &'static str,
    codes: &'static [Code],
    damage: fn(&mut Store),
}

const fn case(what: &'static str, codes: &'static [Code], damage: fn(&mut Store)) -> Case {
    Case { what, codes, damage }
}

impl Store {
    /// Commits a record with `entries` in lane `lane`, without carrying it out.
    fn arm(&mut self, lane: u32, entries: &[[u64; 2]]) {
        self.arm_with_ranges(lane, entries, &[]);
    }

    /// [`Self::arm`] with prepared ranges: their offsets and lengths.
    fn arm_with_ranges(&mut self, lane: u32, entries: &[[u64; 2]], ranges: &[[u64; 2]]) {
        let at = support::geometry().lane(lane);
        let old = Commit::unpack(self.load(at)).unwrap();
        let commit = old.next(entries.len() as u64, ranges.len() as u64);
        let mut bytes = Vec::new();
        for (index, words) in (0..).zip(entries.iter().chain(ranges)) {
            for (word, value) in (0..).zip(words) {
                let place = journal::ENTRIES + index * journal::ENTRY + word * WORD;
                self.put(at.plus(place), *value);
                bytes.extend(value.to_le_bytes());
            }
        }
        let head = [u64::from(lane), commit.pack()].map(u64::to_le_bytes).concat();
        let piece = journal::PIECE as usize;
        let mut sum = bytes.chunks(piece).fold(checksum(0, &head), checksum);
        for [at, len] in ranges {
            let rest = self.bytes.get(*at as usize..).unwrap_or_default();
            let range = rest.get(..*len as usize).unwrap_or_default();
            sum = range.chunks(piece).fold(sum, checksum);
        }
        self.put(at.plus(COMMIT), commit.pack());
        self.put(at.plus(CHECKSUM), sum);
    }

    /// Makes the checksum of the attributes at `at` right.
    fn sum_attributes(&mut self, at: Offset) {
        let start = at.bytes() as usize;
        let len = self.load(at) as usize;
        let sum = Header::of(&self.bytes[start..start + len]).checksum;
        self.put(at.plus(WORD), sum);
    }
}

/// An entry that stores `operand`.
fn set(target: Offset, operand: u64) -> [u64; 2] {
    Entry { target, action: Action::Set, operand }.pack()
}

fn cases() -> Vec<Case> {
    [region::cases(), files::cases(), names::cases()].concat()
}

impl Clone for Case {
    fn clone(&self) -> Self {
        case(self.what, self.codes, self.damage)
    }
}

#[test]
fn every_damage_is_found_and_told_what_it_is() {
    let (_, _, store) = everything();
    let mut produced: BTreeSet<Code> = BTreeSet::new();
    let mut wrong = Vec::new();
    for Case { what, codes: expected, damage } in cases() {
        let mut damaged = store.clone();
        damage(&mut damaged);
        let report = examine(&damaged.bytes);
        let found: BTreeSet<Code> = codes(&report).into_iter().collect();
        produced.extend(&found);
        if found != expected.iter().copied().collect() {
            let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            wrong.push(format!("{what}: {found:?} instead of {expected:?}:\n  {findings:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
    let missing: Vec<&Code> = Code::ALL.iter().filter(|code| !produced.contains(*code)).collect();
    assert!(missing.is_empty(), "no case produces {missing:?}");
}

#[test]
fn findings_name_file_path_place_and_values() {
    let (_, _, mut store) = everything();
    let at = store.at("grandchild").plus(conquest_format::inode::word::LINKS);
    store.set_inode("grandchild", conquest_format::inode::word::LINKS, 7);
    let report = examine(&store.bytes);
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    let file = finding.file.as_ref().unwrap();
    assert_eq!((finding.code, finding.offset), (Code::InodeLinks, at));
    assert_eq!((finding.expected.as_str(), finding.found.as_str()), ("2", "7"));
    assert_eq!(file.path.as_deref(), Some(&b"/bucket/child/grandchild"[..]));
    let generation = store.inode("grandchild").generation;
    assert_eq!((file.number, file.generation), (store.number("grandchild"), generation));
    let text = finding.to_string();
    assert!(text.contains("error inode-links") && text.contains("repair: "), "{text}");
}

#[test]
fn so_many_findings_of_a_code_are_kept_and_all_are_counted() {
    let (_, _, mut store) = everything();
    let fifos = ["fifo", "socket", "character", "block", "packed", "extent"];
    for name in fifos {
        let at = store.at(name).plus(conquest_format::inode::word::MTIME);
        store.put(at, 1);
    }
    let options = conquest_fsck::Options { most_findings: 4, ..Default::default() };
    let report = conquest_fsck::check(&store.bytes[..], &options).unwrap();
    assert_eq!((report.findings.len(), report.count(Code::InodeChecksum)), (4, 6));
    assert_eq!(report.count_of(conquest_fsck::Severity::Error), 6);
    assert!(!report.is_consistent());
}

#[test]
fn a_committed_record_counts_as_carried_out() {
    let (_, _, mut store) = everything();
    let word = store.at("packed").plus(conquest_format::inode::word::MTIME);
    let right = store.load(word);
    store.put(word, 1);
    assert_eq!(codes(&examine(&store.bytes)), [Code::InodeChecksum]);
    store.arm(1, &[set(word, right)]);
    let report = examine(&store.bytes);
    assert_eq!(codes(&report), []);
    assert_eq!((report.counts.records_pending, report.counts.words_pending), (1, 1));
    // The same record with another checksum has not happened.
    let sum = support::geometry().lane(1).plus(CHECKSUM);
    store.put(sum, store.load(sum) ^ 1);
    let report = examine(&store.bytes);
    assert_eq!(codes(&report), [Code::LaneDropped, Code::InodeChecksum]);
}

#[test]
fn a_copy_of_a_committed_record_counts_as_made() {
    const WORDS: u64 = 12;
    let (_, _, mut store) = everything();
    let at = files::attributes_at(&store, "large-attributes").plus(WORD);
    let image = support::geometry().image_page(1).plus(8);
    for index in 0..WORDS {
        store.put(image.plus(index * WORD), store.load(at.plus(index * WORD)));
        store.put(at.plus(index * WORD), 0x5A5A);
    }
    assert!(!codes(&examine(&store.bytes)).is_empty());
    store.arm(1, &[region::copy(at, WORDS * WORD, DATA)]);
    let report = examine(&store.bytes);
    assert_eq!(codes(&report), []);
    assert_eq!((report.counts.records_pending, report.counts.words_pending), (1, WORDS));
    store.put(image.plus(WORD), 0x5A5A);
    assert!(!codes(&examine(&store.bytes)).is_empty());
}

#[test]
fn a_record_counts_if_its_prepared_ranges_are_as_they_were() {
    let (_, _, store) = everything();
    let heap = support::geometry().page(0).bytes();
    let [start, end] = [support::geometry().volatile().start, store.bytes.len() as u64];
    let found = |ranges: &[[u64; 2]], change: Option<u64>| {
        let mut store = store.clone();
        store.arm_with_ranges(2, &[set(geometry::STATE.plus(16), 0)], ranges);
        if let Some(at) = change {
            store.put_byte(Offset::new(at), store.byte(Offset::new(at)) ^ 1);
        }
        let report = examine(&store.bytes);
        assert!(report.codes().all(|(code, _)| code == Code::LaneDropped || change.is_some()));
        report.counts.records_pending == 1
    };
    // In bytes of a file, so that a change of them alone is no finding.
    let content = store.content("extent").bytes();
    let ranges = [[content + 3, 300], [content + 4096, 724]];
    assert!(found(&ranges, None) && found(&ranges, Some(content + 2)));
    for changed in [content + 3, content + 302, content + 4096 + 723] {
        assert!(!found(&ranges, Some(changed)));
    }
    assert!(found(&ranges, Some(content + 303)));
    assert!(found(&[[start - 8, 8], [heap, 8], [end - 8, 8]], None));
    for impossible in [
        [[content, 1025], [content, 0]],
        [[content, 1024], [content, 1]],
        [[start - 8, 16], [content, 8]],
        [[heap - 8, 16], [content, 8]],
        [[end - 8, 16], [content, 8]],
        [[support::geometry().lane(0).bytes(), 8], [content, 8]],
        [[u64::MAX, 8], [content, 8]],
    ] {
        assert!(!found(&impossible, None), "{impossible:x?}");
    }
}

#[test]
fn what_an_intent_will_free_is_no_finding() {
    let (_, _, mut store) = everything();
    names::lose(&mut store, "packed");
    assert_eq!(codes(&examine(&store.bytes)), [Code::InodeLost]);
    store.set_inode("packed", conquest_format::inode::word::LINKS, 0);
    assert_eq!(codes(&examine(&store.bytes)), [Code::InodeUnnamed]);
    // Nor what somebody had open.
    let word = pointer::pack(store.at("packed"), conquest_format::fs::INODE);
    let holding = support::geometry().orphan(9);
    store.put(holding, word);
    let report = examine(&store.bytes);
    assert_eq!((codes(&report), report.counts.orphans), (vec![], 1));
    store.put(holding, 0);
    region::intend(&mut store, conquest_format::fs::cut::REAP, "packed");
    let report = examine(&store.bytes);
    assert_eq!((codes(&report), report.counts.intents_pending), (vec![], 1));
}
