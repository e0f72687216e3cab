//! Where messages go: standard error, the journal, or the system's log.
//!
//! Invariant: writing a message never waits for its reader. A message that does not fit into the
//! reader's queue is lost.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use jiff::Zoned;

use super::Level;

/// Where the journal listens.
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Where the system's log listens.
const SYSLOG: &str = "/dev/log";
/// What messages are signed with.
const NAME: &str = "conquest";
/// The system's log has groups: this is that of daemons.
const FACILITY: u8 = 3;
/// Most bytes of a message: a datagram of this size fits everywhere.
const BYTES_MAX: usize = 4096;

/// Where messages go.
pub(crate) enum Sink {
    /// For those who started the program in the foreground.
    Stderr,
    /// The journal, by its own protocol.
    Journal(Datagrams),
    /// The system's log: syslog(3), as RFC 3164 has it.
    Syslog(Datagrams),
    /// Nobody listens.
    Nowhere,
}

/// Datagrams to whoever listens at a path, also if that one is started anew.
pub(crate) struct Datagrams {
    socket: UnixDatagram,
    to: PathBuf,
}

impl Sink {
    /// Where messages of a process in the foreground go: to standard error, unless that is the
    /// journal, which has more use for them as its own.
    pub(crate) fn of_foreground() -> Sink {
        let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        Sink::of_stream(std::io::stderr(), &stream, Path::new(JOURNAL))
    }

    /// Where messages for `own` go, if the service manager says that `stream` is the journal, by
    /// its device and inode.
    fn of_stream(own: impl AsFd, stream: &str, journal: &Path) -> Sink {
        let own = rustix::fs::fstat(own);
        let is_journal = own.is_ok_and(|own| stream == format!("{}:{}", own.st_dev, own.st_ino));
        let journal = is_journal.then(|| Datagrams::to(journal)).flatten();
        journal.map_or(Sink::Stderr, Sink::Journal)
    }

    /// Where messages of a process in the background go.
    pub(crate) fn of_background() -> Sink {
        Sink::of_listeners(Path::new(JOURNAL), Path::new(SYSLOG))
    }

    fn of_listeners(journal: &Path, syslog: &Path) -> Sink {
        match (Datagrams::to(journal), Datagrams::to(syslog)) {
            (Some(journal), _) => Sink::Journal(journal),
            (None, Some(syslog)) => Sink::Syslog(syslog),
            (None, None) => Sink::Nowhere,
        }
    }

    /// The system's log at `path`, where somebody listens.
    #[cfg(test)]
    pub(super) fn syslog(path: &Path) -> Sink {
        Sink::Syslog(Datagrams::to(path).unwrap())
    }

    /// Writes the message `text`, whose kind is called `kind`.
    pub(super) fn write(&self, level: Level, kind: &str, text: &str) {
        let text = text.get(..text.floor_char_boundary(BYTES_MAX)).unwrap_or_default();
        match self {
            // If nobody reads it, nothing else can be done.
            Sink::Stderr => {
                let line = format!("conquest: mount: {}: {text}\n", level.name());
                let _ = std::io::stderr().lock().write_all(line.as_bytes());
            }
            Sink::Journal(to) => to.send(&entry(level, kind, text)),
            Sink::Syslog(to) => to.send(line(level, text, &Zoned::now()).as_bytes()),
            Sink::Nowhere => {}
        }
    }
}

impl Datagrams {
    /// To who listens at `path`; none if nobody does.
    fn to(path: &Path) -> Option<Datagrams> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        // Only to see whether somebody listens: sending to the path finds the next one, too.
        UnixDatagram::unbound().ok()?.connect(path).ok()?;
        Some(Datagrams { socket, to: path.to_owned() })
    }

    fn send(&self, bytes: &[u8]) {
        // See the invariant.
        let _ = self.socket.send_to(bytes, &self.to);
    }
}

/// An entry of the journal: fields, one a line; a value with line breaks comes with its length
/// (systemd: "Native Journal Protocol").
fn entry(level: Level, kind: &str, text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 128);
    let mut field = |name: &str, value: &str| {
        out.extend(name.as_bytes());
        match value.contains('\n') {
            true => {
                out.push(b'\n');
                out.extend((value.len() as u64).to_le_bytes());
            }
            false => out.push(b'='),
        }
        out.extend(value.as_bytes());
        out.push(b'\n');
    };
    field("PRIORITY", &level.severity().to_string());
    field("SYSLOG_IDENTIFIER", NAME);
    field("SYSLOG_PID", &std::process::id().to_string());
    field("CONQUEST_KIND", kind);
    field("MESSAGE", text);
    out
}

