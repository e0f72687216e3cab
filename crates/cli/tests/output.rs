//! Where output goes: pipes, terminals, programs.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use support::{Scratch, command, printed, wait};

/// A tree of many files, and a store with it.
fn filled(scratch: &Scratch, files: usize) -> (String, String) {
    let tree = scratch.join("tree");
    std::fs::create_dir(&tree).unwrap();
    for nth in 0..files {
        std::fs::write(tree.join(format!("a file with a long name, number {nth:06}")), "").unwrap();
    }
    let store = scratch.store("store");
    let tree = tree.to_str().unwrap().to_owned();
    printed(["import", &tree, &format!("{store}:/tree")]);
    (tree, store)
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let scratch = Scratch::new();
    let (_, store) = filled(&scratch, 5000);
    let program = env!("CARGO_BIN_EXE_conquest");
    for listing in ["ls", "ls -l", "ls --json", "tree", "tree --json"] {
        let script = format!("{program} {listing} {store}:/tree | head -n 1");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{listing}");
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{listing}");
    }
    // It ends as other tools do.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = command(None)
        .args(["ls", &format!("{store}:/tree")])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = wait(&mut child);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGPIPE));
}

/// A new terminal: our end, and the program's.
fn terminal() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let theirs = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).unwrap();
    (ours, theirs)
}

/// What comes out of a terminal until the program is gone.
fn read_terminal(ours: OwnedFd) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut file = std::fs::File::from(ours);
        let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
        // Once nobody has the other end, reading fails.
        while let Ok(len) = file.read(&mut buffer) {
            shown.extend(&buffer[..len]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    })
}

#[test]
fn the_bar_is_shown_on_a_terminal_and_nowhere_else() {
    let scratch = Scratch::new();
    let (tree, store) = filled(&scratch, 3000);
    let (ours, theirs) = terminal();
    let shown = read_terminal(ours);
    let to = format!("{store}:/second");
    let mut import = command(None);
    import.args(["import", "--verify", &tree, &to]).stdout(Stdio::null()).stderr(theirs);
    import.env("TERM", "xterm");
    let mut child = import.spawn().unwrap();
    // The command keeps its own copy of the terminal.
    drop(import);
    assert!(wait(&mut child).success());
    let shown = shown.join().unwrap();
    assert!(shown.contains("files: ") && shown.contains("/s"), "{shown:?}");
    // In a pipe, there is not a byte of it.
    printed(["import", "--delete", &tree, &format!("{store}:/third")]);
}

#[test]
fn names_are_quoted_and_in_columns_on_a_terminal() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    for name in ["plain", "with blank", "new\nline"] {
        printed(["mkdir", &format!("{store}:/{name}")]);
    }
    let (ours, theirs) = terminal();
    let shown = read_terminal(ours);
    let mut list = command(None);
    list.args(["ls", &format!("{store}:/")]).stdout(theirs);
    let mut child = list.spawn().unwrap();
    drop(list);
    assert!(wait(&mut child).success());
    assert_eq!(shown.join().unwrap(), "'new'$'\\n''line'  plain  'with blank'\r\n");
}

/// The names of all fields in `value`, nested ones with dots.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                fields(value, &path, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, path, found)),
        _ => {}
    }
}

/// The fields that `docs/JSON.md` describes, by schema; those that may be missing end in `?`.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = include_str!("../../../docs/JSON.md");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut schema = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## `conquest.") {
            schema = name.trim_end_matches('`').to_owned();
            found.entry(schema.clone()).or_default();
        } else if let Some(row) = line.strip_prefix("| `").filter(|_| !schema.is_empty()) {
            let field = row.split('`').next().unwrap().to_owned();
            found.get_mut(&schema).unwrap().insert(field);
        }
    }
    found
}

