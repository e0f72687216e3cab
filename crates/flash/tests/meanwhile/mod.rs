//! Volumes on devices by which something happens in the middle of what others do.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use conquest_flash::device::{Device, MemoryDevice};
use conquest_flash::{Volume, assemble};
use conquest_testkit::flash::Watched;

use crate::volumes::{self, TestVolume};

/// A device in memory as somebody has it in whose requests things happen.
pub fn watched(device: &MemoryDevice) -> Arc<Watched> {
    Watched::new(Arc::new(device.as_other()))
}

/// Opens the volume on `device`, whose index is to be in a new region or is in `region`.
pub fn open(device: Arc<dyn Device>, region: Option<&OwnedFd>) -> (TestVolume, OwnedFd) {
    let body = assemble(vec![device]).unwrap();
    match region {
        Some(region) => {
            let opened = volumes::opened(&body, region);
            (Volume::join(opened, &body).unwrap(), region.try_clone().unwrap())
        }
        None => {
            let region = volumes::region_file(&body);
            let opened = volumes::opened(&body, &region);
            (Volume::recover(opened, &body).unwrap(), region)
        }
    }
}

/// The volume on `device`, open by somebody in whose requests things happen, and by another one.
pub fn two(device: &MemoryDevice) -> (Arc<Watched>, TestVolume, Arc<TestVolume>) {
    let meanwhile = watched(device);
    let (volume, region) = open(Arc::clone(&meanwhile) as _, None);
    let (other, _) = open(Arc::new(device.as_other()), Some(&region));
    (meanwhile, volume, Arc::new(other))
}
