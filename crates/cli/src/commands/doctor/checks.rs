//! What is looked at, and what it means for stores.

use std::fs;
use std::path::Path;

use conquest_pm::persist::{Machine, WriteBack};
use rustix::process::{Resource, getrlimit};

use super::{Finding, mounting};
use crate::size::human;

/// Bytes of shared RAM below which a store is not worth much.
const SPACE_MIN: u64 = 256 << 20;
/// Bytes of a lock limit that keeps a core of some size in RAM.
const LOCK_MIN: u64 = 64 << 20;

/// All of them.
pub(super) fn all() -> Vec<Finding> {
    let mut found = vec![kernel(), processor(), persistent_memory()];
    found.extend(shared_ram());
    found.extend([huge_pages(), memory(), swap(), locked_memory(), file_size(), open_files()]);
    found.extend([memfd(), fork_protection(), trial(), proc_files()]);
    found.extend(mounting::all());
    found
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    match version {
        (Some(major), Some(minor)) if (major, minor) >= (5, 10) => {
            Finding::ok("kernel", format!("Linux {release}"))
        }
        _ => Finding::warn(
            "kernel",
            format!("Linux {release}"),
            "stores are tested on Linux 5.10 and newer",
        ),
    }
}

fn processor() -> Finding {
    let machine = Machine::detect();
    let found = match machine.best() {
        WriteBack::Clwb => "write-back by clwb",
        WriteBack::ClflushOpt => "write-back by clflushopt",
        WriteBack::Clflush => "write-back by clflush",
        WriteBack::DcCvap => "write-back by dc cvap",
        WriteBack::DcCvac => "write-back by dc cvac",
        _ => {
            return Finding::warn(
                "processor",
                "no known instruction for write-back",
                "cores in RAM work; persistent memory can't be used",
            );
        }
    };
    let power = if machine.eadr { "; caches outlive the power (eADR)" } else { "" };
    Finding::ok("processor", format!("{found}{power}"))
}

fn persistent_memory() -> Finding {
    let devices = |directory: &str, prefix: &str| -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(prefix)).collect()
    };
    let mut found = devices("/sys/bus/dax/devices", "dax");
    found.extend(devices("/sys/block", "pmem"));
    match found.is_empty() {
        false => Finding::ok("persistent memory", found.join(", ")),
        true => Finding::warn(
            "persistent memory",
            "none",
            "cores are put into RAM: use save and restore around restarts",
        ),
    }
}

/// Where cores can be put: each tmpfs that looks suitable.
fn shared_ram() -> Vec<Finding> {
    let runtime = std::env::var("XDG_RUNTIME_DIR").ok();
    let places = [Some("/dev/shm".to_owned()), runtime].into_iter().flatten();
    let found: Vec<Finding> = places.filter_map(|place| shared_place(Path::new(&place))).collect();
    if !found.is_empty() {
        return found;
    }
    let remedy = "mount a tmpfs at /dev/shm, or name a place with mkfs --core";
    vec![Finding::bad("shared RAM", "no tmpfs at /dev/shm", remedy)]
}

fn shared_place(path: &Path) -> Option<Finding> {
    let stat = rustix::fs::statfs(path).ok()?;
    // TMPFS_MAGIC, RAMFS_MAGIC
    if !matches!(stat.f_type as u64, 0x0102_1994 | 0x8584_58f6) {
        return None;
    }
    let free = (stat.f_bavail as u64).saturating_mul(stat.f_bsize as u64);
    let text = format!("{}: {} free", path.display(), human(free));
    let is_writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    Some(match (is_writable, free >= SPACE_MIN) {
        (false, _) => Finding::warn("shared RAM", text, "not writable for this user"),
        (true, false) => Finding::warn(
            "shared RAM",
            text,
            "little room: mount -o remount,size=... it, or name a place with mkfs --core",
        ),
        (true, true) => Finding::ok("shared RAM", text),
    })
}

fn huge_pages() -> Finding {
    let setting = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let Some(setting) = setting else {
        let remedy = "a kernel with CONFIG_TRANSPARENT_HUGEPAGE makes large stores faster";
        return Finding::warn("huge pages", "the kernel has none for shared RAM", remedy);
    };
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("never").to_owned();
    let mounted = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut fields = mounted.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let by_mount = fields.any(|it| {
        it.get(2) == Some(&"tmpfs")
            && it.get(3).is_some_and(|options| {
                options.split(',').any(|o| o.starts_with("huge=") && o != "huge=never")
            })
    });
    let text =
        format!("shmem_enabled is {chosen}{}", if by_mount { ", a tmpfs has them" } else { "" });
    match by_mount || !matches!(chosen.as_str(), "never" | "deny") {
        true => Finding::ok("huge pages", text),
        false => Finding::warn(
            "huge pages",
            text,
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or mount a tmpfs \
             with huge=within_size and use mkfs --core",
        ),
    }
}

