//! Volumes for experiments: on a device that counts, with an index that ends with the process.

pub mod aged;
mod counted;
pub mod damage;
pub mod erased;
pub mod flow;
pub mod slices;
pub mod theory;
pub mod thin;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::slice;
use std::sync::Arc;

use conquest_flash::device::{Access, Device, FileDevice, Inset};
use conquest_flash::{Body, NewVolume, OpenOptions};
use conquest_format::volume::Arrangement;
use conquest_pm::attach::NewRegion;
use conquest_pm::media::{Mapped, OsHost, Source};
use conquest_pm::{Access as Attaching, Options, Region};
use rustix::fs::MemfdFlags;

use crate::calls::{CallError, Outcome};

pub use counted::{Counted, Counts};

/// A volume of this process.
pub type Volume = conquest_flash::Volume<Mapped, OsHost>;

/// Bytes of a unit on all devices that are used here.
pub const UNIT: u64 = 4096;
/// Blocks of a unit.
pub const PER_UNIT: u64 = UNIT / conquest_format::volume::BLOCK;

/// The error of `call`, as a call's.
pub fn failed<E: std::error::Error + Send + Sync + 'static>(
    call: &'static str,
) -> impl Fn(E) -> CallError {
    move |error| CallError::of(call, io::Error::other(error))
}

/// The first `len` bytes of the file or block device at `path`.
///
/// # Errors
/// Those of the system; if its blocks are larger than [`UNIT`].
pub fn device(path: &Path, len: u64) -> Outcome<Arc<dyn Device>> {
    let opened = FileDevice::open(path, Access::Write);
    let device = opened.map_err(|source| CallError::of("open a device", source))?;
    if u64::from(device.limits().physical) > UNIT {
        let source = io::Error::other("its physical blocks are larger than 4 KiB");
        return Err(CallError::of("open a device", source));
    }
    Ok(Arc::new(Inset::new(Arc::new(device), 0, len)))
}

/// Makes a new volume on `device`, with segments of `segment` units, or as many as suit it if that
/// is 0. `number` is to be another one each time, so that nothing that stood there before is taken
/// for a part of it.
///
/// # Errors
/// Those of the volume.
pub fn create(device: &Arc<Counted>, segment: u64, number: u64) -> Outcome<()> {
    let new = new_volume(Arrangement::Striped, segment, number);
    create_on(slice::from_ref(device), &new)
}

/// What a new volume is to be; `segment` and `number` are those of [`create`].
#[must_use]
pub fn new_volume(arrangement: Arrangement, segment: u64, number: u64) -> NewVolume {
    let mut uuid = *b"benched volume  ";
    if let Some(place) = uuid.last_chunk_mut() {
        *place = number.to_le_bytes();
    }
    NewVolume { uuid, created: 1, arrangement, segment: (segment > 0).then_some(segment) }
}

/// Makes a new volume of all of `members`.
///
/// # Errors
/// Those of the volume.
pub fn create_on(members: &[Arc<Counted>], new: &NewVolume) -> Outcome<()> {
    conquest_flash::create(&devices(members), new).map_err(failed("make a volume"))
}

/// The volume on `device`, recovered into a new index.
///
/// # Errors
/// Those of recovery, and of the system.
pub fn recover(device: &Arc<Counted>) -> Outcome<Volume> {
    recover_on(slice::from_ref(device))
}

/// The volume of all of `members`, recovered into a new index.
///
/// # Errors
/// Those of recovery, and of the system.
pub fn recover_on(members: &[Arc<Counted>]) -> Outcome<Volume> {
    let body = conquest_flash::assemble(devices(members)).map_err(failed("assemble a volume"))?;
    let core = index(&body)?;
    Volume::recover(core, &body).map_err(failed("recover a volume"))
}

fn devices(members: &[Arc<Counted>]) -> Vec<Arc<dyn Device>> {
    members.iter().map(|member| Arc::clone(member) as Arc<dyn Device>).collect()
}

/// A new region for the index of `body`, in a file that has no name, with as much room as others
/// have: who finds no lane free waits in turn.
fn index(body: &Body) -> Outcome<Arc<Region>> {
    let of = |source: rustix::io::Errno| CallError::of("memfd_create", source);
    let file: OwnedFd = rustix::fs::memfd_create("index", MemfdFlags::CLOEXEC).map_err(of)?;
    let again = file.try_clone().map_err(|source| CallError::of("dup", source))?;
    let (shape, kinds) = (body.shape(OpenOptions::default().processes), body.kinds());
    let new = NewRegion { shape, kinds, uuid: body.uuid(), created: 1, groups: 1 };
    let made = Region::create(Source::Descriptor(file), 0o600, &new);
    made.map_err(failed("make an index"))?;
    let source = Source::Descriptor(again);
    let opened = Region::open(source, &kinds, Attaching::default(), Options::default());
    opened.map_err(failed("open an index"))
}
