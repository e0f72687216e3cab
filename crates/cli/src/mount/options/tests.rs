//! What options mean.

use super::*;

const ROOT: Giver = Giver { is_root: true, is_sloppy: false };
const USER: Giver = Giver { is_root: false, is_sloppy: false };

fn of(text: &str) -> MountOptions {
    MountOptions::parse(&[text], ROOT).unwrap()
}

fn refused(text: &str, giver: Giver) -> String {
    MountOptions::parse(&[text], giver).unwrap_err().to_string()
}

#[test]
fn nothing_said_is_the_default() {
    assert_eq!(of(""), MountOptions::default());
    assert_eq!(of("defaults,rw,nosuid,nodev,exec,relatime,async"), MountOptions::default());
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
    assert_eq!(of("").flags(), flags);
}

#[test]
fn every_option_does_something() {
    let quiet = ["rw", "nosuid", "nodev", "exec", "atime", "relatime", "norelatime"];
    let quieter = ["nostrictatime", "diratime", "async", "default_permissions", "silent", "loud"];
    for (name, _) in SWITCHES {
        let is_default = of(name) == MountOptions::default();
        assert_eq!(is_default, quiet.contains(&name) || quieter.contains(&name), "{name}");
    }
    let all = of("ro,suid,dev,noexec,noatime,nodiratime,sync,dirsync,remount,allow_other");
    let flags = MountFlags::RDONLY
        | MountFlags::NOEXEC
        | MountFlags::NOATIME
        | MountFlags::NODIRATIME
        | MountFlags::SYNCHRONOUS
        | MountFlags::DIRSYNC;
    assert_eq!(all.flags(), flags);
    assert!(all.remount && all.allow_other);
    assert_eq!(of("strictatime").flags() & MountFlags::STRICTATIME, MountFlags::STRICTATIME);
}

#[test]
fn values_are_typed() {
    let options = of("fsname=\"a,b\",threads=4,log-level=debug");
    assert_eq!(options.fsname, Some("a,b".into()));
    assert_eq!(options.threads, NonZeroU32::new(4));
    assert_eq!(options.log_level, Level::Debug);
    assert_eq!(of("fsname=x,fsname=").fsname, None);
    for (text, part) in [
        ("threads=0", "threads: \"0\" is no number from 1 to 1024"),
        ("threads=1025", "no number"),
        ("threads=many", "no number"),
        ("threads", "threads: needs a value (write threads=VALUE)"),
        ("log-level=loud", "log-level: \"loud\" is no level"),
        ("ro=1", "option ro: takes no value"),
    ] {
        assert!(refused(text, ROOT).contains(part), "{}", refused(text, ROOT));
    }
}

#[test]
fn later_options_win() {
    assert!(!of("ro,rw").read_only);
    assert!(of("rw,ro").read_only);
    assert_eq!(of("noatime,strictatime").access_times, AccessTimes::Strict);
    assert_eq!(of("strictatime,noatime").access_times, AccessTimes::Never);
    let two = MountOptions::parse(&["threads=1", "threads=2"], USER).unwrap();
    assert_eq!(two.threads, NonZeroU32::new(2));
}

#[test]
fn what_concerns_others_is_ignored() {
    let all = "_netdev,nofail,user,users,user=me,owner,noauto,auto,comment=x,\
               x-systemd.requires=a,x-gvfs-hide,\
               user_id=0,group_id=0,max_read=4096,X-mount.mkdir=755,uhelper=udisks2,group";
    assert_eq!(MountOptions::parse(&[all], USER).unwrap(), MountOptions::default());
}

#[test]
fn only_root_asks_for_privileges() {
    assert!(of("suid").suid && of("dev").dev);
    assert_eq!(refused("suid", USER), "option suid: only root may ask for it (leave it out)");
    assert!(refused("dev", USER).contains("option dev"));
    assert!(MountOptions::parse(&["suid,nosuid"], USER).is_ok());
}

#[test]
fn unknown_options_are_named_with_the_nearest_known() {
    assert_eq!(refused("noatme", USER), "option noatme: unknown (did you mean noatime?)");
    assert_eq!(
        refused("log_level=info", USER).split(" (").nth(1),
        Some("did you mean log-level?)")
    );
    assert_eq!(refused("compress", USER), "option compress: unknown (see `conquest help mount`)");
    assert!(MountOptions::parse(&["a b"], USER).unwrap_err().to_string().contains("'a b'"));
    let sloppy = Giver { is_sloppy: true, ..USER };
    assert_eq!(MountOptions::parse(&["compress=zstd"], sloppy).unwrap(), MountOptions::default());
}
