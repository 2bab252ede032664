//! The same driver and GPU as `sim::pages` has them, but page by page, block by block, with nothing kept together: slow, and told from the driver's source.
//! It has no time, and so no thrashing.

use std::ops::Range;

use sim::{pages::Counts, units::Granules};

const BLOCK_PAGES: usize = 512;
const BIG_PAGES: usize = 16;
const BATCH: usize = 256;
const THRESHOLD_PERCENT: usize = 51;

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    gpu: bool,
    cpu: bool,
    mapped: bool,
}

/// One process's memory, block by block.
pub(crate) struct Single {
    blocks: Vec<Vec<Page>>,
    /// Blocks with something on the GPU, the first to be evicted first.
    used: Vec<usize>,
    frames: usize,
    pub(crate) most_frames: usize,
    pub(crate) counts: Counts,
}

fn place(page: u64) -> (usize, usize) {
    let page = usize::try_from(page).unwrap();
    (page / BLOCK_PAGES, page % BLOCK_PAGES)
}

/// `uvm_perf_prefetch.c`: big pages around the faults are filled, then for each fault the largest subtree that is dense is taken.
fn region(occupied: &[bool], faulted: &[bool]) -> Vec<bool> {
    let mut leaves: Vec<bool> = occupied.iter().zip(faulted).map(|(here, fault)| *here || *fault).collect();
    for (leaves, faulted) in leaves.chunks_mut(BIG_PAGES).zip(faulted.chunks(BIG_PAGES)) {
        if faulted.contains(&true) {
            leaves.fill(true);
        }
    }
    let mut taken = vec![false; leaves.len()];
    for fault in (0..leaves.len()).filter(|page| faulted[*page]) {
        let mut size = 1;
        let mut largest = fault..fault + 1;
        while size / 2 < leaves.len() {
            let begin = fault / size * size;
            let subtree = begin..(begin + size).min(leaves.len());
            let dense = leaves[subtree.clone()].iter().filter(|leaf| **leaf).count();
            if dense * 100 > subtree.len() * THRESHOLD_PERCENT {
                largest = subtree;
            }
            size *= 2;
        }
        taken[largest].fill(true);
    }
    taken
}

impl Single {
    pub(crate) fn new(frames: u64, allocations: &[Granules]) -> Self {
        let mut blocks = Vec::new();
        for allocation in allocations {
            let pages = usize::try_from(allocation.count()).unwrap() * BIG_PAGES;
            blocks.extend(
                (0..pages.div_ceil(BLOCK_PAGES))
                    .map(|block| vec![Page::default(); (pages - block * BLOCK_PAGES).min(BLOCK_PAGES)]),
            );
        }
        let frames = usize::try_from(frames).unwrap();
        Self { blocks, used: Vec::new(), frames, most_frames: 0, counts: Counts::default() }
    }

    pub(crate) fn by_cpu(&mut self, page: u64) {
        let (block, page) = place(page);
        if self.blocks[block][page].mapped {
            return;
        }
        self.counts.cpu_faults += 1;
        let occupied: Vec<bool> = self.blocks[block].iter().map(|page| page.cpu).collect();
        let mut faulted = vec![false; occupied.len()];
        faulted[page] = true;
        let taken = region(&occupied, &faulted);
        for (page, _) in self.blocks[block].iter_mut().zip(taken).filter(|(_, taken)| *taken) {
            self.counts.bytes_dtoh += u64::from(page.gpu) * 4096;
            *page = Page { gpu: false, cpu: true, mapped: true };
        }
        if !self.blocks[block].iter().any(|page| page.gpu) {
            self.used.retain(|used| *used != block);
        }
    }

    pub(crate) fn by_gpu(&mut self, touched: &[u64], window: usize) {
        let mut next = touched.iter();
        let mut waiting = Vec::new();
        loop {
            waiting.retain(|page| self.is_missing(*page));
            while waiting.len() < window {
                let Some(page) = next.next() else { break };
                if self.is_missing(*page) {
                    waiting.push(*page);
                }
            }
            if waiting.is_empty() {
                return;
            }
            self.serve(&waiting[..waiting.len().min(BATCH)]);
        }
    }

