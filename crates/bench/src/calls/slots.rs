//! Open files by number: the lowest number that is free, as the kernel gives them.

use std::io;

use super::Opened;

/// What is open.
#[derive(Debug)]
pub(super) struct Slots<T> {
    files: Vec<Option<T>>,
    /// Numbers below it are in use.
    lowest: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { files: Vec::new(), lowest: 0 }
    }
}

impl<T> Slots<T> {
    /// Keeps `file`.
    #[inline]
    pub(super) fn keep(&mut self, file: T) -> Opened {
        let mut at = self.lowest;
        while self.files.get(at).is_some_and(Option::is_some) {
            at += 1;
        }
        match self.files.get_mut(at) {
            Some(slot) => *slot = Some(file),
            None => self.files.push(Some(file)),
        }
        self.lowest = at + 1;
        Opened(at)
    }

    /// What is open as `number`.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub(super) fn get(&mut self, number: Opened) -> io::Result<&mut T> {
        let slot = self.files.get_mut(number.0).and_then(Option::as_mut);
        slot.ok_or_else(|| rustix::io::Errno::BADF.into())
    }

    /// Gives it back.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub(super) fn take(&mut self, number: Opened) -> io::Result<T> {
        let file = self.files.get_mut(number.0).and_then(Option::take);
        self.lowest = self.lowest.min(number.0);
        file.ok_or_else(|| rustix::io::Errno::BADF.into())
    }
}
