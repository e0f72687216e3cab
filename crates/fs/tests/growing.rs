//! Files that grow page by page: their extents get longer where they are, as long as they can.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers fail as tests do.

mod store;

use conquest_format::{GROUP_PAGES, PAGE};
use conquest_fs::FileId;
use conquest_fs::content::WriteAt;
use conquest_fs::names::{New, Removal};
use conquest_fs::placement::Form;
use conquest_testkit::Rng;
use conquest_testkit::files::root_user;
use store::Store;

fn append(store: &Store, file: FileId, bytes: &[u8]) {
    let written = store.write(&root_user(), file, WriteAt::End, bytes).unwrap();
    assert_eq!(written.1, bytes.len() as u64);
}

#[test]
fn an_extent_that_grows_alone_is_not_copied() {
    let store = Store::new(4);
    let file = store.make("f", New::Regular, 0o644);
    let before = store.core().pages_used();
    for pages in 1..=200 {
        append(&store, file, &[pages as u8; PAGE as usize]);
        // Not more ahead than a quarter, or 16 pages.
        let most = pages + (pages / 4).clamp(1, 16);
        assert!((pages..=most).contains(&store.pages(file)), "{pages}");
        assert!(store.core().pages_used() <= before + most, "{pages}");
    }
    assert_eq!(store.placement(file, u64::MAX).unwrap().form, Form::Extent);
    let expected: Vec<u8> = (1..=200_u8).flat_map(|page| [page; PAGE as usize]).collect();
    assert!(store.get(file) == expected);
    store.examine();
}

/// However many grow at once, and wherever their extents end.
#[test]
fn extents_that_grow_end_with_their_groups() {
    for seed in 0..6 {
        let store = Store::new(16);
        let mut rng = Rng::new(seed);
        let mut files: Vec<(FileId, Vec<u8>)> = (0..1 + seed)
            .map(|index| (store.make(&format!("{index}"), New::Regular, 0o644), Vec::new()))
            .collect();
        let mut total = 0;
        while total < 8 * GROUP_PAGES * PAGE {
            let any = rng.below(files.len() as u64) as usize;
            let (file, bytes) = &mut files[any];
            let whole = rng.chance(9, 10);
            let len = if whole { PAGE * (1 + rng.below(3)) } else { 1 + rng.below(2 * PAGE) };
            let more = vec![rng.word() as u8; len as usize];
            append(&store, *file, &more);
            bytes.extend(more);
            total += len;
            if bytes.len() as u64 > 3 * GROUP_PAGES * PAGE / 2 {
                assert!(store.get(*file) == *bytes, "seed {seed}");
                store.truncate(&root_user(), *file, 0).unwrap();
                bytes.clear();
            }
        }
        for (index, (file, bytes)) in files.iter().enumerate() {
            assert!(store.get(*file) == *bytes, "seed {seed}");
            let name = format!("{index}");
            if index % 2 == 0 {
                store.remove(&root_user(), store.root(), name.as_bytes(), Removal::File).unwrap();
            }
        }
        store.examine();
    }
}
