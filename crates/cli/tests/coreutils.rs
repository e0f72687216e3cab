//! Side by side with the common tools: the same commands on a directory in shared RAM and on a
//! store leave the same files, and fail for the same reasons.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::snapshot::{File, Tree, take};
use support::{Scratch, command, conquest, finish, printed, refused, text};

/// Commands, with `@` for the directory or the store. Files of the host are in `#`.
const COMMANDS: &[&str] = &[
    "mkdir @/a",
    "mkdir @/a",
    "mkdir @/no/b",
    "mkdir -p @/p/q/r @/p/s",
    "mkdir -p @/p/q",
    "mkdir -m 1777 @/tmp",
    "mkdir -m u=rwx,go= @/private",
    "mkdir -p -m 700 @/x/y",
    "cp #/file @/a",
    "cp #/file @/a/copy",
    "cp #/file @/no/copy",
    "cp #/missing @/a",
    "cp #/file @/a/file/copy",
    "cp #/directory @/a",
    "cp -r #/directory @/a",
    "cp -r #/directory @/new",
    "cp -r #/directory @/new",
    "cp -r -T #/directory @/new",
    "cp -a #/directory @/archive",
    "cp -a #/link @/a/link",
    "cp #/link @/a/followed",
    "cp -P #/link @/a/not-followed",
    "cp #/dangling @/a/x",
    "cp #/file #/other @/p",
    "cp #/file #/other @/a/copy",
    "cp -n #/other @/a/copy",
    "cp -f #/other @/a/file",
    "cp @/a/file @/a/file",
    "cp -r @/a @/b",
    "cp @/a/copy @/b",
    "cp -p #/private @/b/private",
    "cp -r #/file @/private/",
    "cp -r #/directory @/a/copy",
    "cp #/file @/a/slash/",
    "ln @/a/copy @/a/hard",
    "ln @/a/copy @/a/hard",
    "ln @/a @/hard-directory",
    "ln @/no @/x/none",
    "ln @/a/copy @/p",
    "ln -f @/a/copy @/a/file",
    "ln -s target @/a/symbolic",
    "ln -s target @/a/symbolic",
    "ln -sf target2 @/a/symbolic",
    "ln -s ../a @/b/up",
    "ln -s one @/x",
    "mv @/a/hard @/a/moved",
    "mv @/a/moved @/b",
    "mv @/a/no @/b",
    "mv @/b/moved @/a/copy",
    "mv @/p/q @/x",
    "mv @/x @/x/y",
    "mv -n @/a/file @/b/copy",
    "mv @/p/s @/tmp",
    "mv -T @/tmp/s @/new",
    "mv @/a/followed @/a",
    "rm @/no",
    "rm -f @/no",
    "rm @/a",
    "rm -d @/x",
    "rm -d @/tmp/s",
    "rm -f @/a",
    "rm @/a/symbolic",
    "rm -r @/new",
    "rm @/a/file/",
    "rm -r @/archive @/b/copy",
    "rm @/a/.",
    "mkdir @/a/copy/x",
    "ls @/a",
    "ls -A @/a",
    "ls -d @/a",
    "ls @/no",
    "ls -r @/b",
    "ls -R @/b",
    "ls -S @/a",
    "ls -1 @/a/copy",
    "ls @/a @/b @/a/copy",
    "cat @/a/copy @/no @/b",
    "cat @/a/copy",
];

struct Sides {
    plain: String,
    store: String,
    host: String,
}

impl Sides {
    fn run(&self, line: &str) -> [Output; 2] {
        let words: Vec<&str> = line.split(' ').collect();
        let side = |place: &str| -> Vec<String> {
            words.iter().map(|w| w.replace('@', place).replace('#', &self.host)).collect()
        };
        let plain = side(&self.plain);
        let mut other = Command::new(&plain[0]);
        other.args(&plain[1..]).env("LC_ALL", "C");
        let output = other.output().unwrap();
        [output, conquest(side(&format!("{}:", self.store)))]
    }
}

/// The last part of each message: the reason. What tools add is left out.
fn reasons(output: &Output) -> Vec<String> {
    let last = |line: &str| {
        let reason = line.rsplit(": ").next().unwrap_or_default();
        reason.split(" (").next().unwrap_or_default().to_owned()
    };
    text(&output.stderr).lines().map(last).collect()
}

/// What of a file does not depend on when it was made, or by which way.
fn lasting(tree: &Tree) -> Vec<(String, u32, i64, String, String, usize)> {
    let row = |(path, file): (&Vec<u8>, &File)| {
        let bytes: usize = file.bytes.iter().map(|(_, bytes)| bytes.len()).sum();
        (text(path), file.mode, file.size, text(&file.first), text(&file.target), bytes)
    };
    tree.iter().map(row).collect()
}

