//! A GTX 1080 Ti of many threads in front of the driver's model: which faults come in which order.
//!
//! Blocks of threads go to the multiprocessors in turn, and each of these holds as many as CUDA lets it. All that can go on does, at once, until every warp
//! waits; then the driver gets a fault of each multiprocessor in turn. Each warp's fault comes, also if another waits for the same page: so the driver's own source
//! has it, which merges those that follow one another and serves the others once, but counts them all against its batch.

use sim::{
    Machine, Pages, RunError,
    pages::Counts,
    units::{BLOCK_BYTES, GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, PAGE_BYTES},
};

/// Of a GTX 1080 Ti; and what each holds at once at most: warps of 32 threads, and blocks of any size.
const MULTIPROCESSORS: usize = 28;
const WARPS: usize = 64;
const BLOCKS: usize = 32;

/// A process's managed memory: each allocation begins at a block of 2 MiB.
#[derive(Default)]
pub(crate) struct Space {
    allocations: Vec<Granules>,
}

/// An allocation, which words of 4 bytes are in.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    first_page: u64,
    words: usize,
}

impl Space {
    pub(crate) fn take(&mut self, words: usize) -> Array {
        let end = self.allocations.last().map_or(0, |last| last.end);
        let first = end.next_multiple_of(u64::from(GRANULES_PER_BLOCK));
        self.allocations.push(Granules { first, end: first + (4 * words as u64).div_ceil(GRANULE_BYTES) });
        Array { first_page: first * (GRANULE_BYTES / PAGE_BYTES), words }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.allocations.iter().map(|allocation| allocation.count() * GRANULE_BYTES).sum()
    }
}

impl Array {
    /// The page of a word.
    pub(crate) fn word(self, index: usize) -> u64 {
        self.byte(4 * index)
    }

    pub(crate) fn byte(self, offset: usize) -> u64 {
        self.first_page + offset as u64 / PAGE_BYTES
    }

    /// The pages of words that follow one another.
    pub(crate) fn words(self, first: usize, count: usize) -> impl Iterator<Item = u64> + Clone {
        self.word(first)..=self.word(first + count - 1)
    }

    /// All its pages.
    pub(crate) fn pages(self) -> impl Iterator<Item = u64> + Clone {
        self.words(0, self.words)
    }
}

/// What threads touch that wait for one another, and for nobody else: pages that they ask for at once, one such set after the other.
pub(crate) type Steps = Vec<Vec<u64>>;

/// How many groups of threads there are that go each at its own pace, and how many of them a multiprocessor holds.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    count: usize,
    at_once: usize,
}

impl Groups {
    pub(crate) fn warps(count: usize) -> Self {
        Self { count, at_once: WARPS }
    }

    /// Blocks of so many warps, with barriers.
    pub(crate) fn blocks(count: usize, warps: usize) -> Self {
        Self { count, at_once: BLOCKS.min(WARPS / warps) }
    }
}

struct Group {
    rest: std::vec::IntoIter<Vec<u64>>,
    /// What it waits for.
    missing: Vec<u64>,
}

impl Group {
    /// Goes on as far as pages are there; false if it is at its end.
    fn goes_on(&mut self, pages: &mut Pages<'_>) -> bool {
        loop {
            self.missing.retain(|page| !pages.touches(*page));
            if !self.missing.is_empty() {
                return true;
            }
            let Some(step) = self.rest.next() else { return false };
            self.missing = step;
        }
    }
}

/// A process with a GPU.
pub(crate) struct Process<'m> {
    pages: Pages<'m>,
    kernels_ns: u64,
}

impl<'m> Process<'m> {
    pub(crate) fn new(machine: &'m Machine, gpu_blocks: u64, space: &Space) -> Self {
        let pages = Pages::new(machine, gpu_blocks * BLOCK_BYTES, space.allocations.iter().copied());
        Self { pages, kernels_ns: 0 }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.pages.counts()
    }

    /// How long kernels took, of which computing took no time.
    pub(crate) fn kernels_ns(&self) -> u64 {
        self.kernels_ns
    }

    /// The CPU touches pages.
    pub(crate) fn cpu(&mut self, pages: impl IntoIterator<Item = u64>) {
        pages.into_iter().for_each(|page| self.pages.by_cpu(page));
    }

    /// The GPU runs a kernel, of whose groups these are the steps.
    pub(crate) fn kernel(&mut self, groups: Groups, steps: impl Fn(usize) -> Steps) -> Result<(), RunError> {
        let begun_ns = self.pages.now_ns();
        let mut rest = (0..groups.count).map(|group| Group { rest: steps(group).into_iter(), missing: Vec::new() });
        let mut multiprocessors: Vec<Vec<Group>> = (0..MULTIPROCESSORS).map(|_| Vec::new()).collect();
        for _ in 0..groups.at_once {
            for holds in &mut multiprocessors {
                holds.extend(rest.next());
            }
        }
        loop {
            for holds in &mut multiprocessors {
                let mut at = 0;
                while let Some(group) = holds.get_mut(at) {
                    if group.goes_on(&mut self.pages) {
                        at += 1;
                    } else if let Some(next) = rest.next() {
                        *group = next;
                    } else {
                        holds.remove(at);
                    }
                }
            }
            let faults = multiprocessors.iter().map(|holds| holds.iter().flat_map(|group| &group.missing).copied());
            let mut faults = in_turn(faults.collect()).peekable();
            if faults.peek().is_none() {
                self.kernels_ns += self.pages.now_ns() - begun_ns;
                return Ok(());
            }
            self.pages.serve(faults)?;
        }
    }
}

/// One of each, again and again.
fn in_turn<I: Iterator>(mut of: Vec<I>) -> impl Iterator<Item = I::Item> {
    let mut turn = 0;
    std::iter::from_fn(move || {
        while !of.is_empty() {
            turn %= of.len();
            if let Some(item) = of.get_mut(turn)?.next() {
                turn += 1;
                return Some(item);
            }
            drop(of.remove(turn));
        }
        None
    })
}
