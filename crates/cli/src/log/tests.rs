//! What a log writes, and what it leaves out.

use std::os::unix::net::UnixDatagram;

use super::*;

#[test]
fn levels_names_and_limits() {
    static BUSY: Kind = Kind::new(Level::Warn, "busy");
    static DETAIL: Kind = Kind::new(Level::Debug, "detail");
    let name = format!("conquest-log-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let listener = UnixDatagram::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let heard = || -> Option<String> {
        let mut bytes = [0; 1024];
        let len = listener.recv(&mut bytes).ok()?;
        let text = String::from_utf8(bytes[..len].to_vec()).unwrap();
        Some(text.split_once("]: ").unwrap().1.to_owned())
    };
    let log = Log::new(Level::Info, Sink::syslog(&path));
    log.tell_at(&DETAIL, &[&"nobody reads this"], 1000);
    assert_eq!(heard(), None);
    for number in 0..BURST + 5 {
        log.tell_at(&BUSY, &[&"user ", &number, &" of ", &Named(b"secret")], 1000);
    }
    for number in 0..BURST {
        assert_eq!(heard().unwrap(), format!("user {number} of \u{2026}"));
    }
    assert_eq!(heard(), None);
    log.flush_at(1050);
    assert_eq!(heard(), None);
    log.flush_at(1120);
    assert_eq!(heard().unwrap(), "busy: 5 more like it in 12 s");
    log.flush_at(1300);
    assert_eq!(heard(), None);
    let log = Log::new(Level::Debug, Sink::syslog(&path));
    log.tell_at(&DETAIL, &[&"reading ", &Named(b"secret")], 1000);
    assert_eq!(heard().unwrap(), "reading secret");
    std::fs::remove_file(path).unwrap();
}
