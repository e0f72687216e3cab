//! Making stores durable on persistent memory.
//!
//! Two steps, as in [`crate::memory`]: the lines of what was stored are written back (*unfenced*:
//! when that is done nobody knows), then a fence waits for all of the calling thread's. The policy
//! is chosen once, at attach.

use crate::media::MediumKind;

/// How lines are written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WriteBack {
    /// Not at all: ordinary shared memory, where the caches are coherent.
    None,
    /// Not at all: the caches outlive the power too. Only the order of stores needs the fence.
    Eadr,
    /// x86-64: written back, kept in the cache.
    Clwb,
    /// x86-64: written back and evicted.
    ClflushOpt,
    /// x86-64: written back and evicted, one after the other.
    Clflush,
    /// `AArch64`: cleaned to the point of persistence.
    DcCvap,
    /// `AArch64` before v8.2: cleaned to the point of coherency.
    DcCvac,
}

/// What a caller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Request {
    /// What the medium needs.
    #[default]
    ByMedium,
    /// Write-back whatever the medium, by the best instruction: shows on ordinary RAM what
    /// persistent memory would cost.
    Always,
    /// This one, where the processor has it; otherwise as [`Request::Always`].
    Exactly(WriteBack),
}

/// What the machine can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Machine {
    /// Has `clwb`.
    pub clwb: bool,
    /// Has `clflushopt`.
    pub clflushopt: bool,
    /// Has `clflush`.
    pub clflush: bool,
    /// Has `dc cvap`.
    pub cvap: bool,
    /// Has `dc cvac`.
    pub cvac: bool,
    /// All its persistent memory has the caches in the persistence domain.
    pub eadr: bool,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn detect() -> Machine {
        let mut machine = detect_processor();
        machine.eadr = has_eadr(std::path::Path::new("/sys"));
        machine
    }

    /// The best write-back instruction; none on a processor that this program doesn't know.
    #[must_use]
    pub const fn best(&self) -> WriteBack {
        if self.clwb {
            WriteBack::Clwb
        } else if self.clflushopt {
            WriteBack::ClflushOpt
        } else if self.clflush {
            WriteBack::Clflush
        } else if self.cvap {
            WriteBack::DcCvap
        } else if self.cvac {
            WriteBack::DcCvac
        } else {
            WriteBack::None
        }
    }

    /// Whether `policy` can be carried out here.
    #[must_use]
    pub const fn has(&self, policy: WriteBack) -> bool {
        match policy {
            WriteBack::None | WriteBack::Eadr => true,
            WriteBack::Clwb => self.clwb,
            WriteBack::ClflushOpt => self.clflushopt,
            WriteBack::Clflush => self.clflush,
            WriteBack::DcCvap => self.cvap,
            WriteBack::DcCvac => self.cvac,
        }
    }

    /// The policy for a medium.
    #[must_use]
    pub const fn choose(&self, kind: &MediumKind, request: Request) -> WriteBack {
        match request {
            Request::ByMedium if !kind.is_persistent_memory() => WriteBack::None,
            Request::ByMedium if self.eadr => WriteBack::Eadr,
            Request::Exactly(policy) if self.has(policy) => policy,
            _ => self.best(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect_processor() -> Machine {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    let mut machine = Machine { clflush: __cpuid(1).edx & 1 << 19 != 0, ..Machine::default() };
    if __cpuid(0).eax >= 7 {
        let found = __cpuid_count(7, 0).ebx;
        machine.clflushopt = found & 1 << 23 != 0;
        machine.clwb = found & 1 << 24 != 0;
    }
    machine
}

#[cfg(target_arch = "aarch64")]
fn detect_processor() -> Machine {
    // SAFETY: no memory is passed.
    let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP) };
    Machine { cvap: capabilities & 1 << 16 != 0, cvac: true, ..Machine::default() }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect_processor() -> Machine {
    Machine::default()
}

/// Whether there is persistent memory and all of it says that the caches outlive the power.
fn has_eadr(sysfs: &std::path::Path) -> bool {
    let Ok(devices) = std::fs::read_dir(sysfs.join("bus/nd/devices")) else {
        return false;
    };
    let mut domains = devices
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"region"))
        .map(|entry| std::fs::read_to_string(entry.path().join("persistence_domain")))
        .peekable();
    domains.peek().is_some()
        && domains.all(|domain| domain.is_ok_and(|text| text.trim() == "cpu_cache"))
}

impl WriteBack {
    /// Whether power failures show: stores are durable only after write-back and fence.
    #[must_use]
    pub const fn is_needed(self) -> bool {
        !matches!(self, WriteBack::None)
    }

    /// Whether lines have to be written back one by one.
    pub(crate) const fn has_lines(self) -> bool {
        !matches!(self, WriteBack::None | WriteBack::Eadr)
    }

