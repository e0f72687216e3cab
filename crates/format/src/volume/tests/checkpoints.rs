//! Items of checkpoints.

use super::*;

fn random(random: &mut Random) -> Item {
    match random.below(5) {
        0 => Item::Segment {
            segment: random.number(),
            generation: random.number() >> 1,
            is_bad: random.below(2) > 0,
            birth: random.number(),
        },
        1 => {
            let count = random.below(100);
            Item::Sums { segment: random.number(), words: random.words(count) }
        }
        2 => {
            let count = random.below(62);
            Item::Extents((0..count).map(|_| random.range(LEN_MAX)).collect())
        }
        3 => Item::Reserved(random.number()),
        _ => Item::End,
    }
}

fn put(items: &[Item]) -> Vec<u64> {
    let mut writer = ItemWriter::default();
    items.iter().for_each(|item| writer.put(item));
    writer.words().to_vec()
}

/// All items in `words`, read as a whole.
fn all(words: &[u64]) -> Result<Vec<Item>, ItemError> {
    let mut reader = ItemReader::default();
    reader.add(words.iter().copied());
    let mut found = Vec::new();
    while let Some(item) = reader.next_item()? {
        found.push(item);
        assert!(found.len() <= words.len(), "it does not end");
    }
    Ok(found)
}

#[test]
fn they_stand_as_documented() {
    let segment = |is_bad| Item::Segment { segment: 5, generation: 6, is_bad, birth: 7 };
    assert_eq!(put(&[segment(false)]), [0x301, 5, 6, 7]);
    assert_eq!(put(&[segment(true)]), [0x301, 5, 1 << 63 | 6, 7]);
    assert_eq!(put(&[Item::Sums { segment: 5, words: vec![8, 9] }]), [0x302, 5, 8, 9]);
    let extents = Item::Extents(vec![[5, 6, 7], [8, 9, 10]]);
    assert_eq!(put(&[extents]), [0x403, 5, 7 << 40 | 6, 8, 10 << 40 | 9]);
    assert_eq!(put(&[Item::Reserved(5)]), [0x104, 5]);
    assert_eq!(put(&[Item::End]), [5]);
}

#[test]
fn they_round_trip_in_whatever_pieces_they_come() {
    let mut numbers = Random(40);
    for _ in 0..300 {
        let count = numbers.below(30);
        let items: Vec<Item> = (0..count).map(|_| random(&mut numbers)).collect();
        let words = put(&items);
        assert_eq!(all(&words), Ok(items.clone()));
        let mut reader = ItemReader::default();
        let mut found = Vec::new();
        let mut rest = words.as_slice();
        while !rest.is_empty() {
            let bits = numbers.below(9);
            let most = 1 + numbers.below(1 << bits);
            let (now, later) = rest.split_at(rest.len().min(most as usize));
            reader.add(now.iter().copied());
            // Not always as soon as it could be.
            while numbers.below(4) > 0
                && let Some(item) = reader.next_item().unwrap()
            {
                found.push(item);
            }
            rest = later;
        }
        while let Some(item) = reader.next_item().unwrap() {
            found.push(item);
        }
        assert_eq!(found, items);
        assert_eq!(reader.next_item(), Ok(None));
    }
}

#[test]
fn words_are_taken_from_the_front() {
    let mut writer = ItemWriter::default();
    writer.put(&Item::Reserved(5));
    writer.take(1);
    writer.put(&Item::End);
    assert_eq!(writer.words(), [5, 5]);
    writer.take(3);
    assert_eq!(writer.words(), [0; 0]);
    writer.take(1);
    writer.put(&Item::Reserved(6));
    assert_eq!(writer.words(), [0x104, 6]);
}

#[test]
fn an_item_that_has_not_come_is_none_yet() {
    let items =
        [Item::Extents(vec![[1, 2, 3]]), Item::Sums { segment: 1, words: vec![2] }, Item::End];
    let words = put(&items);
    for len in 0..words.len() {
        let found = all(&words[..len]).unwrap();
        assert_eq!(found, items[..found.len()]);
        assert!(found.len() < items.len());
    }
}

#[test]
fn the_largest_items_can_be_read() {
    let most = 1_u64 << 20;
    // The segment's number is one of the words.
    let sums = |words: u64| put(&[Item::Sums { segment: 1, words: vec![2; words as usize] }]);
    let largest = Item::Sums { segment: 1, words: vec![2; most as usize - 1] };
    assert_eq!(all(&sums(most - 1)), Ok(vec![largest]));
    assert_eq!(all(&sums(most)), Err(ItemError));
    let extents = vec![[SPACE - LEN_MAX + 1, PLACE_MAX - LEN_MAX + 1, LEN_MAX - 1]; 1 << 19];
    let item = Item::Extents(extents);
    assert_eq!(all(&put(core::slice::from_ref(&item))), Ok(vec![item]));
    // Checksums of the largest segment.
    assert!(Sums::words(65536) < most);
}

#[test]
fn what_can_not_be_is_no_item() {
    let bad: [&[u64]; 25] = [
        &[0],
        // Of another space.
        &[1 << 48 | 0x203, 5, 1 << 40 | 6],
        &[1 << 63 | 0x203, 5, 1 << 40 | 6],
        &[1 << 48 | 5],
        &[6],
        &[0xFF],
        &[0x100, 1],
        // The wrong number of words.
        &[0x201, 1, 2],
        &[0x401, 1, 2, 3, 4],
        &[2],
        &[0x103, 1],
        &[0x303, 1, 1 << 40, 1],
        &[4],
        &[0x204, 1, 2],
        &[0x105, 1],
        // More than there can be.
        &[((1 << 20) + 1) << 8 | 2],
        &[u64::MAX],
        &[0xFFFF_FFFF_FFFF_FF03],
        // Extents of nothing, outside of the space, outside of the medium.
        &[0x203, 1, 2],
        &[0x403, 1, 1 << 40, 1, 2],
        &[0x403, 1, 0, 1, 1 << 40],
        &[0x203, SPACE, 1 << 40],
        &[0x203, SPACE - 1, 2 << 40],
        &[0x203, u64::MAX, u64::MAX],
        &[0x203, 0, 2 << 40 | (PLACE_MAX - 1)],
    ];
    for words in bad {
        let mut reader = ItemReader::default();
        reader.add(words.iter().copied());
        // It stays so, whatever comes behind.
        for _ in 0..2 {
            assert_eq!(reader.next_item(), Err(ItemError), "{words:x?}");
            reader.add([5, 5]);
        }
    }
    assert_eq!(all(&[0x203, SPACE - 1, 1 << 40 | (PLACE_MAX - 1), 3, 5]).unwrap().len(), 3);
}

#[test]
fn garbage_ends() {
    let mut random = Random(41);
    for _ in 0..20_000 {
        let count = random.below(40);
        let mut words = random.words(count);
        for word in &mut words {
            if random.below(2) > 0 {
                *word = random.below(7) | random.below(5) << 8;
            }
        }
        let whole = all(&words);
        // In pieces it is the same, as far as it goes.
        let (mut reader, mut found, mut is_bad) = (ItemReader::default(), Vec::new(), false);
        let size = 1 + random.below(8) as usize;
        for piece in words.chunks(size) {
            reader.add(piece.iter().copied());
            while let Some(item) = reader.next_item().unwrap_or_else(|ItemError| {
                is_bad = true;
                None
            }) {
                found.push(item);
                assert!(found.len() <= words.len(), "it does not end");
            }
        }
        assert_eq!(is_bad, whole.is_err());
        assert!(whole.is_err() || whole == Ok(found));
    }
}