/// What is told of rescuing a store, and large files.
fn rescued(scratch: &Scratch) -> Vec<String> {
    let path = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let names = ["one", "two", "lost", "found", "files", "copy", "large"];
    let [one, two, lost, found, files, copy, large] = names.map(path);
    for disk in [&one, &two] {
        std::fs::File::create(disk).unwrap().set_len(96 << 20).unwrap();
    }
    // Other devices than files of the store keep what is on them.
    printed(["mkfs", "--size-max", "16M", "--threshold", "64K", "--volume", &one, &lost]);
    std::fs::write(&large, vec![7; 1 << 20]).unwrap();
    printed(["cp", &large, &format!("{lost}:/large")]);
    printed(["save", &lost, &copy]);
    printed(["destroy", "--yes", &lost]);
    let store = printed(["volume", "rescue", "--json", "--to", &found, &one]);
    assert!(printed(["cat", &format!("{found}:/large")]).len() == 1 << 20);
    printed(["destroy", "--yes", &found]);
    printed(["restore", "--medium", "battery", "--volume", &two, &copy, &lost]);
    printed(["destroy", "--yes", &lost]);
    let value: Value = serde_json::from_str(&store).unwrap();
    assert_eq!((&value["kind"], &value["whole"]), (&"store".into(), &true.into()));
    let large = printed(["volume", "rescue", "--json", "--to", &files, &two]);
    let value: Value = serde_json::from_str(&large).unwrap();
    assert_eq!((&value["kind"], &value["whole"]), (&"files".into(), &true.into()));
    assert_eq!(value["files"][0]["bytes"], 1 << 20);
    vec![store, large]
}

#[test]
fn programs_get_the_fields_that_are_documented() {
    let scratch = Scratch::new();
    let (tree, store) = filled(&scratch, 3);
    let inside = format!("{store}:/tree");
    printed(["ln", "-s", "a\u{7f}b", &format!("{store}:/link")]);
    let saved = scratch.join("saved").to_str().unwrap().to_owned();
    let root = format!("{store}:/");
    let logged = scratch.join("logged").to_str().unwrap().to_owned();
    printed(["mkfs", "--size-max", "16M", "--volume", "96M", &logged]);
    let answers = [
        ("ls", vec![printed(["ls", "--json", &root])]),
        ("tree", vec![printed(["tree", "--json", &root])]),
        ("stat", vec![printed(["stat", "--json", &root, &format!("{store}:/link")])]),
        ("df", vec![printed(["df", "--json", &store])]),
        ("info", vec![printed(["info", "--json", &store]), printed(["info", "--json", &logged])]),
        ("transfer", vec![printed(["import", "--verify", "--json", &tree, &inside])]),
        ("doctor", vec![printed(["doctor", "--json"])]),
        ("fsck", vec![printed(["fsck", "-n", "--json", &store])]),
        ("save", vec![printed(["save", "--json", &store, &saved])]),
        ("restore", vec![printed(["restore", "--force", "--json", &saved, &store])]),
    ];
    let disk = scratch.join("disk").to_str().unwrap().to_owned();
    let made = printed(["volume", "create", "--size", "4M", "--json", &disk]);
    let answers = answers.into_iter().chain([
        ("volume-info", vec![made, printed(["volume", "info", "--json", &disk])]),
        ("volume-check", vec![printed(["volume", "check", "--json", &disk])]),
        ("volume-rescue", rescued(&scratch)),
    ]);
    let answers: Vec<_> = answers.collect();
    printed(["destroy", "--yes", &logged]);
    let documented = documented();
    let schemas: BTreeSet<&str> = answers.iter().map(|(schema, _)| *schema).collect();
    assert_eq!(schemas, documented.keys().map(String::as_str).collect());
    for (schema, texts) in answers {
        let mut found = BTreeSet::new();
        for text in texts {
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["schema"], format!("conquest.{schema}"));
            assert_eq!(value["version"], 1);
            fields(&value, "", &mut found);
        }
        let (always, sometimes): (Vec<&String>, Vec<&String>) =
            documented[schema].iter().partition(|field| !field.ends_with('?'));
        for field in &always {
            assert!(found.remove(*field), "{schema}: {field} is documented and not there");
        }
        for field in sometimes {
            found.remove(field.trim_end_matches('?'));
        }
        assert!(found.is_empty(), "{schema}: not documented: {found:?}");
    }
}