fn memory() -> Finding {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let (Some(total), Some(free)) = (field("MemTotal:"), field("MemAvailable:")) else {
        return Finding::bad("memory", "unknown", "mount proc at /proc");
    };
    let text = format!("{} of {} available", human(free), human(total));
    match free >= SPACE_MIN {
        true => Finding::ok("memory", text),
        false => Finding::warn("memory", text, "stores in RAM have little room"),
    }
}

fn swap() -> Finding {
    let areas = fs::read_to_string("/proc/swaps").unwrap_or_default().lines().skip(1).count();
    match areas {
        0 => Finding::ok("swap", "none, so nothing of a core leaves RAM"),
        _ => Finding::warn(
            "swap",
            format!("{areas} areas"),
            "cores may be swapped out unless their pages can be locked (see locked memory)",
        ),
    }
}

fn limit(resource: Resource) -> (String, u64) {
    match getrlimit(resource).current {
        None => ("unlimited".into(), u64::MAX),
        Some(bytes) => (human(bytes), bytes),
    }
}

fn locked_memory() -> Finding {
    let (text, bytes) = limit(Resource::Memlock);
    let is_capable = crate::who::am_i().is_ok_and(|who| who.capabilities.0 & 1 << 14 != 0);
    match bytes >= LOCK_MIN || is_capable {
        true => Finding::ok("locked memory", format!("limit {text}")),
        false => Finding::warn(
            "locked memory",
            format!("limit {text}"),
            "with swap: raise RLIMIT_MEMLOCK (ulimit -l, or LimitMEMLOCK= of the service)",
        ),
    }
}

fn file_size() -> Finding {
    match limit(Resource::Fsize) {
        (text, u64::MAX) => Finding::ok("file size", format!("limit {text}")),
        (text, _) => Finding::warn(
            "file size",
            format!("limit {text}"),
            "a core can't grow past RLIMIT_FSIZE (ulimit -f unlimited)",
        ),
    }
}

fn open_files() -> Finding {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let text = format!("limit {most}");
    match most >= 4096 {
        true => Finding::ok("open files", text),
        false => Finding::warn(
            "open files",
            text,
            "trees deeper than that can't be imported or exported (ulimit -Hn)",
        ),
    }
}

fn memfd() -> Finding {
    match rustix::fs::memfd_create("conquest-doctor", rustix::fs::MemfdFlags::CLOEXEC) {
        Ok(_) => Finding::ok("memfd", "available"),
        Err(error) => Finding::warn(
            "memfd",
            format!("refused: {}", crate::reason::words(&error.into())),
            "stores without a name in the file system can't be made",
        ),
    }
}

/// Forked children find out that they are others by pages that the kernel wipes.
fn fork_protection() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    match version >= (Some(4), Some(14)) {
        true => Finding::ok("fork protection", "MADV_WIPEONFORK (Linux 4.14) is there"),
        false => Finding::bad("fork protection", "MADV_WIPEONFORK is missing", "use Linux 4.14"),
    }
}

/// All that a core needs of the kernel, tried on one without a name: shared mappings, locks of open
/// files, pages that forked children don't have, futexes.
fn trial() -> Finding {
    let check = "trial";
    match try_region() {
        Ok(()) => Finding::ok(check, "a core of 2 MiB was made, attached and detached"),
        Err(reason) => Finding::bad(
            check,
            format!("a core of 2 MiB can't be used: {reason}"),
            "see the reason; in containers, system calls may be filtered (fcntl, madvise, mmap)",
        ),
    }
}

fn try_region() -> crate::reason::Result<()> {
    use conquest_pm::attach::NewRegion;
    use conquest_pm::media::Source;
    use conquest_pm::{Access, Options, Region};
    let file = rustix::fs::memfd_create("conquest-doctor", rustix::fs::MemfdFlags::CLOEXEC)?;
    let shape = conquest_format::geometry::Shape {
        max_groups: 1,
        lanes: 2,
        slots: 2,
        locks: 2,
        chunks: 2,
        log: 0,
    };
    let kinds = conquest_format::fs::kinds();
    let new = NewRegion { shape, kinds, uuid: [1; 16], created: 1, groups: 1 };
    let failed = |error: conquest_pm::Error| crate::reason::Reason::rule(error.to_string());
    Region::create(Source::Descriptor(file.try_clone()?), 0o600, &new).map_err(failed)?;
    let source = Source::Descriptor(file);
    let region = Region::open(source, &new.kinds, Access::default(), Options::default());
    region.map_err(failed)?.detach().map_err(failed)
}

fn proc_files() -> Finding {
    match fs::read_link("/proc/self/fd/0").or_else(|_| fs::read_link("/proc/self/exe")) {
        Ok(_) => Finding::ok("proc", "mounted"),
        Err(_) => Finding::bad("proc", "not mounted at /proc", "mount -t proc proc /proc"),
    }
}
