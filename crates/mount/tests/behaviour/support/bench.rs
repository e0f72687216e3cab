//! The same work on the mount and on ext4.

use std::cell::RefCell;
use std::fmt::Debug;
use std::path::Path;

use conquest_peers::machine::{self, Kind, LIMIT};
use conquest_peers::sys;

use super::mount::mounted;

/// A file system to work on, whose root is the working directory, and what was found there.
pub(crate) struct Bench {
    said: RefCell<Vec<String>>,
}

impl Bench {
    fn new() -> Bench {
        Bench { said: RefCell::default() }
    }

    /// Notes what was found, which has to be the same on every file system.
    pub(crate) fn say(&self, what: &str, found: impl Debug) {
        self.said.borrow_mut().push(format!("{what}: {found:?}"));
    }

    fn text(self) -> String {
        self.said.into_inner().join("\n")
    }
}

/// Does `work` on a store that is mounted, and on ext4: it has to find the same on both.
pub(crate) fn both(work: impl Fn(&Bench)) {
    let ours = mounted(|_| {
        let bench = Bench::new();
        work(&bench);
        bench.text()
    });
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let theirs = machine::run(Kind::Ext4, directory, LIMIT, |root| {
        sys::enter(root);
        std::fs::remove_dir("lost+found").unwrap();
        let bench = Bench::new();
        work(&bench);
        bench.text()
    });
    let pairs = ours.lines().zip(theirs.lines());
    let different: Vec<_> = pairs.filter(|(ours, theirs)| ours != theirs).collect();
    assert!(ours == theirs, "mount and ext4 differ: {different:#?}");
}
