//! Mails, and processes that deliver them as mail servers do.
//!
//! Roles: `mail maildir MOUNT ACKNOWLEDGED WRITER`, `mail queue` with the same arguments,
//! `mail manager MOUNT`, and `mail judge MOUNT ACKNOWLEDGED`, of which the last one looks at what
//! is there.
//!
//! What is acknowledged: `mail W I` when mail `I` of writer `W` was accepted, `gone W I` before it
//! is removed for good.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use conquest_testkit::Rng;

use crate::Outcome;

/// Bytes of the smallest and the largest mail.
const LENGTHS: [u64; 2] = [1000, 300_000];
/// Mails of a writer that are not removed yet.
const KEPT: u64 = 60;
/// Mode of a file in the queue that is complete, as postfix says it.
const COMPLETE: u32 = 0o700;
/// How long the manager of the queue rests when there is nothing to do.
const REST: Duration = Duration::from_millis(2);

/// Directories on the mount.
const TMP: &str = "box/tmp";
const NEW: &str = "box/new";
const CUR: &str = "box/cur";
const INCOMING: &str = "queue/incoming";
const ACTIVE: &str = "queue/active";
const DIRECTORIES: [&str; 5] = [TMP, NEW, CUR, INCOMING, ACTIVE];

/// The bytes of mail `i` of writer `w`. Small ones are as frequent as large ones.
fn mail(w: u64, i: u64) -> Vec<u8> {
    let mut rng = Rng::stream(w, i);
    let [least, most] = LENGTHS;
    let doublings = (most / least).ilog2() + 1;
    let len = (least << rng.below(doublings.into())) + rng.below(least);
    let len = len.min(most) as usize;
    let mut bytes = format!("From: writer {w}\nSubject: mail {i} of {len} bytes\n\n").into_bytes();
    while bytes.len() < len {
        bytes.extend(rng.word().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Makes the file `path` with the bytes of a mail, written in pieces.
fn write(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    for piece in bytes.chunks(20_000) {
        file.write_all(piece)?;
    }
    Ok(file)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

struct Writer {
    mount: PathBuf,
    acknowledged: File,
    number: u64,
}

impl Writer {
    fn path(&self, directory: &str, i: u64) -> PathBuf {
        self.mount.join(directory).join(format!("{}.{i}", self.number))
    }

    fn say(&mut self, what: &str, i: u64) -> io::Result<()> {
        let line = format!("{what} {} {i}\n", self.number);
        self.acknowledged.write_all(line.as_bytes())
    }

    /// Delivers mail `i` to the maildir: a name in `new` once it is whole and durable.
    fn deliver(&mut self, i: u64) -> io::Result<()> {
        let (tmp, new) = (self.path(TMP, i), self.path(NEW, i));
        write(&tmp, &mail(self.number, i))?.sync_all()?;
        if i.is_multiple_of(2) {
            std::fs::rename(&tmp, &new)?;
        } else {
            std::fs::hard_link(&tmp, &new)?;
            std::fs::remove_file(&tmp)?;
        }
        sync_directory(&self.mount.join(NEW))?;
        self.say("mail", i)
    }

    /// Puts mail `i` into the queue: a mode that says so once it is whole, then durable.
    fn enqueue(&mut self, i: u64) -> io::Result<()> {
        let file = write(&self.path(INCOMING, i), &mail(self.number, i))?;
        file.set_permissions(Permissions::from_mode(COMPLETE))?;
        file.sync_all()?;
        self.say("mail", i)
    }

    /// Somebody has read mail `i`.
    fn see(&self, i: u64) -> io::Result<()> {
        let seen = self.mount.join(CUR).join(format!("{}.{i}:2,S", self.number));
        std::fs::rename(self.path(NEW, i), seen)
    }

    /// Somebody removes mail `i`, wherever it is.
    fn remove(&mut self, i: u64) -> io::Result<()> {
        self.say("gone", i)?;
        let seen = self.mount.join(CUR).join(format!("{}.{i}:2,S", self.number));
        match std::fs::remove_file(&seen) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::remove_file(self.path(NEW, i))
            }
            other => other,
        }
    }
}

/// Delivers mails to the maildir, and reads and removes some.
fn maildir(mut writer: Writer) -> io::Result<()> {
    for i in 1.. {
        writer.deliver(i)?;
        if i % 3 == 0 {
            writer.see(i)?;
        }
        if i > KEPT {
            writer.remove(i - KEPT)?;
        }
    }
    Ok(())
}

/// Puts mails into the queue, and removes some that the manager has delivered.
fn queue(mut writer: Writer) -> io::Result<()> {
    let mut next = 1;
    for i in 1.. {
        writer.enqueue(i)?;
        while next + KEPT < i && writer.path(NEW, next).exists() {
            // The manager may not have removed it from the queue yet, and then it would be
            // delivered again if the power were cut: as with a real one.
            if writer.path(ACTIVE, next).exists() {
                break;
            }
            writer.remove(next)?;
            next += 1;
        }
        // What nobody delivers is not made without end.
        while next + KEPT * 3 < i && !writer.path(NEW, next).exists() {
            std::thread::sleep(REST);
        }
    }
    Ok(())
}

/// Delivers what is complete in the queue, as a manager of a queue and its agent do.
fn manage(mount: &Path) -> io::Result<()> {
    loop {
        let mut is_idle = true;
        for entry in std::fs::read_dir(mount.join(INCOMING))? {
            let entry = entry?;
            if entry.metadata()?.permissions().mode() & 0o777 != COMPLETE {
                continue;
            }
            is_idle = false;
            let at = |directory: &str| mount.join(directory).join(entry.file_name());
            std::fs::rename(entry.path(), at(ACTIVE))?;
            let bytes = std::fs::read(at(ACTIVE))?;
            write(&at(TMP), &bytes)?.sync_all()?;
            std::fs::rename(at(TMP), at(NEW))?;
            sync_directory(&mount.join(NEW))?;
            std::fs::remove_file(at(ACTIVE))?;
        }
        if is_idle {
            std::thread::sleep(REST);
        }
    }
}

/// Writer and number of a mail, by the name of its file.
fn named(name: &str) -> Option<(u64, u64)> {
    let name = name.strip_suffix(":2,S").unwrap_or(name);
    let (w, i) = name.split_once('.')?;
    Some((w.parse().ok()?, i.parse().ok()?))
}

/// Looks at all mails on `mount`, of which `acknowledged` says what there has to be.
fn judge(mount: &Path, acknowledged: &str) -> Outcome<()> {
    let mut wanted = BTreeSet::new();
    for line in acknowledged.lines() {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["mail", w, i] => {
                wanted.insert((number(w)?, number(i)?));
            }
            ["gone", w, i] => {
                wanted.remove(&(number(w)?, number(i)?));
            }
            _ => return Err(format!("{line:?}")),
        }
    }
    let mut found: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
    for directory in DIRECTORIES {
        let path = mount.join(directory);
        let entries = std::fs::read_dir(&path).map_err(|e| format!("{directory}: {e}"))?;
        for entry in entries {
            let told = |e: io::Error| format!("{directory}: {e}");
            let entry = entry.map_err(told)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (w, i) = named(&name).ok_or_else(|| format!("{directory}/{name}"))?;
            let bytes =
                std::fs::read(entry.path()).map_err(|e| format!("{directory}/{name}: {e}"))?;
            let mode = entry.metadata().map_err(told)?.permissions().mode() & 0o777;
            let is_open = directory == TMP || directory == INCOMING && mode != COMPLETE;
            if is_open {
                continue;
            }
            let right = mail(w, i);
            if bytes != right {
                let (len, all) = (bytes.len(), right.len());
                let from = bytes.iter().zip(&right).position(|(found, right)| found != right);
                return Err(format!(
                    "{directory}/{name} is half: {len} bytes of {all}, wrong from {from:?} on"
                ));
            }
            found.entry((w, i)).or_default().push(directory);
        }
    }
    for mail in wanted {
        if !found.contains_key(&mail) {
            return Err(format!("mail {}.{} was accepted and is not there", mail.0, mail.1));
        }
    }
    for ((w, i), places) in found {
        if places.contains(&NEW) && places.contains(&CUR) {
            return Err(format!("mail {w}.{i} is in {places:?}"));
        }
    }
    Ok(())
}

fn number(word: &str) -> Outcome<u64> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

/// Makes the directories on `mount`.
pub(crate) fn make(mount: &Path) -> Outcome<()> {
    for directory in DIRECTORIES {
        std::fs::create_dir_all(mount.join(directory)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Does what one of the processes does.
pub(crate) fn role(words: &[&str]) -> Outcome<()> {
    let outcome = match words {
        [kind @ ("maildir" | "queue"), mount, acknowledged, writer] => {
            let acknowledged = OpenOptions::new().append(true).open(acknowledged);
            let writer = Writer {
                mount: mount.into(),
                acknowledged: acknowledged.map_err(|e| e.to_string())?,
                number: number(writer)?,
            };
            if *kind == "queue" { queue(writer) } else { maildir(writer) }
        }
        ["manager", mount] => manage(Path::new(mount)),
        ["judge", mount, acknowledged] => {
            let text = std::fs::read_to_string(acknowledged).map_err(|e| e.to_string())?;
            return judge(Path::new(mount), &text);
        }
        _ => return Err(format!("{words:?} is not understood")),
    };
    outcome.map_err(|e| format!("{words:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mails_have_all_lengths() {
        let mails: Vec<Vec<u8>> = (0..500).map(|i| mail(1, i)).collect();
        let all = |is: fn(&usize) -> bool| mails.iter().map(Vec::len).any(|len| is(&len));
        assert!(all(|len| *len < 2000) && all(|len| *len > 200_000));
        assert!(mails.iter().all(|mail| (1000..=300_000).contains(&mail.len())));
        assert_ne!(mail(1, 2), mail(2, 1));
        assert_eq!(named("3.7:2,S"), named("3.7"));
    }

    #[test]
    fn what_is_missing_or_half_is_seen() {
        let place = std::env::temp_dir().join(format!("cut-mail-{}", std::process::id()));
        make(&place).unwrap();
        let path = |directory: &str, name: &str| place.join(directory).join(name);
        std::fs::write(path(NEW, "1.1"), mail(1, 1)).unwrap();
        std::fs::write(path(TMP, "1.2"), b"half").unwrap();
        std::fs::write(path(INCOMING, "2.1"), b"half").unwrap();
        judge(&place, "mail 1 1\nmail 1 3\ngone 1 3").unwrap();
        assert!(judge(&place, "mail 1 1\nmail 1 2").unwrap_err().contains("not there"));
        std::fs::write(path(CUR, "1.1:2,S"), mail(1, 1)).unwrap();
        assert!(judge(&place, "mail 1 1").unwrap_err().contains("cur"));
        std::fs::write(path(CUR, "1.1:2,S"), b"half").unwrap();
        assert!(judge(&place, "").unwrap_err().contains("half"));
        std::fs::remove_dir_all(&place).unwrap();
    }
}
