//! Trial.
#![allow(clippy::unwrap_used)]
use std::io::Write;
use std::time::{Duration, Instant};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = std::path::PathBuf::from(&args[1]);
    if args.len() > 3 {
        let store = conquest::Store::attach(&dir, &conquest::Attach::default()).unwrap();
        let files = store.files().unwrap();
        let me: u64 = args[3].parse().unwrap();
        files.create_dir(format!("/d{me}")).ok();
        let mut n = 0u64;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(4) {
            let mut f = files.create(format!("/d{me}/{n}")).unwrap();
            f.write_all(&[7u8; 4096]).unwrap();
            f.sync_all().unwrap();
            n += 1;
        }
        println!("{n}");
        return;
    }
    let count: u64 = args[2].parse().unwrap();
    let children: Vec<_> = (0..count)
        .map(|k| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .arg(&args[1])
                .arg("x")
                .arg(k.to_string())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let total: u64 = children
        .into_iter()
        .map(|c| {
            String::from_utf8(c.wait_with_output().unwrap().stdout)
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap()
        })
        .sum();
    println!("{} processes: {:.0} a second", count, total as f64 / 4.0);
}
