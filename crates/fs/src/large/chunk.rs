//! Chunks in the region: taken, changed, and put on lists.
//!
//! The lock of its file guards a chunk, but for its list word; the lock of the lists guards that of
//! every chunk, the lists, and chunks that no file has.

use conquest_format::fs::chunk::{Chunk, LAST, WHOLE, WORDS, first, stepped, word};
use conquest_format::fs::{CHUNK, root};
use conquest_format::inode::Content;
use conquest_format::kind::Kind;
use conquest_format::{Offset, PAGE, WORD, pointer};
use conquest_pm::host::Host;
use conquest_pm::memory::Memory;
use conquest_pm::{Mode, Object, Tx};

use crate::content::Piece;
use crate::error::corrupt;
use crate::file_system::{lists_lock, root_word};
use crate::inode::{Draft, FileId};
use crate::{Errno, Reader, Result};

/// A chunk in the region.
struct ChunkObject;

impl Object for ChunkObject {
    const KIND: Kind = CHUNK;
}

/// The lists, by the numbers of the root words that lead to their first chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum List {
    /// Something of it is to be trimmed, or pushed.
    Due,
    /// Nobody needs it, and nothing is there.
    Unused,
}

/// Why a chunk is on the first list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// Something is to be trimmed.
    Trim,
    /// Its file has pages in the core.
    Push,
}

impl List {
    fn head(self) -> Offset {
        root_word(match self {
            List::Due => root::DUE,
            List::Unused => root::UNUSED,
        })
    }
}

/// The chunk at `at`.
///
/// # Errors
/// [`conquest_pm::Error::Corrupt`] if it is none, or damaged.
pub(crate) fn load(reader: &impl Reader, at: Offset) -> conquest_pm::Result<Chunk> {
    let place = reader.core().resolve_kind(at, CHUNK)?;
    let mut words = [0; WORDS];
    for (index, word) in (0..).zip(&mut words) {
        *word = reader.word(place.offset().plus(index * WORD));
    }
    Chunk::from_words(words, at)
        .map_err(|offset| corrupt("chunk", at.plus(offset), "a sound one", words[0]))
}

/// What there is of a file with the chunk at `at`, from byte `from` on, if its tree has `found`
/// there: what the tree has not, up to the end, the volume has.
pub(crate) fn before_holes(
    reader: &impl Reader,
    at: Offset,
    found: Piece,
    from: u64,
) -> conquest_pm::Result<Piece> {
    let Piece::Hole(len) = found else {
        return Ok(found);
    };
    let end = load(reader, at)?.end.saturating_mul(PAGE);
    Ok(if from < end { Piece::Far(len.min(end - from)) } else { found })
}

/// Stages that the chunk at `at` is `chunk`, but for its list.
pub(crate) fn store<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    at: Offset,
    chunk: &Chunk,
) -> conquest_pm::Result<()> {
    for (index, new) in (0..).zip(chunk.to_words(at)) {
        let place = at.plus(index * WORD);
        if index * WORD != word::LIST && tx.get(place) != new {
            tx.set(place, new)?;
        }
    }
    Ok(())
}

/// Stages that the file of `draft`, whose content is nothing or a tree, is large: what it has in
/// the core is to be pushed.
pub(crate) fn give<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    draft: &mut Draft,
    chunk_blocks: u64,
) -> Result<()> {
    let (root, height) = draft.inode.content.tree().unwrap_or((0, 0));
    let chunk = take(tx, draft.file, chunk_blocks)?;
    draft.inode.content = Content::Large { root, height, chunk };
    note_due(tx, chunk, Why::Push)
}

/// Stages that `file` has a chunk that nobody has: where that is.
fn take<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    file: FileId,
    chunk_blocks: u64,
) -> Result<Offset> {
    tx.lock(lists_lock(tx.core()), Mode::Exclusive)?;
    let FileId { number: inode, generation } = file;
    if let Some(at) = pop(tx, List::Unused)? {
        let chunk = load(tx, at)?;
        let version = chunk.next_life();
        store(tx, at, &Chunk { inode, generation, end: 0, allocated: 0, version, ..chunk })?;
        return Ok(at);
    }
    let next = root_word(root::NEXT_CHUNK);
    let number = tx.get(next).max(first(chunk_blocks));
    if number >= u64::MAX / chunk_blocks {
        return Err(Errno::ENOSPC.into());
    }
    tx.set(next, number + 1)?;
    let chunk = Chunk { number, list: 0, inode, generation, end: 0, allocated: 0, version: 1 };
    let fresh = tx.alloc::<ChunkObject>()?;
    for (index, word) in (0..).zip(chunk.to_words(Offset::NONE)) {
        tx.fill_word(&fresh, index, word)?;
    }
    let sealed = tx.seal_with(fresh, WORDS as u64 - 1, |at| {
        let [.., check] = chunk.to_words(at);
        check
    })?;
    Ok(sealed.offset())
}

