//! Keeping the region in RAM.

use std::fmt;

use super::kind::MediumKind;
use super::mapped::Mapped;
use super::sys::{MLOCK_ONFAULT, checked};

/// Whether the region's memory can leave RAM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Swap {
    /// Locked in RAM as it is touched, as long as this process is attached.
    Locked,
    /// Not locked, but the machine has no swap space now.
    NoneConfigured,
    /// The medium can't be swapped: persistent memory, ramfs.
    Never,
    /// A disk file: the kernel writes it back whenever it likes.
    WrittenBack,
    /// It can be swapped out.
    CanSwap {
        /// Why it could not be locked.
        why: String,
    },
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Swap::Locked => write!(f, "locked in RAM"),
            Swap::NoneConfigured => write!(f, "in RAM: no swap space is configured"),
            Swap::Never => write!(f, "never swapped"),
            Swap::WrittenBack => write!(f, "written back by the kernel at any time"),
            Swap::CanSwap { why } => write!(f, "can be swapped out: {why}"),
        }
    }
}

impl Mapped {
    /// Keeps the region from swap as far as the system lets this process. Touches no page.
    #[must_use]
    pub fn keep_from_swap(&self) -> Swap {
        match self.kind() {
            MediumKind::Disk { .. } => return Swap::WrittenBack,
            MediumKind::DevDax { .. } | MediumKind::FsDax { .. } | MediumKind::Ramfs => {
                return Swap::Never;
            }
            _ => {}
        }
        let (base, len) = (self.base(), self.bytes() as usize);
        // SAFETY: our own mapping; locking changes no byte of it, here or in other processes.
        let locked = checked(unsafe { libc::mlock2(base.cast(), len, MLOCK_ONFAULT) });
        let swaps = std::fs::read_to_string("/proc/swaps");
        match (locked, swaps) {
            (Ok(_), _) => Swap::Locked,
            (Err(_), Ok(text)) if !has_entries(&text) => Swap::NoneConfigured,
            (Err(error), _) => Swap::CanSwap {
                why: format!(
                    "{error}; raise the limit on locked memory (ulimit -l) to {len} bytes"
                ),
            },
        }
    }
}

/// Whether the text of `/proc/swaps` names any swap space, below its heading.
fn has_entries(swaps: &str) -> bool {
    swaps.lines().skip(1).any(|line| !line.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_alone_is_no_swap() {
        let heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(!has_entries(heading));
        assert!(!has_entries(""));
        assert!(has_entries(&format!("{heading}/swap file 1024 0 -2\n")));
    }
}
