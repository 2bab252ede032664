//! GTX 1080 Ti with many threads, in front of the driver's model: the faults and their order.
//!
//! Thread blocks are distributed over the multiprocessors in turn, each of which holds as many as
//! CUDA permits. All warps that can proceed do, until every warp waits. Then the driver receives a
//! fault from each multiprocessor in turn. Each warp faults, even if another waits for the same
//! page. The driver's source does the same: it merges consecutive faults on one page and services
//! the others once, but counts them all against its batch.

use sim::{
    Machine, Pages, RunError,
    pages::Counts,
    units::{BLOCK_BYTES, GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, PAGE_BYTES},
};

/// Multiprocessors of a GTX 1080 Ti. Each holds at most `WARPS` warps of 32 threads, and `BLOCKS`
/// thread blocks of any size.
const MULTIPROCESSORS: usize = 28;
const WARPS: usize = 64;
const BLOCKS: usize = 32;

/// Managed memory of a process; each allocation begins at a block of 2 MiB.
#[derive(Default)]
pub(crate) struct Space {
    allocations: Vec<Granules>,
}

/// Allocation of words of 4 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    first_page: u64,
    words: usize,
}

impl Space {
    pub(crate) fn allocate(&mut self, words: usize) -> Array {
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
    /// Page of a word.
    pub(crate) fn word(self, index: usize) -> u64 {
        self.byte(4 * index)
    }

    pub(crate) fn byte(self, offset: usize) -> u64 {
        self.first_page + offset as u64 / PAGE_BYTES
    }

    /// Pages of consecutive words.
    pub(crate) fn words(self, first: usize, count: usize) -> impl Iterator<Item = u64> + Clone {
        self.word(first)..=self.word(first + count - 1)
    }

    /// All pages.
    pub(crate) fn pages(self) -> impl Iterator<Item = u64> + Clone {
        self.words(0, self.words)
    }
}

/// Accesses of threads that wait for one another, and for no others: sets of pages that are
/// accessed at once, one set after the other.
pub(crate) type Steps = Vec<Vec<u64>>;

/// Groups of threads that progress independently: their number, and the number that a
/// multiprocessor holds.
#[derive(Clone, Copy)]
pub(crate) struct Groups {
    count: usize,
    at_once: usize,
}

impl Groups {
    pub(crate) fn warps(count: usize) -> Self {
        Self { count, at_once: WARPS }
    }

    /// Thread blocks of `warps` warps, with barriers.
    pub(crate) fn blocks(count: usize, warps: usize) -> Self {
        Self { count, at_once: BLOCKS.min(WARPS / warps) }
    }
}

struct Group {
    remaining: std::vec::IntoIter<Vec<u64>>,
    /// Pages that the group waits for.
    missing: Vec<u64>,
}

impl Group {
    /// Advances while pages are resident; false at the end of the steps.
    fn advance(&mut self, pages: &mut Pages<'_>) -> bool {
        loop {
            self.missing.retain(|page| !pages.touches(*page));
            if !self.missing.is_empty() {
                return true;
            }
            let Some(step) = self.remaining.next() else { return false };
            self.missing = step;
        }
    }
}

/// Process with a GPU.
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

    /// Duration of kernels, without time for arithmetic.
    pub(crate) fn kernels_ns(&self) -> u64 {
        self.kernels_ns
    }

    /// Accesses pages by the CPU.
    pub(crate) fn cpu(&mut self, pages: impl IntoIterator<Item = u64>) {
        pages.into_iter().for_each(|page| self.pages.by_cpu(page));
    }

    /// Runs a kernel on the GPU, with the steps of each group.
    pub(crate) fn kernel(&mut self, groups: Groups, steps: impl Fn(usize) -> Steps) -> Result<(), RunError> {
        let start_ns = self.pages.now_ns();
        let mut remaining =
            (0..groups.count).map(|group| Group { remaining: steps(group).into_iter(), missing: Vec::new() });
        let mut multiprocessors: Vec<Vec<Group>> = (0..MULTIPROCESSORS).map(|_| Vec::new()).collect();
        for _ in 0..groups.at_once {
            for resident in &mut multiprocessors {
                resident.extend(remaining.next());
            }
        }
        loop {
            for resident in &mut multiprocessors {
                let mut at = 0;
                while let Some(group) = resident.get_mut(at) {
                    if group.advance(&mut self.pages) {
                        at += 1;
                    } else if let Some(next) = remaining.next() {
                        *group = next;
                    } else {
                        resident.remove(at);
                    }
                }
            }
            let faults =
                multiprocessors.iter().map(|resident| resident.iter().flat_map(|group| &group.missing).copied());
            let mut faults = round_robin(faults.collect()).peekable();
            if faults.peek().is_none() {
                self.kernels_ns += self.pages.now_ns() - start_ns;
                return Ok(());
            }
            self.pages.serve(faults)?;
        }
    }
}

/// Items of the iterators in turn, one of each.
fn round_robin<I: Iterator>(mut iterators: Vec<I>) -> impl Iterator<Item = I::Item> {
    let mut index = 0;
    std::iter::from_fn(move || {
        while !iterators.is_empty() {
            index %= iterators.len();
            if let Some(item) = iterators.get_mut(index)?.next() {
                index += 1;
                return Some(item);
            }
            drop(iterators.remove(index));
        }
        None
    })
}