    fn is_missing(&self, page: u64) -> bool {
        let (block, page) = place(page);
        !self.blocks[block][page].gpu
    }

    fn serve(&mut self, packets: &[u64]) {
        self.counts.replays += 1;
        self.counts.fault_instances += packets.len() as u64;
        let mut entries: Vec<u64> = Vec::new();
        for packet in packets {
            if entries.last() != Some(packet) {
                entries.push(*packet);
            }
        }
        self.counts.fault_entries += entries.len() as u64;
        for block in 0..self.blocks.len() {
            let mut faulted = vec![false; self.blocks[block].len()];
            for (_, page) in entries.iter().map(|entry| place(*entry)).filter(|(of, _)| *of == block) {
                faulted[page] = true;
            }
            if faulted.contains(&true) {
                self.bring(block, &faulted);
            }
        }
    }

    /// `uvm_migrate.c`: block by block, and once more if there are several.
    pub(crate) fn move_to_gpu(&mut self, pages: Range<u64>) {
        for (block, taken) in self.requested(pages) {
            let taken: Vec<bool> = self.blocks[block]
                .iter()
                .enumerate()
                .map(|(page, state)| taken.contains(&page) && !state.gpu)
                .collect();
            if taken.contains(&true) {
                self.make_room(block);
            }
            self.take_in(block, &taken, &vec![false; taken.len()]);
        }
    }

    pub(crate) fn move_to_host(&mut self, pages: Range<u64>) {
        for (block, taken) in self.requested(pages) {
            for page in &mut self.blocks[block][taken] {
                self.counts.bytes_dtoh += u64::from(page.gpu) * 4096;
                *page = Page { gpu: false, cpu: true, mapped: true };
            }
            if !self.blocks[block].iter().any(|page| page.gpu) {
                self.used.retain(|used| *used != block);
            }
        }
    }

    fn requested(&self, pages: Range<u64>) -> Vec<(usize, Range<usize>)> {
        let mut once: Vec<(usize, Range<usize>)> = Vec::new();
        for (block, page) in pages.map(place).filter(|(block, page)| *page < self.blocks[*block].len()) {
            match once.last_mut() {
                Some((last, range)) if *last == block => range.end = page + 1,
                _ => once.push((block, page..page + 1)),
            }
        }
        let again = if once.len() > 1 { once.clone() } else { Vec::new() };
        once.into_iter().chain(again).collect()
    }

    fn make_room(&mut self, block: usize) {
        if !self.used.contains(&block) && self.used.len() == self.frames {
            let victim = self.used.remove(0);
            self.counts.evictions += 1;
            for page in self.blocks[victim].iter_mut().filter(|page| page.gpu) {
                *page = Page { gpu: false, cpu: true, mapped: false };
                self.counts.evicted_bytes += 4096;
                self.counts.bytes_dtoh += 4096;
            }
        }
    }

    fn bring(&mut self, block: usize, faulted: &[bool]) {
        self.make_room(block);
        let occupied: Vec<bool> = self.blocks[block].iter().map(|page| page.gpu).collect();
        let taken = region(&occupied, faulted);
        self.take_in(block, &taken, faulted);
    }

    fn take_in(&mut self, block: usize, taken: &[bool], faulted: &[bool]) {
        let mut copying_for_fault = None;
        for ((page, taken), for_fault) in self.blocks[block].iter_mut().zip(taken).zip(faulted) {
            let copied = (*taken && page.cpu).then_some(*for_fault);
            self.counts.transfers_htod += u64::from(copied.is_some() && copied != copying_for_fault);
            self.counts.bytes_htod += u64::from(copied.is_some()) * 4096;
            copying_for_fault = copied;
            if *taken {
                *page = Page { gpu: true, cpu: false, mapped: false };
            }
        }
        if self.blocks[block].iter().any(|page| page.gpu) {
            self.used.retain(|used| *used != block);
            self.used.push(block);
        }
        self.most_frames = self.most_frames.max(self.used.len());
    }
}
