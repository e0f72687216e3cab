//! Superblocks.

use super::*;

const WHOLE: &str = "its superblock says what can't be";

fn superblock() -> Superblock {
    Superblock {
        uuid: UUID,
        created: 0x1122_3344_5566_7788,
        member: 2,
        members: 3,
        arrangement: Arrangement::Striped,
        unit: 4096,
        segment: 64,
        segments: 99,
        start: 65536,
        len: 65536 + 33 * 64 * 4096 + 4096,
        stamp: 0x1122_3344_5566_7799,
    }
}

fn random(random: &mut Random) -> Superblock {
    let members = 1 + random.below(9) as u32;
    let arrangement = [Arrangement::Striped, Arrangement::Mirrored][random.below(2) as usize];
    let (unit, segment) = (UNIT << random.below(5), 8 << random.below(14));
    let rows = 5 + random.below(1000);
    let segments = match arrangement {
        Arrangement::Striped => rows * u64::from(members),
        Arrangement::Mirrored => rows,
    };
    let start = SIZE as u64 + random.below(1 << 30);
    let end = start + unit * segment * rows + SIZE as u64;
    Superblock {
        uuid: core::array::from_fn(|_| random.word() as u8),
        created: random.word(),
        member: random.below(members.into()) as u32,
        members,
        arrangement,
        unit,
        segment,
        segments,
        start,
        len: end.next_multiple_of(SIZE as u64) + random.below(1 << 40),
        stamp: random.word(),
    }
}

