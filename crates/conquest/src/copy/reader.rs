//! Reading a saved copy: nothing of it is believed before its checksum, and its place in the plan,
//! were looked at.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use conquest_format::PAGE;
use conquest_format::geometry::Geometry;
use conquest_format::saved::{
    self, CHUNK, Chunk, DATA_MAX, Defect, HEADER, Header, KIND_LARGE, KIND_SETTINGS, TRAILER,
};

use super::plan::Plan;
use super::{Meter, Part, damaged};
use crate::error::failed;
use crate::{Error, Result};

/// Most bytes of settings in a copy.
const SETTINGS_MAX: u64 = DATA_MAX;

/// A saved copy, or the beginning of one.
#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    pub(crate) header: Header,
    /// The offset of what is read next.
    pub(crate) offset: u64,
    /// The checksum of what was read last.
    pub(crate) seed: u64,
    data: Vec<u8>,
    /// Chunks of large files that are read.
    large: Large,
}

/// How far the chunks of large files were read.
#[derive(Clone, Copy, Debug, Default)]
struct Large {
    chunks: u64,
    bytes: u64,
    /// The last one.
    last: Option<Chunk>,
}

impl Reader {
    /// Reads the header of the copy in `file`, which is called `path` in messages.
    pub(crate) fn new(path: &Path, file: File) -> Result<Reader> {
        let mut file = BufReader::with_capacity(1 << 16, file);
        file.seek(SeekFrom::Start(0)).map_err(failed(path, "read it"))?;
        let mut bytes = [0; HEADER];
        let len = fill(&mut file, &mut bytes).map_err(failed(path, "read it"))?;
        let first: Vec<u8> = bytes.iter().take(saved::MAGIC.len().min(len)).copied().collect();
        let path = path.to_owned();
        if first != saved::MAGIC {
            let found = first.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(Error::NotACopy { path, found });
        }
        if len < HEADER {
            let missing = "the end of its header";
            return Err(Error::CopyIncomplete { path, offset: len as u64, missing });
        }
        let (header, seed) =
            Header::from_bytes(&bytes).map_err(|defect| damaged(&path, 0, Part::Header, defect))?;
        let (offset, large) = (HEADER as u64, Large::default());
        Ok(Reader { path, file, header, offset, seed, data: Vec::new(), large })
    }

    /// Opens the saved copy `path`.
    pub(crate) fn open(path: &Path) -> Result<Reader> {
        let file = File::open(path).map_err(failed(path, "open the saved copy"))?;
        let found = file.metadata().map_err(failed(path, "look at it"))?;
        if found.is_dir() {
            let is_directory = std::io::Error::from_raw_os_error(libc::EISDIR);
            return Err(failed(path, "read it")(is_directory));
        }
        Reader::new(path, file)
    }

    /// The plan of the region that was saved, before anything of it was read.
    pub(crate) fn plan(&self) -> Result<Plan> {
        match Geometry::new(self.header.shape) {
            Some(geometry) => Ok(Plan::new(geometry, self.header.groups)),
            None => {
                let defect = Defect::Field("shape", 88, 1, self.header.shape.max_groups);
                Err(damaged(&self.path, 0, Part::Header, defect))
            }
        }
    }

    /// Reads the next chunk, which must be `expected`; its data. Of the first chunk, whose length
    /// nobody knows, only the kind and the number are compared.
    pub(crate) fn chunk(&mut self, expected: Chunk) -> Result<&[u8]> {
        let (bytes, found) = self.head()?;
        let bad = |defect| damaged(&self.path, self.offset, Part::Chunk, defect);
        let is_settings = expected.kind == KIND_SETTINGS;
        let len = if is_settings { found.len.min(SETTINGS_MAX) } else { expected.len };
        let fields = [
            ("kind of a chunk", 4, expected.kind.into(), found.kind.into()),
            ("number of a chunk", 8, expected.number, found.number),
            ("offset of a chunk", 16, expected.at, found.at),
            ("length of a chunk", 24, len, found.len),
            ("file of a chunk", 32, expected.file, found.file),
        ];
        for (what, at, expected, found) in fields {
            if expected != found {
                return Err(bad(Defect::Field(what, at, expected, found)));
            }
        }
        self.body(&bytes, found)?;
        Ok(&self.data)
    }