/// A line of the system's log.
fn line(level: Level, text: &str, now: &Zoned) -> String {
    let number = FACILITY << 3 | level.severity();
    let time = now.strftime("%b %e %H:%M:%S");
    format!("<{number}>{time} {NAME}[{}]: {text}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A directory for sockets, removed at the end.
    struct Sockets(PathBuf);

    impl Sockets {
        fn new(name: &str) -> Sockets {
            let name = format!("conquest-log-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Sockets(path)
        }

        fn listen(&self, name: &str) -> UnixDatagram {
            let socket = UnixDatagram::bind(self.0.join(name)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            socket
        }

        fn sink(&self) -> Sink {
            Sink::of_listeners(&self.0.join("journal"), &self.0.join("syslog"))
        }
    }

    impl Drop for Sockets {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn received(from: &UnixDatagram) -> Vec<u8> {
        let mut bytes = [0; 8192];
        let len = from.recv(&mut bytes).unwrap();
        bytes[..len].to_vec()
    }

    #[test]
    fn the_journal_comes_first_then_the_systems_log_then_nothing() {
        let sockets = Sockets::new("order");
        assert!(matches!(sockets.sink(), Sink::Nowhere));
        sockets.sink().write(Level::Error, "kind", "lost");
        let syslog = sockets.listen("syslog");
        let sink = sockets.sink();
        sink.write(Level::Warn, "kind", "for syslog");
        let line = String::from_utf8(received(&syslog)).unwrap();
        assert!(line.starts_with("<28>"), "{line}");
        assert!(
            line.ends_with(&format!(" conquest[{}]: for syslog", std::process::id())),
            "{line}"
        );
        let journal = sockets.listen("journal");
        sockets.sink().write(Level::Info, "busy", "for the journal");
        let entry = String::from_utf8(received(&journal)).unwrap();
        let pid = std::process::id();
        let expected = format!(
            "PRIORITY=6\nSYSLOG_IDENTIFIER=conquest\nSYSLOG_PID={pid}\nCONQUEST_KIND=busy\n\
             MESSAGE=for the journal\n"
        );
        assert_eq!(entry, expected);
    }

    #[test]
    fn a_stream_that_is_the_journal_gives_way_to_it() {
        let sockets = Sockets::new("stream");
        let _journal = sockets.listen("journal");
        let path = sockets.0.join("journal");
        let file = std::fs::File::open(&sockets.0).unwrap();
        let own = rustix::fs::fstat(&file).unwrap();
        let stream = format!("{}:{}", own.st_dev, own.st_ino);
        assert!(matches!(Sink::of_stream(&file, &stream, &path), Sink::Journal(_)));
        assert!(matches!(Sink::of_stream(&file, "1:1", &path), Sink::Stderr));
        assert!(matches!(Sink::of_stream(&file, "", &path), Sink::Stderr));
    }

    #[test]
    fn line_breaks_and_lengths_are_kept_in_bounds() {
        let entry = entry(Level::Error, "k", "a\nb");
        assert!(entry.ends_with(b"MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\n"));
        let sockets = Sockets::new("long");
        let journal = sockets.listen("journal");
        sockets.sink().write(Level::Error, "k", &"\u{e4}".repeat(BYTES_MAX));
        let entry = received(&journal);
        assert!(entry.len() > BYTES_MAX && entry.len() < BYTES_MAX + 200, "{}", entry.len());
        assert!(String::from_utf8(entry).is_ok());
    }

    #[test]
    fn days_of_one_digit_have_a_blank() {
        let now: Zoned = "2026-03-05T06:07:08+00:00[+00:00]".parse().unwrap();
        let pid = std::process::id();
        let expected = format!("<31>Mar  5 06:07:08 conquest[{pid}]: text");
        assert_eq!(line(Level::Debug, "text", &now), expected);
    }

    #[test]
    fn nobody_waits_for_a_reader_that_does_not_read() {
        let sockets = Sockets::new("full");
        let _journal = sockets.listen("journal");
        let sink = sockets.sink();
        let begin = Instant::now();
        for _ in 0..5_000 {
            sink.write(Level::Error, "k", "text");
        }
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_reader_that_is_started_anew_gets_the_next_message() {
        let sockets = Sockets::new("anew");
        drop(sockets.listen("journal"));
        let _ = std::fs::remove_file(sockets.0.join("journal"));
        let first = sockets.listen("journal");
        let sink = sockets.sink();
        sink.write(Level::Error, "k", "one");
        received(&first);
        drop(first);
        std::fs::remove_file(sockets.0.join("journal")).unwrap();
        sink.write(Level::Error, "k", "lost");
        let second = sockets.listen("journal");
        sink.write(Level::Error, "k", "two");
        assert!(received(&second).ends_with(b"MESSAGE=two\n"));
    }
}
