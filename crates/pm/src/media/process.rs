//! What the kernel says of processes and of the machine.

use std::io;

/// Whether thread `thread` of this process exists.
pub(super) fn is_thread_alive(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let process = std::process::id();
    // SAFETY: signal 0 is sent to nobody; no memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The one-letter state of process `process` of this process's pid namespace. None if `/proc`
/// shows another namespace's processes.
pub(super) fn state(process: u32) -> Option<char> {
    let own = std::fs::read_link("/proc/self").ok()?;
    if own.to_str()? != std::process::id().to_string() {
        return None;
    }
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    state_in(&text)
}

/// The state in the text of `/proc/PID/stat`: after the name, which may hold anything.
fn state_in(text: &[u8]) -> Option<char> {
    let name_ends = text.iter().rposition(|byte| *byte == b')')?;
    let state = text.get(name_ends + 2)?;
    state.is_ascii_alphabetic().then_some(char::from(*state))
}

/// The boot id of this machine.
pub(super) fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    uuid(&text).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let digits: Vec<u32> = text
        .trim()
        .chars()
        .filter(|character| *character != '-')
        .map(|character| character.to_digit(16))
        .collect::<Option<_>>()?;
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | *digit as u8);
    }
    Some(id)
}

/// Nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_hold_anything() {
        assert_eq!(state_in(b"12 (a) S) T 1 2"), Some('T'));
        assert_eq!(state_in(b"12 (a"), None);
        assert_eq!(state_in(b"12 (a)"), None);
        assert!(state(std::process::id()).is_some());
    }

    #[test]
    fn boot_ids_are_read_as_hexadecimal() {
        let id = uuid("00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!((id[0], id[1], id[15]), (0, 0x11, 0xff));
        assert_eq!(uuid("0011"), None);
        assert_eq!(uuid("zz112233-4455-6677-8899-aabbccddeeff"), None);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    }

    #[test]
    fn threads_are_alive_until_they_end() {
        // SAFETY: no memory is passed.
        let id = || unsafe { libc::gettid() } as u32;
        assert!(is_thread_alive(id()));
        let gone = std::thread::spawn(id).join().unwrap();
        let limit = now() + 10_000_000_000;
        while is_thread_alive(gone) && now() < limit {
            std::thread::yield_now();
        }
        assert!(!is_thread_alive(gone));
    }
}
