//! Managed memory of a program that accesses it page by page, in order: faults, migrations,
//! evictions, thrashing. The model of the driver is that of iterations. Only the accesses differ:
//! CPU and GPU state each page.
//!
//! Each thread of the modelled GPU does one access, in order. Threads that fault wait for a replay;
//! the others continue until `window` of them wait. The driver fetches faults when the GPU cannot
//! proceed, up to a batch. It drops the others, and those fault again. Consecutive faults on one
//! page are one entry.
//!
//! CPU and GPU take turns: the CPU is idle while the GPU works. The clock advances with faults,
//! moves and pauses; accesses to resident memory take no time.
//!
//! * `faults`: service of faults, and throttling
//! * `requests`: moves by request

mod faults;
mod requests;

use std::{collections::BTreeMap, mem};

use crate::{
    engine::{Engine, NoVictim},
    event::{Decision, Event},
    machine::{Machine, to_ns},
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
    run::RunError,
    thrashing::Thrashing,
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules, Mask, PAGES_PER_GRANULE},
};

/// Bytes over the link for a remote access: a sector.
const REMOTE_ACCESS_BYTES: u64 = 32;

/// End of pauses; the clock has room beyond it.
const END_NS: u64 = 1 << 62;

/// Counts of a program's accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// GPU fault entries. Consecutive faults on one page in a batch are one.
    pub fault_entries: u64,
    /// GPU faults before coalescing.
    pub fault_instances: u64,
    /// Batches that the driver has serviced.
    pub replays: u64,
    /// CPU faults. A throttled CPU faults again.
    pub cpu_faults: u64,
    /// Bytes copied to the GPU.
    pub bytes_htod: u64,
    /// Copies to the GPU.
    pub transfers_htod: u64,
    /// Bytes copied to the host.
    pub bytes_dtoh: u64,
    /// Evicted bytes, a part of `bytes_dtoh`.
    pub evicted_bytes: u64,
    /// Evicted blocks.
    pub evictions: u64,
    /// Bytes written to flash, as the host was full.
    pub bytes_ssd_written: u64,
    /// Pages found to thrash.
    pub thrashing_pages: u64,
    /// Throttles of a processor at a page.
    pub throttles: u64,
    /// Pins of a page.
    pub pins: u64,
    /// Accesses of the GPU to pinned pages in host memory.
    pub remote_accesses: u64,
    /// Bytes of remote accesses over the link, 32 each.
    pub remote_bytes: u64,
}

/// Managed memory of a process.
pub struct Pages<'m, O = fn(Event)> {
    engine: Engine<'m, O>,
    thrashing: Thrashing<'m>,
    /// Pages in host memory that the GPU maps, by block.
    remote: BTreeMap<u64, PageMask>,
    gpu_bytes: u64,
    batch_entries: usize,
    now_ns: u64,
    /// Counts that the engine lacks.
    counts: Counts,
}

impl<'m> Pages<'m> {
    /// Memory with nothing populated. Each allocation begins at a block, and shares its last block
    /// with no other. Memory outside the allocations ends with a block.
    pub fn new(machine: &'m Machine, gpu_bytes: u64, allocations: impl IntoIterator<Item = Granules>) -> Self {
        Pages::observed(machine, gpu_bytes, allocations, |_| {})
    }
}

impl<'m, O: FnMut(Event)> Pages<'m, O> {
    /// As [`Pages::new`], with an observer of events.
    pub fn observed(
        machine: &'m Machine,
        gpu_bytes: u64,
        allocations: impl IntoIterator<Item = Granules>,
        observer: O,
    ) -> Self {
        let mut engine = Engine::new(machine, gpu_bytes / BLOCK_BYTES, machine.memory.host_bytes.value, observer);
        let last = allocations.into_iter().filter_map(|allocation| allocation.blocks().last());
        engine.partial.extend(last.filter(|(_, granules)| *granules != Mask::MAX));
        let batch_entries = usize::try_from(machine.faults.batch_entries.value).unwrap_or(usize::MAX);
        Self {
            engine,
            thrashing: Thrashing::new(&machine.thrashing),
            remote: BTreeMap::new(),
            gpu_bytes,
            batch_entries,
            now_ns: 0,
            counts: Counts::default(),
        }
    }

    /// Accesses a page by the CPU.
    pub fn by_cpu(&mut self, page: u64) {
        let (block, page) = position(page);
        loop {
            self.unpin();
            if self.is_mapped_by_cpu(block, page) || self.serve_cpu(block, page) {
                break;
            }
        }
        self.engine.departed.clear();
    }

