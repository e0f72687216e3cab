//! The copy of the workspace with all mutants built in, and its test programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::operators::{self, Aim, Mutant};
use super::rewrite::{self, Rewritten};
use super::subject::{Subject, library};
use super::{MODULE, Program, REACHED, VARIABLE, slices};
use crate::harness::{self, BUILD_LIMIT};
use crate::tree::SourceFile;
use crate::{Failure, child, tree};

/// Kinds of programs of the test kit that may notice a mutant.
const KINDS: [&str; 3] = ["explore", "kill", "fuzz"];
/// Times the compiler may refuse some mutants before we give up.
const ROUNDS_MAX: u32 = 40;

/// The copy.
pub(super) struct Copy {
    root: PathBuf,
    directory: PathBuf,
    sources: PathBuf,
    subject: Subject,
    /// The files that are mutated.
    files: Vec<SourceFile>,
    /// The roots of their crates, which get a module more.
    roots: Vec<SourceFile>,
    /// All mutants, in order.
    pub(super) mutants: Vec<Mutant>,
    /// Numbers of mutants that do not compile.
    pub(super) disabled: BTreeSet<u32>,
    rewritten: BTreeMap<String, Rewritten>,
}

impl Copy {
    /// Finds the mutants of `subject` in the workspace at `root`, which is to be copied under
    /// `directory`; nothing is written yet.
    pub(super) fn new(
        root: &Path,
        directory: &Path,
        subject: Subject,
        is_all: bool,
    ) -> Result<Copy, Failure> {
        let mut files = tree::sources(root)?;
        let mut roots = files.clone();
        roots.retain(|file| subject.crates().any(|of| file.path == library(of)));
        files.retain(|file| subject.has(file, is_all));
        let mut copy = Copy {
            root: root.to_path_buf(),
            directory: directory.to_path_buf(),
            sources: directory.join("src"),
            subject,
            files,
            roots,
            mutants: Vec::new(),
            disabled: BTreeSet::new(),
            rewritten: BTreeMap::new(),
        };
        copy.mutate()?;
        Ok(copy)
    }

    /// Computes the mutants and the text of the files that hold them.
    fn mutate(&mut self) -> Result<(), Failure> {
        self.mutants.clear();
        self.rewritten.clear();
        for file in &self.files {
            let last = self.mutants.last().map_or(0, |mutant| mutant.number);
            let (mutants, edits) =
                operators::find(file, Aim::of(&self.subject.name), last, &self.disabled)
                    .map_err(|error| Failure::Broken(format!("{}: {error}", file.path)))?;
            self.mutants.extend(mutants);
            self.rewritten.insert(file.path.clone(), rewrite::rewrite(&file.text, &edits));
        }
        for root in &self.roots {
            let rewritten = self.rewritten.entry(root.path.clone());
            let rewritten = rewritten.or_insert_with(|| rewrite::rewrite(&root.text, &[]));
            rewritten.text.push_str(&format!("\nmod {MODULE};\n"));
        }
        Ok(())
    }

