//! A volume whose space is shown as a file, and loop devices on it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use conquest_testkit::Rng;
use rustix::fs::FallocateFlags;
use serde_json::Value;

use super::mounted::{await_that, mounts};
use super::{assert_quiet, conquest, finish, printed, text};

/// A volume, and a directory to show it in.
pub struct Place {
    pub root: PathBuf,
    pub disk: String,
    pub point: String,
    pub index: String,
}

impl Place {
    pub fn new(root: &Path, size: &str) -> Place {
        let text = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let place = Place {
            root: root.to_owned(),
            disk: text("disk"),
            point: text("mnt"),
            index: text("index"),
        };
        for name in ["index", "fs"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let (disk, index) = (&place.disk, &place.index);
        printed(["volume", "create", "--size", size, "--index", index, disk]);
        place
    }

    /// The arguments that export it.
    pub fn arguments<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["volume", "export", "--fuse", &self.point, "--index", &self.index];
        all.extend(options);
        all.push(&self.disk);
        all
    }

    pub fn export(&self, options: &[&str]) {
        assert_quiet(&conquest(self.arguments(options)));
    }

    /// Unmounts, and looks whether the volume was closed.
    pub fn umount(&self) {
        unmount(self);
        assert_eq!(std::fs::read_dir(&self.index).unwrap().count(), 0, "an index is left");
    }

    pub fn file(&self) -> String {
        format!("{}/space", self.point)
    }

    pub fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.file()).unwrap()
    }

    pub fn info(&self) -> Value {
        let said = printed(["volume", "info", "--json", "--index", &self.index, &self.disk]);
        serde_json::from_str(&said).unwrap()
    }

    pub fn used(&self) -> u64 {
        self.info()["used_bytes"].as_u64().unwrap()
    }

    /// Where file systems on it are mounted.
    pub fn on_it(&self) -> PathBuf {
        self.root.join("fs")
    }
}

/// Unmounts, as soon as loop devices that were closed are gone.
pub fn unmount(place: &Place) {
    await_that("the end of the loop device", || {
        conquest(["umount", &place.point]).status.success()
    });
    assert!(mounts(&place.point).is_empty());
}

/// Runs a command of the system, which has to end well; what it says.
#[track_caller]
pub fn run(words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    let output = finish(command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(output.status.success(), "{words:?}: {output:?}");
    text(&output.stdout)
}

/// A loop device, which goes when it is neither open nor mounted.
pub struct Loop {
    pub path: String,
    _open: File,
}

impl Loop {
    pub fn new(file: &str, block: &str) -> Loop {
        let words = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", block, file];
        let path = run(&words).trim().to_owned();
        let open = File::open(&path).unwrap();
        run(&["losetup", "--detach", &path]);
        let name = path.rsplit('/').next().unwrap();
        let direct = std::fs::read_to_string(format!("/sys/block/{name}/loop/dio")).unwrap();
        assert_eq!(direct, "1\n");
        Loop { path, _open: open }
    }
}

/// `len` bytes that follow from `seed`.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| rng.word().to_le_bytes());
    words.take(len).collect()
}

pub const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
