//! Others who use the store at the same time: a second mount, and programs with the library.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use conquest::{Attach, Store};
use conquest_peers::sys;

use crate::support::actor::Actor;
use crate::support::mount::Mount;
use crate::support::{io, mounted, name};

const GONE: &str = "No such file or directory (os error 2)";

#[test]
fn two_mounts_of_a_store_see_each_other() {
    mounted(|mount| {
        let mut second = Mount::new(mount.place(), "second");
        let at = |mount: &Mount, name: &str| mount.at().join(name);
        for (one, other) in [(&*mount, &second), (&second, &*mount)] {
            std::fs::write(at(one, "file"), "content").unwrap();
            assert_eq!(std::fs::read(at(other, "file")).unwrap(), b"content");
            std::fs::write(at(other, "file"), "changed and longer").unwrap();
            assert_eq!(std::fs::read(at(one, "file")).unwrap(), b"changed and longer");
            assert_eq!(std::fs::metadata(at(one, "file")).unwrap().len(), 18);
            // The same inode, by the same number.
            let numbers =
                [one, other].map(|mount| std::fs::metadata(at(mount, "file")).unwrap().ino());
            assert_eq!(numbers[0], numbers[1]);
            let open = File::options().read(true).write(true).open(at(one, "file")).unwrap();
            std::fs::rename(at(other, "file"), at(other, "renamed")).unwrap();
            assert_eq!(io(std::fs::metadata(at(one, "file")).map(drop)), GONE);
            assert!(std::fs::exists(at(one, "renamed")).unwrap());
            // What one has open is kept, whoever removes it.
            std::fs::remove_file(at(other, "renamed")).unwrap();
            assert_eq!(io(std::fs::metadata(at(one, "renamed")).map(drop)), GONE);
            open.write_all_at(b"C", 0).unwrap();
            let mut bytes = [0; 7];
            open.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"Changed");
            drop(open);
            std::fs::create_dir(at(one, "directory")).unwrap();
            std::fs::write(at(other, "directory/inner"), "").unwrap();
            assert!(std::fs::remove_dir(at(one, "directory")).is_err());
            assert_eq!(std::fs::read_dir(at(one, "directory")).unwrap().count(), 1);
            std::fs::remove_dir_all(at(other, "directory")).unwrap();
            assert_eq!(std::fs::read_dir(one.at()).unwrap().count(), 0);
        }
        std::fs::write(at(mount, "locked"), "").unwrap();
        let [mine, theirs] = [&*mount, &second].map(|mount| {
            let path = at(mount, "locked");
            let mut kept = Vec::new();
            Actor::new(move |how| {
                let file = File::options().read(true).write(true).open(&path).unwrap();
                let nowait = if how == "wait" { 0 } else { libc::LOCK_NB };
                let locked = sys::flock(&file, libc::LOCK_EX | nowait);
                kept.push(file);
                locked.map_or_else(name, |()| "done".into())
            })
        });
        assert_eq!(mine.ask("now"), "done");
        assert_eq!(theirs.ask("now"), "Resource temporarily unavailable (os error 11)");
        theirs.begin_waiting("wait");
        mine.kill();
        assert_eq!(theirs.answer(), "done");
        drop(theirs);
        second.stop();
        std::env::set_current_dir(mount.at()).unwrap();
        String::new()
    });
}

#[test]
fn appending_by_two_mounts_keeps_records_whole() {
    mounted(|mount| {
        const RECORDS: usize = 300;
        let mut second = Mount::new(mount.place(), "second");
        let writers = [(&*mount, b'a'), (&second, b'b')].map(|(mount, letter)| {
            let path = mount.at().join("log");
            Actor::new(move |_| {
                let log = File::options().append(true).create(true).open(&path).unwrap();
                for _ in 0..RECORDS {
                    assert_eq!(sys::write_all(&log, &[letter; 100]), Ok(100));
                }
                String::new()
            })
        });
        writers.iter().for_each(|writer| writer.begin(""));
        writers.iter().for_each(|writer| assert_eq!(writer.answer(), ""));
        drop(writers);
        let log = std::fs::read(mount.at().join("log")).unwrap();
        assert_eq!(log.len(), 2 * RECORDS * 100);
        for record in log.chunks(100) {
            assert!(record.iter().all(|byte| *byte == record[0]), "a record is torn");
        }
        let of_one = log.iter().filter(|byte| **byte == b'a').count();
        assert_eq!(of_one, RECORDS * 100);
        second.stop();
        std::env::set_current_dir(mount.at()).unwrap();
        String::new()
    });
}

/// A program that has the store attached: `read NAME`, `write NAME TEXT`, `remove NAME`,
/// `rename A B`.
fn program(store: &Path) -> Actor {
    let mut attached = None;
    Actor::new(move |order| {
        let store =
            attached.get_or_insert_with(|| Store::attach(store, &Attach::default()).unwrap());
        let files = store.files().unwrap();
        let words: Vec<&str> = order.splitn(3, ' ').collect();
        let outcome = match words.as_slice() {
            ["read", name] => files.read(name).map(|bytes| String::from_utf8(bytes).unwrap()),
            ["write", name, text] => files.write(name, text.as_bytes()).map(|_| String::new()),
            ["remove", name] => files.remove_file(name).map(|_| String::new()),
            ["rename", from, to] => files.rename(from, to).map(|()| String::new()),
            other => panic!("{other:?}"),
        };
        outcome.unwrap_or_else(|error| format!("{:?}", error.kind()))
    })
}

#[test]
fn programs_with_the_library_and_the_mount_see_each_other() {
    mounted(|mount| {
        let program = program(&mount.store());
        std::fs::write("file", "from the mount").unwrap();
        assert_eq!(program.ask("read file"), "from the mount");
        assert_eq!(program.ask("write file by the library, longer"), "");
        assert_eq!(std::fs::read_to_string("file").unwrap(), "by the library, longer");
        assert_eq!(program.ask("write new text"), "");
        assert_eq!(std::fs::read_to_string("new").unwrap(), "text");
        assert_eq!(program.ask("rename new renamed"), "");
        assert_eq!(io(std::fs::metadata("new").map(drop)), GONE);
        assert_eq!(std::fs::read_to_string("renamed").unwrap(), "text");
        let open = File::open("renamed").unwrap();
        assert_eq!(program.ask("remove renamed"), "");
        assert_eq!(io(std::fs::metadata("renamed").map(drop)), GONE);
        let mut bytes = [0; 4];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"text");
        let names = || {
            let names = std::fs::read_dir(".").unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["file"]);
        assert_eq!(program.ask("write other x"), "");
        assert_eq!(names(), ["file", "other"]);
        std::fs::remove_file("other").unwrap();
        assert_eq!(program.ask("read other"), "NotFound");
        // A writer dies while the mount reads.
        program.begin(&format!("write file {}", "x".repeat(100_000)));
        program.kill();
        let text = std::fs::read_to_string("file").unwrap();
        assert!(text.bytes().all(|byte| byte == b'x') || text.starts_with("by the library"));
        String::new()
    });
}
