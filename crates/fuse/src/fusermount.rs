//! Mounting and unmounting for ordinary users, by the set-uid program `fusermount3`.
//!
//! It is told in the environment at which descriptor it has a socket, and sends the device's
//! descriptor through that. The socket is its standard input, which needs no work between fork and
//! exec, so that the standard library can start it without forking this process's memory.

use std::io::{ErrorKind, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::error::{self, Error, Remedy, Result};
use crate::options::MountOptions;

const PROGRAM: &str = "fusermount3";
/// How long it may take: it looks at the mount point, which may be on a file system that hangs.
const LIMIT: Duration = Duration::from_secs(20);
/// How long it may take to end after it was killed.
const END_LIMIT: Duration = Duration::from_secs(1);
/// How often it is asked whether it has ended, when it has closed everything.
const NAP: Duration = Duration::from_millis(2);
/// Bytes of what it says that are kept.
const SAID_MAX: u64 = 4096;

/// Mounts at `directory`: the device.
pub(crate) fn mount(directory: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let no_socket = |source: Errno| error::system(PROGRAM, "make a socket for", source, None);
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(no_socket)?;
    let mut command = Command::new(PROGRAM);
    command.arg("-o").arg(options.helper_words()).arg("--").arg(directory);
    command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
    let (status, said, device) = run(command, directory, Some(&ours), LIMIT)?;
    match device {
        Some(device) if status.success() => Ok(device),
        _ => Err(refused(directory, status, &said)),
    }
}

/// Unmounts what is at `directory`.
pub(crate) fn unmount(directory: &Path, is_lazy: bool) -> Result {
    let mut command = Command::new(PROGRAM);
    command.arg("-u").args(is_lazy.then_some("-z")).arg("--").arg(directory);
    command.stdin(Stdio::null());
    let (status, said, _) = run(command, directory, None, LIMIT)?;
    if status.success() { Ok(()) } else { Err(refused(directory, status, &said)) }
}

fn refused(directory: &Path, status: ExitStatus, said: &str) -> Error {
    let said = said.trim();
    let plain = said.strip_prefix("fusermount3: ").unwrap_or(said);
    let said = if plain.is_empty() { format!("it ended by {status}") } else { plain.to_owned() };
    let remedy = Remedy(remedy(&said));
    Error::Helper { directory: directory.into(), said, remedy }
}

/// What helps against what it said.
fn remedy(said: &str) -> Option<&'static str> {
    const REMEDIES: [(&str, &str); 7] = [
        ("/dev/fuse: Permission", "let root open it to everybody: chmod 666 /dev/fuse"),
        (
            "allow_other",
            "root can allow it by the line user_allow_other in /etc/fuse.conf; or leave \
             allow_other out",
        ),
        ("mount_max", "unmount some, or let root raise mount_max in /etc/fuse.conf"),
        ("too many", "unmount some, or let root raise mount_max in /etc/fuse.conf"),
        ("modprobe", "load the kernel's module as root: modprobe fuse"),
        ("write access", "mount at a directory of your own"),
        ("busy", "end who uses it, or unmount lazily"),
    ];
    REMEDIES.iter().find(|(word, _)| said.contains(word)).map(|(_, remedy)| *remedy)
}

/// Runs it to its end, for `limit` at most: how it ended, what it said, and what it sent through
/// `socket`.
fn run(
    mut command: Command,
    directory: &Path,
    socket: Option<&OwnedFd>,
    limit: Duration,
) -> Result<(ExitStatus, String, Option<OwnedFd>)> {
    let started = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    // Its end of the socket is closed here, so that its death is seen at the other one.
    drop(command);
    let mut child = match started {
        Ok(child) => child,
        // Directories on the search path that this user may not look into count for more than that
        // it is in none.
        Err(source)
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
        {
            return Err(Error::NoHelper { directory: directory.into() });
        }
        Err(source) => {
            let remedy = Remedy::default();
            return Err(Error::System { object: PROGRAM.into(), action: "run", source, remedy });
        }
    };
    let until = Instant::now() + limit;
    let heard = listen(&mut child, socket, until);
    let failed = |source: Errno| error::system(PROGRAM, "wait for", source, None);
    match heard.and_then(|heard| Ok((wait(&mut child, until)?, heard))) {
        Ok((Some(status), (said, device))) => Ok((status, said, device)),
        Ok((None, _)) => {
            end(&mut child);
            Err(Error::HelperSilent { directory: directory.into(), limit })
        }
        Err(error) => {
            end(&mut child);
            Err(failed(error))
        }
    }
}

