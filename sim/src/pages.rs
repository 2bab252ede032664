//! Managed memory as a program touches it page by page, in the order in which it does: what faults, moves and is evicted. The driver is the one that
//! iterations run on; only who touches what is told one by one, by CPU and GPU, and no time is.
//!
//! The GPU is one whose threads each do one access, in order: those that fault wait until the driver has it try again, and others go on until `window` of them
//! wait. The driver looks at faults when the GPU has come as far as it can, and takes as many as fit a batch; it throws the rest away, and they come again. Faults
//! on one page that follow one another are one entry.

use crate::{
    engine::{Engine, NoVictim},
    event::Event,
    machine::Machine,
    run::RunError,
    units::{BLOCK_BYTES, GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, Mask, PAGE_BYTES},
};

const PAGES_PER_GRANULE: u64 = GRANULE_BYTES / PAGE_BYTES;

/// What a program's touches came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Faults of the GPU, of those on one page that follow one another in a batch one.
    pub fault_entries: u64,
    /// Each by itself.
    pub fault_instances: u64,
    /// How often the driver has served a batch of them.
    pub replays: u64,
    /// Faults of the CPU.
    pub cpu_faults: u64,
    /// Copied to the GPU.
    pub bytes_htod: u64,
    /// Copied to the host.
    pub bytes_dtoh: u64,
    /// Of that, what made room for other memory.
    pub evicted_bytes: u64,
    /// Blocks that made room.
    pub evictions: u64,
}

/// A process's managed memory.
pub struct Pages<'m> {
    engine: Engine<'m, fn(Event)>,
    gpu_bytes: u64,
    batch_entries: usize,
    now_ns: u64,
    entries: u64,
    instances: u64,
}

impl<'m> Pages<'m> {
    /// Nothing is anywhere yet. Each allocation begins at a block, and no other is in its last; all that is not named ends with a block.
    pub fn new(machine: &'m Machine, gpu_bytes: u64, allocations: impl IntoIterator<Item = Granules>) -> Self {
        let (host_bytes, nobody): (u64, fn(Event)) = (machine.memory.host_bytes.value, |_| {});
        let mut engine = Engine::new(machine, gpu_bytes / BLOCK_BYTES, host_bytes, nobody);
        let last = allocations.into_iter().filter_map(|allocation| allocation.blocks().last());
        engine.short.extend(last.filter(|(_, whole)| *whole != Mask::MAX));
        let batch_entries = usize::try_from(machine.faults.batch_entries.value).unwrap_or(usize::MAX);
        Self { engine, gpu_bytes, batch_entries, now_ns: 0, entries: 0, instances: 0 }
    }

    /// The CPU touches a page.
    pub fn by_cpu(&mut self, page: u64) {
        let (block, granule) = at(page);
        self.engine.touch_by_cpu(block, granule);
    }

    /// The GPU touches pages, `window` of them waiting at most.
    ///
    /// # Errors
    /// If the GPU has no memory.
    pub fn by_gpu(&mut self, pages: impl IntoIterator<Item = u64>, window: usize) -> Result<(), RunError> {
        let mut pages = pages.into_iter();
        let mut waiting: Vec<u64> = Vec::new();
        loop {
            waiting.retain(|page| self.is_missing(*page));
            while waiting.len() < window.max(1)
                && let Some(page) = pages.next()
            {
                if self.is_missing(page) {
                    waiting.push(page);
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            let fetched = waiting.get(..self.batch_entries).unwrap_or(&waiting).to_vec();
            self.serve(fetched).map_err(|NoVictim| RunError::TooLittleMemory { gpu_bytes: self.gpu_bytes })?;
        }
    }

    /// What the touches came to so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let traffic = self.engine.traffic;
        Counts {
            fault_entries: self.entries,
            fault_instances: self.instances,
            replays: traffic.fault_batches,
            cpu_faults: traffic.cpu_faults,
            bytes_htod: traffic.bytes_htod,
            bytes_dtoh: traffic.bytes_dtoh,
            evicted_bytes: traffic.evicted_bytes,
            evictions: traffic.evictions,
        }
    }

    fn is_missing(&self, page: u64) -> bool {
        let (block, granule) = at(page);
        self.engine.memory.place(block).gpu & granule == 0
    }

    fn serve(&mut self, mut pages: Vec<u64>) -> Result<(), NoVictim> {
        self.instances += pages.len() as u64;
        pages.dedup();
        self.entries += pages.len() as u64;
        pages.sort_unstable();
        let mut batch: Vec<(u64, Mask)> = Vec::new();
        for (block, granule) in pages.into_iter().map(at) {
            match batch.last_mut() {
                Some((last, mask)) if *last == block => *mask |= granule,
                _ => batch.push((block, granule)),
            }
        }
        self.now_ns = self.engine.service(self.now_ns, &batch)?;
        Ok(())
    }
}

/// The block a page is in, and its granule there.
fn at(page: u64) -> (u64, Mask) {
    let granule = page / PAGES_PER_GRANULE;
    (granule / u64::from(GRANULES_PER_BLOCK), 1 << (granule % u64::from(GRANULES_PER_BLOCK)))
}
