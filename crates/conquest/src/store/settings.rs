//! `store.toml`: what a store is, and which core is its live one.
//!
//! Keys that this program does not know are kept when it is written again, and so are comments.
//! Every key that is known is checked; errors name the line.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml_edit::{Document, DocumentMut, Item, Table};

use super::directory::{self, SETTINGS};
use super::identity::{FileId, device_of, device_text};
use super::new::{Medium, Placement, Preset};
use super::sync_mode::SyncMode;
use crate::error::failed;
use crate::{Error, Id, Result};

/// The format of `store.toml` and of the directory that this program knows.
pub(crate) const FORMAT: u64 = 1;
/// Most bytes of a `store.toml`.
const LEN_MAX: u64 = 1 << 19;
const HEADING: &str = "# A Conquest store. Do not edit [live] and [next] by hand.\n";

/// Which core is a store's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Live {
    /// The region's identity.
    pub(crate) region: Id,
    /// Differs between cores that hold the region one after the other.
    pub(crate) incarnation: Id,
    /// The boot of the machine in which the core was made, restored or attached.
    pub(crate) boot: Id,
    /// The core's file, in that boot.
    pub(crate) file: FileId,
}

/// Where the store's directory was when it was made or attached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// Its name, from the root.
    pub(crate) path: PathBuf,
    /// Its inode number.
    pub(crate) inode: u64,
}

impl Home {
    /// A directory of this name and inode number.
    pub(crate) fn of(path: &Path, inode: u64) -> Home {
        // As the file has it, which is text.
        Home { path: PathBuf::from(path.to_string_lossy().into_owned()), inode }
    }
}

/// Where a store's volume is, and how it is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VolumeAt {
    /// Its identity.
    pub(crate) uuid: Id,
    /// Its devices; names that are not from the root begin in the store's directory.
    pub(crate) devices: Vec<PathBuf>,
    /// The directory in memory that its index is in, for all processes.
    pub(crate) index: PathBuf,
    /// Who waits until what he has done is durable.
    pub(crate) sync: SyncMode,
    /// Most bytes of the index that are a cache; none for a share of the RAM.
    pub(crate) cache: Option<u64>,
}

/// The core that is about to replace the live one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Next {
    pub(crate) live: Live,
    /// What else changes with it, if anything does.
    pub(crate) change: Option<Change>,
}

/// What changes with a core that was restored of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) medium: Medium,
    /// Where it is, if not in the store's directory.
    pub(crate) core: Option<PathBuf>,
    /// The store's volume from then on, complete.
    pub(crate) volume: Option<VolumeAt>,
}

/// What `store.toml` says.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The store's identity.
    pub(crate) uuid: Id,
    /// Nanoseconds since 1970 at which it was made.
    pub(crate) created: u64,
    pub(crate) medium: Medium,
    /// Where the core is, if not in the store's directory.
    pub(crate) core: Option<PathBuf>,
    pub(crate) placement: Placement,
    /// Its volume, if it has one.
    pub(crate) volume: Option<VolumeAt>,
    pub(crate) home: Home,
    pub(crate) live: Live,
    /// The core that is about to replace the live one: whichever of both is in place counts.
    pub(crate) next: Option<Next>,
    /// What else the file says.
    pub(crate) document: DocumentMut,
}

