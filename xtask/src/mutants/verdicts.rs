//! Mutants that earlier runs noticed, so that one that was broken off can be gone on with.
//!
//! A line for each stands in `target/mutants/CRATE.noticed`, and of runs that somebody has kept in
//! `docs/mutants/CRATE.noticed`: a hash of the text of its file and of
//! what it is, whether the program hung, and which program noticed it. So a mutant whose file has
//! changed is tried again. Those that nobody noticed are always tried again, as there may be new
//! tests.

use core::hash::{Hash, Hasher};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::DefaultHasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::operators::Mutant;
use super::trial::Verdict;
use crate::Failure;

/// What was noticed.
pub(super) struct Verdicts {
    path: PathBuf,
    /// Hashes of the texts of files.
    texts: BTreeMap<String, u64>,
    /// By hash: whether the program hung, and its name.
    noticed: BTreeMap<u64, (bool, String)>,
    /// Where others are added.
    file: Option<Mutex<File>>,
}

impl Verdicts {
    /// Those of crate `package`, whose files have these `texts`; nothing can be added.
    pub(super) fn read<'a>(
        (root, directory): (&Path, &Path),
        package: &str,
        texts: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Verdicts {
        let path = directory.join(format!("{package}.noticed"));
        let kept = root.join(format!("docs/mutants/{package}.noticed"));
        // There need be none.
        let lines = [&path, &kept].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        Verdicts {
            path,
            texts: texts.map(|(name, text)| (name.to_owned(), hash(&text))).collect(),
            noticed: lines.iter().flat_map(|text| text.lines()).filter_map(parse).collect(),
            file: None,
        }
    }

    /// Those of crate `package`, to which others are added; as if there were none yet, unless the
    /// run `resumes`.
    pub(super) fn open<'a>(
        (root, directory): (&Path, &Path),
        package: &str,
        texts: impl Iterator<Item = (&'a str, &'a str)>,
        resumes: bool,
    ) -> Result<Verdicts, Failure> {
        let mut all = Verdicts::read((root, directory), package, texts);
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        let path = &all.path;
        let file = options.open(path).map_err(|e| Failure::system("can't write", path, &e))?;
        if !resumes {
            file.set_len(0).map_err(|e| Failure::system("can't empty", path, &e))?;
            all.noticed.clear();
        }
        all.file = Some(Mutex::new(file));
        Ok(all)
    }

    fn key(&self, mutant: &Mutant) -> u64 {
        let Mutant { file, function, operator, occurrence, text, .. } = mutant;
        hash(&(self.texts.get(file), file, function, operator, occurrence, text))
    }

    /// By which of the programs with those `names` it was noticed, if it was.
    pub(super) fn of(&self, mutant: &Mutant, names: &[String]) -> Option<Verdict> {
        let (is_hang, program) = self.noticed.get(&self.key(mutant))?;
        let by = names.iter().position(|name| name == program)?;
        Some(Verdict::Caught { by, is_hang: *is_hang })
    }

    /// Whether `mutant` was noticed.
    pub(super) fn has(&self, mutant: &Mutant) -> bool {
        self.noticed.contains_key(&self.key(mutant))
    }

    /// Notes what came out for `mutant`.
    pub(super) fn add(
        &self,
        mutant: &Mutant,
        verdict: Verdict,
        names: &[String],
    ) -> Result<(), Failure> {
        let (Verdict::Caught { by, is_hang }, Some(file)) = (verdict, &self.file) else {
            return Ok(());
        };
        let program = names.get(by).map_or("", |name| name);
        let line = format!("{:016x} {is_hang} {program}\n", self.key(mutant));
        let mut file = file.lock().unwrap_or_else(|poison| poison.into_inner());
        let written = file.write_all(line.as_bytes());
        written.map_err(|e| Failure::system("can't write", &self.path, &e))
    }
}

fn parse(line: &str) -> Option<(u64, (bool, String))> {
    let mut fields = line.splitn(3, ' ');
    let key = u64::from_str_radix(fields.next()?, 16).ok()?;
    let is_hang = fields.next()?.parse().ok()?;
    Some((key, (is_hang, fields.next()?.to_owned())))
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