    /// Accesses pages by the GPU, with up to `window` of them waiting.
    ///
    /// # Errors
    /// If the GPU has no memory.
    pub fn by_gpu(&mut self, pages: impl IntoIterator<Item = u64>, window: usize) -> Result<(), RunError> {
        let mut pages = pages.into_iter();
        let mut waiting: Vec<u64> = Vec::new();
        loop {
            waiting.retain(|page| !self.touches(*page));
            while waiting.len() < window.max(1)
                && let Some(page) = pages.next()
            {
                if !self.touches(page) {
                    waiting.push(page);
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            self.serve(waiting.iter().copied())?;
        }
    }

    /// Accesses a page by the GPU; false if it faults, to be retried after [`Self::serve`].
    #[must_use]
    pub fn touches(&mut self, page: u64) -> bool {
        self.unpin();
        let (block, page) = position(page);
        if self.maps_remotely(block, page) {
            self.counts.remote_accesses += 1;
            self.counts.remote_bytes += REMOTE_ACCESS_BYTES;
            let per_ns = self.engine.machine.link_to_gpu.peak_bytes_per_s.value / 1e9;
            self.wait(to_ns(REMOTE_ACCESS_BYTES as f64 / per_ns));
            return true;
        }
        if self.engine.memory.is_split(block) {
            return self.engine.memory.pages(block).gpu.has(page);
        }
        self.engine.memory.place(block).gpu & granule_of(page) != 0
    }

    /// Services GPU faults, given by page in order of arrival, up to a batch. This is for a GPU
    /// whose faults have another order than those of [`Self::by_gpu`].
    ///
    /// # Errors
    /// If the GPU has no memory.
    pub fn serve(&mut self, faults: impl IntoIterator<Item = u64>) -> Result<(), RunError> {
        let batch = faults.into_iter().take(self.batch_entries).collect();
        self.serve_gpu(batch).map_err(|NoVictim| RunError::TooLittleMemory { gpu_bytes: self.gpu_bytes })?;
        self.engine.departed.clear();
        Ok(())
    }

    /// Advances the clock without accesses. The clock ends in its second century.
    pub fn pause(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns).min(END_NS.max(self.now_ns));
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// Time of all accesses up to now.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Host memory in use, in granules without a page on the GPU.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.engine.memory.host_granules() * GRANULE_BYTES
    }

    /// Counts up to now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let traffic = self.engine.traffic;
        Counts {
            replays: traffic.fault_batches,
            bytes_htod: traffic.bytes_htod,
            transfers_htod: traffic.transfers_htod,
            bytes_dtoh: traffic.bytes_dtoh,
            evicted_bytes: traffic.evicted_bytes,
            evictions: traffic.evictions,
            bytes_ssd_written: traffic.bytes_ssd_written,
            ..self.counts
        }
    }

    fn maps_remotely(&self, block: u64, page: usize) -> bool {
        self.remote.get(&block).is_some_and(|pages| pages.has(page))
    }

    fn is_mapped_by_cpu(&self, block: u64, page: usize) -> bool {
        if self.engine.memory.is_split(block) {
            return self.engine.memory.pages(block).cpu_mapped.has(page);
        }
        self.engine.memory.place(block).cpu_mapped & granule_of(page) != 0
    }

    /// Ends expired pins: the GPU unmaps their pages.
    fn unpin(&mut self) {
        while let Some((block, page)) = self.thrashing.unpin(self.now_ns) {
            self.unmap(block, PageMask::of_page(page));
            self.emit(block, page, Decision::Unpinned, self.now_ns);
        }
    }

    fn emit(&mut self, block: u64, page: usize, decided: Decision, at_ns: u64) {
        let page = block * PAGES_PER_BLOCK as u64 + page as u64;
        self.engine.emit(Event::Page { page, decided, at_ns });
    }

    fn unmap(&mut self, block: u64, pages: PageMask) {
        let remaining = mem::take(self.remote.entry(block).or_default()) & !pages;
        if remaining.is_empty() {
            self.remote.remove(&block);
        } else {
            self.remote.insert(block, remaining);
        }
    }
}

/// Block of a page, and index of the page in it.
fn position(page: u64) -> (u64, usize) {
    let per_block = PAGES_PER_BLOCK as u64;
    (page / per_block, usize::try_from(page % per_block).unwrap_or_default())
}

/// Granule of a page in its block.
fn granule_of(page: usize) -> Mask {
    1 << (page / usize::try_from(PAGES_PER_GRANULE).unwrap_or(1))
}
