//! Calls that do next to nothing: what the loop itself costs, and what entering the kernel does.

use std::ffi::CStr;

use rustix::fs::OFlags;

use super::{Bundled, Calls, Opened, Outcome};

/// Calls that return at once, or that each make one system call which does nothing: `getppid`. A
/// read gives all bytes that were asked for, unchanged.
pub struct Floor<const ENTERS: bool>;

/// Calls that return at once.
pub type Null = Floor<false>;
/// Calls that each enter the kernel.
pub type SystemCall = Floor<true>;

impl<const ENTERS: bool> Floor<ENTERS> {
    #[inline]
    fn enter() {
        if ENTERS {
            std::hint::black_box(rustix::process::getppid());
        }
    }
}

impl<const ENTERS: bool> Calls for Floor<ENTERS> {
    fn open(&mut self, path: &CStr, flags: OFlags) -> Outcome<Opened> {
        std::hint::black_box((path, flags));
        Self::enter();
        Ok(Opened(0))
    }

    fn close(&mut self, file: Opened) -> Outcome<()> {
        std::hint::black_box(file);
        Self::enter();
        Ok(())
    }

    fn read(&mut self, _: Opened, into: &mut [u8]) -> Outcome<usize> {
        std::hint::black_box(&into);
        Self::enter();
        Ok(into.len())
    }

    fn read_at(&mut self, _: Opened, into: &mut [u8], offset: u64) -> Outcome<usize> {
        std::hint::black_box((&into, offset));
        Self::enter();
        Ok(into.len())
    }

    fn write(&mut self, _: Opened, bytes: &[u8]) -> Outcome<usize> {
        std::hint::black_box(bytes);
        Self::enter();
        Ok(bytes.len())
    }

    fn write_at(&mut self, _: Opened, bytes: &[u8], offset: u64) -> Outcome<usize> {
        std::hint::black_box((bytes, offset));
        Self::enter();
        Ok(bytes.len())
    }

    fn seek(&mut self, _: Opened, to: u64) -> Outcome<()> {
        std::hint::black_box(to);
        Self::enter();
        Ok(())
    }

    fn sync(&mut self, _: Opened) -> Outcome<()> {
        Self::enter();
        Ok(())
    }

    fn sync_all(&mut self) -> Outcome<()> {
        Self::enter();
        Ok(())
    }

    fn stat(&mut self, path: &CStr) -> Outcome<u64> {
        std::hint::black_box(path);
        Self::enter();
        Ok(0)
    }

    fn unlink(&mut self, path: &CStr) -> Outcome<()> {
        std::hint::black_box(path);
        Self::enter();
        Ok(())
    }

    fn mkdir(&mut self, path: &CStr) -> Outcome<()> {
        std::hint::black_box(path);
        Self::enter();
        Ok(())
    }

    fn rmdir(&mut self, path: &CStr) -> Outcome<()> {
        std::hint::black_box(path);
        Self::enter();
        Ok(())
    }

    fn rename(&mut self, from: &CStr, to: &CStr) -> Outcome<()> {
        std::hint::black_box((from, to));
        Self::enter();
        Ok(())
    }

    fn list(&mut self, path: &CStr) -> Outcome<u64> {
        std::hint::black_box(path);
        Self::enter();
        Ok(0)
    }

    fn bundle(&mut self, files: &mut [Bundled<'_>]) -> Outcome<()> {
        std::hint::black_box(files);
        Self::enter();
        Ok(())
    }
}