    /// Paths and texts of the files that are mutated.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|file| (file.path.as_str(), file.text.as_str()))
    }

    /// Paths and texts of the files that the copy has otherwise than the workspace.
    fn mutated(&self) -> BTreeMap<String, String> {
        let rewritten = self.rewritten.iter();
        let mut texts: BTreeMap<String, String> =
            rewritten.map(|(path, rewritten)| (path.clone(), rewritten.text.clone())).collect();
        let last = self.mutants.last().map_or(0, |mutant| mutant.number);
        for of in self.subject.crates() {
            texts.insert(format!("crates/{of}/src/{MODULE}.rs"), switch(last));
        }
        texts
    }

    fn write(&self) -> Result<(), Failure> {
        let mutated = self.mutated();
        mutated
            .iter()
            .try_for_each(|(path, text)| update(&self.sources.join(path), text.as_bytes()))
    }

    /// Copies the workspace, and builds the programs that may notice a mutant, in the order in
    /// which to try them; but for those of the test kit that are not run, as `is_run` says of their
    /// names.
    pub(super) fn build(&mut self, is_run: impl Fn(&str) -> bool) -> Result<Vec<Program>, Failure> {
        mirror(&self.root, &self.sources, &self.mutated())?;
        let loom = self.loom_models();
        self.settle(false)?;
        if !loom.is_empty() {
            self.settle(true)?;
        }
        let name = self.subject.name.clone();
        let mut programs = Vec::new();
        for of in slices::tested(&name) {
            let package = package_of(of);
            let used = self.used_tests(of);
            let mut selection = vec!["-p", &package, "--lib"];
            selection.extend(used.iter().flat_map(|name| ["--test", name]));
            programs.extend(self.tests(&selection, false)?);
        }
        for kind in KINDS {
            let arguments = slices::arguments(kind, &name);
            let is_there = harness::names(&self.sources, kind).contains(&name);
            if is_there && !arguments.is_empty() {
                programs.push(self.slice(kind, arguments, &is_run)?);
            }
        }
        if slices::concerns_test_kit(&name) && self.sources.join("crates/testkit").is_dir() {
            programs.extend(self.tests(&["-p", "conquest-testkit"], false)?);
        }
        for (of, name) in loom {
            programs.extend(self.tests(&["--release", "-p", &of, "--test", &name], true)?);
        }
        Ok(programs)
    }

    /// The tests of crate `of` that are used, but for loom models.
    fn used_tests(&self, of: &str) -> Vec<String> {
        let tests = self.sources.join("crates").join(of).join("tests");
        let paths = tree::paths(&tests).unwrap_or_default();
        let names = paths.iter().filter_map(|path| path.strip_suffix(".rs"));
        let used = names.filter(|name| {
            !name.contains('/')
                && !name.starts_with("loom")
                && slices::is_used(&self.subject.name, of, name)
        });
        used.map(str::to_owned).collect()
    }

    /// Loom models: package and name of the test.
    fn loom_models(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let name = self.subject.name.as_str();
        let mut crates = vec![name];
        if slices::concerns_test_kit(name) {
            crates.push("testkit");
        }
        for of in crates {
            let tests = self.sources.join("crates").join(of).join("tests");
            for path in tree::paths(&tests).unwrap_or_default() {
                let name = path.strip_suffix(".rs").filter(|name| name.starts_with("loom"));
                if let Some(name) = name.filter(|name| !name.contains('/')) {
                    found.push((format!("conquest-{of}"), name.to_owned()));
                }
            }
        }
        found
    }

    fn cargo(&self, is_loom: bool) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&self.sources).env_remove(VARIABLE).env_remove(REACHED);
        let (flags, target) = if is_loom {
            ("--cap-lints=allow --cfg loom", "build-loom")
        } else {
            ("--cap-lints=allow", "build")
        };
        command.env("RUSTFLAGS", flags);
        command.env("CARGO_TARGET_DIR", self.directory.join(target));
        command
    }

    /// Leaves out mutants that do not compile, until the rest does.
    fn settle(&mut self, is_loom: bool) -> Result<(), Failure> {
        let log = self.directory.join("check.log");
        for _ in 0..ROUNDS_MAX {
            let mut command = self.cargo(is_loom);
            command.args(["check", "--lib", "--message-format=short"]);
            for of in self.subject.crates() {
                command.args(["-p", &package_of(of)]);
            }
            if child::run_logged(&mut command, BUILD_LIMIT, &log)?.is_well() {
                return Ok(());
            }
            let output = read(&log)?;
            let refused: BTreeSet<u32> =
                output.lines().filter_map(|line| self.refused(line)).collect();
            if refused.is_empty() {
                return Err(Failure::Broken(format!("the copy does not build:\n{output}")));
            }
            self.disabled.extend(refused);
            self.mutate()?;
            self.write()?;
        }
        Err(Failure::Broken(format!("mutants do not compile; see {}", log.display())))
    }

    /// The mutant that a line `file:line:column: error...` complains about.
    fn refused(&self, line: &str) -> Option<u32> {
        let mut fields = line.splitn(4, ':');
        let rewritten = self.rewritten.get(fields.next()?)?;
        let at = fields.next()?.parse().ok()?;
        let column = fields.next()?.parse().ok()?;
        if !fields.next()?.trim_start().starts_with("error") {
            return None;
        }
        rewritten.mutant_at(at, column)
    }

    fn built(&self, command: &mut Command) -> Result<String, Failure> {
        let log = self.directory.join("build.log");
        command.arg("--message-format=json-render-diagnostics");
        let ended = child::run_logged(command, BUILD_LIMIT, &log)?;
        let output = read(&log)?;
        if ended.is_well() {
            return Ok(output);
        }
        let told: Vec<&str> = output.lines().filter(|line| !line.starts_with('{')).collect();
        Err(Failure::Broken(format!("the copy does not build:\n{}", told.join("\n"))))
    }

    /// Builds the test binaries that `selection` selects.
    fn tests(&self, selection: &[&str], is_loom: bool) -> Result<Vec<Program>, Failure> {
        let mut command = self.cargo(is_loom);
        command.args(["test", "--no-run"]).args(selection);
        let output = self.built(&mut command)?;
        let mut programs: Vec<Program> = output.lines().filter_map(test_binary).collect();
        programs.retain(|program| is_loom || !program.name.contains(" loom"));
        if !is_loom {
            // Many tests mostly wait.
            programs.iter_mut().for_each(|it| it.arguments.push("--test-threads=8".into()));
        }
        Ok(programs)
    }

    fn slice(
        &self,
        kind: &str,
        arguments: &[&str],
        is_run: impl Fn(&str) -> bool,
    ) -> Result<Program, Failure> {
        let name = format!("{kind}-{}", self.subject.name);
        let profile = harness::profile(kind);
        if is_run(&name) {
            let mut command = self.cargo(false);
            command.args(["build", "--profile", profile, "-p", "conquest-testkit", "--bin", &name]);
            self.built(&mut command)?;
        }
        Ok(Program {
            executable: self.directory.join("build").join(profile).join(&name),
            name,
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            variables: Vec::new(),
            directory: self.sources.clone(),
        })
    }
}

