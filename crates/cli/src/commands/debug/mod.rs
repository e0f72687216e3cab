//! `conquest debug`: what stands in a core, for those who develop or repair.

mod content;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use conquest_format::fs::root;
use conquest_format::geometry::{STATE_GROUPS, STATE_ROOTS, STATE_SLAB_GROUPS};
use conquest_format::journal::{self, Action, Commit, Entry, ImagePart};
use conquest_format::{PAGE, WORD};

use super::raw::Raw;
use crate::json::hexadecimal;
use crate::place::{self, Place};
use crate::reason::Result;
use crate::report::Report;

/// Show what stands in a store's core, for repair and development.
#[derive(Args)]
pub(crate) struct Debug {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Dump(Dump),
}

/// Print superblocks, layout and journal of a store, or a file's inode and where its bytes are.
///
/// The core is only read, without attaching it, so this also works on one that is damaged. If it is
/// in use, what is printed may be from different moments.
#[derive(Args)]
#[command(after_help = "Examples:
  conquest debug dump store
  conquest debug dump store:/etc/hosts")]
struct Dump {
    /// STORE, or STORE:/path.
    place: OsString,
}

pub(crate) fn run(args: &Debug) -> ExitCode {
    let report = Report::new("debug");
    let What::Dump(dump) = &args.what;
    let (label, dumped) = match Place::parse(&dump.place) {
        Place::Inside(inside) => {
            let label = inside.label();
            (label, Raw::open(&inside.store).and_then(|raw| content::file(&raw, &inside.path)))
        }
        Place::Host(directory) => {
            (place::host_label(&directory), Raw::open(&directory).and_then(|raw| region(&raw)))
        }
    };
    let printed = dumped.and_then(|text| Ok(crate::output::all(text.as_bytes())?));
    report.take(label, printed);
    report.code()
}

/// Adds a line. Writing to a string can't fail.
fn line(out: &mut String, text: core::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
    out.push('\n');
}

/// The region as a whole.
fn region(raw: &Raw) -> Result<String> {
    let mut out = String::new();
    for (nth, copy) in raw.superblocks.iter().enumerate() {
        match copy {
            Err(defect) => line(&mut out, format_args!("superblock {nth}: unusable: {defect:?}")),
            Ok(it) => {
                let state = if it.clean { "clean" } else { "dirty" };
                line(
                    &mut out,
                    format_args!(
                        "superblock {nth}: sequence {}, attach generation {}, {state}, \
                         live protocol {}",
                        it.sequence, it.attach_generation, it.live_protocol
                    ),
                );
                let (uuid, boot) = (hexadecimal(&it.uuid), hexadecimal(&it.boot_id));
                line(
                    &mut out,
                    format_args!("  region {uuid}, boot {boot}, made at {} ns", it.created),
                );
                line(
                    &mut out,
                    format_args!(
                        "  features {:#x} compatible, {:#x} read-only, {:#x} incompatible",
                        it.features_compatible, it.features_read_only, it.features_incompatible
                    ),
                );
            }
        }
    }
    layout(raw, &mut out)?;
    for lane in 0..raw.geometry.shape().lanes {
        show_lane(raw, lane, &mut out)?;
    }
    Ok(out)
}

fn layout(raw: &Raw, out: &mut String) -> Result<()> {
    let geometry = &raw.geometry;
    let shape = geometry.shape();
    line(
        out,
        format_args!(
            "shape: {} groups, {} lanes, {} slots, {} locks; {} bytes, {} of them in the file",
            shape.max_groups,
            shape.lanes,
            shape.slots,
            shape.locks,
            geometry.len(),
            raw.len
        ),
    );
    let (bitmaps, maps, volatile) = (geometry.bitmaps(), geometry.slab_maps(), geometry.volatile());
    for (what, from, to) in [
        ("lanes", geometry.lane(0).bytes(), bitmaps.start),
        ("bitmaps", bitmaps.start, bitmaps.end),
        ("descriptors", geometry.descriptor(0).bytes(), maps.start),
        ("slab maps", maps.start, maps.end),
        ("image pages", geometry.image_page(0).bytes(), volatile.start),
        ("volatile part", volatile.start, volatile.end),
        ("heap", geometry.page(0).bytes(), geometry.len()),
    ] {
        line(out, format_args!("  {from:#014x}..{to:#014x} {what}"));
    }
    let groups = raw.word(STATE_GROUPS)?;
    let slab_groups = raw.word(STATE_SLAB_GROUPS)?;
    line(out, format_args!("state: {groups} groups have space, slab groups {slab_groups:#x}"));
    for (name, index) in [
        ("version", root::VERSION),
        ("directory", root::DIRECTORY),
        ("file max", root::FILE_MAX),
        ("reserve", root::RESERVE),
    ] {
        let word = raw.word(STATE_ROOTS.plus(index * WORD))?;
        line(out, format_args!("  root {name}: {word:#x}"));
    }
    let mut used = 0;
    for group in 0..groups.min(shape.max_groups) {
        let at = geometry.bitmap(group);
        for word in 0..conquest_format::GROUP_PAGES / 64 {
            used += u64::from(raw.word(at.plus(word * WORD))?.count_ones());
        }
    }
    line(out, format_args!("heap: {used} pages allocated, {} bytes", used * PAGE));
    Ok(())
}

/// A lane, if anything was ever done by it.
fn show_lane(raw: &Raw, lane: u32, out: &mut String) -> Result<()> {
    let (at, image) = (raw.geometry.lane(lane), raw.geometry.image_page(lane));
    let word = raw.word(at.plus(journal::COMMIT))?;
    let intent = raw.word(at.plus(journal::INTENT))?;
    if word == 0 && intent == 0 {
        return Ok(());
    }
    let pages = raw.word(at.plus(journal::PAGES_USED))?.cast_signed();
    let Some(commit) = Commit::unpack(word) else {
        line(out, format_args!("lane {lane} at {at}: impossible commit word {word:#x}"));
        return Ok(());
    };
    let state = if commit.is_armed() { "armed" } else { "retired" };
    line(
        out,
        format_args!("lane {lane} at {at}: {state}, {} records, {pages} pages", commit.sequence),
    );
    if intent != 0 {
        let mut words = Vec::new();
        for index in 0..journal::INTENT_WORDS {
            words.push(format!("{:#x}", raw.word(at.plus(journal::INTENT + index * WORD))?));
        }
        line(out, format_args!("  intent {}", words.join(" ")));
    }
    for index in 0..commit.entries {
        let entry = at.plus(journal::ENTRIES + index * journal::ENTRY);
        let words = [raw.word(entry)?, raw.word(entry.plus(WORD))?];
        match Entry::unpack(words) {
            None => line(out, format_args!("  entry {index}: impossible: {words:#x?}")),
            Some(Entry { target, action, operand }) => {
                let what = match (action, ImagePart::unpack(operand)) {
                    (Action::Set, _) => format!("set {operand:#x}"),
                    (Action::Allocate, _) => format!("allocate {operand:#x}"),
                    (Action::Free, _) => format!("free {operand:#x}"),
                    (Action::Copy, Some(part)) => {
                        format!("copy {} bytes from {}", part.len, image.plus(part.from))
                    }
                    (Action::Copy, None) => format!("impossible copy {operand:#x}"),
                };
                line(out, format_args!("  entry {index}: {what} at {target}"));
            }
        }
    }
    Ok(())
}
