//! Writing a saved copy under its partial name, from the beginning or from where an interrupted
//! call has come.

use std::fs::{File, TryLockError};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conquest_format::saved::{self, CHUNK, Chunk, HEADER, Header, KIND_SETTINGS, TRAILER};

use super::reader::Reader;
use crate::error::failed;
use crate::store::directory::{partial, put_in_place};
use crate::{Error, Result};

/// Takes a chunk of a copy, and something about it.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Chunk, u64) -> Result<()>;
/// Gives all chunks that a copy is to have, in order.
type Chunks<'c> = &'c dyn Fn(Take<'_>) -> Result<()>;

/// A saved copy that is being written.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    header: Header,
    seed: u64,
    offset: u64,
    /// Chunks written, also by earlier calls.
    chunks: u64,
}

/// What an earlier call has left.
struct Left {
    header: Header,
    seed: u64,
    offset: u64,
    chunks: u64,
}

impl Writer {
    /// Begins the copy `to` with `header`, or goes on with what an interrupted call has left of a
    /// copy of the same state with the same settings: checked as far as it goes, and cut off there.
    pub(crate) fn begin(
        to: &Path,
        header: &Header,
        chunks: Chunks<'_>,
        settings: &[u8],
    ) -> Result<Writer> {
        let path = partial(to);
        let file = open(&path)?;
        let fresh = Left { header: header.clone(), seed: 0, offset: 0, chunks: 0 };
        let left = look(&path, &file, header, chunks, settings)?.unwrap_or(fresh);
        file.set_len(left.offset).map_err(failed(&path, "cut it"))?;
        let mut file = BufWriter::with_capacity(1 << 16, file);
        let sought = file.seek(SeekFrom::Start(left.offset));
        sought.map_err(failed(&path, "write it"))?;
        let Left { header, seed, offset, chunks } = left;
        let mut writer = Writer { path, file, header, seed, offset, chunks };
        if writer.offset == 0 {
            let bytes = writer.header.to_bytes();
            writer.write(&bytes)?;
            let sum = bytes.last_chunk::<8>().copied().unwrap_or_default();
            writer.seed = u64::from_le_bytes(sum);
            let len = settings.len() as u64;
            let first = Chunk { kind: KIND_SETTINGS, number: 0, at: 0, len, file: 0 };
            writer.chunk(first, settings)?;
        }
        Ok(writer)
    }

    /// Chunks that are there already.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Appends a chunk.
    pub(crate) fn chunk(&mut self, chunk: Chunk, data: &[u8]) -> Result<()> {
        let (bytes, seed) = chunk.to_bytes(self.seed, data);
        self.write(&bytes)?;
        self.write(data)?;
        self.seed = seed;
        self.chunks += 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.offset += bytes.len() as u64;
        self.file.write_all(bytes).map_err(failed(&self.path, "write it"))
    }

    /// Completes the copy: from now on `to` is there, durably. Its length.
    pub(crate) fn finish(mut self, to: &Path) -> Result<u64> {
        let trailer: [u8; TRAILER] = saved::trailer(&self.header, self.seed);
        self.write(&trailer)?;
        self.file.flush().map_err(failed(&self.path, "write it"))?;
        self.file.get_ref().sync_all().map_err(failed(&self.path, "make it durable"))?;
        put_in_place(&self.path, to)?;
        Ok(self.offset)
    }
}

/// Opens the partial copy `path`, which one process writes at a time.
fn open(path: &Path) -> Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(failed(path, "make it"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy {
            directory: path.to_owned(),
            holder: "a process that saves another store to it".to_owned(),
            waited: Duration::ZERO,
        }),
        Err(TryLockError::Error(error)) => Err(failed(path, "lock it")(error)),
    }
}

/// How far what is in `file` can be gone on with; none if it is of another state.
fn look(
    path: &Path,
    file: &File,
    header: &Header,
    expected: Chunks<'_>,
    settings: &[u8],
) -> Result<Option<Left>> {
    let copy = file.try_clone().map_err(failed(path, "read it"))?;
    let Ok(mut reader) = Reader::new(path, copy) else {
        return Ok(None);
    };
    let is_same = reader.header.is_of_same_state(header)
        && reader.settings().is_ok_and(|found| found == settings);
    if !is_same {
        return Ok(None);
    }
    let (mut chunks, mut is_over) = (1, false);
    let (mut offset, mut seed) = (reader.offset, reader.seed);
    expected(&mut |chunk, _| {
        is_over |= chunk.number > 0 && reader.chunk(chunk).is_err();
        if chunk.number > 0 && !is_over {
            (offset, seed, chunks) = (reader.offset, reader.seed, chunks + 1);
        }
        Ok(())
    })?;
    Ok(Some(Left { header: reader.header, seed, offset, chunks }))
}

/// Bytes of a copy's file with `chunks` chunks of `bytes` bytes.
pub(crate) fn len_of(chunks: u64, bytes: u64) -> u64 {
    (HEADER + TRAILER) as u64 + chunks * CHUNK as u64 + bytes
}
