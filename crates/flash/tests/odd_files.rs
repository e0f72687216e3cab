//! Files on a file system that is odd in one way or another: it is one of the test's own, mounted.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use conquest_flash::device::{Access, Device, FileDevice};
use conquest_fuse::wire::{
    Attributes, AttributesReply, Created, Entry, InitFlags, Offer, Opened, OpenedFlags, Operation,
    Request, Settings, StatFs,
};
use conquest_fuse::{Errno, Handler, MountOptions, Reply, Session, SessionOptions, mount};
use rustix::fs::OFlags;

const MIB: u64 = 1 << 20;
const DIRECTORY: u64 = 1;
const FILE: u64 = 2;
const NAME: &[u8] = b"file";
const DIRECT: u32 = libc::O_DIRECT as u32;

/// What the file system is like.
#[derive(Clone, Copy)]
struct Ways {
    /// What transfers past the cache have to be multiples of; none if there are no such.
    direct: Option<u64>,
    /// Bytes of a fragment, as it says.
    fragment: u32,
    /// Bytes that a transfer moves at most.
    most: usize,
}

const PLAIN: Ways = Ways { direct: Some(512), fragment: 4096, most: usize::MAX };

/// Requests that change something, or make it durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Created,
    Written,
    Flushed,
    DirectoryFlushed,
}

struct State {
    ways: Ways,
    /// The file's, if there is one.
    bytes: Option<Vec<u8>>,
    done: Vec<Done>,
}

/// The file system: a directory that may have one file.
struct Served(Mutex<State>);

impl Served {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        let (mode, size) = match (node, &self.bytes) {
            (DIRECTORY, _) => (libc::S_IFDIR | 0o700, 0),
            (FILE, Some(bytes)) => (libc::S_IFREG | 0o600, bytes.len() as u64),
            _ => return None,
        };
        Some(Attributes { number: node, mode, size, nlink: 1, ..Attributes::default() })
    }

    fn entry(&self) -> Option<Entry> {
        Some(Entry {
            node: FILE,
            generation: 0,
            name_lifetime: std::time::Duration::ZERO,
            attributes_lifetime: std::time::Duration::ZERO,
            attributes: self.attributes(FILE)?,
        })
    }

    fn tell_attributes(&self, node: u64, reply: Reply) {
        let lifetime = std::time::Duration::ZERO;
        match self.attributes(node) {
            Some(attributes) => reply.attributes(&AttributesReply { attributes, lifetime }),
            None => reply.error(Errno::NOENT),
        }
    }

    /// Whether a transfer of an open file with these flags is taken.
    fn takes(&self, flags: u32, at: u64, len: u64) -> bool {
        flags & DIRECT == 0 || self.ways.direct.is_some_and(|step| (at | len).is_multiple_of(step))
    }
}

/// Everything goes past the cache, so that the kernel asks for what the caller has asked for.
fn opened() -> Opened {
    Opened { flags: OpenedFlags::DIRECT_IO, ..Opened::default() }
}

impl Handler for Served {
    fn init(&self, offer: &Offer) -> Settings {
        Settings {
            flags: offer.flags.and(InitFlags::BIG_WRITES.with(InitFlags::MAX_PAGES)),
            max_readahead: 0,
            max_background: 0,
            congestion_threshold: 0,
            max_write: MIB as u32,
            max_pages: 256,
            time_granularity: 1,
            max_stack_depth: 0,
            request_timeout: 0,
            map_alignment: 0,
        }
    }

