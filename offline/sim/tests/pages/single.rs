//! Reference model of the driver and GPU of `sim::pages`: page by page and block by block, without
//! runs. It is slow, and written from the driver's source. It has no clock, and so no thrashing.

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

/// Memory of one process, block by block.
pub(crate) struct Single {
    blocks: Vec<Vec<Page>>,
    /// Blocks with any page on the GPU, in eviction order.
    used: Vec<usize>,
    frames: usize,
    pub(crate) max_frames: usize,
    pub(crate) counts: Counts,
}

fn place(page: u64) -> (usize, usize) {
    let page = usize::try_from(page).unwrap();
    (page / BLOCK_PAGES, page % BLOCK_PAGES)
}

/// `uvm_perf_prefetch.c`: big pages around the faults are filled, then each fault selects the
/// largest dense subtree.
fn region(occupied: &[bool], faulted: &[bool]) -> Vec<bool> {
    let mut leaves: Vec<bool> = occupied.iter().zip(faulted).map(|(here, fault)| *here || *fault).collect();
    for (leaves, faulted) in leaves.chunks_mut(BIG_PAGES).zip(faulted.chunks(BIG_PAGES)) {
        if faulted.contains(&true) {
            leaves.fill(true);
        }
    }
    let mut selected = vec![false; leaves.len()];
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
        selected[largest].fill(true);
    }
    selected
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
        Self { blocks, used: Vec::new(), frames, max_frames: 0, counts: Counts::default() }
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
        let selected = region(&occupied, &faulted);
        for (page, _) in self.blocks[block].iter_mut().zip(selected).filter(|(_, selected)| *selected) {
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
                self.fault_in(block, &faulted);
            }
        }
    }

    /// `uvm_migrate.c`: block by block, in two passes if there are several.
    pub(crate) fn move_to_gpu(&mut self, pages: Range<u64>) {
        for (block, selected) in self.requested(pages) {
            let selected: Vec<bool> = self.blocks[block]
                .iter()
                .enumerate()
                .map(|(page, state)| selected.contains(&page) && !state.gpu)
                .collect();
            if selected.contains(&true) {
                self.evict_for(block);
            }
            self.make_resident(block, &selected, &vec![false; selected.len()]);
        }
    }

    pub(crate) fn move_to_host(&mut self, pages: Range<u64>) {
        for (block, selected) in self.requested(pages) {
            for page in &mut self.blocks[block][selected] {
                self.counts.bytes_dtoh += u64::from(page.gpu) * 4096;
                *page = Page { gpu: false, cpu: true, mapped: true };
            }
            if !self.blocks[block].iter().any(|page| page.gpu) {
                self.used.retain(|used| *used != block);
            }
        }
    }

    fn requested(&self, pages: Range<u64>) -> Vec<(usize, Range<usize>)> {
        let mut first_pass: Vec<(usize, Range<usize>)> = Vec::new();
        for (block, page) in pages.map(place).filter(|(block, page)| *page < self.blocks[*block].len()) {
            match first_pass.last_mut() {
                Some((last, range)) if *last == block => range.end = page + 1,
                _ => first_pass.push((block, page..page + 1)),
            }
        }
        let second_pass = if first_pass.len() > 1 { first_pass.clone() } else { Vec::new() };
        first_pass.into_iter().chain(second_pass).collect()
    }

    fn evict_for(&mut self, block: usize) {
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

    fn fault_in(&mut self, block: usize, faulted: &[bool]) {
        self.evict_for(block);
        let occupied: Vec<bool> = self.blocks[block].iter().map(|page| page.gpu).collect();
        let selected = region(&occupied, faulted);
        self.make_resident(block, &selected, faulted);
    }

    fn make_resident(&mut self, block: usize, selected: &[bool], faulted: &[bool]) {
        let mut copying_for_fault = None;
        for ((page, selected), for_fault) in self.blocks[block].iter_mut().zip(selected).zip(faulted) {
            let copied = (*selected && page.cpu).then_some(*for_fault);
            self.counts.transfers_htod += u64::from(copied.is_some() && copied != copying_for_fault);
            self.counts.bytes_htod += u64::from(copied.is_some()) * 4096;
            copying_for_fault = copied;
            if *selected {
                *page = Page { gpu: true, cpu: false, mapped: false };
            }
        }
        if self.blocks[block].iter().any(|page| page.gpu) {
            self.used.retain(|used| *used != block);
            self.used.push(block);
        }
        self.max_frames = self.max_frames.max(self.used.len());
    }
}
