//! A child that is forked has nothing of the volumes that its parent has open.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use conquest_flash::device::{Device, Limits, MemoryDevice};
use conquest_flash::{Error, NewVolume, Volume, assemble, create};
use conquest_format::volume::Arrangement;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::Source;
use conquest_pm::{Access, Options, Region};

#[test]
fn a_child_that_is_forked_has_to_open_a_volume_itself() {
    let device = MemoryDevice::new("memory", 8 << 20, Limits::of_blocks(512)).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let (uuid, arrangement) = ([1; 16], Arrangement::Striped);
    let new = NewVolume { uuid, created: 1, arrangement, segment: Some(16) };
    create(std::slice::from_ref(&device), &new).unwrap();
    let body = assemble(vec![device]).unwrap();
    let file = rustix::fs::memfd_create("index", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let again = Source::Descriptor(file.try_clone().unwrap());
    let kinds = body.kinds();
    let new = NewRegion { shape: body.shape(4), kinds: body.kinds(), uuid, created: 1, groups: 1 };
    Region::create(Source::Descriptor(file), 0o600, &new).unwrap();
    let region = Region::open(again, &kinds, Access::default(), Options::default()).unwrap();
    let volume = Volume::recover(region, &body).unwrap();
    volume.write(0, &[1; 4096]).unwrap();
    // SAFETY: the child has the one thread that called; the allocator's locks are handled by libc.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = volume.write(0, &[2; 4096]);
        let is_right = matches!(refused, Err(Error::InUse { what, .. }) if what.contains("forked"));
        // SAFETY: nothing of this process is to be ended in an orderly way.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 1;
    // SAFETY: a number of our own, and our own child.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
    let mut found = [0; 4096];
    volume.read(0, &mut found).unwrap();
    assert_eq!(found, [1; 4096]);
}
