//! Work that takes several records, whose process lives: it is done when the call returns.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_format::PAGE;
use conquest_fs::FileId;
use conquest_fs::names::{New, Removal, Renaming};
use conquest_testkit::files::root_user;
use store::Store;

#[test]
fn work_of_several_records_is_finished_by_who_began_it() {
    let store = Store::new(4);
    let (who, root) = (&root_user(), store.root());
    const PAGES: u64 = 300;
    // Pages that stand alone, in two files that take turns.
    let both = || {
        let files = ["f", "g"].map(|name| store.make(name, New::Regular, 0o600));
        for page in 1..=PAGES {
            files.iter().for_each(|file| store.put(*file, page * PAGE, &[7; PAGE as usize]));
        }
        files
    };
    let used = || store.core().pages_used();
    let works: [&dyn Fn(FileId); 4] = [
        &|_| store.remove(who, root, b"f", Removal::File).unwrap(),
        &|file| store.truncate(who, file, 0).unwrap(),
        &|_| {
            store.make("new", New::Regular, 0o600);
            store.rename(who, root, b"new", root, b"f", Renaming::Replace).unwrap();
        },
        &|_| {
            let open = store.open_path(who, "f", libc::O_RDWR).unwrap();
            store.remove(who, root, b"f", Removal::File).unwrap();
            store.close(&open).unwrap();
        },
    ];
    for work in works {
        let [file, other] = both();
        let before = used();
        work(file);
        assert!(used() <= before - PAGES, "{before} pages before, {} after", used());
        assert!(store.get(other)[PAGE as usize..].iter().all(|byte| *byte == 7));
        store.examine();
        store.remove(who, root, b"g", Removal::File).unwrap();
        _ = store.remove(who, root, b"f", Removal::File);
    }
}
