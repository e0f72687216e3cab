//! A population of files on a region, as a file system would keep them: each has an inode, which is
//! a slab object, and pages, in one run if the region grants one, else in several.

use std::time::{Duration, Instant};

use conquest_format::{GROUP_PAGES, Offset};
use conquest_pm::{Error, Mode, Ptr, Region, Result, Tx};
use conquest_testkit::Rng;

use crate::arena::{Large, PAGES, lock, root};

/// How the sizes of files are spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Sizes {
    /// The logarithm is normal: most files are small, most bytes are in large ones. Median 4 pages,
    /// mean about 19.
    LogNormal,
    /// The logarithm is uniform from 1 to 512 pages: the median is 23 pages, the mean about 82.
    LogUniform,
}

/// Sizes in one pass through the deck.
const DECK: usize = 512;

impl Sizes {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sizes::LogNormal => "log-normal sizes",
            Sizes::LogUniform => "log-uniform sizes",
        }
    }

    /// The size, in pages, of which `share` of all files are smaller.
    fn quantile(self, share: f64) -> u64 {
        let pages = match self {
            Sizes::LogNormal => 4.0 * (1.8 * normal_quantile(share)).exp(),
            Sizes::LogUniform => (GROUP_PAGES as f64).powf(share),
        };
        (pages.round() as u64).clamp(1, GROUP_PAGES)
    }
}

/// The quantile of the normal distribution, by bisection of its integral.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-8.0_f64, 8.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal_integral(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The normal distribution below `z`: the series of the error function.
fn normal_integral(z: f64) -> f64 {
    let (mut term, mut sum) = (z, z);
    for index in 1..200 {
        term *= z * z / f64::from(2 * index + 1);
        sum += term;
    }
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    (0.5 + density * sum).clamp(0.0, 1.0)
}

/// Draws sizes so that any row of some hundred holds nearly the same ones: what is compared over
/// time must not differ by chance.
struct Deck {
    sizes: Vec<u64>,
    next: usize,
}

impl Deck {
    fn new(sizes: Sizes) -> Deck {
        let share = |index: usize| (index as f64 + 0.5) / DECK as f64;
        Deck { sizes: (0..DECK).map(|index| sizes.quantile(share(index))).collect(), next: 0 }
    }

    fn draw(&mut self, rng: &mut Rng) -> u64 {
        let left = self.sizes.len() - self.next;
        let at = self.next + rng.below(left as u64) as usize;
        self.sizes.swap(self.next, at);
        let size = self.sizes[self.next];
        self.next = (self.next + 1) % self.sizes.len();
        size
    }
}

struct File {
    inode: Ptr<Large>,
    runs: Vec<(Offset, u64)>,
    pages: u64,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Files made and removed.
    pub(crate) operations: u64,
    /// Pages of files made.
    pub(crate) written: u64,
    /// Files made.
    pub(crate) made: u64,
    /// Files that did not get their pages in one run.
    pub(crate) split: u64,
    /// Files that were refused, because their pages were not there in any runs.
    pub(crate) refused: u64,
    /// Time spent in filling pages with zeros.
    pub(crate) zeroing: Duration,
}

/// The files of a region.
pub(crate) struct Population<'c> {
    core: &'c Region,
    deck: Deck,
    rng: Rng,
    files: Vec<File>,
    /// Pages of all files.
    pub(crate) pages: u64,
    pub(crate) work: Work,
}

impl<'c> Population<'c> {
    pub(crate) fn new(core: &'c Region, sizes: Sizes, seed: u64) -> Population<'c> {
        Population {
            core,
            deck: Deck::new(sizes),
            rng: Rng::new(seed),
            files: Vec::new(),
            pages: 0,
            work: Work::default(),
        }
    }

    /// Makes files until the next would not leave the files at most `most` pages.
    pub(crate) fn fill(&mut self, most: u64) -> Result<()> {
        loop {
            let size = self.deck.draw(&mut self.rng);
            if self.pages + size > most {
                return Ok(());
            }
            self.make(size)?;
        }
    }

    /// Makes a file, after removing files at random until all have at most `most` pages with it.
    pub(crate) fn replace(&mut self, most: u64) -> Result<()> {
        let size = self.deck.draw(&mut self.rng);
        while self.pages + size > most && !self.files.is_empty() {
            let index = self.rng.below(self.files.len() as u64) as usize;
            let file = self.files.swap_remove(index);
            self.remove(&file)?;
        }
        self.make(size)
    }

    fn remove(&mut self, file: &File) -> Result<()> {
        self.core.run(|tx| {
            tx.lock(lock(0, 0), Mode::Exclusive)?;
            for &(at, pages) in &file.runs {
                tx.free_run(at, pages, PAGES)?;
            }
            tx.free(file.inode)
        })?;
        self.pages -= file.pages;
        self.work.operations += 1;
        Ok(())
    }

    fn make(&mut self, pages: u64) -> Result<()> {
        let mut zeroing = Duration::ZERO;
        let made = self.core.run(|tx| {
            tx.lock(lock(0, 0), Mode::Exclusive)?;
            let inode = tx.alloc::<Large>()?;
            tx.fill_word(&inode, 0, pages)?;
            let inode = tx.seal(inode);
            let runs = take(tx, pages, &mut zeroing)?;
            tx.set(root(0, 0), inode.word())?;
            Ok(File { inode, runs, pages })
        });
        self.work.operations += 1;
        self.work.zeroing += zeroing;
        match made {
            Ok(file) => {
                self.work.made += 1;
                self.work.split += u64::from(file.runs.len() > 1);
                self.work.written += pages;
                self.pages += pages;
                self.files.push(file);
                Ok(())
            }
            Err(Error::NoSpace { .. }) => {
                self.work.refused += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Takes `pages` pages, in one run or else in halves of halves.
fn take(
    tx: &mut Tx<'_, conquest_pm::media::Mapped, conquest_pm::media::OsHost>,
    pages: u64,
    zeroing: &mut Duration,
) -> Result<Vec<(Offset, u64)>> {
    let mut runs = Vec::new();
    let mut wanted = vec![pages];
    while let Some(next) = wanted.pop() {
        match tx.alloc_run(PAGES, next, None) {
            Ok(run) => {
                let since = Instant::now();
                runs.push((tx.finish_run(run), next));
                *zeroing += since.elapsed();
            }
            Err(Error::NoSpace { .. }) if next > 1 => wanted.extend([next / 2, next - next / 2]),
            Err(error) => return Err(error),
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spread_as_documented() {
        let mean = |sizes| Deck::new(sizes).sizes.iter().sum::<u64>() as f64 / DECK as f64;
        assert!((17.0..21.0).contains(&mean(Sizes::LogNormal)), "{}", mean(Sizes::LogNormal));
        assert!((80.0..84.0).contains(&mean(Sizes::LogUniform)), "{}", mean(Sizes::LogUniform));
        assert_eq!(Sizes::LogNormal.quantile(0.5), 4);
        assert!((normal_quantile(0.975) - 1.96).abs() < 1e-3);
    }

    #[test]
    fn a_pass_through_the_deck_draws_each_size_once() {
        let mut deck = Deck::new(Sizes::LogNormal);
        let mut sorted = deck.sizes.clone();
        sorted.sort_unstable();
        let mut rng = Rng::new(1);
        for _ in 0..2 {
            let mut drawn: Vec<u64> = (0..DECK).map(|_| deck.draw(&mut rng)).collect();
            drawn.sort_unstable();
            assert_eq!(drawn, sorted);
        }
    }
}
