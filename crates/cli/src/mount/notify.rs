//! Telling the service manager how the service stands: sd_notify(3).
//!
//! Written here because the standard library has all that it takes, and a crate would bring more
//! code than this.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Where the service manager says that it listens.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// Longest wait for the service manager.
const LIMIT: Duration = Duration::from_secs(2);

/// The service manager, if there is one.
pub(crate) struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The one that started this process.
    ///
    /// # Errors
    /// If the environment names it in a way that is not understood.
    pub(crate) fn of_environment() -> io::Result<Manager> {
        Manager::at(std::env::var_os(VARIABLE).as_deref())
    }

    /// None.
    pub(crate) const fn none() -> Manager {
        Manager(None)
    }

    /// The one at `name`: a path, or `@` and an abstract name.
    fn at(name: Option<&OsStr>) -> io::Result<Manager> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(Manager(None));
        };
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => {
                let text = format!("{VARIABLE} is neither a path nor an abstract name");
                return Err(io::Error::other(text));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(LIMIT))?;
        Ok(Manager(Some((socket, address))))
    }

    /// Tells it `lines`, such as `READY=1`.
    ///
    /// # Errors
    /// If it does not listen.
    pub(crate) fn tell(&self, lines: &str) -> io::Result<()> {
        match &self.0 {
            Some((socket, address)) => socket.send_to_addr(lines.as_bytes(), address).map(|_| ()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut bytes = [0; 256];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    }

    #[test]
    fn managers_at_paths_and_abstract_names_hear_it() {
        let name = format!("conquest-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let at_path = UnixDatagram::bind(&path).unwrap();
        Manager::at(Some(path.as_os_str())).unwrap().tell("READY=1").unwrap();
        assert_eq!(heard(&at_path), "READY=1");
        drop(at_path);
        // A child that another test has just forked may have it open, until it executes something.
        let is_told = || Manager::at(Some(path.as_os_str())).unwrap().tell("READY=1").is_ok();
        let begin = Instant::now();
        while is_told() && begin.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!is_told());
        std::fs::remove_file(&path).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        let manager = Manager::at(Some(OsStr::new(&format!("@{name}")))).unwrap();
        manager.tell("STOPPING=1\nSTATUS=unmounting").unwrap();
        assert_eq!(heard(&hidden), "STOPPING=1\nSTATUS=unmounting");
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        Manager::at(None).unwrap().tell("READY=1").unwrap();
        Manager::at(Some(OsStr::new(""))).unwrap().tell("READY=1").unwrap();
        assert!(Manager::at(Some(OsStr::new("vsock:2:1"))).is_err());
    }
}