impl Settings {
    /// The settings of the store in `directory`.
    pub(crate) fn read(directory: &Path) -> Result<Settings> {
        let path = directory.join(SETTINGS);
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() && found.len() <= LEN_MAX => {}
            Ok(_) => {
                let reason = format!("not a regular file of at most {LEN_MAX} bytes");
                return Err(Error::Settings { path, line: 1, reason });
            }
            Err(error) if is_absent(&error) => {
                return Err(Error::NotAStore { directory: directory.to_owned() });
            }
            Err(error) => return Err(failed(&path, "look at it")(error)),
        }
        let bytes = std::fs::read(&path).map_err(failed(&path, "read it"))?;
        Settings::parse(&path, &bytes)
    }

    /// The settings in the text `bytes` of the file `path`.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Settings> {
        let bad =
            |line: usize, reason: String| Error::Settings { path: path.to_owned(), line, reason };
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let before = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                return Err(bad(line, "not UTF-8".to_owned()));
            }
        };
        let document = Document::parse(text).map_err(|error| {
            let at = error.span().map_or(text.len(), |span| span.start);
            bad(line_of(text, at), error.message().trim().replace('\n', "; "))
        })?;
        let reader = Reader { path, text, table: document.as_table(), name: "" };
        let format = reader.number("format")?;
        if format > FORMAT {
            return Err(Error::NewerFormat { path: path.to_owned(), found: format, known: FORMAT });
        }
        if format != FORMAT {
            return Err(reader.bad("format", "is 1".to_owned()));
        }
        let core = reader.table("core")?;
        let placement = reader.table("placement")?;
        let home = reader.table("home")?;
        let settings = Settings {
            uuid: reader.parsed("uuid")?,
            created: reader.number("created")?,
            medium: core.parsed("medium")?,
            core: core.optional("path")?.map(PathBuf::from),
            placement: Placement {
                threshold: placement.number("threshold")?,
                preset: placement.parsed::<Preset>("preset")?,
            },
            volume: match reader.table.contains_key("volume") {
                true => Some(volume(&reader.table("volume")?)?),
                false => None,
            },
            home: Home { path: home.text("path")?.into(), inode: home.number("inode")? },
            live: live(&reader.table("live")?)?,
            next: match reader.table.contains_key("next") {
                true => Some(next(&reader.table("next")?)?),
                false => None,
            },
            document: DocumentMut::new(),
        };
        Ok(Settings { document: document.into_mut(), ..settings })
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        let mut document = self.document.clone();
        let is_new = document.is_empty();
        let root = document.as_table_mut();
        put(root, "format", FORMAT);
        set(root, "uuid", self.uuid.to_string());
        put(root, "created", self.created);
        change(root, "core", |core| {
            set(core, "medium", self.medium.to_string());
            match &self.core {
                Some(path) => set(core, "path", path.to_string_lossy().into_owned()),
                None => _ = core.remove("path"),
            }
        });
        change(root, "placement", |placement| {
            put(placement, "threshold", self.placement.threshold);
            set(placement, "preset", self.placement.preset.to_string());
        });
        match &self.volume {
            Some(volume) => change(root, "volume", |table| put_volume(table, volume)),
            None => _ = root.remove("volume"),
        }
        change(root, "home", |home| {
            set(home, "path", self.home.path.to_string_lossy().into_owned());
            put(home, "inode", self.home.inode);
        });
        change(root, "live", |table| put_live(table, &self.live));
        root.remove("next");
        if let Some(next) = &self.next {
            change(root, "next", |table| put_next(table, next));
        }
        let text = document.to_string();
        if is_new { format!("{HEADING}{text}") } else { text }
    }

    /// Writes the file anew, as a whole, under the store's lock; it keeps its owner and
    /// permissions.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let path = directory.join(SETTINGS);
        let found = std::fs::metadata(&path).map_err(failed(&path, "look at it"))?;
        let owner = Some((found.uid(), found.gid()));
        directory::replace(&path, self.text().as_bytes(), found.mode() & 0o777, owner)
    }
}

/// Whether there is no file of that name.
pub(crate) fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

fn live(reader: &Reader<'_>) -> Result<Live> {
    let device = reader.text("device")?;
    let Some(device) = device_of(device) else {
        return Err(reader.bad("device", "is two numbers, such as \"0:23\"".to_owned()));
    };
    Ok(Live {
        region: reader.parsed("region")?,
        incarnation: reader.parsed("incarnation")?,
        boot: reader.parsed("boot")?,
        file: FileId { device, inode: reader.number("inode")? },
    })
}

fn next(reader: &Reader<'_>) -> Result<Next> {
    let change = match reader.table.contains_key("medium") {
        true => Some(Change {
            medium: reader.parsed("medium")?,
            core: reader.optional("path")?.map(PathBuf::from),
            volume: match reader.table.contains_key("volume") {
                true => Some(volume(&reader.table("volume")?)?),
                false => None,
            },
        }),
        false => None,
    };
    Ok(Next { live: live(reader)?, change })
}

fn volume(reader: &Reader<'_>) -> Result<VolumeAt> {
    let texts = reader.table.get("devices").and_then(Item::as_array).and_then(|all| {
        let names = all.iter().map(|name| name.as_str().map(PathBuf::from));
        names.collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())
    });
    Ok(VolumeAt {
        uuid: reader.parsed("uuid")?,
        devices: texts.ok_or_else(|| reader.bad("devices", "is a list of names".to_owned()))?,
        index: reader.text("index")?.into(),
        sync: reader.parsed("sync")?,
        cache: match reader.table.contains_key("cache") {
            true => Some(reader.number("cache")?),
            false => None,
        },
    })
}

