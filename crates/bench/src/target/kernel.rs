//! File systems of the kernel, made on the spot.

use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use super::device::Backing;
use super::{Survives, Target, device, room};
use crate::calls::Answering;
use crate::experiment::Need;
use crate::machine::memory;
use crate::{Error, Result, program};

/// Which one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Memory, without limit and without swapping.
    Ramfs,
    /// Memory.
    Tmpfs,
    /// Memory, in huge pages.
    TmpfsHuge,
    /// Without a journal.
    Ext2,
    /// With the journal of old.
    Ext3,
    /// What most machines have.
    Ext4,
    /// Made for large files and many threads.
    Xfs,
    /// Copies on write.
    Btrfs,
}

/// Least bytes of a device: XFS takes no less.
const DEVICE_MIN: u64 = 512 << 20;
/// Bytes of a huge page.
const HUGE: u64 = 2 << 20;
/// Bytes that a file of a kind takes at most besides its content.
const PER_FILE: u64 = 1 << 10;

impl Kind {
    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Kind::Ramfs => "ramfs",
            Kind::Tmpfs => "tmpfs",
            Kind::TmpfsHuge => "tmpfs-huge",
            Kind::Ext2 => "ext2",
            Kind::Ext3 => "ext3",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
        }
    }

    /// The kernel's name.
    fn type_name(self) -> &'static str {
        if self == Kind::TmpfsHuge { "tmpfs" } else { self.id() }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Kind::Ramfs => "the kernel's page cache and nothing else",
            Kind::Tmpfs => "the kernel's file system in memory",
            Kind::TmpfsHuge => "tmpfs in huge pages, where files fill them",
            Kind::Ext2 => "ext2, on a loop device on a disk",
            Kind::Ext3 => "ext3, on a loop device on a disk",
            Kind::Ext4 => "ext4, on a loop device on a disk",
            Kind::Xfs => "XFS, on a loop device on a disk",
            Kind::Btrfs => "btrfs, on a loop device on a disk",
        }
    }

    /// Whether it is kept in memory only.
    pub(super) fn is_memory(self) -> bool {
        matches!(self, Kind::Ramfs | Kind::Tmpfs | Kind::TmpfsHuge)
    }

    /// The program that makes it, and the Debian package that has it.
    fn maker(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::Ramfs | Kind::Tmpfs | Kind::TmpfsHuge => None,
            Kind::Ext2 | Kind::Ext3 | Kind::Ext4 => Some(("mke2fs", "e2fsprogs")),
            Kind::Xfs => Some(("mkfs.xfs", "xfsprogs")),
            Kind::Btrfs => Some(("mkfs.btrfs", "btrfs-progs")),
        }
    }

    /// What this machine lacks to make it.
    pub(super) fn lack(self) -> Option<String> {
        if let Some((program, package)) = self.maker()
            && !program::exists(program)
        {
            return Some(format!("there is no {program} (install the package {package})"));
        }
        if !self.is_memory()
            && let Some(lack) = device::lack()
        {
            return Some(lack);
        }
        // Modules that are not loaded yet are not listed; mounting loads them.
        let listed = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let is_listed =
            listed.lines().any(|line| line.ends_with(&format!("\t{}", self.type_name())));
        let has_modules = Path::new("/proc/modules").exists();
        (!is_listed && !has_modules).then(|| format!("this kernel has no {}", self.type_name()))
    }

    /// Arguments that make it for so many files on `device`.
    fn making(self, device: &str, files: u64) -> Vec<String> {
        let words: &[&str] = match self {
            Kind::Ramfs | Kind::Tmpfs | Kind::TmpfsHuge => &[],
            // Nothing is left to be done in the background, and the device keeps what it has.
            Kind::Ext2 => &["-q", "-F", "-t", "ext2", "-E", "nodiscard,lazy_itable_init=0"],
            Kind::Ext3 | Kind::Ext4 => &[
                "-q",
                "-F",
                "-t",
                self.id(),
                "-E",
                "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            ],
            Kind::Xfs => &["-q", "-f", "-K"],
            Kind::Btrfs => &["-q", "-f", "-K"],
        };
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        if matches!(self, Kind::Ext2 | Kind::Ext3 | Kind::Ext4) {
            // By default there is one for 16 KiB.
            words.extend(["-N".into(), (files + files / 4).max(32 << 10).to_string()]);
        }
        words.push(device.to_owned());
        words
    }
}

/// One that is made again and again at the same place.
pub(super) struct Kernel {
    kind: Kind,
    at: PathBuf,
    disk: PathBuf,
    backing: Option<Backing>,
    is_mounted: bool,
    options: Vec<String>,
}

impl Kernel {
    /// To be mounted at `at`, with devices in the directory `disk`.
    pub(super) fn new(kind: Kind, at: PathBuf, disk: PathBuf) -> Kernel {
        Kernel { kind, at, disk, backing: None, is_mounted: false, options: Vec::new() }
    }

