//! Processes in the background, and what their starters hear of them. The other process is this
//! test program again, which runs the one test that plays its part.

use std::path::PathBuf;

use super::*;

/// Which part to play.
const ROLE: &str = "CONQUEST_TEST_ROLE";
/// Where to leave what was found.
const PROOF: &str = "CONQUEST_TEST_PROOF";

/// Starts the other process.
fn started(role: &str, proof: &PathBuf, limit: Duration) -> core::result::Result<(), Failure> {
    // A file of the starter's is open as 9.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 9>/dev/null", "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "mount::background::tests::plays_its_part", "--nocapture"]);
    command.env(ROLE, role).env(PROOF, proof);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    start(command, limit)
}

/// The other process; nothing when tests are run.
#[test]
fn plays_its_part() {
    let (Some(role), Some(proof)) = (std::env::var_os(ROLE), std::env::var_os(PROOF)) else {
        return;
    };
    assert!(std::fs::read_link("/proc/self/fd/9").is_ok());
    let parent = Parent::leave().unwrap();
    match role.to_str().unwrap() {
        "ready" => {
            // A session of its own. That before may have no number: its first process can be
            // outside of this pid namespace.
            assert_eq!(rustix::process::getsid(None).unwrap(), rustix::process::getpid());
            parent.ready().unwrap();
            let names = (0..3).map(|number| format!("/proc/self/fd/{number}"));
            let links: Vec<_> = names.map(|name| std::fs::read_link(name).unwrap()).collect();
            let ninth = std::fs::read_link("/proc/self/fd/9").is_ok();
            let found = format!("{:?} {links:?} {ninth}", std::env::current_dir().unwrap());
            let partial = PathBuf::from(&proof).with_extension("partial");
            std::fs::write(&partial, found).unwrap();
            std::fs::rename(partial, proof).unwrap();
        }
        "misused" => parent.failed(&Failure::Usage(Reason::rule("option x: unknown"))),
        "failed" => parent.failed(&Failure::Failed(Reason::rule("no store"))),
        "killed" => {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
        "slow" => std::thread::sleep(Duration::from_secs(60)),
        _ => std::process::exit(7),
    }
}

fn proof(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("conquest-background-{name}-{}", std::process::id()))
}

#[test]
fn who_is_ready_stands_on_its_own() {
    let proof = proof("ready");
    started("ready", &proof, LIMIT).unwrap();
    let begin = Instant::now();
    let found = loop {
        if let Ok(found) = std::fs::read_to_string(&proof) {
            break found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was found");
        std::thread::sleep(Duration::from_millis(5));
    };
    std::fs::remove_file(proof).unwrap();
    assert_eq!(found, "\"/\" [\"/dev/null\", \"/dev/null\", \"/dev/null\"] false");
}

#[test]
fn failures_are_told_in_their_own_words() {
    let failure = started("misused", &proof("none"), LIMIT).unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(reason) if reason.to_string() == "option x: unknown")
    );
    let failure = started("failed", &proof("none"), LIMIT).unwrap_err();
    assert!(matches!(&failure, Failure::Failed(reason) if reason.to_string() == "no store"));
}

#[test]
fn who_ends_without_a_word_is_told_by_how_it_ended() {
    let said = |role| {
        let failure = started(role, &proof("none"), LIMIT).unwrap_err();
        failure.reason().to_string()
    };
    assert!(said("killed").contains("ended by signal 9"), "{}", said("killed"));
    assert!(said("other").contains("ended with exit code 7"), "{}", said("other"));
}

#[test]
fn who_is_too_slow_is_ended() {
    let failure = started("slow", &proof("none"), Duration::from_millis(1500)).unwrap_err();
    assert!(failure.reason().to_string().contains("not ready after 2 s"), "{failure:?}");
}

#[test]
fn who_finds_nobody_to_tell_knows() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let said = Parent(ours).say(&[READY]).unwrap_err().to_string();
    assert!(said.contains("has ended"), "{said}");
}