    fn handle(&self, request: &Request<'_>, reply: Reply) {
        let mut state = self.lock();
        match request.operation {
            Operation::Lookup { name } => match state.entry().filter(|_| name == NAME) {
                Some(entry) => reply.entry(&entry),
                None => reply.error(Errno::NOENT),
            },
            Operation::Getattr { .. } => state.tell_attributes(request.node, reply),
            Operation::Setattr(set) => {
                if let (Some(size), Some(bytes)) = (set.size, state.bytes.as_mut()) {
                    bytes.resize(size as usize, 0);
                }
                state.tell_attributes(request.node, reply);
            }
            Operation::Create(_) => {
                state.done.push(Done::Created);
                state.bytes = Some(Vec::new());
                reply.created(&Created { entry: state.entry().unwrap(), opened: opened() });
            }
            Operation::Open { .. } | Operation::Opendir { .. } => reply.opened(&opened()),
            Operation::Read(read) if state.takes(read.flags, read.offset, read.size.into()) => {
                let rest = state.bytes.as_ref().and_then(|bytes| bytes.get(read.offset as usize..));
                let len = (read.size as usize).min(state.ways.most);
                let rest = rest.unwrap_or_default();
                reply.data(&rest[..len.min(rest.len())]);
            }
            Operation::Write(write)
                if state.takes(write.flags, write.offset, write.data.len() as u64) =>
            {
                state.done.push(Done::Written);
                let len = write.data.len().min(state.ways.most);
                let (at, bytes) = (write.offset as usize, state.bytes.as_mut().unwrap());
                bytes[at..at + len].copy_from_slice(&write.data[..len]);
                reply.written(len as u32);
            }
            Operation::Read(_) | Operation::Write(_) => reply.error(Errno::INVAL),
            Operation::Fsync { .. } => {
                state.done.push(Done::Flushed);
                reply.empty();
            }
            Operation::Fsyncdir { .. } => {
                state.done.push(Done::DirectoryFlushed);
                reply.empty();
            }
            Operation::Statfs => reply.statfs(&StatFs {
                blocks: 0,
                blocks_free: 0,
                blocks_available: 0,
                files: 0,
                files_free: 0,
                block_size: state.ways.fragment,
                name_max: 255,
                fragment_size: state.ways.fragment,
            }),
            Operation::Unlink { .. } => {
                state.bytes = None;
                reply.empty();
            }
            Operation::Release { .. } | Operation::Releasedir { .. } => reply.empty(),
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn interrupt(&self, _unique: u64) -> bool {
        false
    }

    fn destroy(&self) {}
}

impl Served {
    /// What is like this from now on, without a file.
    fn is_now(&self, ways: Ways) {
        *self.lock() = State { ways, bytes: None, done: Vec::new() };
    }
}

const ROOM: &str = "CONQUEST_FLASH_ODD";
/// Seconds after which a child is killed.
const LIMIT: &str = "30";

/// Runs the test `child` in a mount namespace of its own, where a directory is its to mount at. It
/// has to say that it has come to its end.
fn apart(child: &str) {
    let name = format!("conquest-flash-{child}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).unwrap();
    let said = Command::new("timeout")
        .args([LIMIT, "unshare", "--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--nocapture"])
        .env(ROOM, &directory)
        .output()
        .unwrap();
    std::fs::remove_dir(&directory).unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("as expected"), "{said:?}");
}

/// For a child: the file system, and the name of its file. None if this is no child.
fn served() -> Option<(Arc<Served>, std::path::PathBuf)> {
    let directory = std::env::var_os(ROOM)?;
    let state = State { ways: PLAIN, bytes: None, done: Vec::new() };
    let served = Arc::new(Served(Mutex::new(state)));
    let options = MountOptions::new("odd", "odd");
    let (device, _) = mount(Path::new(&directory), &options).unwrap();
    let session = Session::new(device, Arc::clone(&served), SessionOptions::default());
    // Until the process ends.
    std::thread::spawn(|| session.run());
    Some((served, Path::new(&directory).join("file")))
}

fn create(path: &Path) -> FileDevice {
    FileDevice::create(path, MIB, 0o600, &mut |_| {}).unwrap()
}

fn is_marked_direct(device: &FileDevice) -> bool {
    rustix::fs::fcntl_getfl(device).unwrap().contains(OFlags::DIRECT)
}

/// Writes, and reads what was written.
fn keeps_what_is_written(device: &FileDevice) {
    for (at, len) in [(0, 512), (4096, 65_536), (MIB as usize - 8192, 8192)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at / 512 + at % 251) as u8).collect();
        device.write(at as u64, &bytes).unwrap();
        let mut found = vec![0; len];
        device.read(at as u64, &mut found).unwrap();
        assert!(found == bytes, "{len} at {at}");
    }
}

