//! Copying trees between the host and stores, and inside stores: one engine for `cp`, `mv`,
//! `import` and `export`.
//!
//! Invariants:
//! - a file has its name only once it is complete: it is made under a [temporary] name
//!   in its directory, filled, given its owner, mode, attributes and times, and renamed. So who
//!   interrupts a copy, or kills it, leaves complete files, no file, and temporaries that the next
//!   copy into the same directory removes;
//! - directories are made first, and get what they have after what is in them;
//! - a copy that is done again leaves alone what is equal, as far as [`Existing::Update`] asks;
//! - nothing is left out silently: it is counted and reported, or noted.

pub(crate) mod between;
mod compare;
mod content;
mod delete;
mod directory;
mod dress;
mod item;
mod links;
mod notes;
mod pair;
mod queue;
pub(crate) mod temporary;

pub(crate) use compare::{Compared, compare};
pub(crate) use item::ask;
pub(crate) use notes::Note;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use conquest::Errno;
use serde::Serialize;

use crate::reason::{Reason, Result};
use crate::report::Report;
use crate::tree::{Meta, Trail, Tree};
use links::Links;
use notes::Notes;
use pair::Pair;
use queue::Queue;

/// Names that one task is about: a large directory is many tasks.
const BATCH: usize = 64;

/// What copies keep of their originals, besides type, bytes and targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Keep {
    /// The mode; otherwise what the mask leaves of its permissions.
    pub(crate) mode: bool,
    /// User and group.
    pub(crate) owner: bool,
    /// Times of last access and modification.
    pub(crate) times: bool,
    /// Which names are the same file's.
    pub(crate) links: bool,
    /// Access lists, which belong to modes.
    pub(crate) lists: bool,
    /// All extended attributes, access lists among them.
    pub(crate) attributes: bool,
    /// Flags.
    pub(crate) flags: bool,
}

impl Keep {
    /// Everything.
    pub(crate) const ALL: Keep = Keep {
        mode: true,
        owner: true,
        times: true,
        links: true,
        lists: true,
        attributes: true,
        flags: true,
    };
}

/// What becomes of a file that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existing {
    /// It is replaced.
    Replace,
    /// It stays, without a word.
    Keep,
    /// The user is asked.
    Ask,
    /// It stays if it is equal: size, time of modification and mode. Otherwise it is replaced.
    Update,
}

/// How to copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Directories too, with what is in them.
    pub(crate) recursive: bool,
    pub(crate) keep: Keep,
    pub(crate) existing: Existing,
    /// Not into directories that something else is mounted on.
    pub(crate) one_file_system: bool,
    /// What the source does not have goes from directories of the target.
    pub(crate) delete: bool,
    /// Both trees are one: a file must not be copied onto itself.
    pub(crate) same_tree: bool,
    /// Each file copied is told.
    pub(crate) verbose: bool,
    /// Threads.
    pub(crate) threads: usize,
}

/// How much was done.
#[derive(Default)]
pub(crate) struct Counts([AtomicU64; 8]);

/// How much was done, at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Totals {
    /// Regular files copied.
    pub(crate) files: u64,
    /// Directories made or brought up to date.
    pub(crate) directories: u64,
    /// Names given to files that were copied already.
    pub(crate) hard_links: u64,
    /// Symbolic links, pipes, sockets and devices.
    pub(crate) others: u64,
    /// Files left alone because they were equal.
    pub(crate) unchanged: u64,
    /// Files and directories removed.
    pub(crate) removed: u64,
    /// Times that a file was read again because it had changed.
    pub(crate) retried: u64,
    /// Bytes read and written.
    pub(crate) bytes: u64,
}

impl Counts {
    fn add(&self, index: usize, amount: u64) {
        if let Some(count) = self.0.get(index) {
            count.fetch_add(amount, Ordering::Relaxed);
        }
    }

    fn retried(&self) {
        self.add(6, 1);
    }

    fn bytes(&self, amount: u64) {
        self.add(7, amount);
    }