/// What cargo calls the crate in the directory `of`.
fn package_of(of: &str) -> String {
    if of == "conquest" { of.to_owned() } else { format!("conquest-{of}") }
}

/// Takes `directory` for this process, until what comes back is dropped: two runs must not write
/// to one copy.
pub(super) fn take(directory: &Path) -> Result<File, Failure> {
    std::fs::create_dir_all(directory).map_err(|e| Failure::system("can't make", directory, &e))?;
    let path = directory.join("lock");
    let file = File::create(&path).map_err(|e| Failure::system("can't make", &path, &e))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Failure::Broken(format!(
            "mutants are being tried in {} already; wait until that has ended, or end it",
            directory.display()
        )),
        TryLockError::Error(error) => Failure::system("can't lock", &path, &error),
    })?;
    Ok(file)
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| Failure::system("can't read", path, &e))
}

/// The test binary that a line of cargo's messages announces; none for the tests of a program.
pub(super) fn test_binary(line: &str) -> Option<Program> {
    let field = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\":\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let (_, profile) = line.split_once("\"profile\":{")?;
    if !profile.split_once('}')?.0.contains("\"test\":true") {
        return None;
    }
    let (_, target) = line.split_once("\"target\":{")?;
    if target.starts_with("\"kind\":[\"bin\"]") {
        return None;
    }
    let manifest = PathBuf::from(field(line, "manifest_path")?);
    let directory = manifest.parent()?.to_path_buf();
    let package = directory.file_name()?.to_string_lossy().into_owned();
    let test = field(target, "name")?;
    Some(Program {
        name: format!("tests of {package}: {test}"),
        executable: PathBuf::from(field(line, "executable")?),
        arguments: Vec::new(),
        variables: slices::variables(&package, &test),
        directory,
    })
}

/// Makes the tree at `copy` equal to that at `root`, but for files that are `mutated`: paths and
/// texts. Equal files are left alone, so that cargo compiles only what has changed.
fn mirror(root: &Path, copy: &Path, mutated: &BTreeMap<String, String>) -> Result<(), Failure> {
    let wanted = tree::paths(root)?;
    for path in wanted.iter().filter(|path| !mutated.contains_key(*path)) {
        let from = root.join(path);
        let bytes = std::fs::read(&from).map_err(|e| Failure::system("can't read", &from, &e))?;
        update(&copy.join(path), &bytes)?;
    }
    for (path, text) in mutated {
        update(&copy.join(path), text.as_bytes())?;
    }
    for path in tree::paths(copy)? {
        if wanted.binary_search(&path).is_err() && !mutated.contains_key(&path) {
            let stale = copy.join(path);
            std::fs::remove_file(&stale)
                .map_err(|e| Failure::system("can't remove", &stale, &e))?;
        }
    }
    Ok(())
}

fn update(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Failure::system("can't make", parent, &e))?;
    }
    std::fs::write(path, bytes).map_err(|e| Failure::system("can't write", path, &e))
}

/// The module that the copy gets, of a crate with mutants up to number `last`: which one is on, and
/// which ones a program comes by.
pub(super) fn switch(last: u32) -> String {
    format!(
        r#"//! Which mutant is on, and which ones are come by.
use core::sync::atomic::{{AtomicBool, AtomicU32, Ordering}};
use std::io::Write;

/// Nobody has asked yet.
const UNKNOWN: u32 = u32::MAX;
/// None is on, and those that are come by are noted.
const NOTING: u32 = u32::MAX - 1;
static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static NOTED: [AtomicBool; {last} + 1] = [const {{ AtomicBool::new(false) }}; {last} + 1];

#[cold]
fn look_up(number: u32) -> bool {{
    let value = std::env::var("{VARIABLE}").ok();
    let active = match std::env::var_os("{REACHED}") {{
        Some(_) => NOTING,
        None => value.and_then(|value| value.parse().ok()).unwrap_or(0),
    }};
    ACTIVE.store(active, Ordering::Relaxed);
    is(number)
}}

#[cold]
fn note(number: u32) -> bool {{
    let noted = &NOTED[number as usize];
    if !noted.load(Ordering::Relaxed) && !noted.swap(true, Ordering::Relaxed) {{
        let path = std::env::var_os("{REACHED}").unwrap_or_default();
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        // At once, as the program may be killed at any time.
        let _ = file.map(|mut file| file.write_all(format!("{{number}}\n").as_bytes()));
    }}
    false
}}

#[inline]
pub(crate) fn is(number: u32) -> bool {{
    match ACTIVE.load(Ordering::Relaxed) {{
        UNKNOWN => look_up(number),
        NOTING => note(number),
        active => active == number,
    }}
}}

#[inline]
pub(crate) fn order(number: u32, order: Ordering) -> Ordering {{
    if is(number) {{ Ordering::Relaxed }} else {{ order }}
}}
"#
    )
}