    /// Reads what stands before the data of the next chunk; nothing of it is checked.
    fn head(&mut self) -> Result<([u8; CHUNK], Chunk)> {
        let mut bytes = [0; CHUNK];
        self.read(&mut bytes, "the end of its chunks")?;
        let bad = |defect| damaged(&self.path, self.offset, Part::Chunk, defect);
        let (found, _) = Chunk::from_bytes(&bytes).map_err(bad)?;
        Ok((bytes, found))
    }

    /// Reads the data of the chunk `found`, which is not longer than chunks are, behind `bytes`,
    /// and checks both.
    fn body(&mut self, bytes: &[u8; CHUNK], found: Chunk) -> Result<()> {
        let mut data = std::mem::take(&mut self.data);
        data.resize(found.len as usize, 0);
        let read = self.read(&mut data, "the end of a chunk");
        self.data = data;
        read?;
        let checked = Chunk::check(bytes, self.seed, &self.data);
        self.seed =
            checked.map_err(|defect| damaged(&self.path, self.offset, Part::Chunk, defect))?;
        self.offset += CHUNK as u64 + found.len;
        Ok(())
    }

    /// Reads the next chunk of a large file, if there is one more: what it is. Those of a file are
    /// in order; which files there are is for the region to say.
    pub(crate) fn large_chunk(&mut self) -> Result<Option<Chunk>> {
        let Large { chunks, bytes: before, last } = self.large;
        if chunks == self.header.large_chunks {
            return Ok(None);
        }
        let (bytes, found) = self.head()?;
        let number = self.header.chunks.saturating_sub(self.header.large_chunks) + chunks;
        let least = last.filter(|last| last.file == found.file).map_or(0, |it| it.at + it.len);
        let most = self.header.large_bytes - before;
        let (at, len) = (found.at, found.len);
        let fields = [
            ("kind of a chunk", 4, KIND_LARGE.into(), found.kind.into()),
            ("number of a chunk", 8, number, found.number),
            ("offset of a chunk", 16, at.max(least) / PAGE * PAGE, at),
            ("offset of a chunk", 16, at.min(i64::MAX as u64), at),
            ("length of a chunk", 24, len.max(PAGE) / PAGE * PAGE, len),
            ("length of a chunk", 24, len.min(most).min(DATA_MAX), len),
        ];
        if let Some(&(what, at, expected, found)) = fields.iter().find(|field| field.2 != field.3) {
            let defect = Defect::Field(what, at, expected, found);
            return Err(damaged(&self.path, self.offset, Part::Chunk, defect));
        }
        self.body(&bytes, found)?;
        self.large = Large { chunks: chunks + 1, bytes: before + found.len, last: Some(found) };
        Ok(Some(found))
    }

    /// Refuses a copy whose header says that there are other than `found` large files.
    pub(crate) fn check_files(&self, found: u64) -> Result<()> {
        let said = self.header.large_files;
        if said == found {
            return Ok(());
        }
        let defect = Defect::Field("number of large files", 160, found, said);
        Err(damaged(&self.path, 0, Part::Header, defect))
    }

    /// The data of the chunk that was read last.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The error that the chunk that was read last is of no large file of the region, or beyond the
    /// end of it: that is `expected`.
    pub(crate) fn misplaced(&self, chunk: Chunk, expected: u64) -> Error {
        let start = self.offset - CHUNK as u64 - chunk.len;
        let (what, at) = ("file and end of a chunk", 16);
        let defect = Defect::Field(what, at, expected, chunk.at + chunk.len);
        damaged(&self.path, start, Part::Chunk, defect)
    }