/// Reasons that are one thing in other words: ours, and those of the common tools.
const OTHER_WORDS: &[(&str, &[&str])] = &[
    ("-r not specified; omitting directory", &["-r not specified; omitting directory"]),
    ("is the same file as", &["are the same file"]),
    ("cannot copy a directory into itself", &["cannot copy a directory", "into itself"]),
    ("cannot move to a subdirectory of itself", &["to a subdirectory of itself"]),
    ("hard link not allowed for directory", &["hard link not allowed for directory"]),
    ("cannot overwrite non-directory", &["cannot overwrite non-directory"]),
    ("cannot overwrite directory", &["cannot overwrite directory", "File exists"]),
    ("Directory not empty", &["Directory not empty"]),
    ("not a directory", &["Not a directory"]),
    ("is the same file already", &["are the same file"]),
    ("refusing to remove '.' or '..' directory", &["refusing to remove '.' or '..' directory"]),
    ("No such file or directory", &["No such file or directory", "not a directory"]),
    ("Not a directory", &["Not a directory", "No such file or directory", "target"]),
];

fn agree(line: &str, [theirs, ours]: &[Output; 2]) {
    assert_eq!(
        theirs.status.code(),
        ours.status.code(),
        "{line}:\n{}{}",
        text(&theirs.stderr),
        text(&ours.stderr)
    );
    let (their_reasons, our_reasons) = (reasons(theirs), reasons(ours));
    if their_reasons == our_reasons {
        return;
    }
    let (their_text, our_text) = (text(&theirs.stderr), text(&ours.stderr));
    let is_known = OTHER_WORDS.iter().any(|(own, others)| {
        our_text.contains(own) && others.iter().any(|other| their_text.contains(other))
    });
    assert!(is_known, "{line}:\n{their_text}{our_text}");
}

fn make_host(path: &Path) {
    std::fs::create_dir_all(path.join("directory/below/empty")).unwrap();
    std::fs::write(path.join("file"), "the file\n").unwrap();
    std::fs::write(path.join("other"), "another file\n").unwrap();
    std::fs::write(path.join("private"), "private\n").unwrap();
    std::fs::write(path.join("directory/one"), "1\n").unwrap();
    std::fs::write(path.join("directory/below/two"), vec![2; 300_000]).unwrap();
    std::fs::hard_link(path.join("directory/one"), path.join("directory/also-one")).unwrap();
    for (target, name) in [("file", "link"), ("nowhere", "dangling"), ("one", "directory/link")] {
        std::os::unix::fs::symlink(target, path.join(name)).unwrap();
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(path.join("private"), mode).unwrap();
}

#[test]
fn commands_do_what_the_common_tools_do() {
    let scratch = Scratch::new();
    let text_of = |name: &str| scratch.join(name).to_str().unwrap().to_owned();
    let sides =
        Sides { plain: text_of("plain"), store: scratch.store("store"), host: text_of("host") };
    std::fs::create_dir(&sides.plain).unwrap();
    make_host(sides.host.as_ref());
    for line in COMMANDS {
        let outputs = sides.run(line);
        agree(line, &outputs);
        let [theirs, ours] = outputs.map(|output| text(&output.stdout));
        let ours = ours.replace(&format!("{}:", sides.store), &sides.plain);
        assert_eq!(theirs, ours, "{line}");
        let out = text_of("out");
        printed(["export", &format!("{}:/", sides.store), &out]);
        let (plain, store) = (take(sides.plain.as_ref()), take(out.as_ref()));
        assert_eq!(lasting(&plain), lasting(&store), "after {line}");
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn nothing_is_copied_into_itself() {
    // The common tool copies what was there before, and then complains.
    let scratch = Scratch::new();
    let store = scratch.store("store");
    printed(["mkdir", "-p", &format!("{store}:/a/b/c")]);
    for to in ["/a/inside", "/a/b/c", "/a/b/c/inside"] {
        let said = refused(1, ["cp", "-r", &format!("{store}:/a"), &format!("{store}:{to}")]);
        assert!(said.contains("cannot copy a directory into itself"), "{said}");
    }
    assert_eq!(printed(["ls", "-A", &format!("{store}:/a/b/c")]), "");
}

#[test]
fn questions_are_asked() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let [old, new] = ["old", "new"].map(|name| {
        std::fs::write(scratch.join(name), name).unwrap();
        scratch.join(name).to_str().unwrap().to_owned()
    });
    let inside = format!("{store}:/x");
    printed(["cp", &old, &inside]);
    let answer = |args: &[&str], answer: &str| {
        let file = scratch.join("answer");
        std::fs::write(&file, answer).unwrap();
        let input = std::fs::File::open(file).unwrap();
        let mut command = command(None);
        command.args(args).stdin(input);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let output = finish(&mut command);
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    let asked = answer(&["cp", "-i", &new, &inside], "n\n");
    assert_eq!(asked, format!("conquest: cp: overwrite {inside}? "));
    assert_eq!(printed(["cat", &inside]), "old");
    answer(&["cp", "-i", &new, &inside], "y\n");
    assert_eq!(printed(["cat", &inside]), "new");
    answer(&["rm", "-i", &inside], "\n");
    assert_eq!(printed(["ls", &format!("{store}:/")]), "x\n");
    answer(&["rm", "-i", &inside], "yes\n");
    assert_eq!(printed(["ls", &format!("{store}:/")]), "");
}
