//! Operations whose bytes, names and values are in memory that is not there yet: nobody else waits
//! for it. Needs root.
// Helpers fail as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use conquest::{Files, OpenOptions, Setting, Store};
use conquest_peers::fault;
use support::{Temporary, attach, small};

/// How long what waits for nobody may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const NAME: &[u8] = b"f";

/// Does `work` with memory that is not there. While it waits for that, what others do with the same
/// file, its name and its directory must end; then the memory comes, full of `bytes`.
fn meanwhile(files: &Files, bytes: &[u8], work: impl FnOnce(&mut [u8]) + Send) {
    let (mut memory, mut faults) = fault::memory(64);
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || work(&mut memory));
        assert!(faults.come(LIMIT), "nobody touches the memory");
        let others = files.clone();
        scope.spawn(move || {
            others.write("f", b"by others").unwrap();
            others.open("f").unwrap().try_lock().unwrap();
            others.rename("f", "g").unwrap();
            others.rename("g", "f").unwrap();
            others.create_dir("d").unwrap();
            others.remove_dir("d").unwrap();
            let node = others.find("f", true).unwrap();
            node.set_attribute("user.other", b"1", Setting::Any).unwrap();
            assert_eq!(others.read("f").unwrap(), b"by others");
            tell.send(()).unwrap();
        });
        let is_done = told.recv_timeout(LIMIT).is_ok();
        faults.resolve(bytes);
        assert!(is_done, "others wait for somebody's memory");
        waiting.join().unwrap();
    });
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[test]
fn nobody_waits_for_the_memory_of_others() {
    let place = Temporary::in_memory("faults");
    let directory = place.path().join("store");
    Store::make(&directory, &small()).unwrap();
    let store = attach(&directory);
    let files = store.files().unwrap();
    files.write("f", b"first").unwrap();
    let both = OpenOptions::new().read(true).write(true).clone();

    // Bytes: of every size for which there is another way.
    for len in [1, 512, 513, 100_000, 64 * fault::PAGE] {
        let file = files.open_with("f", &both).unwrap();
        meanwhile(&files, b"ab", |memory| {
            assert_eq!(file.write_at(&memory[..len], 0).unwrap(), len);
        });
        let expected: Vec<u8> = b"ab".iter().copied().cycle().take(len).collect();
        assert_eq!(files.read("f").unwrap()[..len], expected);
    }
    let appending = files.open_with("f", OpenOptions::new().append(true)).unwrap();
    meanwhile(&files, b"c", |memory| {
        let parts = [&memory[..600], &memory[4096..4096 + 600]].map(IoSlice::new);
        assert_eq!(appending.write_with(&parts, None, 0).unwrap(), 1200);
    });
    assert_eq!(files.read("f").unwrap().len(), b"by others".len() + 1200);

    // Names, targets and values.
    let mut long = vec![b'n'; 200];
    long.extend(b"/../f");
    files.create_dir(path(&long[..200])).unwrap();
    for name in [NAME, &long] {
        meanwhile(&files, name, |memory| {
            files.set_permissions(path(&memory[..name.len()]), 0o640).unwrap();
        });
        meanwhile(&files, name, |memory| {
            files.hard_link(path(&memory[..name.len()]), "link").unwrap();
        });
        files.remove_file("link").unwrap();
    }
    meanwhile(&files, b"target", |memory| files.symlink(path(&memory[..6]), "to").unwrap());
    assert_eq!(files.read_link("to").unwrap(), Path::new("target"));
    let id = files.metadata("f").unwrap().id();
    meanwhile(&files, b"user.x", |memory| {
        let name = OsStr::from_bytes(&memory[..6]);
        files.node(id).set_attribute(name, b"value", Setting::Any).unwrap();
    });
    meanwhile(&files, b"v", |memory| {
        files.node(id).set_attribute("user.y", &memory[..1000], Setting::Any).unwrap();
    });
    assert_eq!(files.node(id).attribute("user.x").unwrap(), b"value");
    assert_eq!(files.node(id).attribute("user.y").unwrap(), [b'v'; 1000]);
    meanwhile(&files, NAME, |memory| {
        let root = files.node(files.root());
        assert_eq!(root.lookup(&memory[..1]).unwrap().unwrap().0, id);
    });

    // What is read goes there directly.
    files.write("read", vec![7; 100_000]).unwrap();
    let file = files.open("read").unwrap();
    meanwhile(&files, b"\0", |memory| {
        assert_eq!(file.read_at(memory, 0).unwrap(), 100_000);
        assert!(memory[..100_000].iter().all(|byte| *byte == 7));
    });
    drop((file, appending));
    support::check(store.fs());
    store.detach().unwrap();
}
