//! The rules in tables: what each is meant to say, for reading.

use conquest_access::*;

use Access as A;

const OWNER: u32 = 10;
const GROUP: u32 = 20;

fn who(fsuid: u32, groups: &[u32], capabilities: Capabilities) -> Credentials<'_> {
    Credentials { fsuid, fsgid: 99, groups, capabilities, umask: 0o022, namespace: None }
}

fn with(capability: Capability) -> Capabilities {
    Capabilities::NONE.with(capability)
}

fn file(mode: u32) -> File<'static> {
    File { mode, uid: OWNER, gid: GROUP, flags: 0, acl: None }
}

fn flagged(mode: u32, flags: u32) -> File<'static> {
    File { flags, ..file(mode) }
}

const REGULAR: u32 = libc::S_IFREG;
const DIRECTORY: u32 = libc::S_IFDIR;
const SYMLINK: u32 = libc::S_IFLNK;
const NONE: Capabilities = Capabilities::NONE;

#[test]
fn the_first_class_that_fits_decides() {
    let mode = REGULAR | 0o421;
    for (user, groups, allowed) in
        [(OWNER, &[GROUP][..], A::READ), (1, &[GROUP][..], A::WRITE), (1, &[][..], A::EXECUTE)]
    {
        for wanted in [A::READ, A::WRITE, A::EXECUTE] {
            let found = permission(&who(user, groups, NONE), &file(mode), wanted);
            assert_eq!(found.is_ok(), wanted == allowed, "{user} {groups:?} {wanted:?}");
        }
        assert_eq!(permission(&who(user, groups, NONE), &file(mode), A::NONE), Ok(()));
    }
}

#[test]
fn capabilities_override_permissions() {
    let cases = [
        (Capability::DacOverride, REGULAR, A::READ | A::WRITE, true),
        (Capability::DacOverride, REGULAR, A::EXECUTE, false),
        (Capability::DacOverride, REGULAR | 0o010, A::EXECUTE | A::WRITE, true),
        (Capability::DacOverride, DIRECTORY, A::from_bits(7), true),
        (Capability::DacReadSearch, REGULAR, A::READ, true),
        (Capability::DacReadSearch, REGULAR, A::WRITE, false),
        (Capability::DacReadSearch, REGULAR | 0o010, A::READ | A::EXECUTE, false),
        (Capability::DacReadSearch, DIRECTORY, A::READ | A::EXECUTE, true),
        (Capability::DacReadSearch, DIRECTORY, A::CHANGE_ENTRIES, false),
        (Capability::Fowner, REGULAR, A::READ, false),
    ];
    for (capability, mode, wanted, is_allowed) in cases {
        let found = permission(&who(1, &[], with(capability)), &file(mode), wanted);
        let expected = if is_allowed { Ok(()) } else { Err(Errno::EACCES) };
        assert_eq!(found, expected, "{capability:?} {mode:o} {wanted:?}");
    }
    // User 0 is nobody special.
    assert_eq!(permission(&who(0, &[], NONE), &file(REGULAR), A::READ), Err(Errno::EACCES));
}

#[test]
fn a_clear_mask_makes_the_kernel_pass_over_the_list() {
    let entry = |qualifier, permissions| Entry { qualifier, permissions };
    let entries = vec![
        entry(Qualifier::Owner, 7),
        entry(Qualifier::User(1), 6),
        entry(Qualifier::OwningGroup, 6),
        entry(Qualifier::Mask, 0),
        entry(Qualifier::Other, 4),
    ];
    let acl = Acl::new(entries).unwrap();
    let mode = REGULAR | acl.permissions();
    let listed = File { acl: Some(&acl), ..file(mode) };
    assert_eq!(permission(&who(1, &[], NONE), &listed, A::READ), Ok(()));
    let shown = acl.with_mode(0o714);
    let listed = File { acl: Some(&shown), ..file(REGULAR | 0o714) };
    assert_eq!(permission(&who(1, &[], NONE), &listed, A::READ), Err(Errno::EACCES));
}

