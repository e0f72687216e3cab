//! Who reads from the files of a device himself reads what the device does.
#![allow(clippy::unwrap_used)] // Helpers fail as tests do.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conquest_flash::device::{Access, Device, FileDevice, Inset, Mirrored, Striped};
use conquest_uring::Buffer;

/// The name of a file on the disk, gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(number: u32) -> Place {
        let name = format!("conquest-flash-route-{number}-{}", std::process::id());
        Place(Path::new("/var/tmp").join(name))
    }

    fn create(&self, len: u64) {
        FileDevice::create(&self.0, len, 0o600, &mut |_| {}).unwrap();
    }

    fn open(&self) -> FileDevice {
        FileDevice::open(&self.0, Access::Write).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Every page of `device` gets a byte of its own, and every route leads to what is read. There is
/// one exactly where `has_route` says so.
fn routes_lead_to_what_is_read(device: &dyn Device, has_route: impl Fn(u64, u64) -> bool) {
    const PAGE: u64 = 4096;
    for page in 0..device.len() / PAGE {
        device.write(page * PAGE, &[page as u8 + 1; PAGE as usize]).unwrap();
    }
    let files = device.files().unwrap();
    assert_eq!(files.len(), device.file_count());
    let end = device.len() + 8 * PAGE;
    let ranges = (0..end).step_by(PAGE as usize).flat_map(|at| [(at, 1), (at, 2), (at, 5)]);
    for (at, pages) in ranges {
        let len = pages * PAGE;
        let route = device.route(at, len);
        assert_eq!(route.is_some(), has_route(at, len), "{len} at {at}");
        let Some((file, place)) = route else { continue };
        let mut found = Buffer::new(len as usize).unwrap();
        files[file].read_exact_at(&mut found, place).unwrap();
        let mut expected = vec![0; len as usize];
        device.read(at, &mut expected).unwrap();
        assert!(*found == *expected, "{len} at {at}");
    }
    assert_eq!(device.route(u64::MAX - PAGE + 1, 2 * PAGE), None);
}

#[test]
fn routes_lead_to_what_is_read_from_devices_of_all_kinds() {
    let places = [1, 2, 3].map(Place::new);
    let lens = [16 * 4096, 24 * 4096, 18 * 4096];
    let opened = || -> Vec<Arc<dyn Device>> {
        places.iter().map(|place| Arc::new(place.open()) as Arc<dyn Device>).collect()
    };
    for (place, len) in places.iter().zip(lens) {
        place.create(len);
    }
    routes_lead_to_what_is_read(&places[0].open(), |at, len| at + len <= 16 * 4096);
    let chunk = 4 * 4096;
    let striped = Striped::new(opened(), chunk).unwrap();
    assert_eq!(striped.len(), 12 * chunk);
    let in_chunk = |at, len| at + len <= 12 * chunk && at % chunk + len <= chunk;
    routes_lead_to_what_is_read(&striped, in_chunk);
    // Of a part, nothing of what is beside it.
    let [_, longest, _] = &<[_; 3]>::try_from(opened()).ok().unwrap();
    let part = Inset::new(Arc::clone(longest), 4096, 20 * 4096);
    routes_lead_to_what_is_read(&part, |at, len| at + len <= 20 * 4096);
    assert_eq!(part.route(0, 4096), Some((0, 4096)));
    // A mirror reads from members in turn, and never behind the shortest one's end.
    let [one, two, three] = <[_; 3]>::try_from(opened()).ok().unwrap();
    let pair = Arc::new(Mirrored::new(vec![two, three]).unwrap());
    let mirrored = Mirrored::new(vec![pair.clone(), one]).unwrap();
    routes_lead_to_what_is_read(&mirrored, |at, len| at + len <= 16 * 4096);
    assert_eq!(mirrored.route(0, 4096), Some((0, 0)));
    // Not from one that has failed: there is another one, but its turn is not told here.
    pair.fail(0).unwrap();
    assert_eq!(mirrored.route(0, 4096), None);
    mirrored.fail(0).unwrap();
    assert_eq!(mirrored.route(0, 4096), None);
}
