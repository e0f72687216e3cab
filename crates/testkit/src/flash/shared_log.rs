//! A log of what several processes do to devices, in files that they share.
//!
//! Each event is appended by one write of [`RECORD`] bytes, so all events are in one order, and a
//! process that is killed leaves none in part. What was written is in a file beside it, which is
//! appended to before the event that says so. The number of an event is a *time*: whoever leaves a
//! mark knows that what others have noted before has a lower one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conquest_flash::device::FileDevice;

use super::logged::Logged;
use super::recorder::Event;
use crate::lock;

/// Bytes of an event: no page of the file has a part of one.
const RECORD: usize = 64;
const WORDS: usize = RECORD / 8;
const EVENTS: &str = "events";
const BYTES: &str = "bytes";
const DEVICES: &str = "devices";
/// What the directory of a log is called, beside its devices.
const NAME: &str = "log";

/// What is noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Mark,
    Write,
    Written,
    Flush,
    Flushed,
    /// A writer was asked for, and it is gone: nothing that it had begun can land any more.
    Gone,
    /// The same of all processes but the one that asked.
    AllGone,
    /// A write returned that is durable by itself.
    Durable,
}

const KINDS: [Kind; 8] = [
    Kind::Mark,
    Kind::Write,
    Kind::Written,
    Kind::Flush,
    Kind::Flushed,
    Kind::Gone,
    Kind::AllGone,
    Kind::Durable,
];

/// An event as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) kind: Kind,
    pub(super) device: u64,
    /// Which request. Those of one process have its number in the upper half.
    pub(super) request: u64,
    /// As which writer, or of which.
    pub(super) writer: u64,
    /// Of a write: where on the device; and how many bytes, where they are in their file.
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) place: u64,
}

impl Note {
    fn to_bytes(self) -> Vec<u8> {
        let Note { kind, device, request, writer, at, len, place } = self;
        let kind = KINDS.iter().position(|&known| known == kind).unwrap_or(0) as u64;
        let words: [u64; WORDS] = [kind, device, request, writer, at, len, place, 0];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Note> {
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let words: Vec<u64> = words.collect();
        let &[kind, device, request, writer, at, len, place, 0] = words.as_slice() else {
            return None;
        };
        let kind = *KINDS.get(kind as usize)?;
        Some(Note { kind, device, request, writer, at, len, place })
    }

    fn process(&self) -> u64 {
        self.request >> 32
    }
}

/// A log, as one process has it.
#[derive(Debug)]
pub struct Log {
    events: Mutex<File>,
    bytes: Mutex<File>,
}

fn torn(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Appends `bytes` to `file`: where they begin.
fn append(file: &Mutex<File>, bytes: &[u8]) -> io::Result<u64> {
    let mut file = lock(file);
    if file.write(bytes)? != bytes.len() {
        return Err(torn("an event was written in part"));
    }
    // Of this description, which moves on by what it appends.
    Ok(file.stream_position()? - bytes.len() as u64)
}

impl Log {
    /// The directory of the log of the devices that are in `directory`.
    #[must_use]
    pub fn directory(directory: &Path) -> PathBuf {
        directory.join(NAME)
    }

    /// Begins a log of `devices`, which are in one directory, best one in memory: whoever opens
    /// them by [`Log::beside`] from now on writes to it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn begin(devices: &[PathBuf]) -> io::Result<()> {
        let first = devices.first().and_then(|device| device.parent());
        let directory = Log::directory(first.ok_or(io::ErrorKind::InvalidInput)?);
        std::fs::create_dir(&directory)?;
        File::create_new(directory.join(EVENTS))?;
        File::create_new(directory.join(BYTES))?;
        let names: Vec<String> =
            devices.iter().map(|device| format!("{}\n", device.display())).collect();
        std::fs::write(directory.join(DEVICES), names.concat())
    }

    /// Opens the log in `directory`, to write to it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(directory: &Path) -> io::Result<Log> {
        let open = |name: &str| File::options().append(true).open(directory.join(name));
        Ok(Log { events: Mutex::new(open(EVENTS)?), bytes: Mutex::new(open(BYTES)?) })
    }

