//! The list of cases. The scripts are in `xtask/conform/programs`; each begins with what it shows.

use crate::packages::Need;

/// A real program at work.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The script and its arguments.
    pub(super) script: &'static str,
    pub(super) arguments: &'static [&'static str],
    /// Commands that it needs.
    pub(super) needed: &'static [Need],
}

const CC: Need = ("cc", "gcc");
const SETFATTR: Need = ("setfattr", "attr");
const SETFACL: Need = ("setfacl", "acl");
const SQLITE: Need = ("sqlite3", "sqlite3");

const fn case(name: &'static str, script: &'static str, needed: &'static [Need]) -> Case {
    Case { name, script, arguments: &[], needed }
}

/// All cases, in the order in which they run.
pub(super) const CASES: [Case; 13] = [
    case("git", "git.sh", &[("git", "git")]),
    case("tar", "tar.sh", &[SETFATTR, SETFACL]),
    case("rsync", "rsync.sh", &[SETFATTR, SETFACL, ("rsync", "rsync")]),
    case("c-build", "cbuild.sh", &[CC, ("make", "make")]),
    case("rust-build", "rust.sh", &[CC]),
    case("npm", "npm.sh", &[("npm", "npm")]),
    case("pip", "pip.sh", &[("python3", "python3-venv")]),
    case("overlay", "overlay.sh", &[SETFATTR, SETFACL]),
    case("go", "go.sh", &[("go", "golang-go")]),
    case("library", "library.sh", &[CC]),
    Case { name: "sqlite-wal", script: "sqlite.sh", arguments: &["wal"], needed: &[SQLITE] },
    Case {
        name: "sqlite-rollback",
        script: "sqlite.sh",
        arguments: &["delete"],
        needed: &[SQLITE],
    },
    case("postgres", "postgres.sh", &[("psql", "postgresql")]),
];