/// Stages that the file of `draft`, which is about to be freed, or to move back to the core, has
/// its chunk no more.
pub(crate) fn retire<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, draft: &Draft) -> Result<()> {
    let Content::Large { chunk: at, .. } = draft.inode.content else {
        return Ok(());
    };
    let chunk = load(tx, at)?;
    let version = stepped(chunk.version);
    store(tx, at, &Chunk { inode: 0, generation: 0, version, ..chunk })?;
    note_due(tx, at, Why::Trim)
}

/// Stages that the volume is asked for no more of the file of `draft`, which gets another size,
/// than that says. Who pushes pages learns of it in any case: some may be cut off that only the
/// core has.
pub(crate) fn shorten<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, draft: &Draft) -> Result<()> {
    let Content::Large { chunk: at, .. } = draft.inode.content else {
        return Ok(());
    };
    let chunk = load(tx, at)?;
    let end = draft.inode.size.div_ceil(PAGE).min(chunk.end);
    // How many are allocated is counted when the rest is trimmed.
    let (allocated, version) = (chunk.allocated.min(end), stepped(chunk.version));
    store(tx, at, &Chunk { end, allocated, version, ..chunk })?;
    if end < chunk.end { note_due(tx, at, Why::Trim) } else { Ok(()) }
}

/// Stages that the chunk at `at` is on the first list.
pub(crate) fn note_due<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    at: Offset,
    why: Why,
) -> Result<()> {
    tx.lock(lists_lock(tx.core()), Mode::Exclusive)?;
    let place = at.plus(word::LIST);
    match (tx.get(place), why) {
        (0, Why::Trim) => put_on(tx, List::Due, at, 0),
        (0, Why::Push) => put_on(tx, List::Due, at, WHOLE),
        (found, Why::Trim) if found & WHOLE != 0 => Ok(tx.set(place, found & !WHOLE)?),
        _ => Ok(()),
    }
}

/// Stages that of the chunk at `at`, which is on the first list, nothing is to be trimmed any more,
/// but its file has pages in the core.
pub(crate) fn note_trimmed<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, at: Offset) -> Result<()> {
    let place = at.plus(word::LIST);
    Ok(tx.set(place, tx.get(place) | WHOLE)?)
}

/// Stages that the chunk at `at`, which is on no list, is an unused one.
pub(crate) fn note_unused<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, at: Offset) -> Result<()> {
    put_on(tx, List::Unused, at, 0)
}

fn put_on<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    list: List,
    at: Offset,
    flag: u64,
) -> Result<()> {
    let next = tx.get(list.head());
    let next = if next == 0 { LAST } else { next };
    tx.set(at.plus(word::LIST), next | flag)?;
    Ok(tx.set(list.head(), pointer::pack(at, CHUNK))?)
}

/// Stages that the first chunk of `list` is not on it any more: where it is, if there is one.
fn pop<M: Memory, H: Host>(tx: &mut Tx<'_, M, H>, list: List) -> Result<Option<Offset>> {
    let Some(at) = named(tx.get(list.head()), list.head())? else {
        return Ok(None);
    };
    remove(tx, list, at)?;
    Ok(Some(at))
}

/// Stages that the chunk at `at` is not on `list` any more; whether it was. The transaction holds
/// the lists' lock.
pub(crate) fn remove<M: Memory, H: Host>(
    tx: &mut Tx<'_, M, H>,
    list: List,
    at: Offset,
) -> Result<bool> {
    let mut hook = list.head();
    // A damaged list may be a circle.
    for _ in 0..tx.get(root_word(root::NEXT_CHUNK)) {
        let Some(found) = named(tx.get(hook), hook)? else {
            break;
        };
        let place = found.plus(word::LIST);
        let next = tx.get(place);
        if found == at {
            let (is_head, next) = (hook == list.head(), next & !WHOLE);
            let flag = tx.get(hook) & WHOLE;
            tx.set(hook, if is_head && next == LAST { 0 } else { next | flag })?;
            tx.set(place, 0)?;
            return Ok(true);
        }
        hook = place;
    }
    Ok(false)
}

/// The chunks of `list` whose list words are `wanted`, at most `most`: where they are. The caller
/// holds the lists' lock, or nobody is at work.
pub(crate) fn members(
    reader: &impl Reader,
    list: List,
    most: usize,
    wanted: impl Fn(u64) -> bool,
) -> Result<Vec<Offset>> {
    let mut found = Vec::new();
    let mut hook = list.head();
    while found.len() < most
        && let Some(at) = named(reader.word(hook), hook)?
    {
        reader.core().resolve_kind(at, CHUNK)?;
        hook = at.plus(word::LIST);
        if wanted(reader.word(hook)) {
            found.push(at);
        }
    }
    Ok(found)
}

/// The chunk that the list word `word`, which is at `hook`, leads to.
fn named(word: u64, hook: Offset) -> Result<Option<Offset>> {
    let word = word & !WHOLE;
    if word == 0 || word == LAST {
        return Ok(None);
    }
    let at = pointer::unpack(word, CHUNK);
    let wrong = || corrupt("list of chunks", hook, "a pointer to a chunk", word);
    Ok(Some(at.ok_or_else(wrong)?))
}
