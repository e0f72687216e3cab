//! Changing bytes of objects in place: a record copies them from its lane's image page.
//!
//! The new bytes are written to the image page first, like an object that nothing points to yet,
//! and are durable no later than the record, which says where they belong. So as many bytes as an
//! image page has change as a whole, without a page to be allocated: overwriting never fails for
//! lack of space.
//!
//! A lane's image page is written by the lane's owner only, while no record stands in the lane:
//! until a record is retired its image stays what it was, so copying it again gives the same
//! result.

use conquest_format::journal::{Action, Entry, IMAGE, ImagePart};
use conquest_format::{Offset, PAGE, WORD};

use crate::core::Core;
use crate::host::Host;
use crate::memory::Memory;
use crate::object::Place;
use crate::tx::Tx;
use crate::{Error, Result};

/// Words up to which overwriting takes an entry for each: as fast as copying them.
const WORDS_MAX: u64 = 4;
/// Most entries that [`Tx::overwrite`] stages.
pub const OVERWRITE_ENTRIES: u64 = WORDS_MAX + 2;
/// Bytes copied at once: from so many on, media are stored to by their fastest way.
const AT_ONCE: u64 = 1024;

const _: () = assert!(IMAGE == PAGE && PAGE.is_multiple_of(AT_ONCE));

impl<M: Memory, H: Host> Tx<'_, M, H> {
    /// Stages that `bytes` take the place of the first bytes of `place`, which is of an object that
    /// was there before this record. The caller holds the lock that guards them exclusively.
    ///
    /// All calls for one record together can have as many bytes as a page. [`Self::get`] does not
    /// see what this one has staged.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if `place` is smaller, the image page full, or the lane; those of
    /// [`Self::set`].
    pub fn overwrite(&mut self, place: Place, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        if len > place.len() {
            let what = "bytes in an object";
            return Err(Error::TooLarge { what, wanted: len, most: place.len() });
        }
        let start = place.offset();
        // What ends inside a word, whole words, and the rest.
        let first = (start.bytes().wrapping_neg() % WORD).min(len);
        let whole = (len - first) / WORD * WORD;
        let (head, rest) = bytes.split_at_checked(first as usize).unwrap_or_default();
        let (middle, tail) = rest.split_at_checked(whole as usize).unwrap_or_default();
        self.set_within_word(start, head)?;
        let at = start.plus(first);
        if whole > WORDS_MAX * WORD && !self.is_prepared(at) {
            self.copy_later(at, middle)?;
        } else {
            for (index, word) in (0..).zip(middle.as_chunks().0) {
                self.set(at.plus(index * WORD), u64::from_le_bytes(*word))?;
            }
        }
        self.set_within_word(at.plus(whole), tail)
    }

    /// Stages a store of `bytes`, which are fewer than a word and in one.
    fn set_within_word(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let inside = at.bytes() % WORD;
        let word = Offset::new(at.bytes() - inside);
        let mut value = self.get(word).to_le_bytes();
        for (old, new) in value.iter_mut().skip(inside as usize).zip(bytes) {
            *old = *new;
        }
        self.set(word, u64::from_le_bytes(value))
    }

    /// Puts `bytes`, whole words, into the image page, and stages that they are copied to `at`.
    fn copy_later(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        let (from, len) = (self.image_used, bytes.len() as u64);
        if from + len > IMAGE {
            let what = "bytes in an image page";
            return Err(Error::TooLarge { what, wanted: from + len, most: IMAGE });
        }
        let part = ImagePart { from, len, kind: self.core.kind_at(at)? };
        let operand = part.pack();
        // The last chance to notice: once committed, it has to be possible.
        if !self.core.may_copy(at, operand) {
            return Err(self.core.no_target(at));
        }
        self.stage(Entry { target: at, action: Action::Copy, operand })?;
        let place = self.core.geometry.image_page(self.lane).plus(from);
        self.core.memory.put_bytes(place, bytes);
        self.prepared(place, len);
        self.image_used += len;
        Ok(())
    }
}

impl<M: Memory, H: Host> Core<M, H> {
    fn no_target(&self, at: Offset) -> Error {
        let expected = "allocated pages of one kind";
        Error::Corrupt { what: "target of a copy", offset: at, expected, found: at.bytes() }
    }

    /// The kind of the page that `at` lies in.
    fn kind_at(&self, at: Offset) -> Result<conquest_format::kind::Kind> {
        let page = self.geometry.page_of(at).ok_or_else(|| self.no_target(at))?;
        Ok(self.descriptor(page)?.kind())
    }

    /// Whether a record may copy to `target` what `operand` says: words of allocated pages of the
    /// operand's kind.
    pub(crate) fn may_copy(&self, target: Offset, operand: u64) -> bool {
        let Some(ImagePart { len, kind, .. }) = ImagePart::unpack(operand) else {
            return false;
        };
        let page = |at| self.geometry.page_of(at);
        let Some((first, last)) = page(target).zip(page(target.plus(len - 1))) else {
            return false;
        };
        (first..=last).all(|page| self.descriptor(page).is_ok_and(|found| found.kind() == kind))
    }

    /// Stores what `operand` says of lane `number`'s image page to `target`, and begins to write it
    /// back.
    pub(crate) fn copy_image(&self, number: u32, target: Offset, operand: u64) {
        let Some(ImagePart { from, len, .. }) = ImagePart::unpack(operand) else {
            return;
        };
        // Readers without locks who see one of these words also see that the version was stepped.
        self.memory.full_fence();
        let source = self.geometry.image_page(number).plus(from);
        let mut piece = [0; AT_ONCE as usize];
        for start in (0..len).step_by(AT_ONCE as usize) {
            let size = AT_ONCE.min(len - start);
            if let Some(piece) = piece.get_mut(..size as usize) {
                self.memory.read(source.plus(start), piece);
                self.memory.put_bytes(target.plus(start), piece);
            }
        }
        self.memory.write_back(target, len);
    }
}