#[test]
fn it_stands_as_documented() {
    let bytes = superblock().to_bytes();
    let expected: [(usize, &[u8]); 16] = [
        (0, b"CONQVOLU"),
        (8, &[1, 0, 0, 0, 0, 0, 0, 0]),
        (16, &[0; 8]),
        (24, &[0; 8]),
        (32, &UUID),
        (48, &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
        (56, &[2, 0, 0, 0]),
        (60, &[3, 0, 0, 0]),
        (64, &[0; 8]),
        (72, &[0, 0x10, 0, 0, 0, 0, 0, 0]),
        (80, &[64, 0, 0, 0, 0, 0, 0, 0]),
        (88, &[99, 0, 0, 0, 0, 0, 0, 0]),
        (96, &[0, 0, 1, 0, 0, 0, 0, 0]),
        (104, &[0, 0x10, 0x85, 0, 0, 0, 0, 0]),
        (112, &[0x99, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]),
        (120, &[0; SIZE - 128]),
    ];
    let mut at = 0;
    for (offset, field) in expected {
        assert_eq!(offset, at);
        assert_eq!(&bytes[offset..offset + field.len()], field, "{offset}");
        at = offset + field.len();
    }
    let sum = checksum(checksum(0, &UUID), &bytes[..SIZE - 8]);
    assert_eq!(bytes[at..], sum.to_le_bytes());
}

#[test]
fn they_round_trip() {
    let mut numbers = Random(10);
    for _ in 0..1000 {
        let found = random(&mut numbers);
        assert_eq!(Superblock::from_bytes(&found.to_bytes()), Ok(found));
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = superblock().to_bytes();
    for byte in 0..SIZE {
        for bit in 0..8 {
            let mut bad = bytes;
            bad[byte] ^= 1 << bit;
            assert!(Superblock::from_bytes(&bad).is_err(), "{byte} {bit}");
        }
    }
}

#[test]
fn garbage_is_refused() {
    let mut random = Random(11);
    for _ in 0..1000 {
        let mut bytes = [0; SIZE];
        put_words(&mut bytes, random.words(SIZE as u64 / 8));
        assert_eq!(Superblock::from_bytes(&bytes), Err("it is no member of a volume"));
        bytes[..8].copy_from_slice(&MAGIC);
        put_words(&mut bytes[8..], [VERSION]);
        assert_eq!(Superblock::from_bytes(&bytes), Err("its superblock is damaged"));
        // With the right checksum, whatever the numbers are.
        put_words(&mut bytes[16..], [0, 0]);
        put_words(&mut bytes[64..], [random.below(2)]);
        reseal(&mut bytes);
        assert_eq!(Superblock::from_bytes(&bytes), Err(WHOLE));
    }
}

/// Puts the right checksum into `bytes`, for the UUID that they say.
fn reseal(bytes: &mut [u8; SIZE]) {
    let uuid: [u8; 16] = bytes[32..48].try_into().unwrap();
    sealed(bytes, Bind::new(uuid), &[]);
}

#[test]
fn each_refusal_says_why() {
    let with = |at: usize, word: u64| {
        let mut bytes = superblock().to_bytes();
        put_words(&mut bytes[at..], [word]);
        reseal(&mut bytes);
        Superblock::from_bytes(&bytes)
    };
    assert_eq!(with(0, u64::from_le_bytes(*b"CONQCORE")), Err("it is no member of a volume"));
    for version in [0, VERSION + 1, VERSION << 32] {
        assert_eq!(with(8, version), Err("its version of the format is another one"));
    }
    let unknown = "it has features that this program does not know";
    assert_eq!([with(16, 1), with(16, 1 << 63)], [Err(unknown); 2]);
    let combined = "its members are combined in a way that this program does not know";
    assert_eq!([with(64, 2), with(64, u64::MAX)], [Err(combined); 2]);
    assert_eq!(with(72, 0), Err(WHOLE));
    // Features that may be ignored are, and so is what is reserved.
    for at in [24, 120, 4080] {
        assert_eq!(with(at, u64::MAX), Ok(superblock()));
    }
    let mut torn = superblock().to_bytes();
    torn[2048..].fill(0);
    assert_eq!(Superblock::from_bytes(&torn), Err("its superblock is damaged"));
    // What it is comes before whether it is right.
    torn[8] = 2;
    assert_eq!(Superblock::from_bytes(&torn), Err("its version of the format is another one"));
    torn[0] = 0;
    assert_eq!(Superblock::from_bytes(&torn), Err("it is no member of a volume"));
}

#[test]
fn numbers_have_to_fit_each_other() {
    let good = superblock();
    let len = good.len;
    let mirrored = Superblock { arrangement: Arrangement::Mirrored, segments: 33, ..good };
    let small = Superblock { segment: 8, segments: 6, ..good };
    let possible = [
        good,
        mirrored,
        small,
        Superblock { len: len + 4095, ..good },
        Superblock { unit: UNIT_MAX, segment: 8, segments: 3 * 16, ..good },
        Superblock { start: 4096, len: len - 61440, ..good },
        Superblock { member: 0, members: 1, segments: 33, ..good },
        Superblock { segments: 5, ..mirrored },
        Superblock { segment: 65536, segments: (1 << 24) - 1, len: 1 << 52, ..mirrored },
    ];
    for found in possible {
        assert_eq!(Superblock::from_bytes(&found.to_bytes()), Ok(found));
    }
    let impossible = [
        Superblock { member: 3, ..good },
        Superblock { member: 0, members: 0, ..good },
        Superblock { unit: 2048, ..good },
        Superblock { unit: 4097, ..good },
        Superblock { unit: 12288, segment: 8, ..good },
        Superblock { unit: UNIT_MAX * 2, segment: 8, segments: 6, ..good },
        Superblock { segment: 4, ..good },
        Superblock { segment: 63, ..good },
        Superblock { segment: 0, ..good },
        Superblock { segment: 131_072, segments: 5, len: u64::MAX, ..mirrored },
        Superblock { segments: 4, ..mirrored },
        Superblock { segments: 0, ..mirrored },
        Superblock { segments: 3, ..good },
        // Not as many on each member.
        Superblock { segments: 98, ..good },
        // One more than there is room for.
        Superblock { segments: 102, ..good },
        Superblock { segments: 34, ..mirrored },
        Superblock { segment: 65536, segments: 1 << 24, len: 1 << 53, ..mirrored },
        Superblock { start: 4095, ..good },
        Superblock { start: 0, ..good },
        Superblock { start: good.start + 1, ..good },
        Superblock { start: u64::MAX, ..good },
        Superblock { len: len - 1, ..good },
        Superblock { len: 0, ..good },
        // The last copy begins where whole 4 KiB do.
        Superblock { start: good.start + 100, len: len + 100, ..good },
        Superblock { segments: 3 << 60, len: u64::MAX, ..good },
        Superblock { segments: u64::MAX, segment: 1 << 63, unit: 1 << 63, len: u64::MAX, ..good },
    ];
    for found in impossible {
        assert_eq!(Superblock::from_bytes(&found.to_bytes()), Err(WHOLE), "{found:?}");
    }
}
