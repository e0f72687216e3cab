//! Tests of access lists.

use super::*;
use crate::Capabilities;

use Qualifier::{Group, Mask, Other, Owner, OwningGroup, User};

fn entries(list: &[(Qualifier, u16)]) -> Vec<Entry> {
    let entry = |&(qualifier, permissions)| Entry { qualifier, permissions };
    list.iter().map(entry).collect()
}

fn acl(list: &[(Qualifier, u16)]) -> Acl {
    Acl::new(entries(list)).unwrap()
}

/// user::rwx user:7:rw- group::r-x group:8:-w- mask::rw- other::--x
fn long() -> Acl {
    acl(&[(Owner, 7), (User(7), 6), (OwningGroup, 5), (Group(8), 2), (Mask, 6), (Other, 1)])
}

#[test]
fn only_complete_and_ordered_lists_are_valid() {
    let valid: [&[(Qualifier, u16)]; 6] = [
        &[(Owner, 7), (OwningGroup, 0), (Other, 5)],
        &[(Owner, 7), (OwningGroup, 0), (Mask, 0), (Other, 5)],
        &[(Owner, 7), (User(1), 0), (OwningGroup, 0), (Mask, 1), (Other, 5)],
        &[(Owner, 7), (User(2), 0), (User(1), 0), (OwningGroup, 0), (Mask, 1), (Other, 5)],
        &[(Owner, 7), (User(1), 0), (User(1), 7), (OwningGroup, 0), (Mask, 1), (Other, 5)],
        &[(Owner, 7), (OwningGroup, 0), (Group(1), 0), (Group(1), 0), (Mask, 1), (Other, 5)],
    ];
    for list in valid {
        assert!(Acl::new(entries(list)).is_ok(), "{list:?}");
    }
    let invalid: [&[(Qualifier, u16)]; 13] = [
        &[],
        &[(Owner, 7)],
        &[(Owner, 7), (OwningGroup, 0)],
        &[(OwningGroup, 0), (Other, 5)],
        &[(Owner, 7), (Other, 5)],
        &[(Owner, 8), (OwningGroup, 0), (Other, 5)],
        &[(Owner, 7), (Owner, 7), (OwningGroup, 0), (Other, 5)],
        &[(OwningGroup, 0), (Owner, 7), (Other, 5)],
        &[(Owner, 7), (User(1), 0), (OwningGroup, 0), (Other, 5)],
        &[(Owner, 7), (OwningGroup, 0), (Group(1), 0), (Other, 5)],
        &[(Owner, 7), (OwningGroup, 0), (Mask, 0), (Mask, 0), (Other, 5)],
        &[(Owner, 7), (User(u32::MAX), 0), (OwningGroup, 0), (Mask, 0), (Other, 5)],
        &[(Owner, 7), (OwningGroup, 0), (Group(u32::MAX), 0), (Mask, 0), (Other, 5)],
    ];
    for list in invalid {
        assert_eq!(Acl::new(entries(list)), Err(Errno::EINVAL), "{list:?}");
    }
}

#[test]
fn attributes_have_the_bytes_of_the_kernel() {
    let list = acl(&[(Owner, 6), (User(0x0102), 4), (OwningGroup, 4), (Mask, 4), (Other, 0)]);
    let mut value = vec![2, 0, 0, 0];
    value.extend([1, 0, 6, 0, 255, 255, 255, 255]);
    value.extend([2, 0, 4, 0, 2, 1, 0, 0]);
    value.extend([4, 0, 4, 0, 255, 255, 255, 255]);
    value.extend([16, 0, 4, 0, 255, 255, 255, 255]);
    value.extend([32, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(list.to_xattr(), value);
    assert_eq!(Acl::from_xattr(&value), Ok(Some(list)));
    assert_eq!(Acl::from_xattr(&[]), Ok(None));
    assert_eq!(Acl::from_xattr(&value[..4]), Ok(None));
    assert_eq!(Acl::from_xattr(&value[..3]), Err(Errno::EINVAL));
    assert_eq!(Acl::from_xattr(&value[..43]), Err(Errno::EINVAL));
    assert_eq!(Acl::from_xattr(&value[..36]), Err(Errno::EINVAL));
    let mut other = value.clone();
    other[0] = 1;
    assert_eq!(Acl::from_xattr(&other), Err(Errno::EOPNOTSUPP));
    other = value;
    other[4] = 3;
    assert_eq!(Acl::from_xattr(&other), Err(Errno::EINVAL));
}

#[test]
fn lists_and_modes_agree() {
    for mode in 0..0o1000 {
        let short = Acl::from_mode(mode);
        assert!(short.is_mode());
        assert_eq!(short.permissions(), mode);
        assert_eq!(Acl::from_mode(0).with_mode(mode), short);
        assert_eq!(long().with_mode(mode).permissions(), mode);
        assert_eq!(long().masked(mode).permissions(), mode & 0o761);
    }
    assert!(!long().is_mode());
    let bare_mask = acl(&[(Owner, 7), (OwningGroup, 1), (Mask, 4), (Other, 0)]);
    assert!(!bare_mask.is_mode());
    assert_eq!(bare_mask.permissions(), 0o740);
    let changed = long().with_mode(0o423);
    let expected =
        [(Owner, 4), (User(7), 6), (OwningGroup, 5), (Group(8), 2), (Mask, 2), (Other, 3)];
    assert_eq!(changed, acl(&expected));
}

#[test]
fn the_first_entry_that_fits_decides_for_a_user_and_any_for_groups() {
    let grants = |fsuid, groups: &[u32], wanted| {
        let capabilities = Capabilities::NONE;
        let who = Credentials { fsuid, fsgid: 99, groups, capabilities, umask: 0, namespace: None };
        long().grants(&who, 5, wanted)
    };
    // user:7:rw-, whatever groups say.
    assert!(grants(7, &[], 6));
    assert!(!grants(7, &[5], 1));
    // group::r-x under the mask rw-: the mask takes x away.
    assert!(grants(1, &[5], 4));
    assert!(!grants(1, &[5], 5));
    assert!(!grants(1, &[5], 1));
    // No single group has r and w.
    assert!(grants(1, &[5, 8], 4));
    assert!(grants(1, &[5, 8], 2));
    assert!(!grants(1, &[5, 8], 6));
    // A member of a group is not among the others, even for what they may.
    assert!(!grants(1, &[8], 1));
    // The others, whom the mask does not limit.
    assert!(grants(1, &[], 1));
    assert!(!grants(1, &[], 4));
}
