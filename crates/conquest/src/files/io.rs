//! Open files with the traits of the standard library.

use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use super::File;

impl Read for &File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(File::read(self, out)?)
    }
}

impl Write for &File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(File::write(self, bytes)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(File::write_vectored(self, parts)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(File::seek(self, to)?)
    }
}

impl Read for File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(out)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(File::write_vectored(self, parts)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&mut &*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(File::read_at(self, out, offset)?)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Ok(File::write_at(self, bytes, offset)?)
    }
}