    fn totals(&self) -> Totals {
        let [files, directories, hard_links, others, unchanged, removed, retried, bytes] =
            self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        Totals { files, directories, hard_links, others, unchanged, removed, retried, bytes }
    }
}

/// What is to be done.
enum Task<S: Tree, T: Tree> {
    /// A file that was looked up already gets the name.
    File(Arc<Pair<S, T>>, S::Node, Trail, Vec<u8>),
    /// The file of the first name gets the second one.
    Name(Arc<Pair<S, T>>, Vec<u8>, Vec<u8>),
    /// These names of a directory.
    Names(Arc<Pair<S, T>>, Vec<Vec<u8>>),
}

/// One run of the engine.
pub(crate) struct Job<'a, S: Tree, T: Tree> {
    source: &'a S,
    target: &'a T,
    options: Options,
    report: &'a Report,
    /// How the places are written where the walk of each side begins.
    from: Vec<u8>,
    to: Vec<u8>,
    /// The directory of the target that trails begin at.
    root: Arc<Pair<S, T>>,
    queue: Queue<Task<S, T>>,
    links: Links<S, T>,
    notes: Notes,
    counts: Counts,
    /// Files with several names that get flags once all names are there.
    fixed: Mutex<Vec<(S::Node, Trail)>>,
    /// Whether there is no use in going on.
    is_over: AtomicBool,
    now: i64,
}

/// One side of a job: a tree, where it begins, and how that is written.
pub(crate) struct Side<'a, T: Tree> {
    pub(crate) tree: &'a T,
    pub(crate) node: T::Node,
    pub(crate) label: Vec<u8>,
}