    /// Where it is mounted, or is to be.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// Where it is mounted, if it is: somebody else unmounts it.
    pub(super) fn forget(&mut self) -> Option<PathBuf> {
        std::mem::take(&mut self.is_mounted).then(|| self.at.clone())
    }

    /// Mounts it on a new device.
    fn mount_device(&mut self, need: Need) -> Result<()> {
        // Blocks of 4 KiB for each file, tables, a journal, and some air.
        let bytes = 2 * need.bytes + need.files * 8192 + (256 << 20);
        let bytes = bytes.max(DEVICE_MIN).next_multiple_of(1 << 20);
        let backing = match self.backing.take() {
            Some(backing) if backing.bytes() >= bytes => backing,
            _ => Backing::new(&self.disk, bytes)?,
        };
        let device = backing.attach()?;
        let done = self.mount_on(&device.path, need.files);
        self.options = vec![
            format!("{} MiB loop device", backing.bytes() >> 20),
            if device.is_direct { "direct I/O" } else { "through the page cache below" }.to_owned(),
        ];
        self.backing = Some(backing);
        self.options.extend(done?);
        Ok(())
    }

    /// Makes and mounts it on `device`, which lives as long as the mount then: with which options.
    ///
    /// # Errors
    /// What the programs and the system say.
    pub(super) fn mount_on(&mut self, device: &Path, files: u64) -> Result<Vec<String>> {
        let device = device.to_string_lossy();
        let words = self.kind.making(&device, files);
        if let Some((program, _)) = self.kind.maker() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            program::run(program, &words)?;
        }
        room::mount(&device, &self.at, self.kind.type_name(), "")?;
        self.is_mounted = true;
        let without_device = words.split_last().map_or(String::new(), |(_, words)| words.join(" "));
        Ok(vec![format!("mkfs {without_device}"), self.mounted_with()])
    }

    /// The options that the kernel shows.
    fn mounted_with(&self) -> String {
        let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let at = self.at.to_string_lossy();
        let line = text.lines().rfind(|line| line.split(' ').nth(1) == Some(&at));
        let mut words = line.unwrap_or_default().split(' ').skip(2);
        let (kind, options) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // Where the kernel has one driver for all three, it says so.
        let driver = match self.kind {
            Kind::Ext2 | Kind::Ext3 if !Path::new("/sys/module").join(self.kind.id()).exists() => {
                ", by the ext4 driver"
            }
            _ => "",
        };
        format!("mounted {kind} {options}{driver}")
    }
}

impl Target for Kernel {
    fn make(&mut self, need: Need, owner: Option<(u32, u32)>) -> Result<()> {
        let is_huge = self.kind == Kind::TmpfsHuge;
        // Who has small files lets none of them take a huge page.
        let huge = match (is_huge, need.bytes >= need.files.saturating_mul(HUGE)) {
            (true, true) => ",huge=always",
            (true, false) => ",huge=within_size",
            (false, _) => "",
        };
        let rounded = if huge.ends_with("always") { HUGE } else { 4096 };
        let memory = need.bytes + need.files * (PER_FILE + rounded);
        if self.kind.is_memory() {
            available(self.kind.id(), memory)?;
        }
        match self.kind {
            Kind::Ramfs => room::mount("ramfs", &self.at, "ramfs", "mode=755")?,
            Kind::Tmpfs | Kind::TmpfsHuge => {
                let size = 4 * memory + (64 << 20);
                let options = format!("mode=755,nr_inodes=0,size={size}{huge}");
                room::mount("tmpfs", &self.at, "tmpfs", &options)?;
            }
            _ => self.mount_device(need)?,
        }
        self.is_mounted = true;
        if self.kind.is_memory() {
            self.options = vec![self.mounted_with()];
        }
        super::store::give(&self.at, owner)
    }

    fn answering(&self) -> Answering {
        Answering::Directory { path: self.at.clone() }
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn survives(&self) -> Survives {
        if self.kind.is_memory() { Survives::Process } else { Survives::PowerAfterSync }
    }

    fn remove(&mut self) -> Result<()> {
        if self.is_mounted {
            rustix::mount::unmount(&self.at, UnmountFlags::empty())
                .map_err(|error| Error::system(&self.at.display().to_string())(error.into()))?;
            self.is_mounted = false;
        }
        Ok(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.is_mounted {
            // Whoever is still there keeps it a little longer.
            let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
        }
    }
}

/// Refuses to take more memory than the machine has to give.
pub(crate) fn available(target: &str, bytes: u64) -> Result<()> {
    let Some(available) = memory::available() else {
        return Ok(());
    };
    // Others need some too.
    if bytes > available / 10 * 8 {
        return Err(Error::Target {
            target: target.to_owned(),
            reason: format!(
                "{} MiB of memory are needed and {} MiB available (make the experiment smaller: --set)",
                bytes >> 20,
                available >> 20
            ),
        });
    }
    Ok(())
}
