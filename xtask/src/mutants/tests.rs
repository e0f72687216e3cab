//! Tests of the rewriting, on a small sample.

use std::collections::{BTreeMap, BTreeSet};

use super::operators::{self, Aim, Mutant};
use super::rewrite::{self, Rewritten};
use super::{build, slices, survivors};
use crate::tree::SourceFile;

const SAMPLE: &str = r#"//! Sample.
use core::sync::atomic::Ordering::{self, Acquire};
const LIMIT: Ordering = Ordering::SeqCst;

impl Lane {
    /// Commits.
    fn commit(&self, m: &M) -> Result<()> {
        m.put(self.at, 1, Ordering::Release); // the word
        m.write_back(self.at, 8);
        m.fence();
        let seen = m.load(self.at, Acquire);
        if seen == self.tag && self.count < 3 {
            self.retire(m)?;
        }
        while let Some(owner) = self.next() && owner != 0 {
            count(owner);
        }
        match seen {
            0 => m.put_or(self.at, 1),
            n if n <= self.sequence => return Ok(()),
            _ => {}
        }
        if seen > 4 {
            other();
        }
        let _ = m.compare_exchange(self.at, 0, 1, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    const fn skipped(&self) { self.fence(); }

    fn tail(&self) { self.m.fence() }
}

#[cfg(test)]
mod tests {
    fn skipped() { m.fence(); }
}
"#;

const RULES: &str = r#"//! Sample.
impl Files {
    fn resize(&self, size: u64) -> Result<()> {
        check(size)?;
        if size > self.most {
            return Err(Errno::EFBIG.into());
        }
        let is_same = self.size == size;
        if !is_same && (self.is_open || self.size != 0) {
            self.size = size;
            at += 1;
        }
        while let Some(page) = self.next()
            && page < size - 1
        {
            drop(page);
        }
        match size {
            n if n == 0 => self.clear(),
            _ => {}
        }
        self.change(now)
    }
}
"#;

fn file() -> SourceFile {
    SourceFile { path: "crates/a/src/lib.rs".into(), text: SAMPLE.into() }
}

fn mutated(disabled: &BTreeSet<u32>) -> (Vec<Mutant>, Rewritten) {
    let (mutants, edits) = operators::find(&file(), Aim::Words, 0, disabled).unwrap();
    (mutants, rewrite::rewrite(SAMPLE, &edits))
}

#[test]
fn each_operator_finds_its_mutants() {
    let (mutants, rewritten) = mutated(&BTreeSet::new());
    syn::parse_file(&rewritten.text).unwrap();
    let mut counts = BTreeMap::new();
    for mutant in &mutants {
        *counts.entry(mutant.operator).or_insert(0) += 1;
    }
    let expected = [
        // put, write_back, fence, retire, put_or, compare_exchange, fence.
        ("drop", 7),
        // The condition with a tag, the one with an owner, the guard with a sequence.
        ("false", 3),
        // seen == tag, count < 3, owner != 0, n <= sequence.
        ("flip", 4),
        // put and write_back, write_back and fence.
        ("swap", 2),
        ("true", 3),
        // Release, Acquire, AcqRel.
        ("weaken", 3),
    ];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    let numbers: Vec<u32> = mutants.iter().map(|mutant| mutant.number).collect();
    assert!(numbers.iter().copied().eq(1..=22));
    assert_eq!(
        mutants[0].describe(),
        "crates/a/src/lib.rs:8:9: swap in Lane::commit: \
         m.put(self.at, 1, Ordering::Release); <-> m.write_back(self.at, 8);"
    );
}

#[test]
fn rules_are_broken_in_other_ways() {
    let file = SourceFile { path: "crates/fs/src/a.rs".into(), text: RULES.into() };
    let (mutants, edits) = operators::find(&file, Aim::Rules, 0, &BTreeSet::new()).unwrap();
    let rewritten = rewrite::rewrite(RULES, &edits);
    syn::parse_file(&rewritten.text).unwrap();
    let found: Vec<String> =
        mutants.iter().map(|mutant| format!("{} {}", mutant.operator, mutant.text)).collect();
    let expected = [
        "drop check(size)?;",
        "bound size > self.most",
        "errno Errno::EFBIG",
        "negate self.size == size",
        // What is connected is not negated.
        "connect !is_same && (self.is_open || self.size != 0)",
        "connect self.is_open || self.size != 0",
        // A plain variable's assignment, and `drop`, stay.
        "drop self.size = size;",
        "bound page < size - 1",
        "shift size - 1",
        "negate n == 0",
    ];
    assert_eq!(found, expected);
    assert_eq!(Aim::of("pm"), Aim::Words);
    assert_eq!(Aim::of("fs"), Aim::Rules);
    for mutant in &mutants {
        assert!(rewritten.text.contains(&format!("::is({})", mutant.number)));
    }
}

const CHECKS: &str = r#"//! Sample.
impl Volume {
    fn take(&self, segment: u64) -> Result<bool> {
        let _alone = self.lock()?;
        if self.is_held(segment) || self.live(segment) > 0 && self.flush {
            return Ok(false);
        }
        if let Some(seen) = self.seen
            && seen != self.version(segment)
            && self.is_open
        {
            self.forget();
            return Ok(false);
        }
        if self.is_new(segment) {
            self.note(segment);
        }
        Ok(true)
    }
}
"#;

#[test]
fn checks_are_left_out_one_by_one() {
    let file = SourceFile { path: "crates/flash/src/a.rs".into(), text: CHECKS.into() };
    let (mutants, edits) = operators::find(&file, Aim::Checks, 0, &BTreeSet::new()).unwrap();
    let rewritten = rewrite::rewrite(CHECKS, &edits);
    syn::parse_file(&rewritten.text).unwrap();
    let found: Vec<String> = mutants
        .iter()
        .map(|mutant| format!("{} {}", mutant.operator, mutant.text))
        .map(|text| text.chars().take(40).collect())
        .collect();
    let expected = [
        "let go let _alone = self.lock()?;",
        "part self.is_held(segment)",
        "part self.live(segment) > 0 && self.flus",
        "part self.live(segment) > 0",
        "part self.flush",
        "bound self.live(segment) > 0",
        "skip if self.is_held(segment) || self.li",
        "part self.is_open",
        "part seen != self.version(segment)",
        "negate seen != self.version(segment)",
        "negate self.is_open",
        "skip if let Some(seen) = self.seen && se",
        "drop self.forget();",
        "negate self.is_new(segment)",
        "drop self.note(segment);",
    ];
    assert_eq!(found, expected);
    assert_eq!(Aim::of("flash"), Aim::Checks);
}

#[test]
fn every_mutant_is_built_in_unless_disabled() {
    let (mutants, rewritten) = mutated(&BTreeSet::new());
    for mutant in &mutants {
        let number = mutant.number;
        let calls = [format!("::is({number})"), format!("::order({number}, ")];
        assert!(calls.iter().any(|call| rewritten.text.contains(call)), "{number}");
        let (without, rewritten) = mutated(&BTreeSet::from([number]));
        assert_eq!(without.len(), mutants.len());
        assert!(!calls.iter().any(|call| rewritten.text.contains(call)), "{number}");
        syn::parse_file(&rewritten.text).unwrap();
    }
}

#[test]
fn an_error_leads_to_its_mutant() {
    let (mutants, rewritten) = mutated(&BTreeSet::new());
    for mutant in mutants.iter().filter(|mutant| mutant.operator != "true") {
        let call = match mutant.operator {
            "weaken" => format!("order({}, ", mutant.number),
            _ => format!("is({})", mutant.number),
        };
        let at = rewritten.text.find(&call).unwrap();
        let before = &rewritten.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        let found = rewritten.mutant_at(line, column).unwrap();
        let is_pair = mutant.operator == "false" && found + 1 == mutant.number;
        assert!(found == mutant.number || is_pair, "{found} for {}", mutant.describe());
    }
    assert_eq!(rewritten.mutant_at(1, 1), None);
}

#[test]
fn without_edits_nothing_changes() {
    assert_eq!(rewrite::rewrite(SAMPLE, &[]).text, SAMPLE);
    syn::parse_file(&build::switch(22)).unwrap();
}

#[test]
fn accepted_survivors_are_matched_and_need_reasons() {
    let (mutants, _) = mutated(&BTreeSet::new());
    let entry = "# Comment\n\nfile: crates/a/src/lib.rs\nin: Lane::tail\nwhat: drop #1\n\
        text: self.m.fence()\nreason: It is a sample.\n";
    let accepted = survivors::parse(entry).unwrap();
    let is_accepted = |mutant: &&Mutant| accepted.iter().any(|entry| entry.is_for(mutant));
    assert_eq!(mutants.iter().filter(is_accepted).count(), 1);
    assert!(survivors::parse(&entry.replace("reason: It is a sample.", "reason:")).is_err());
    assert!(survivors::parse(&entry.replace("in:", "inside:")).is_err());
    assert!(survivors::parse("nonsense\n").is_err());
}

#[test]
fn two_runs_do_not_share_a_copy() {
    let directory = std::env::temp_dir().join(format!("xtask-mutants-{}", std::process::id()));
    let first = build::take(&directory).unwrap();
    let refused = build::take(&directory).unwrap_err();
    assert!(refused.text().contains("already"), "{}", refused.text());
    drop(first);
    build::take(&directory).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn test_binaries_are_told_from_others() {
    let line = |kind: &str, test: bool| {
        format!(
            "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/x/crates/pm/Cargo.toml\",\
             \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"conquest_pm\",\"test\":true}},\
             \"profile\":{{\"opt_level\":\"1\",\"test\":{test}}},\"executable\":\"/x/t/pm-1\"}}"
        )
    };
    let program = build::test_binary(&line("lib", true)).unwrap();
    assert_eq!(program.name, "tests of pm: conquest_pm");
    assert_eq!(program.directory.to_str(), Some("/x/crates/pm"));
    assert!(program.variables.is_empty());
    assert_eq!(slices::variables("fs", "cut"), [("CONQUEST_STEP", "61")]);
    assert!(slices::is_used("fs", "fs", "kernel") && !slices::is_used("fs", "fs", "speed"));
    assert!(slices::is_used("store", "fs", "due") && !slices::is_used("store", "fs", "kernel"));
    assert!(slices::is_used("store", "image", "stopped"));
    assert!(build::test_binary(&line("lib", false)).is_none());
    assert!(build::test_binary(&line("bin", true)).is_none());
}