    /// Reads the settings, which come first.
    pub(crate) fn settings(&mut self) -> Result<Vec<u8>> {
        let first = Chunk { kind: KIND_SETTINGS, number: 0, at: 0, len: 0, file: 0 };
        Ok(self.chunk(first)?.to_vec())
    }

    /// Reads all chunks of the region, and gives each one's offset and data to `take`. What is
    /// behind them are [large files](Self::large_chunk), and [the end](Self::end).
    pub(crate) fn region(
        &mut self,
        settings: u64,
        meter: &mut Meter<'_>,
        mut take: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<Plan> {
        let mut plan = self.plan()?;
        let fixed = plan.fixed_chunks();
        // The bitmaps are in the fixed part, and say what comes after it.
        let first: Vec<Chunk> = plan.chunks(settings).take(fixed as usize).skip(1).collect();
        for chunk in first {
            let data = self.chunk(chunk)?;
            plan.learn(chunk.at, data);
            take(chunk.at, data)?;
            meter.add(chunk.len)?;
        }
        let (chunks, bytes) = plan.size(settings);
        let Header { large_chunks, large_bytes, .. } = self.header;
        for (what, at, expected, found) in [
            ("number of chunks", 128, chunks.saturating_add(large_chunks), self.header.chunks),
            ("bytes of data", 136, bytes.saturating_add(large_bytes), self.header.bytes),
        ] {
            if expected != found {
                let defect = Defect::Field(what, at, expected, found);
                return Err(damaged(&self.path, 0, Part::Header, defect));
            }
        }
        for chunk in plan.chunks(settings).skip(fixed as usize) {
            take(chunk.at, self.chunk(chunk)?)?;
            meter.add(chunk.len)?;
        }
        Ok(plan)
    }

    /// Reads the trailer, behind which nothing may be, and before which there are as many bytes of
    /// large files as the header says.
    pub(crate) fn end(&mut self) -> Result<()> {
        let (expected, found) = (self.header.large_bytes, self.large.bytes);
        if expected != found {
            let defect = Defect::Field("bytes of large files", 176, found, expected);
            return Err(damaged(&self.path, 0, Part::Header, defect));
        }
        let mut bytes = [0; TRAILER];
        self.read(&mut bytes, "its trailer")?;
        let checked = saved::check_trailer(&bytes, &self.header, self.seed);
        checked.map_err(|defect| damaged(&self.path, self.offset, Part::Trailer, defect))?;
        self.offset += TRAILER as u64;
        let mut more = [0; 1];
        let len = fill(&mut self.file, &mut more).map_err(failed(&self.path, "read it"))?;
        if len > 0 {
            let defect = Defect::Field("bytes behind the trailer", 0, 0, len as u64);
            return Err(damaged(&self.path, self.offset, Part::Trailer, defect));
        }
        Ok(())
    }

    fn read(&mut self, out: &mut [u8], missing: &'static str) -> Result<()> {
        let len = fill(&mut self.file, out).map_err(failed(&self.path, "read it"))?;
        if len < out.len() {
            let path = self.path.clone();
            let offset = self.file.stream_position().unwrap_or(self.offset + len as u64);
            return Err(Error::CopyIncomplete { path, offset, missing });
        }
        Ok(())
    }

    /// Goes back to the first chunk of the region, behind `settings` bytes of settings with the
    /// checksum `seed`.
    pub(crate) fn rewind(&mut self, settings: u64, seed: u64) -> Result<()> {
        self.offset = (HEADER + CHUNK) as u64 + settings;
        self.seed = seed;
        self.large = Large::default();
        let sought = self.file.seek(SeekFrom::Start(self.offset));
        sought.map(drop).map_err(failed(&self.path, "read it again"))
    }
}

/// Reads until `out` is full or the file ends: how many bytes.
fn fill(file: &mut impl Read, out: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = out.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