/// What it says, and what it sends, until it has closed both ends or the time is over.
fn listen(
    child: &mut Child,
    socket: Option<&OwnedFd>,
    until: Instant,
) -> Result<(String, Option<OwnedFd>), Errno> {
    let mut errors = child.stderr.take();
    let mut socket = socket;
    let mut said = Vec::new();
    let mut device = None;
    while errors.is_some() || socket.is_some() {
        let mut waiting = Vec::with_capacity(2);
        waiting.extend(errors.as_ref().map(|from| PollFd::new(from, PollFlags::IN)));
        waiting.extend(socket.map(|from| PollFd::new(from, PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match poll(&mut waiting, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(waiting);
        let had_errors = errors.is_some();
        if had_errors && ready.first() == Some(&true) && !read_some(errors.as_mut(), &mut said) {
            errors = None;
        }
        let at = usize::from(had_errors);
        if let (Some(from), Some(true)) = (socket, ready.get(at)) {
            match receive(from)? {
                Received::Device(sent) => device = Some(sent),
                Received::Other => {}
                Received::End => socket = None,
            }
        }
    }
    Ok((String::from_utf8_lossy(&said).into_owned(), device))
}

/// Reads what is there: whether there may be more.
fn read_some(from: Option<&mut ChildStderr>, said: &mut Vec<u8>) -> bool {
    let mut piece = [0; 512];
    match from.map(|from| from.read(&mut piece)) {
        Some(Ok(len)) if len > 0 => {
            if (said.len() as u64) < SAID_MAX {
                said.extend(piece.iter().take(len));
            }
            true
        }
        Some(Err(error)) => error.kind() == std::io::ErrorKind::Interrupted,
        _ => false,
    }
}

enum Received {
    Device(OwnedFd),
    Other,
    End,
}

fn receive(socket: &OwnedFd) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
        Ok(received) => received,
        Err(Errno::INTR) => return Ok(Received::Other),
        Err(error) => return Err(error),
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(Received::Device(device));
        }
    }
    Ok(if received.bytes == 0 { Received::End } else { Received::Other })
}

/// How it ended; none if it has not, in time.
fn wait(child: &mut Child, until: Instant) -> Result<Option<ExitStatus>, Errno> {
    loop {
        let waited = child.try_wait();
        let ended = waited.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::CHILD))?;
        if ended.is_some() || Instant::now() >= until {
            return Ok(ended);
        }
        std::thread::sleep(NAP);
    }
}

/// Kills it; it may just have ended. What hangs in the kernel can't be waited for.
fn end(child: &mut Child) {
    let (Ok(()) | Err(_)) = child.kill();
    let (Ok(_) | Err(_)) = wait(child, Instant::now() + END_LIMIT);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(command: Command, limit: Duration) -> String {
        run(command, Path::new("/some/where"), None, limit).unwrap_err().to_string()
    }

    #[test]
    fn a_helper_that_is_not_there_is_named_with_its_package() {
        let said = said(Command::new("no-such-command-anywhere"), LIMIT);
        assert!(said.contains("/some/where") && said.contains("package fuse3"), "{said}");
    }

    #[test]
    fn a_helper_that_may_not_be_run_is_none() {
        let said = said(Command::new("/dev/null"), LIMIT);
        assert!(said.contains("package fuse3"), "{said}");
    }

    #[test]
    fn a_helper_that_does_not_end_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let since = Instant::now();
        let said = said(command, Duration::from_millis(30));
        assert!(said.contains("/some/where") && said.contains("killed"), "{said}");
        // One that has closed everything that is listened to.
        let mut command = Command::new("sh");
        command.args(["-c", "exec 2>&-; sleep 1000"]);
        let said = self::said(command, Duration::from_millis(30));
        assert!(said.contains("killed"), "{said}");
        assert!(since.elapsed() < LIMIT);
    }

    #[test]
    fn what_a_helper_says_is_passed_on_to_the_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3"]);
        let (status, said, device) = run(command, Path::new("/"), None, LIMIT).unwrap();
        assert_eq!((status.code(), device.is_some()), (Some(3), false));
        assert!(said.len() >= SAID_MAX as usize && said.len() < 2 * SAID_MAX as usize);
        let ended = Command::new("false").status().unwrap();
        let error = refused(Path::new("/m"), ended, "fusermount3: it is so\n").to_string();
        assert_eq!(error, "/m: fusermount3 refuses: it is so");
        let error = refused(Path::new("/m"), ended, "").to_string();
        assert!(error.contains("exit status: 1"), "{error}");
    }
}
