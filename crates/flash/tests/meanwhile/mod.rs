//! A device by which something happens in the middle of what others do: when they read, or write.
// Each test program uses a part of it, and helpers fail as tests do.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conquest_flash::device::{Device, Limits, MemoryDevice, Work};
use conquest_flash::{Volume, assemble};

use crate::volumes::{self, TestVolume};

/// What is to happen, when so many requests of its kind have been made.
type Due = (Work, u64, Box<dyn FnOnce() + Send>);

/// A device in memory; what is due happens when a request is begun, before it takes effect.
pub struct Meanwhile {
    device: MemoryDevice,
    due: Mutex<Vec<Due>>,
}

impl Meanwhile {
    pub fn new(device: &MemoryDevice) -> Arc<Meanwhile> {
        Arc::new(Meanwhile { device: device.as_other(), due: Mutex::default() })
    }

    /// Lets `what` happen in the next request of this kind if `nth` is 0, or the one behind it.
    pub fn in_next(&self, work: Work, nth: u64, what: impl FnOnce() + Send + 'static) {
        self.due.lock().unwrap().push((work, nth, Box::new(what)));
    }

    /// Whether all that was due has happened.
    pub fn is_done(&self) -> bool {
        self.due.lock().unwrap().is_empty()
    }

    fn meet(&self, work: Work) {
        let mut now = Vec::new();
        self.due.lock().unwrap().retain_mut(|(of, left, what)| {
            if *of != work {
                return true;
            }
            if *left == 0 {
                now.push(std::mem::replace(what, Box::new(|| {})));
                return false;
            }
            *left -= 1;
            true
        });
        now.into_iter().for_each(|what| what());
    }
}

impl Device for Meanwhile {
    fn name(&self) -> &Path {
        self.device.name()
    }

    fn len(&self) -> u64 {
        self.device.len()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.meet(Work::Read);
        self.device.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.meet(Work::Write);
        self.device.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.meet(Work::Flush);
        self.device.flush()
    }

    fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        self.device.discard(at, len)
    }

    fn enter(&self, writer: u64) -> io::Result<bool> {
        self.device.enter(writer)
    }

    fn leave(&self, writer: u64) -> io::Result<()> {
        self.device.leave(writer)
    }

    fn is_entered(&self, writer: u64) -> io::Result<bool> {
        self.device.is_entered(writer)
    }

    fn is_anyone_entered(&self) -> io::Result<bool> {
        self.device.is_anyone_entered()
    }
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
pub fn two(device: &MemoryDevice) -> (Arc<Meanwhile>, TestVolume, Arc<TestVolume>) {
    let meanwhile = Meanwhile::new(device);
    let (volume, region) = open(Arc::clone(&meanwhile) as _, None);
    let (other, _) = open(Arc::new(device.as_other()), Some(&region));
    (meanwhile, volume, Arc::new(other))
}
