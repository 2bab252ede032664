//! Moves by request, as by `cudaMemPrefetchAsync`: block by block, without faults and without the
//! tree.
//!
//! The driver walks all blocks of a larger move twice (`uvm_migrate.c`), and so does the model. The
//! first pass makes them resident. The second maps them, and fetches those that were evicted since.
//! Blocks that are there already go to the end of the eviction order.

use std::ops::Range;

use super::{Pages, position};
use crate::{
    engine::NoVictim,
    event::Event,
    machine::to_ns,
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
    run::RunError,
};

impl<O: FnMut(Event)> Pages<'_, O> {
    /// Migrates pages to the GPU; pages without memory are populated there.
    ///
    /// # Errors
    /// If the GPU has no memory.
    pub fn move_to_gpu(&mut self, pages: Range<u64>) -> Result<(), RunError> {
        for (block, within) in self.begin_request(pages) {
            let place = self.engine.memory.pages(block);
            let absent = within & !place.gpu;
            if absent.is_empty() {
                self.engine.memory.touch(block);
            } else {
                self.record_request(block, absent & place.populated());
                self.now_ns = self
                    .make_resident(block, absent)
                    .map_err(|NoVictim| RunError::TooLittleMemory { gpu_bytes: self.gpu_bytes })?;
            }
        }
        self.engine.departed.clear();
        Ok(())
    }

    /// Migrates pages to the host, where the CPU maps them; pages without memory are populated
    /// there. Pages that do not fit on the host go to flash.
    pub fn move_to_host(&mut self, pages: Range<u64>) {
        for (block, within) in self.begin_request(pages) {
            let place = self.engine.memory.pages(block);
            let absent = within & !place.cpu_mapped;
            if !absent.is_empty() {
                self.record_request(block, absent & (place.gpu | place.flash));
                let (_, end_ns) = self.engine.migrate_to_host(block, absent, absent, self.now_ns);
                self.now_ns = end_ns.max(self.now_ns.saturating_add(self.block_ns()));
            }
        }
        self.engine.departed.clear();
    }

    fn make_resident(&mut self, block: u64, absent: PageMask) -> Result<u64, NoVictim> {
        let (granules, none_separate) = (absent.whole_granules(), PageMask::default());
        let (from_ns, min_ns) = (self.now_ns, self.block_ns());
        if !self.engine.memory.is_split(block) && PageMask::of_granules(granules) == absent {
            self.engine.make_resident(block, granules, none_separate, from_ns, min_ns)
        } else {
            self.engine.make_resident(block, absent, none_separate, from_ns, min_ns)
        }
    }

    fn block_ns(&self) -> u64 {
        to_ns(self.engine.machine.requests.block_ns.value)
    }

    /// Blocks and pages of a request, in the order of its passes.
    fn begin_request(&mut self, pages: Range<u64>) -> Vec<(u64, PageMask)> {
        self.wait(to_ns(self.engine.machine.requests.call_ns.value));
        self.unpin();
        let Some(last) = pages.end.checked_sub(1).filter(|last| *last >= pages.start) else { return Vec::new() };
        let ((first_block, first), (last_block, last)) = (position(pages.start), position(last));
        let blocks = (first_block..=last_block).map(|block| {
            let from = if block == first_block { first } else { 0 };
            let end = if block == last_block { last + 1 } else { PAGES_PER_BLOCK };
            (block, PageMask::of_range(from, end) & PageMask::of_granules(self.engine.allocated(block)))
        });
        let single_pass: Vec<_> = blocks.collect();
        let passes = if single_pass.len() == 1 { 1 } else { 2 };
        single_pass.repeat(passes)
    }

    /// Requests of the program take precedence over detected thrashing.
    fn record_request(&mut self, block: u64, copied: PageMask) {
        self.unmap(block, copied);
        self.thrashing.reset_pages(block, copied);
    }
}
