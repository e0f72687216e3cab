//! The processors that a process may run on.

use super::system;

/// Processors that this process may run on.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: a set of processors is plain data, for which zeros are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::cpu_set_t>();
    // SAFETY: a local set of its size.
    if unsafe { libc::sched_getaffinity(0, len, &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: numbers below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Lets the calling process run on the processors `cpus` only.
pub(crate) fn pin(cpus: &[usize]) -> Result<(), String> {
    // SAFETY: a set of processors is plain data, for which zeros are a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: a number that a set was found to hold.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: a local set of its size.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(system("pin a process to a processor"));
    }
    Ok(())
}
