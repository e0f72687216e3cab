//! `conform smoke`: a file system is made, used a little, mounted again, and gone: whether suites
//! can be run at all.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::options::Options;
use super::room::Room;
use super::step::{self, command};
use super::target::{Target, is_mounted};
use super::{judged, watch};
use crate::Failure;
use crate::tally::Tally;

/// An ordinary user that every room has.
const USER: &str = "fsgqa";
/// Bytes that are written: more than one page.
const LENGTH: usize = 100_000;

/// Runs it.
pub(super) fn run(room: &Room, options: &Options) -> Result<Tally, Failure> {
    judged(room, options, |target| {
        println!("mounted at {}", target.directory().display());
        std::thread::sleep(Duration::from_secs(options.hold));
        let mut tally = Tally::default();
        for (what, holds) in watch::within(step::LIMIT, || look(room, target))? {
            if !holds {
                println!("{what}: FAILED");
            }
            tally += Tally::one(holds);
        }
        Ok(tally)
    })
}

fn look(room: &Room, target: &mut dyn Target) -> Result<[(&'static str, bool); 4], Failure> {
    let directory = target.directory().to_owned();
    let system = |e: std::io::Error| Failure::system("can't use", &directory, &e);
    let is_there = is_mounted(&directory);
    let file = directory.join("file");
    std::fs::write(&file, vec![7; LENGTH]).map_err(system)?;
    let closed = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&directory, closed).map_err(system)?;
    let foreign = writes(room, &directory);
    let own = directory.join("own");
    std::fs::create_dir(&own).map_err(system)?;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(&own, open).map_err(system)?;
    let own = writes(room, &own);
    target.remount()?;
    let is_kept = std::fs::read(&file).map_err(system)? == vec![7; LENGTH];
    Ok([
        ("it is mounted", is_there),
        ("an ordinary user can't make files where he may not write", !foreign),
        ("an ordinary user can make files where he may write", own),
        ("a file is the same after mounting again", is_kept),
    ])
}

/// Whether an ordinary user can make a file in `directory`.
fn writes(room: &Room, directory: &Path) -> bool {
    let mut touch = command("setpriv", &["--reuid", USER, "--regid", USER, "--clear-groups"]);
    touch.arg("touch").arg(directory.join("new"));
    room.must(&mut touch, step::LIMIT).is_ok()
}
