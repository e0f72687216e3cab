//! Trial.
#![allow(clippy::unwrap_used)]
use std::io::{Read, Write};
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = std::path::PathBuf::from(&args[1]);
    let size: usize = args[2].parse().unwrap();
    let total: usize = args[3].parse::<usize>().unwrap() << 20;
    let each: usize = args[4].parse::<usize>().unwrap() << 10;
    let store = conquest::Store::attach(&dir, &conquest::Attach::default()).unwrap();
    let files = store.files().unwrap();
    let mut buf = vec![7u8; size];
    let t = Instant::now();
    for n in 0..total / each {
        let mut f = files.create(format!("/f{n}")).unwrap();
        for _ in 0..each / size {
            f.write_all(&buf).unwrap();
        }
    }
    let w = t.elapsed().as_secs_f64();
    store.sync().unwrap();
    let s = t.elapsed().as_secs_f64();
    let t = Instant::now();
    for n in 0..total / each {
        let mut f = files.open(format!("/f{n}")).unwrap();
        for _ in 0..each / size {
            f.read_exact(&mut buf).unwrap();
        }
    }
    let r = t.elapsed().as_secs_f64();
    let mb = total as f64 / 1e6;
    println!(
        "{size} bytes, files of {each}: written {:.0} MB/s, with sync {:.0}, read {:.0}",
        mb / w,
        mb / s,
        mb / r
    );
}
