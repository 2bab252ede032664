//! Managed memory as a program touches it page by page, in the order in which it does: what faults, moves and is evicted, what thrashes. The driver is the one
//! that iterations run on; only who touches what is told one by one, by CPU and GPU.
//!
//! The GPU is one whose threads each do one access, in order: those that fault wait until the driver has it try again, and others go on until `window` of them
//! wait. The driver looks at faults when the GPU has come as far as it can, and takes as many as fit a batch; it throws the rest away, and they come again. Faults
//! on one page that follow one another are one entry.
//!
//! One thing follows the other: while the GPU works the CPU does nothing. The clock goes on with faults, moves and pauses; what is where it is used takes no time.
//!
//! * `faults`: how faults are served, and held back
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

/// What an access to memory elsewhere moves over the link: a sector.
const REMOTE_ACCESS_BYTES: u64 = 32;

/// How far pauses go: what follows has room beyond it.
const END_NS: u64 = 1 << 62;

/// What a program's touches came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults of the GPU, of those on one page that follow one another in a batch one.
    pub fault_entries: u64,
    /// Each by itself.
    pub fault_instances: u64,
    /// How often the driver has served a batch of them.
    pub replays: u64,
    /// Faults of the CPU. One that is held back faults again.
    pub cpu_faults: u64,
    /// Copied to the GPU.
    pub bytes_htod: u64,
    /// In so many copies.
    pub transfers_htod: u64,
    /// Copied to the host.
    pub bytes_dtoh: u64,
    /// Of that, what made room for other memory.
    pub evicted_bytes: u64,
    /// Blocks that made room.
    pub evictions: u64,
    /// Written to flash: what the host had no room for.
    pub bytes_ssd_written: u64,
    /// Pages found thrashing.
    pub thrashing_pages: u64,
    /// How often a processor was held back from a page.
    pub throttles: u64,
    /// How often a page was pinned.
    pub pins: u64,
    /// Accesses of the GPU to pinned pages in host memory.
    pub remote_accesses: u64,
    /// What those moved over the link, at 32 bytes each.
    pub remote_bytes: u64,
}

/// A process's managed memory.
pub struct Pages<'m, O = fn(Event)> {
    engine: Engine<'m, O>,
    thrashing: Thrashing<'m>,
    /// By block: pages in host memory that the GPU maps there.
    remote: BTreeMap<u64, PageMask>,
    gpu_bytes: u64,
    batch_entries: usize,
    now_ns: u64,
    /// Of what the engine does not count.
    counts: Counts,
}

impl<'m> Pages<'m> {
    /// Nothing is anywhere yet. Each allocation begins at a block, and no other is in its last; all that is not named ends with a block.
    pub fn new(machine: &'m Machine, gpu_bytes: u64, allocations: impl IntoIterator<Item = Granules>) -> Self {
        Pages::observed(machine, gpu_bytes, allocations, |_| {})
    }
}

impl<'m, O: FnMut(Event)> Pages<'m, O> {
    /// The same, and somebody watches.
    pub fn observed(
        machine: &'m Machine,
        gpu_bytes: u64,
        allocations: impl IntoIterator<Item = Granules>,
        observer: O,
    ) -> Self {
        let mut engine = Engine::new(machine, gpu_bytes / BLOCK_BYTES, machine.memory.host_bytes.value, observer);
        let last = allocations.into_iter().filter_map(|allocation| allocation.blocks().last());
        engine.short.extend(last.filter(|(_, whole)| *whole != Mask::MAX));
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

    /// The CPU touches a page.
    pub fn by_cpu(&mut self, page: u64) {
        let (block, page) = at(page);
        loop {
            self.unpin();
            if self.is_mapped_by_cpu(block, page) || self.serve_cpu(block, page) {
                break;
            }
        }
        self.engine.left.clear();
    }

    /// The GPU touches pages, `window` of them waiting at most.
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

    /// The GPU touches a page; false if it faults instead, and has to try again after [`Self::serve`].
    #[must_use]
    pub fn touches(&mut self, page: u64) -> bool {
        self.unpin();
        let (block, page) = at(page);
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

    /// The driver serves faults of the GPU, by their pages and in the order in which they came, as many as fit a batch: for a GPU that faults in another order
    /// than that of [`Self::by_gpu`].
    ///
    /// # Errors
    /// If the GPU has no memory.
    pub fn serve(&mut self, faults: impl IntoIterator<Item = u64>) -> Result<(), RunError> {
        let fetched = faults.into_iter().take(self.batch_entries).collect();
        self.serve_gpu(fetched).map_err(|NoVictim| RunError::TooLittleMemory { gpu_bytes: self.gpu_bytes })?;
        self.engine.left.clear();
        Ok(())
    }

    /// Nobody touches anything for so long. The clock ends somewhere in the second century.
    pub fn pause(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns).min(END_NS.max(self.now_ns));
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// How long all that took.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// What of host memory is in use, in granules of which nothing is on the GPU.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.engine.memory.host_granules() * GRANULE_BYTES
    }

    /// What the touches came to so far.
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

    /// Ends what is pinned no longer: the GPU does not map it any more.
    fn unpin(&mut self) {
        while let Some((block, page)) = self.thrashing.unpin(self.now_ns) {
            self.unmap(block, PageMask::of_page(page));
            self.tell(block, page, Decision::Unpinned, self.now_ns);
        }
    }

    fn tell(&mut self, block: u64, page: usize, decided: Decision, at_ns: u64) {
        let page = block * PAGES_PER_BLOCK as u64 + page as u64;
        self.engine.tell(Event::Page { page, decided, at_ns });
    }

    fn unmap(&mut self, block: u64, pages: PageMask) {
        let rest = mem::take(self.remote.entry(block).or_default()) & !pages;
        if rest.is_empty() {
            self.remote.remove(&block);
        } else {
            self.remote.insert(block, rest);
        }
    }
}

/// The block a page is in, and which of its pages it is.
fn at(page: u64) -> (u64, usize) {
    let per_block = PAGES_PER_BLOCK as u64;
    (page / per_block, usize::try_from(page % per_block).unwrap_or_default())
}

/// The granule of its block that a page is in.
fn granule_of(page: usize) -> Mask {
    1 << (page / usize::try_from(PAGES_PER_GRANULE).unwrap_or(1))
}