/// What each operation makes of a flag, if everything else allows it.
#[test]
fn flags_forbid() {
    let all = who(0, &[], Capabilities::ALL);
    let free = file(DIRECTORY | 0o777);
    type Operation = (&'static str, fn(&Credentials, &File, &File) -> Result<(), Errno>);
    let write = Open { write: true, ..Open::default() };
    assert_eq!(open(&all, &flagged(REGULAR, flag::APPEND), write), Err(Errno::EPERM));
    let append = Open { write: true, append: true, ..Open::default() };
    assert!(open(&all, &flagged(REGULAR, flag::APPEND), append).is_ok());
    assert_eq!(open(&all, &flagged(REGULAR, flag::IMMUTABLE), append), Err(Errno::EPERM));
    // Operation, and whether it is allowed on what is immutable, and on what is append-only.
    let operations: [(Operation, bool, bool); 13] = [
        (("read", |who, file, _| permission(who, file, A::READ)), true, true),
        (("write", |who, file, _| permission(who, file, A::WRITE)), false, true),
        (("overwrite", |who, file, _| write_open(who, file).map(drop)), false, true),
        (("truncate", |who, file, _| truncate(who, file).map(drop)), false, false),
        (("ftruncate", |who, file, _| truncate_open(who, file).map(drop)), false, false),
        (("allocate", |who, file, _| allocate(who, file, false).map(drop)), false, true),
        (("punch", |who, file, _| allocate(who, file, true).map(drop)), false, false),
        (("chmod", |who, file, _| chmod(who, file, 0).map(drop)), false, false),
        (("chown", |who, file, _| chown(who, file, Some(1), None).map(drop)), false, false),
        (("touch", |who, file, _| set_times(who, file, Times::Now)), false, true),
        (("set times", |who, file, _| set_times(who, file, Times::Explicit)), false, false),
        (("link", |who, file, directory| link(who, directory, file)), false, false),
        (
            ("unlink", |who, file, directory| remove(who, directory, file, Removal::File)),
            false,
            false,
        ),
    ];
    for ((name, operation), if_immutable, if_append) in operations {
        for (flags, is_allowed) in [(flag::IMMUTABLE, if_immutable), (flag::APPEND, if_append)] {
            let expected = if is_allowed { Ok(()) } else { Err(Errno::EPERM) };
            let found = operation(&all, &flagged(REGULAR | 0o644, flags), &free);
            assert_eq!(found, expected, "{name} {flags:#x}");
        }
    }
    let fixed = |flags| flagged(DIRECTORY | 0o777, flags);
    let plain = file(REGULAR);
    assert_eq!(create(&all, &fixed(flag::IMMUTABLE), REGULAR, false), Err(Errno::EPERM));
    assert_eq!(create(&all, &fixed(flag::APPEND), REGULAR, false), Ok(()));
    for flags in [flag::IMMUTABLE, flag::APPEND] {
        assert_eq!(remove(&all, &fixed(flags), &plain, Removal::File), Err(Errno::EPERM));
    }
}

#[test]
fn set_id_bits_are_cleared_by_chown_and_writes() {
    // Mode, who, mode after a write, mode after chown to the owner's own group.
    let member = &[GROUP][..];
    let cases = [
        (0o6755, OWNER, member, NONE, 0o755, 0o755),
        (0o6745, OWNER, member, NONE, 0o2745, 0o2745),
        (0o6745, OWNER, &[][..], NONE, 0o745, 0o745),
        (0o6755, OWNER, member, with(Capability::Fsetid), 0o6755, 0o755),
        (0o6745, OWNER, &[][..], with(Capability::Fsetid), 0o6745, 0o2745),
        (0o1755, OWNER, member, NONE, 0o1755, 0o1755),
    ];
    for (mode, user, groups, capabilities, written, owned) in cases {
        let who = who(user, groups, capabilities);
        let target = file(REGULAR | mode);
        let write = write_open(&who, &target).unwrap();
        assert_eq!(write.mode, REGULAR | written, "{mode:o}");
        assert!(write.drops_capabilities);
        let chown = chown(&who, &target, None, Some(GROUP)).unwrap();
        assert_eq!(chown.mode, REGULAR | owned, "{mode:o}");
        assert!(chown.drops_capabilities);
    }
    let all = who(0, &[], Capabilities::ALL);
    let directory = chown(&all, &file(DIRECTORY | 0o6755), Some(1), Some(2)).unwrap();
    assert_eq!((directory.mode, directory.uid, directory.gid), (DIRECTORY | 0o6755, 1, 2));
    assert!(!directory.drops_capabilities);
    let append_only = flagged(REGULAR | 0o4755, flag::APPEND);
    assert_eq!(write_open(&who(OWNER, &[], NONE), &append_only), Err(Errno::EPERM));
    assert!(write_open(&all, &append_only).is_ok());
}

#[test]
fn owners_give_files_to_their_own_groups_only() {
    let own = who(OWNER, &[GROUP, 21], NONE);
    let cases = [
        (None, Some(21), true),
        (None, Some(99), true),
        (Some(OWNER), None, true),
        (None, Some(22), false),
        (Some(1), None, false),
        (Some(OWNER), Some(22), false),
    ];
    for (uid, gid, is_allowed) in cases {
        let target = file(REGULAR | 0o644);
        assert_eq!(chown(&own, &target, uid, gid).is_ok(), is_allowed, "{uid:?} {gid:?}");
        let capable = who(1, &[], with(Capability::Chown));
        assert!(chown(&capable, &target, uid, gid).is_ok());
        let stranger = chown(&who(1, &[GROUP], NONE), &target, uid, gid);
        assert_eq!(stranger, Err(Errno::EPERM));
    }
    // Clearing the bit is a change of the mode, which CAP_CHOWN does not allow.
    let capable = who(1, &[], with(Capability::Chown));
    assert_eq!(chown(&capable, &file(REGULAR | 0o4755), Some(1), None), Err(Errno::EPERM));
}

#[test]
fn modes_are_the_owners() {
    let target = file(REGULAR | 0o644);
    let own = who(OWNER, &[GROUP], NONE);
    assert_eq!(chmod(&own, &target, 0o7777).unwrap().mode, REGULAR | 0o7777);
    let outside = who(OWNER, &[], NONE);
    assert_eq!(chmod(&outside, &target, 0o7777).unwrap().mode, REGULAR | 0o5777);
    assert_eq!(chmod(&who(1, &[GROUP], NONE), &target, 0), Err(Errno::EPERM));
    assert!(chmod(&who(1, &[], with(Capability::Fowner)), &target, 0).is_ok());
    assert_eq!(chmod(&own, &file(SYMLINK | 0o777), 0), Err(Errno::EOPNOTSUPP));
}

#[test]
fn times_are_the_owners_but_now_is_the_writers() {
    let writable = file(REGULAR | 0o666);
    let other = who(1, &[], NONE);
    assert_eq!(set_times(&other, &writable, Times::Now), Ok(()));
    assert_eq!(set_times(&other, &writable, Times::Explicit), Err(Errno::EPERM));
    assert_eq!(set_times(&other, &file(REGULAR | 0o644), Times::Now), Err(Errno::EACCES));
    let own = who(OWNER, &[], NONE);
    assert_eq!(set_times(&own, &file(REGULAR), Times::Now), Ok(()));
    assert_eq!(set_times(&own, &file(REGULAR), Times::Explicit), Ok(()));
}

#[test]
fn flags_are_the_owners_and_some_are_administrators() {
    let own = who(OWNER, &[], NONE);
    let capable = who(OWNER, &[], with(Capability::LinuxImmutable));
    let plain = file(REGULAR);
    let immutable = flagged(REGULAR, flag::IMMUTABLE);
    let both = flag::IMMUTABLE | flag::NODUMP;
    let cases = [
        (&own, &plain, flag::NODUMP, false, Ok(())),
        (&own, &plain, flag::IMMUTABLE, false, Err(Errno::EPERM)),
        (&capable, &plain, both, false, Ok(())),
        (&capable, &immutable, 0, true, Ok(())),
        (&capable, &immutable, flag::IMMUTABLE, false, Ok(())),
        (&capable, &immutable, flag::IMMUTABLE, true, Err(Errno::EPERM)),
        (&capable, &immutable, both, false, Err(Errno::EPERM)),
        (&own, &plain, flag::DIRSYNC, false, Err(Errno::EOPNOTSUPP)),
        (&own, &file(DIRECTORY), flag::DIRSYNC, false, Ok(())),
        (&who(1, &[], Capabilities::NONE), &plain, flag::NODUMP, false, Err(Errno::EPERM)),
    ];
    for (who, file, flags, changes_project, expected) in cases {
        assert_eq!(set_flags(who, file, flags, changes_project), expected, "{flags:#x}");
    }
}

#[test]
fn sticky_directories_keep_names_for_owners() {
    let sticky = File { uid: 11, ..file(DIRECTORY | 0o1777) };
    let victim = file(REGULAR | 0o777);
    let cases = [
        (who(OWNER, &[], NONE), true),
        (who(11, &[], NONE), true),
        (who(1, &[GROUP], NONE), false),
        (who(1, &[], with(Capability::DacOverride)), false),
        (who(1, &[], with(Capability::Fowner)), true),
    ];
    let free = file(DIRECTORY | 0o777);
    for (who, is_allowed) in cases {
        let expected = if is_allowed { Ok(()) } else { Err(Errno::EPERM) };
        assert_eq!(remove(&who, &sticky, &victim, Removal::File), expected);
        let mut change = Rename {
            from: &sticky,
            source: &victim,
            to: &free,
            target: None,
            stays: false,
            exchanges: false,
        };
        assert_eq!(rename(&who, &change), expected);
        change = Rename { from: &free, to: &sticky, target: Some(&victim), ..change };
        assert_eq!(rename(&who, &change), expected);
    }
    let own = who(OWNER, &[], NONE);
    let directory = file(DIRECTORY);
    assert_eq!(remove(&own, &free, &directory, Removal::File), Err(Errno::EISDIR));
    assert_eq!(remove(&own, &free, &victim, Removal::Directory), Err(Errno::ENOTDIR));
    assert_eq!(link(&own, &free, &directory), Err(Errno::EPERM));
}

#[test]
fn a_moved_directory_has_to_be_writable() {
    let free = file(DIRECTORY | 0o777);
    let moved = file(DIRECTORY | 0o555);
    let own = who(OWNER, &[], NONE);
    let change = Rename {
        from: &free,
        source: &moved,
        to: &free,
        target: None,
        stays: false,
        exchanges: false,
    };
    assert_eq!(rename(&own, &change), Err(Errno::EACCES));
    assert_eq!(rename(&own, &Rename { stays: true, ..change }), Ok(()));
    let plain = file(REGULAR);
    let exchange = Rename { source: &plain, target: Some(&moved), exchanges: true, ..change };
    assert_eq!(rename(&own, &exchange), Err(Errno::EACCES));
    let replace = Rename { source: &plain, target: Some(&moved), ..change };
    assert_eq!(rename(&own, &replace), Err(Errno::EISDIR));
}

#[test]
fn new_files_inherit() {
    let maker = who(1, &[], NONE);
    let plain = file(DIRECTORY | 0o777);
    let set_gid = flagged(DIRECTORY | 0o2777, flag::NODUMP | flag::DIRSYNC | flag::IMMUTABLE);
    // Directory, mode asked for, mode and group given.
    let cases = [
        (&plain, REGULAR | 0o6777, REGULAR | 0o6755, 99),
        (&plain, DIRECTORY | 0o7777, DIRECTORY | 0o1755, 99),
        (&plain, SYMLINK, SYMLINK | 0o777, 99),
        (&set_gid, REGULAR | 0o6777, REGULAR | 0o4755, GROUP),
        (&set_gid, REGULAR | 0o6766, REGULAR | 0o6744, GROUP),
        (&set_gid, DIRECTORY | 0o777, DIRECTORY | 0o2755, GROUP),
        (&set_gid, SYMLINK, SYMLINK | 0o777, GROUP),
    ];
    for (directory, asked, mode, gid) in cases {
        let new = new_file(&maker, directory, None, asked);
        assert_eq!((new.mode, new.uid, new.gid), (mode, 1, gid), "{asked:o}");
        assert_eq!((new.acl, new.default_acl), (None, None));
    }
    let flags = |mode| new_file(&maker, &set_gid, None, mode).flags;
    assert_eq!(flags(REGULAR), flag::NODUMP);
    assert_eq!(flags(DIRECTORY), flag::NODUMP | flag::DIRSYNC);
    let member = who(1, &[GROUP], NONE);
    assert_eq!(new_file(&member, &set_gid, None, REGULAR | 0o2777).mode, REGULAR | 0o2755);
    assert_eq!(create(&maker, &plain, libc::S_IFCHR, false), Err(Errno::EPERM));
    assert_eq!(create(&maker, &plain, libc::S_IFCHR, true), Ok(()));
    assert_eq!(create(&who(1, &[], with(Capability::Mknod)), &plain, libc::S_IFBLK, false), Ok(()));
}

#[test]
fn default_lists_take_the_umasks_place() {
    let maker = who(1, &[], NONE);
    let plain = file(DIRECTORY | 0o777);
    let short = Acl::from_mode(0o774);
    let new = new_file(&maker, &plain, Some(&short), REGULAR | 0o666);
    assert_eq!((new.mode, new.acl, new.default_acl), (REGULAR | 0o664, None, None));
    let entry = |qualifier, permissions| Entry { qualifier, permissions };
    let entries = |owner, mask, other| {
        let entries = vec![
            entry(Qualifier::Owner, owner),
            entry(Qualifier::User(5), 7),
            entry(Qualifier::OwningGroup, 5),
            entry(Qualifier::Mask, mask),
            entry(Qualifier::Other, other),
        ];
        Acl::new(entries).unwrap()
    };
    let long = entries(7, 7, 5);
    let new = new_file(&maker, &plain, Some(&long), DIRECTORY | 0o1752);
    assert_eq!(new.mode, DIRECTORY | 0o1750);
    assert_eq!(new.acl, Some(entries(7, 5, 0)));
    assert_eq!(new.default_acl, Some(long.clone()));
    let link = new_file(&maker, &plain, Some(&long), SYMLINK);
    assert_eq!((link.mode, link.acl), (SYMLINK | 0o777, None));
}

#[test]
fn lists_are_the_owners_to_set() {
    let own = who(OWNER, &[GROUP], NONE);
    let target = file(REGULAR | 0o2644);
    let value = Acl::from_mode(0o750).to_xattr();
    let set = set_acl(&own, &target, AclKind::Access, &value).unwrap();
    assert_eq!(set, SetAcl { acl: None, mode: REGULAR | 0o2750 });
    let outside = set_acl(&who(OWNER, &[], NONE), &target, AclKind::Access, &value).unwrap();
    assert_eq!(outside.mode, REGULAR | 0o750);
    let stranger = who(1, &[GROUP], NONE);
    let cases = [
        (&own, &target, AclKind::Access, &[1][..], Err(Errno::EINVAL)),
        (&own, &target, AclKind::Access, &[1, 0, 0, 0][..], Err(Errno::EOPNOTSUPP)),
        (&own, &target, AclKind::Access, &[][..], Ok(target.mode)),
        (&own, &target, AclKind::Default, &value[..], Err(Errno::EACCES)),
        (&own, &target, AclKind::Default, &[][..], Ok(target.mode)),
        (&stranger, &target, AclKind::Access, &value[..], Err(Errno::EPERM)),
        (&own, &file(SYMLINK), AclKind::Access, &value[..], Err(Errno::EOPNOTSUPP)),
        (&own, &flagged(REGULAR, flag::APPEND), AclKind::Access, &value[..], Err(Errno::EPERM)),
        (&own, &file(DIRECTORY), AclKind::Default, &value[..], Ok(DIRECTORY)),
    ];
    for (who, file, kind, value, expected) in cases {
        assert_eq!(set_acl(who, file, kind, value).map(|set| set.mode), expected);
    }
    let long = vec![0; 65537];
    assert_eq!(set_acl(&own, &target, AclKind::Access, &long), Err(Errno::E2BIG));
}

#[test]
fn attributes_have_name_spaces() {
    let own = who(OWNER, &[], NONE);
    let other = who(1, &[], NONE);
    let admin = who(1, &[], with(Capability::SysAdmin));
    let plain = file(REGULAR | 0o644);
    let sticky = file(DIRECTORY | 0o1777);
    let fifo = file(libc::S_IFIFO | 0o666);
    let fixed = flagged(REGULAR | 0o666, flag::APPEND);
    let v2 = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let set = XattrAccess::Write(b"x");
    type Case<'a> =
        (&'a Credentials<'a>, &'a File<'a>, &'a str, XattrAccess<'a>, Result<(), Errno>);
    let cases: [Case; 24] = [
        (&own, &plain, "user.a", set, Ok(())),
        (&other, &plain, "user.a", XattrAccess::Read, Ok(())),
        (&other, &plain, "user.a", set, Err(Errno::EACCES)),
        (&own, &plain, "user.", set, Err(Errno::EINVAL)),
        (&own, &fixed, "user.a", XattrAccess::Remove, Err(Errno::EPERM)),
        (&own, &fifo, "user.a", set, Err(Errno::EPERM)),
        (&own, &fifo, "user.a", XattrAccess::Read, Err(Errno::ENODATA)),
        (&own, &sticky, "user.a", set, Ok(())),
        (&other, &sticky, "user.a", set, Err(Errno::EPERM)),
        (&other, &sticky, "user.a", XattrAccess::Read, Ok(())),
        (&own, &plain, "trusted.a", set, Err(Errno::EPERM)),
        (&own, &plain, "trusted.a", XattrAccess::Read, Err(Errno::ENODATA)),
        (&admin, &fifo, "trusted.a", set, Ok(())),
        (&own, &plain, "security.a", set, Err(Errno::EPERM)),
        (&other, &file(REGULAR), "security.a", XattrAccess::Read, Ok(())),
        (&admin, &plain, "security.a", set, Ok(())),
        (&admin, &plain, "security.capability", set, Err(Errno::EINVAL)),
        (&admin, &plain, "security.capability", XattrAccess::Write(&v2), Err(Errno::EPERM)),
        (&admin, &plain, "security.capability", XattrAccess::Remove, Err(Errno::EPERM)),
        // Nobody is asked for a capability to set an empty value, which means nothing.
        (&other, &plain, "security.capability", XattrAccess::Write(b""), Ok(())),
        (&own, &plain, "system.a", set, Err(Errno::EOPNOTSUPP)),
        (&own, &plain, "foreign.a", set, Err(Errno::EOPNOTSUPP)),
        (&other, &plain, "foreign.a", set, Err(Errno::EACCES)),
        (&own, &plain, "system.posix_acl_access", set, Err(Errno::EOPNOTSUPP)),
    ];
    for (who, file, name, what, expected) in cases {
        assert_eq!(xattr(who, file, name.as_bytes(), what), expected, "{name} {what:?}");
    }
    let setter = who(1, &[], with(Capability::Setfcap));
    for what in [XattrAccess::Write(&v2), XattrAccess::Remove] {
        assert_eq!(xattr(&setter, &plain, b"security.capability", what), Ok(()));
    }
    assert!(is_listed(&own, b"security.a") && !is_listed(&own, b"trusted.a"));
    assert!(is_listed(&admin, b"trusted.a"));
}

#[test]
fn opening_asks_for_what_it_will_do() {
    let own = who(OWNER, &[], NONE);
    let other = who(1, &[], NONE);
    let read = Open { read: true, ..Open::default() };
    let truncating = Open { truncate: true, ..read };
    let silent = Open { no_access_time: true, ..read };
    let cases = [
        (&own, file(SYMLINK | 0o777), read, Some(Errno::ELOOP)),
        (&own, file(DIRECTORY | 0o777), read, None),
        (&own, file(DIRECTORY | 0o777), Open { write: true, ..read }, Some(Errno::EISDIR)),
        (&own, file(DIRECTORY | 0o777), truncating, Some(Errno::EISDIR)),
        (&other, file(REGULAR | 0o444), truncating, Some(Errno::EACCES)),
        (&other, file(REGULAR | 0o444), silent, Some(Errno::EPERM)),
        (&own, file(REGULAR | 0o444), silent, None),
        (&own, flagged(REGULAR | 0o666, flag::APPEND), truncating, Some(Errno::EPERM)),
        (&own, flagged(libc::S_IFIFO | 0o666, flag::APPEND), truncating, None),
    ];
    for (who, file, how, expected) in cases {
        assert_eq!(open(who, &file, how).err(), expected, "{:o} {how:?}", file.mode);
    }
    let set_uid = file(REGULAR | 0o4666);
    assert_eq!(open(&other, &set_uid, read).unwrap().mode, set_uid.mode);
    assert_eq!(open(&other, &set_uid, truncating).unwrap().mode, REGULAR | 0o666);
    assert_eq!(truncate(&own, &file(DIRECTORY)), Err(Errno::EISDIR));
    assert_eq!(truncate(&own, &file(libc::S_IFIFO)), Err(Errno::EINVAL));
}