    /// Starts writing back the lines of `len` bytes at `at`, without waiting.
    ///
    /// # Safety
    /// All of these bytes are mapped, and the processor has the policy's instruction.
    pub(crate) unsafe fn write_back_unfenced(self, at: *const u8, len: usize) {
        const LINE: usize = conquest_format::LINE as usize;
        if !self.has_lines() || len == 0 {
            return;
        }
        let before = at.addr() % LINE;
        let lines = (before + len).div_ceil(LINE);
        let first = at.wrapping_sub(before);
        for line in 0..lines {
            // SAFETY: the line holds at least one byte of the range, so its page is mapped. The
            // instruction changes no value, for us or for other processes.
            unsafe { self.line_unfenced(first.wrapping_add(line * LINE)) };
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    unsafe fn line_unfenced(self, line: *const u8) {
        use core::arch::asm;
        // Not `nomem`: the stores before must stay before.
        match self {
            // SAFETY: the caller's.
            WriteBack::Clwb => unsafe {
                asm!("clwb [{0}]", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: the caller's.
            WriteBack::ClflushOpt => unsafe {
                asm!("clflushopt [{0}]", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: the caller's.
            WriteBack::Clflush => unsafe {
                asm!("clflush [{0}]", in(reg) line, options(nostack, preserves_flags));
            },
            _ => {}
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn line_unfenced(self, line: *const u8) {
        use core::arch::asm;
        // Not `nomem`: the stores before must stay before.
        match self {
            // SAFETY: the caller's. `dc cvap` by its encoding, as assemblers may not know it.
            WriteBack::DcCvap => unsafe {
                asm!("sys #3, c7, c12, #1, {0}", in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: the caller's.
            WriteBack::DcCvac => unsafe {
                asm!("dc cvac, {0}", in(reg) line, options(nostack, preserves_flags));
            },
            _ => {}
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    #[inline]
    unsafe fn line_unfenced(self, _line: *const u8) {}

    /// Waits for what the calling thread has written back. Where nothing is, only keeps its
    /// stores in order.
    #[inline]
    pub fn fence(self) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Release);
        if self.is_needed() {
            persist_fence();
        }
    }
}

/// Waits for write-backs and non-temporal stores.
#[inline]
pub(crate) fn persist_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an instruction every such processor has, which touches no memory of ours.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: an instruction every such processor has, which touches no memory of ours.
    unsafe {
        core::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Machine = Machine {
        clwb: true,
        clflushopt: true,
        clflush: true,
        cvap: false,
        cvac: false,
        eadr: false,
    };
    const DAX: MediumKind = MediumKind::FsDax { fs: "ext4" };

    #[test]
    fn ordinary_memory_needs_nothing_unless_asked() {
        for kind in [MediumKind::Tmpfs, MediumKind::Memfd, MediumKind::Disk { fs: "xfs" }] {
            assert_eq!(ALL.choose(&kind, Request::ByMedium), WriteBack::None);
            assert_eq!(ALL.choose(&kind, Request::Always), WriteBack::Clwb);
        }
    }

    #[test]
    fn persistent_memory_gets_the_best_there_is() {
        let mut machine = ALL;
        assert_eq!(machine.choose(&DAX, Request::ByMedium), WriteBack::Clwb);
        machine.clwb = false;
        assert_eq!(machine.choose(&DAX, Request::ByMedium), WriteBack::ClflushOpt);
        machine.clflushopt = false;
        assert_eq!(machine.choose(&DAX, Request::ByMedium), WriteBack::Clflush);
        machine.eadr = true;
        assert_eq!(machine.choose(&DAX, Request::ByMedium), WriteBack::Eadr);
        assert_eq!(machine.choose(&DAX, Request::Always), WriteBack::Clflush);
        let arm = Machine { cvap: true, cvac: true, ..Machine::default() };
        assert_eq!(arm.choose(&DAX, Request::ByMedium), WriteBack::DcCvap);
    }

    #[test]
    fn an_instruction_that_is_missing_is_not_used() {
        let mut machine = ALL;
        let clwb = Request::Exactly(WriteBack::Clwb);
        assert_eq!(machine.choose(&MediumKind::Tmpfs, clwb), WriteBack::Clwb);
        machine.clwb = false;
        assert_eq!(machine.choose(&MediumKind::Tmpfs, clwb), WriteBack::ClflushOpt);
        let none = Request::Exactly(WriteBack::None);
        assert_eq!(machine.choose(&DAX, none), WriteBack::None);
    }

    #[test]
    fn caches_count_as_persistent_only_if_all_regions_say_so() {
        let sysfs = std::env::temp_dir().join(format!("conquest-nd-{}", std::process::id()));
        let devices = sysfs.join("bus/nd/devices");
        std::fs::create_dir_all(devices.join("region0")).unwrap();
        std::fs::create_dir_all(devices.join("region1")).unwrap();
        let set = |region: &str, text: &str| {
            std::fs::write(devices.join(region).join("persistence_domain"), text).unwrap();
        };
        set("region0", "cpu_cache\n");
        let one_is_silent = has_eadr(&sysfs);
        set("region1", "memory_controller\n");
        let one_differs = has_eadr(&sysfs);
        set("region1", "cpu_cache\n");
        let all = has_eadr(&sysfs);
        std::fs::remove_dir_all(&sysfs).unwrap();
        assert_eq!((one_is_silent, one_differs, all), (false, false, true));
        assert!(!has_eadr(&sysfs));
    }

    #[test]
    fn every_instruction_the_machine_has_can_be_carried_out() {
        let machine = Machine::detect();
        let bytes = [7_u8; 1000];
        for policy in [
            WriteBack::None,
            WriteBack::Eadr,
            WriteBack::Clwb,
            WriteBack::ClflushOpt,
            WriteBack::Clflush,
            WriteBack::DcCvap,
            WriteBack::DcCvac,
        ] {
            if machine.has(policy) {
                // SAFETY: the bytes are ours and the machine has the instruction.
                unsafe { policy.write_back_unfenced(bytes.as_ptr().wrapping_add(3), 990) };
                policy.fence();
            }
        }
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