impl<'a, S: Tree, T: Tree> Job<'a, S, T> {
    /// Files that [`Job::add`] names go into the directory `to`. Messages name them by their
    /// labels.
    pub(crate) fn new(
        source: &'a S,
        to: Side<'a, T>,
        options: Options,
        report: &'a Report,
    ) -> Job<'a, S, T> {
        Job::with_root(source, Vec::new(), None, to, options, report)
    }

    /// What is in the directory `from` goes into the directory `to`, which becomes like it.
    ///
    /// # Errors
    /// What can't even be begun.
    pub(crate) fn of_directories(
        from: Side<'a, S>,
        to: Side<'a, T>,
        options: Options,
        report: &'a Report,
    ) -> Result<Job<'a, S, T>> {
        let meta = from.tree.meta(&from.node)?;
        let old = to.tree.meta(&to.node)?;
        let both = Some((from.node, meta));
        let job = Job::with_root(from.tree, from.label, both, to, options, report);
        job.counts.add(1, 1);
        job.unfix(&job.root.target, &old)?;
        let root = Arc::clone(&job.root);
        job.fill(&root, true)?;
        Ok(job)
    }

    fn with_root(
        source: &'a S,
        from: Vec<u8>,
        both: Option<(S::Node, Meta)>,
        to: Side<'a, T>,
        options: Options,
        report: &'a Report,
    ) -> Job<'a, S, T> {
        let root = Arc::new(Pair {
            above: None,
            source: both,
            target: to.node,
            from: Trail::root(),
            to: Trail::root(),
            lent: 0,
            pending: AtomicUsize::new(1),
        });
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Job {
            source,
            target: to.tree,
            options,
            report,
            from,
            to: to.label,
            root,
            queue: Queue::new(),
            links: Links::new(),
            notes: Notes::default(),
            counts: Counts::default(),
            fixed: Mutex::new(Vec::new()),
            is_over: AtomicBool::new(false),
            now: i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    /// `file`, which messages call `label`, is to get the name `name` in the target.
    pub(crate) fn add(&self, file: S::Node, label: &[u8], name: &[u8]) {
        self.root.begin();
        let trail = Trail::root().join(label);
        self.queue.push(Task::File(Arc::clone(&self.root), file, trail, name.to_vec()));
    }

    /// Does it all: how much was done, and what could not be kept. What failed was reported.
    ///
    /// # Errors
    /// [`Reason::Stopped`].
    pub(crate) fn run(self) -> Result<(Totals, Vec<Note>)> {
        if self.root.source.is_none() {
            let cleaned = self.delete_from(&self.root, &[]);
            self.report.take(self.label_of_target(&Trail::root()), cleaned);
        }
        self.queue.run(self.options.threads, &|task| self.work(task));
        self.end(&self.root);
        crate::stop::check()?;
        self.flag_late();
        let notes = self.notes.all();
        notes.iter().for_each(|note| self.report.note(format_args!("note: {note}")));
        Ok((self.counts.totals(), notes))
    }

    fn work(&self, task: Task<S, T>) {
        match task {
            Task::File(pair, node, from, to) => {
                let done = self.goes_on().and_then(|()| self.place(&pair, node, &from, &to));
                self.tell(&from, done);
                self.end(&pair);
            }
            Task::Name(pair, from, to) => {
                self.name(&pair, &from, &to);
                self.end(&pair);
            }
            Task::Names(pair, names) => {
                names.iter().for_each(|name| self.first_look(&pair, name));
                self.end(&pair);
            }
        }
    }

    /// Places a file; a directory becomes a task of its own, so that few are open at a time.
    fn first_look(&self, pair: &Arc<Pair<S, T>>, name: &[u8]) {
        let Some((directory, _)) = &pair.source else {
            return;
        };
        let trail = pair.from.join(name);
        let looked = self.goes_on().and_then(|()| {
            let node = self.source.child(directory, name)?;
            let meta = self.source.meta(&node)?;
            Ok((node, meta))
        });
        match looked {
            Ok((_, meta)) if meta.is_directory() => {
                pair.begin();
                let own = name.to_vec();
                self.queue.push(Task::Name(Arc::clone(pair), own.clone(), own));
            }
            Ok((node, meta)) => {
                let placed = self.place_known(pair, node, meta, &trail, name);
                self.tell(&trail, placed);
            }
            Err(reason) => self.tell(&trail, Err(reason)),
        }
    }

    fn name(&self, pair: &Arc<Pair<S, T>>, from: &[u8], to: &[u8]) {
        let Some((directory, _)) = &pair.source else {
            return;
        };
        let trail = pair.from.join(from);
        let done = self
            .goes_on()
            .and_then(|()| self.source.child(directory, from))
            .and_then(|node| self.place(pair, node, &trail, to));
        self.tell(&trail, done);
    }

    /// Whether to go on at all.
    fn goes_on(&self) -> Result<()> {
        crate::stop::check()?;
        if self.is_over.load(Ordering::Relaxed) { Err(Reason::Stopped) } else { Ok(()) }
    }

    /// Reports what came of the file at `from`.
    fn tell(&self, from: &Trail, result: Result<()>) {
        match result {
            Ok(()) => self.report.advance(1),
            Err(Reason::Stopped) => {}
            Err(reason) if reason.is(Errno::ENOSPC) => {
                if !self.is_over.swap(true, Ordering::Relaxed) {
                    let advice = "(make room, then run again: what is there is not copied twice)";
                    self.report.fail(
                        self.label_of_source(from),
                        &Reason::rule(format!("{reason} {advice}")),
                    );
                }
            }
            Err(reason) => self.report.fail(self.label_of_source(from), &reason),
        }
    }

    fn label_of_source(&self, trail: &Trail) -> String {
        label(&self.from, trail)
    }

    fn label_of_target(&self, trail: &Trail) -> String {
        label(&self.to, trail)
    }
}

/// How messages name what `trail` leads to from `root`. An empty root is one whose first names are
/// labels themselves.
fn label(root: &[u8], trail: &Trail) -> String {
    let mut text = root.to_vec();
    for (nth, name) in trail.names().into_iter().enumerate() {
        if !(text.ends_with(b"/") || nth == 0 && root.is_empty()) {
            text.push(b'/');
        }
        text.extend(name);
    }
    conquest::quote::message(&text)
}