#[test]
fn as_who_makes_a_file() {
    let Some((served, path)) = served() else { return };
    create(&path);
    let done = served.lock().done.clone();
    let (begin, end) = done.split_at(done.len() - 2);
    assert!(begin[0] == Done::Created && begin[1..].iter().all(|done| *done == Done::Written));
    assert!(begin.len() > 1 && end == [Done::Flushed, Done::DirectoryFlushed], "{end:?}");
    println!("as expected");
}

/// Its bytes first, so that there is no name of what may not be there.
#[test]
fn a_new_file_is_durable_and_so_is_its_name() {
    apart("as_who_makes_a_file");
}

#[test]
fn as_who_asks_for_alignment() {
    let Some((served, path)) = served() else { return };
    // The kernel says nothing: it is tried out.
    for (direct, block) in [(1, 512), (512, 512), (1024, 4096), (4096, 4096)] {
        served.is_now(Ways { direct: Some(direct), ..PLAIN });
        create(&path);
        let device = FileDevice::open(&path, Access::Write).unwrap();
        assert!(device.is_direct() && is_marked_direct(&device), "{direct}");
        assert_eq!((device.limits().block, device.limits().physical), (block, 4096));
        if block == 512 {
            keeps_what_is_written(&device);
        }
    }
    // Through the cache, blocks of the file system are written, if what it says can be.
    for (fragment, physical) in
        [(512, 4096), (4096, 4096), (16_384, 16_384), (12_345, 4096), (1 << 20, 65_536)]
    {
        for direct in [None, Some(8192)] {
            served.is_now(Ways { direct, fragment, ..PLAIN });
            create(&path);
            let device = FileDevice::open(&path, Access::Write).unwrap();
            assert!(!device.is_direct() && !is_marked_direct(&device));
            let limits = device.limits();
            assert_eq!((limits.block, limits.physical), (512, physical), "{fragment}");
            assert!(limits.is_cached && !limits.discards);
            keeps_what_is_written(&device);
        }
    }
    println!("as expected");
}

#[test]
fn where_transfers_can_go_past_the_cache_is_tried_out() {
    apart("as_who_asks_for_alignment");
}

#[test]
fn as_whose_transfers_are_cut() {
    let Some((served, path)) = served() else { return };
    let kind = |outcome: std::io::Result<()>| outcome.unwrap_err().kind();
    for direct in [Some(512), None] {
        served.is_now(Ways { direct, ..PLAIN });
        let device = create(&path);
        let are_cut = |most| served.lock().ways.most = most;
        are_cut(4096);
        keeps_what_is_written(&device);
        // Less than a block is an end that should not be there, and no write goes on behind it.
        for most in [0, 100, 4196] {
            are_cut(most);
            let refused = device.read(8192, &mut [0; 8192]);
            assert_eq!(kind(refused), std::io::ErrorKind::UnexpectedEof, "{most}");
            let refused = device.write(8192, &[1; 8192]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EIO), "{most}");
        }
    }
    println!("as expected");
}

#[test]
fn transfers_that_are_cut_go_on_at_a_block_only() {
    apart("as_whose_transfers_are_cut");
}

#[test]
fn as_who_sees_no_open_files() {
    let Some(directory) = std::env::var_os(ROOM) else { return };
    let path = Path::new(&directory).join("file");
    let device = create(&path);
    let hidden = Command::new("mount").args(["-t", "tmpfs", "none", "/proc"]).status();
    assert!(hidden.unwrap().success());
    let claimed = device.claim_opened().unwrap();
    assert!(claimed.is_some() && device.claim_opened().unwrap().is_none());
    drop(claimed);
    std::fs::remove_file(&path).unwrap();
    let error = device.claim_opened().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    println!("as expected");
}

/// By its path, where `/proc` is not what it should be.
#[test]
fn an_open_file_is_claimed_without_a_list_of_open_ones() {
    apart("as_who_sees_no_open_files");
}
