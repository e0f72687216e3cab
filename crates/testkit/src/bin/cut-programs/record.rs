//! What the disk has kept: all that was done to the volume's file, in one order, and what programs
//! have acknowledged.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use conquest_testkit::flash::{Event, Mark};

/// A record. It begins with a volume's file that is all zeros.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) events: Vec<Event>,
    /// What was acknowledged: line `n` at the event `Mark::Done(n)`.
    pub(crate) lines: Vec<String>,
}

/// Kinds of events as they stand in a file, by their place. Each is followed by three words, which
/// are request, place and length of a write; and the bytes of a write, or of a line.
const WRITE: u64 = 0;
const WRITTEN: u64 = 1;
const FLUSH: u64 = 2;
const FLUSHED: u64 = 3;
const LINE: u64 = 4;

impl Record {
    /// Adds what somebody has acknowledged, a line.
    pub(crate) fn acknowledge(&mut self, line: &str) {
        self.events.push(Event::Mark(Mark::Done(self.lines.len() as u32)));
        self.lines.push(line.to_owned());
    }

    /// Keeps it in the file `path`.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let mut put = |kind: u64, request: u64, at: u64, bytes: &[u8]| {
            for word in [kind, request, at, bytes.len() as u64] {
                file.write_all(&word.to_le_bytes())?;
            }
            file.write_all(bytes)
        };
        let mut lines = self.lines.iter();
        for event in &self.events {
            match event {
                Event::Write { request, at, bytes } => put(WRITE, *request, *at, bytes),
                Event::Written { request } => put(WRITTEN, *request, 0, &[]),
                Event::Flush { request } => put(FLUSH, *request, 0, &[]),
                Event::Flushed { request } => put(FLUSHED, *request, 0, &[]),
                Event::Mark(_) => {
                    put(LINE, 0, 0, lines.next().map(String::as_bytes).unwrap_or_default())
                }
                // A file has neither.
                Event::Durable { .. } | Event::Ceased { .. } => Ok(()),
            }?;
        }
        file.flush()
    }

    /// What [`Record::save`] has kept.
    pub(crate) fn load(path: &Path) -> io::Result<Record> {
        let mut file = BufReader::new(File::open(path)?);
        let mut record = Record::default();
        loop {
            let mut head = [0; 32];
            match file.read_exact(&mut head) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(record),
                other => other?,
            }
            let words = head.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let words: Vec<u64> = words.collect();
            let &[kind, request, at, len] = words.as_slice() else {
                return Err(ErrorKind::InvalidData.into());
            };
            let mut bytes = vec![0; len as usize];
            file.read_exact(&mut bytes)?;
            record.events.push(match kind {
                WRITE => Event::Write { request, at, bytes: Arc::from(bytes) },
                WRITTEN => Event::Written { request },
                FLUSH => Event::Flush { request },
                FLUSHED => Event::Flushed { request },
                LINE => {
                    record.acknowledge(&String::from_utf8_lossy(&bytes));
                    continue;
                }
                _ => return Err(ErrorKind::InvalidData.into()),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_kept_is_the_same() {
        let mut record = Record::default();
        record.events.push(Event::Write { request: 1, at: 4096, bytes: Arc::from([7; 512]) });
        record.events.push(Event::Written { request: 1 });
        record.acknowledge("one");
        record.events.push(Event::Flush { request: 2 });
        record.acknowledge("two words");
        record.events.push(Event::Flushed { request: 2 });
        let path = std::env::temp_dir().join(format!("cut-record-{}", std::process::id()));
        record.save(&path).unwrap();
        let found = Record::load(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.events, record.events);
        assert_eq!(found.lines, record.lines);
    }
}