    /// `device`, logged if there is a log beside it.
    ///
    /// # Errors
    /// Those of the system, `EINVAL` if the log is one of other devices.
    pub fn beside(device: Arc<FileDevice>) -> io::Result<Arc<dyn conquest_flash::device::Device>> {
        use conquest_flash::device::Device as _;
        let directory = device.name().parent().map(Log::directory).unwrap_or_default();
        let names = match std::fs::read_to_string(directory.join(DEVICES)) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(device),
            Err(error) => return Err(error),
        };
        let number = names.lines().position(|name| Path::new(name) == device.name());
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Arc::new(Logged::new(device, number as u64, Log::open(&directory)?)))
    }

    /// Leaves a mark: its time.
    ///
    /// # Errors
    /// Those of the system.
    pub fn mark(&self) -> io::Result<u64> {
        let (device, request, writer, at, len, place) = (0, 0, 0, 0, 0, 0);
        self.note(&Note { kind: Kind::Mark, device, request, writer, at, len, place })
    }

    /// Notes `note`: its time.
    pub(super) fn note(&self, note: &Note) -> io::Result<u64> {
        Ok(append(&self.events, &note.to_bytes())? / RECORD as u64)
    }

    /// Keeps `bytes`: where.
    pub(super) fn keep(&self, bytes: &[u8]) -> io::Result<u64> {
        append(&self.bytes, bytes)
    }

    /// What the log in `directory` says, in order: times, devices, and what happened to them.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if it is no log.
    pub fn load(directory: &Path) -> io::Result<Vec<(u64, usize, Event)>> {
        let events = std::fs::read(directory.join(EVENTS))?;
        let mut reader = Reader {
            bytes: File::open(directory.join(BYTES))?,
            under_way: BTreeMap::new(),
            found: Vec::new(),
        };
        for (time, record) in (0..).zip(events.chunks(RECORD)) {
            let note = Note::from_bytes(record).ok_or_else(|| torn("it is no event"))?;
            reader.take_in(time, &note)?;
        }
        Ok(reader.found)
    }
}

struct Reader {
    bytes: File,
    /// Writes that have not returned.
    under_way: BTreeMap<u64, Note>,
    found: Vec<(u64, usize, Event)>,
}

impl Reader {
    fn take_in(&mut self, time: u64, note: &Note) -> io::Result<()> {
        let (request, device) = (note.request, note.device as usize);
        let event = match note.kind {
            Kind::Mark => return Ok(()),
            Kind::Write => {
                self.under_way.insert(request, *note);
                let mut bytes = vec![0; note.len as usize];
                self.bytes.seek(io::SeekFrom::Start(note.place))?;
                self.bytes.read_exact(&mut bytes)?;
                Event::Write { request, at: note.at, bytes: bytes.into() }
            }
            Kind::Written => {
                self.under_way.remove(&request);
                Event::Written { request }
            }
            Kind::Durable => {
                self.under_way.remove(&request);
                Event::Durable { request }
            }
            Kind::Flush => Event::Flush { request },
            Kind::Flushed => Event::Flushed { request },
            Kind::Gone => {
                return self.cease(time, note, |other| other.writer == note.writer);
            }
            Kind::AllGone => return self.cease(time, note, |_| true),
        };
        self.found.push((time, device, event));
        Ok(())
    }

    /// Writes to the device of `note` by other processes, which `are_meant`, have ended somehow.
    fn cease(
        &mut self,
        time: u64,
        note: &Note,
        are_meant: impl Fn(&Note) -> bool,
    ) -> io::Result<()> {
        let is_over = |other: &Note| {
            other.device == note.device && other.process() != note.process() && are_meant(other)
        };
        let ended: Vec<u64> =
            self.under_way.values().filter(|other| is_over(other)).map(|n| n.request).collect();
        for request in ended {
            self.under_way.remove(&request);
            self.found.push((time, note.device as usize, Event::Ceased { request }));
        }
        Ok(())
    }
}
