//! What a check has found.

use core::fmt;
use std::collections::BTreeMap;

use conquest_format::Offset;

use crate::{Code, Severity};

/// Most findings of one code that are kept, unless asked for otherwise; all are counted.
pub const MOST_FINDINGS: usize = 100;

/// The file that a finding is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Its inode's number.
    pub number: u64,
    /// The generation that its inode has, which may be damaged.
    pub generation: u64,
    /// Its path from the root directory, if it has one; one of several, without a slash at the end.
    pub path: Option<Vec<u8>>,
}

/// Something that is not as the format says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What is wrong.
    pub code: Code,
    /// The file that it is about, if it is about one.
    pub file: Option<File>,
    /// Where the wrong bytes stand, from the region's start.
    pub offset: Offset,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Finding {
    /// How bad it is.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// What a repair would do.
    #[must_use]
    pub const fn repair(&self) -> &'static str {
        self.code.repair()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}", self.severity().name(), self.code, self.offset)?;
        if let Some(file) = &self.file {
            write!(f, ", inode {} generation {:#x}", file.number, file.generation)?;
            if let Some(path) = &file.path {
                write!(f, " \"{}\"", path.escape_ascii())?;
            }
        }
        write!(f, ": {}: expected {}, found {}", self.code.meaning(), self.expected, self.found)?;
        write!(f, "; repair: {}", self.repair())
    }
}

/// What a store consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Regular files, those without names included, as everywhere here.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, fifos and sockets.
    pub others: u64,
    /// Inodes of which not even the type is known.
    pub damaged: u64,
    /// Entries of directories.
    pub entries: u64,
    /// Pages of the heap that are allocated.
    pub pages_used: u64,
    /// Pages of the heap that are free.
    pub pages_free: u64,
    /// Objects allocated in slabs.
    pub objects: u64,
    /// Records that have happened and are not yet retired: they were taken as carried out.
    pub records_pending: u64,
    /// Words that these records change.
    pub words_pending: u64,
    /// Intents that are not yet finished.
    pub intents_pending: u64,
    /// Words by which holdings keep files.
    pub orphans: u64,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What there is.
    pub counts: Counts,
    /// Whether the last attach generation ended with a detach.
    pub clean: bool,
    /// What is wrong: of each code at most as many as asked for, in the order in which they were
    /// found.
    pub findings: Vec<Finding>,
    found: BTreeMap<Code, u64>,
}

impl Report {
    /// How many findings of `code` there are, those that were not kept included.
    #[must_use]
    pub fn count(&self, code: Code) -> u64 {
        self.found.get(&code).copied().unwrap_or(0)
    }

    /// How many findings of `severity` there are.
    #[must_use]
    pub fn count_of(&self, severity: Severity) -> u64 {
        self.found.iter().filter(|(code, _)| code.severity() == severity).map(|(_, n)| n).sum()
    }

    /// The codes that were found, and how often each.
    pub fn codes(&self) -> impl Iterator<Item = (Code, u64)> {
        self.found.iter().map(|(code, count)| (*code, *count))
    }

    /// Whether there are but notes.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.count_of(Severity::Leak) == 0 && self.count_of(Severity::Error) == 0
    }
}

/// The findings of a check under way.
pub(crate) struct Findings {
    most: usize,
    found: BTreeMap<Code, u64>,
    pub(crate) kept: Vec<Finding>,
}

impl Findings {
    pub(crate) const fn new(most: usize) -> Findings {
        Findings { most, found: BTreeMap::new(), kept: Vec::new() }
    }

    /// Adds a finding about the file of inode `number`, 0 for none. Its generation and path are
    /// filled in at the end.
    pub(crate) fn add(
        &mut self,
        code: Code,
        number: u64,
        offset: Offset,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) {
        let count = self.found.entry(code).or_default();
        *count += 1;
        if *count > self.most as u64 {
            return;
        }
        let file = (number != 0).then_some(File { number, generation: 0, path: None });
        let (expected, found) = (expected.to_string(), found.to_string());
        self.kept.push(Finding { code, file, offset, expected, found });
    }

    /// The report of these findings.
    pub(crate) fn finish(self, counts: Counts, clean: bool) -> Report {
        Report { counts, clean, findings: self.kept, found: self.found }
    }
}

/// A word, as messages tell it.
pub(crate) struct Hex(pub(crate) u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
