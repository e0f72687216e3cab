//! Scenes: tests that need a mount namespace of their own. The test program is started again in
//! one, and runs the one test that plays a part.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Scratch, finish, need_root, text};

/// Which part to play.
const PART: &str = "CONQUEST_TEST_PART";
/// Where.
const PLACE: &str = "CONQUEST_TEST_PLACE";

/// This test program, to play `part` in `place`, started by the words of `program`.
pub fn part(program: &[&str], part: &str, place: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = match program {
        [] => Command::new(own),
        [program, args @ ..] => {
            let mut command = Command::new(program);
            command.args(args).arg(own);
            command
        }
    };
    command.args(["--exact", "plays_a_part", "--nocapture", "--test-threads=1"]);
    command.env(PART, part).env(PLACE, place);
    command
}

/// Plays `scene` in a mount namespace of its own, where there is a directory `mnt`.
pub fn play(scene: &str) {
    need_root();
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("mnt")).unwrap();
    let mut command = part(&["unshare", "-m"], scene, scratch.path());
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The part that this process is to play, and where; none when tests are run.
pub fn own_part() -> Option<(String, PathBuf)> {
    let part = std::env::var(PART).ok()?;
    Some((part, std::env::var_os(PLACE)?.into()))
}