fn put_volume(table: &mut Table, volume: &VolumeAt) {
    let names = volume.devices.iter().map(|path| path.to_string_lossy().into_owned());
    set(table, "uuid", volume.uuid.to_string());
    set(table, "devices", names.collect::<toml_edit::Array>());
    set(table, "index", volume.index.to_string_lossy().into_owned());
    set(table, "sync", volume.sync.to_string());
    match volume.cache {
        Some(bytes) => put(table, "cache", bytes),
        None => _ = table.remove("cache"),
    }
}

fn put_live(table: &mut Table, live: &Live) {
    set(table, "region", live.region.to_string());
    set(table, "incarnation", live.incarnation.to_string());
    set(table, "boot", live.boot.to_string());
    set(table, "device", device_text(live.file.device));
    put(table, "inode", live.file.inode);
}

fn put_next(table: &mut Table, next: &Next) {
    put_live(table, &next.live);
    let Some(Change { medium, core, volume }) = &next.change else {
        return;
    };
    set(table, "medium", medium.to_string());
    if let Some(path) = core {
        set(table, "path", path.to_string_lossy().into_owned());
    }
    if let Some(volume) = volume {
        change(table, "volume", |table| put_volume(table, volume));
    }
}

/// Changes the value of `key`, with what stands around it as it is.
fn set(table: &mut Table, key: &str, new: impl Into<toml_edit::Value>) {
    let mut new = new.into();
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => _ = table.insert(key, Item::Value(new)),
    }
}

/// As [`set`], for numbers; TOML has those below 2^63, others are written as text.
fn put(table: &mut Table, key: &str, number: u64) {
    match i64::try_from(number) {
        Ok(number) => set(table, key, number),
        Err(_) => set(table, key, number.to_string()),
    }
}

/// Changes the table `key`, which is made if it is not there, and keeps its place.
fn change(root: &mut Table, key: &str, how: impl FnOnce(&mut Table)) {
    let mut table = match root.remove(key) {
        Some(Item::Table(table)) => table,
        _ => Table::new(),
    };
    how(&mut table);
    root.insert(key, Item::Table(table));
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// Reads keys of one table.
struct Reader<'d> {
    path: &'d Path,
    text: &'d str,
    table: &'d Table,
    name: &'d str,
}

impl<'d> Reader<'d> {
    /// The error that `key` is not what `expected` says.
    fn bad(&self, key: &str, expected: String) -> Error {
        let item = self.table.get(key);
        let span = item.and_then(Item::span).or_else(|| self.table.span());
        let line = line_of(self.text, span.map_or(0, |span| span.start));
        let dot = if self.name.is_empty() { "" } else { "." };
        let found = match item {
            Some(item) => format!("found {}", item.to_string().trim()),
            None => "it is missing".to_owned(),
        };
        let reason = format!("expected that {}{dot}{key} {expected}, {found}", self.name);
        Error::Settings { path: self.path.to_owned(), line, reason }
    }

    fn table(&self, key: &'d str) -> Result<Reader<'d>> {
        match self.table.get(key).and_then(Item::as_table) {
            Some(table) => Ok(Reader { path: self.path, text: self.text, table, name: key }),
            None => Err(self.bad(key, "is a table".to_owned())),
        }
    }

    fn text(&self, key: &str) -> Result<&'d str> {
        let found = self.table.get(key).and_then(Item::as_str);
        found.ok_or_else(|| self.bad(key, "is a text".to_owned()))
    }

    fn optional(&self, key: &str) -> Result<Option<&'d str>> {
        if self.table.contains_key(key) { self.text(key).map(Some) } else { Ok(None) }
    }

    fn parsed<T: FromStr<Err: std::fmt::Display>>(&self, key: &str) -> Result<T> {
        self.text(key)?.parse().map_err(|error| self.bad(key, format!("can be used ({error})")))
    }

    fn number(&self, key: &str) -> Result<u64> {
        let item = self.table.get(key);
        let small = item.and_then(Item::as_integer).and_then(|number| u64::try_from(number).ok());
        let large = item.and_then(Item::as_str).and_then(|text| text.parse().ok());
        small.or(large).ok_or_else(|| self.bad(key, "is a number, 0 or more".to_owned()))
    }
}

