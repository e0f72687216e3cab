//! A file that is so large that its data is on the store's volume.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use super::tell;
use crate::reason::Result;
use crate::report::Report;
use crate::rng::Rng;
use crate::size::human;

const NAME: &str = "/large file";
/// Bytes that are written at once, and how often.
const PIECE: usize = 1 << 20;
const PIECES: u64 = 48;

/// Piece `number` of it.
fn piece(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    (0..PIECE / 8).flat_map(|_| rng.next().to_le_bytes()).collect()
}

/// Writes it, so that it is durable.
pub(super) fn make(directory: &Path) -> Result<()> {
    let store = crate::session::attach(directory)?;
    let begin = Instant::now();
    let mut file = store.files()?.create(NAME)?;
    for number in 0..PIECES {
        file.write_all(&piece(number))?;
    }
    file.sync_all()?;
    drop(file);
    let time = begin.elapsed();
    tell(format_args!(
        "wrote a large file, and synced it: {}, {:.2} s",
        human(PIECES * PIECE as u64),
        time.as_secs_f64()
    ));
    Ok(store.detach()?)
}

/// Compares it with what was written; how many of its pieces differ.
pub(super) fn compare(directory: &Path, report: &Report) -> Result<u64> {
    let store = crate::session::attach(directory)?;
    let mut file = store.files()?.open(NAME)?;
    let (mut differences, mut found) = (0, vec![0; PIECE]);
    for number in 0..PIECES {
        file.read_exact(&mut found)?;
        if found != piece(number) {
            differences += 1;
            report.note(format_args!("the large file differs in MiB {number}"));
        }
    }
    drop(file);
    tell(format_args!("compared the large file: {differences} differences"));
    store.detach()?;
    Ok(differences)
}