/// A document with nothing in it but what is always there.
#[cfg(test)]
fn sample() -> Settings {
    let live = Live {
        region: Id([1; 16]),
        incarnation: Id([2; 16]),
        boot: Id([3; 16]),
        file: FileId { device: (0, 23), inode: u64::MAX },
    };
    Settings {
        uuid: Id([4; 16]),
        created: 5,
        medium: Medium::Ram,
        core: Some("/dev/shm/core".into()),
        placement: Placement::default(),
        volume: Some(VolumeAt {
            uuid: Id([7; 16]),
            devices: vec!["volume".into(), "/dev/disk".into()],
            index: "/dev/shm".into(),
            sync: SyncMode::default(),
            cache: Some(8),
        }),
        home: Home { path: "/store".into(), inode: 6 },
        live,
        next: None,
        document: DocumentMut::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(Path::new("store.toml"), text.as_bytes())
    }

    /// What a failed parse says: its line, and its reason.
    fn refused(text: &str) -> (usize, String) {
        match parse(text) {
            Err(Error::Settings { line, reason, .. }) => (line, reason),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let live = Live { boot: Id([9; 16]), ..sample().live };
        let volume = VolumeAt { uuid: Id([8; 16]), cache: None, ..sample().volume.unwrap() };
        let plain = Change { medium: Medium::Disk, core: Some("/core".into()), volume: None };
        let logged = Change { medium: Medium::Logged, core: None, volume: Some(volume) };
        let some = |change| Some(Next { live, change });
        for next in [None, some(None), some(Some(plain)), some(Some(logged))] {
            let settings = Settings { next: next.clone(), ..sample() };
            let read = parse(&settings.text()).unwrap();
            assert_eq!((read.uuid, read.created, read.medium), (settings.uuid, 5, Medium::Ram));
            assert_eq!((read.core, read.placement), (settings.core, settings.placement));
            assert_eq!((read.home, read.live, read.next), (settings.home, settings.live, next));
            assert_eq!(read.volume, settings.volume);
        }
    }

    #[test]
    fn unknown_keys_and_comments_are_kept() {
        let text = format!("{}\n[future]\nkey = 7 # why\n", sample().text())
            .replace("[core]\n", "# of mine\n[core]\nnew = true\n");
        let mut settings = parse(&text).unwrap();
        settings.next = Some(Next { live: settings.live, change: None });
        settings.medium = Medium::Battery;
        let text = settings.text();
        for kept in ["key = 7 # why", "# of mine", "new = true", "\"battery\"", "[next]", HEADING] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
        let settings = Settings { next: None, ..parse(&text).unwrap() };
        assert!(!settings.text().contains("\n[next]"));
    }

    #[test]
    fn every_key_is_needed_and_checked() {
        let text = sample().text();
        for (at, line) in text.lines().enumerate() {
            let Some((key, _)) = line.split_once(" = ") else { continue };
            let lines = |new: &str| -> String {
                let other = |(nth, line)| if nth == at { new } else { line };
                text.lines().enumerate().map(other).map(|line| format!("{line}\n")).collect()
            };
            if !["path", "cache"].contains(&key) {
                let (_, reason) = refused(&lines(""));
                assert!(reason.contains(key) && reason.contains("missing"), "{reason}");
            }
            let (line, reason) = refused(&lines(&format!("{key} = [1]")));
            assert_eq!(line, at + 1, "{reason}");
            assert!(reason.contains(key), "{reason}");
        }
    }

    #[test]
    fn torn_and_foreign_text_is_named_with_its_line() {
        let text = sample().text();
        assert_eq!(refused("format = 1\nuuid = \"").0, 2);
        assert_eq!(refused("\n\nwhat").0, 3);
        for len in 0..text.len() - 1 {
            assert!(parse(&text[..len]).is_err(), "{len}");
        }
        let bytes = [text.as_bytes(), b"\n\xff"].concat();
        let line = text.lines().count() + 1 + 1;
        match Settings::parse(Path::new("x"), &bytes) {
            Err(Error::Settings { line: found, .. }) => assert!(found.abs_diff(line) <= 1),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn newer_formats_are_refused_and_impossible_ones_too() {
        let newer = sample().text().replace("format = 1", "format = 2");
        assert!(matches!(parse(&newer), Err(Error::NewerFormat { found: 2, known: 1, .. })));
        assert!(parse("format = 7").is_err_and(|error| error.to_string().contains("newer")));
        assert_eq!(refused(&sample().text().replace("format = 1", "format = 0")).0, 2);
    }
}
