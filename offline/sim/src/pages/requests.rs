//! Moves by request, as by `cudaMemPrefetchAsync`: block by block, without faults, and without the tree.
//!
//! A move of more than one block goes through all of them twice, as the driver does (`uvm_migrate.c`): once to bring them, once to map them, which brings what
//! has been evicted since. What is there already counts as new: it is evicted last.

use std::ops::Range;

use super::{Pages, at};
use crate::{
    engine::NoVictim,
    event::Event,
    machine::to_ns,
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
    run::RunError,
};

impl<O: FnMut(Event)> Pages<'_, O> {
    /// Moves pages to the GPU; what is nowhere yet is made there.
    ///
    /// # Errors
    /// If the GPU has no memory.
    pub fn move_to_gpu(&mut self, pages: Range<u64>) -> Result<(), RunError> {
        for (block, within) in self.begin_request(pages) {
            let place = self.engine.memory.pages(block);
            let wanted = within & !place.gpu;
            if wanted.is_empty() {
                self.engine.memory.renew(block);
            } else {
                self.moved_by_request(block, wanted & place.populated());
                self.now_ns = self
                    .take_in(block, wanted)
                    .map_err(|NoVictim| RunError::TooLittleMemory { gpu_bytes: self.gpu_bytes })?;
            }
        }
        self.engine.left.clear();
        Ok(())
    }

    /// Moves pages to the host, where the CPU maps them; what is nowhere yet is made there. What the host has no room for goes to flash.
    pub fn move_to_host(&mut self, pages: Range<u64>) {
        for (block, within) in self.begin_request(pages) {
            let place = self.engine.memory.pages(block);
            let wanted = within & !place.cpu_mapped;
            if !wanted.is_empty() {
                self.moved_by_request(block, wanted & (place.gpu | place.flash));
                let (_, end_ns) = self.engine.bring_to_host(block, wanted, wanted, self.now_ns);
                self.now_ns = end_ns.max(self.now_ns.saturating_add(self.block_ns()));
            }
        }
        self.engine.left.clear();
    }

    fn take_in(&mut self, block: u64, wanted: PageMask) -> Result<u64, NoVictim> {
        let (granules, none_apart) = (wanted.whole_granules(), PageMask::default());
        let (from_ns, least_ns) = (self.now_ns, self.block_ns());
        if !self.engine.memory.is_split(block) && PageMask::of_granules(granules) == wanted {
            self.engine.take_in(block, granules, none_apart, from_ns, least_ns)
        } else {
            self.engine.take_in(block, wanted, none_apart, from_ns, least_ns)
        }
    }

    fn block_ns(&self) -> u64 {
        to_ns(self.engine.machine.requests.block_ns.value)
    }

    /// The blocks that a request goes through, in order, and what of them.
    fn begin_request(&mut self, pages: Range<u64>) -> Vec<(u64, PageMask)> {
        self.wait(to_ns(self.engine.machine.requests.call_ns.value));
        self.unpin();
        let Some(last) = pages.end.checked_sub(1).filter(|last| *last >= pages.start) else { return Vec::new() };
        let ((first_block, first), (last_block, last)) = (at(pages.start), at(last));
        let blocks = (first_block..=last_block).map(|block| {
            let from = if block == first_block { first } else { 0 };
            let end = if block == last_block { last + 1 } else { PAGES_PER_BLOCK };
            (block, PageMask::of_range(from, end) & PageMask::of_granules(self.engine.whole(block)))
        });
        let once: Vec<_> = blocks.collect();
        let passes = if once.len() == 1 { 1 } else { 2 };
        once.repeat(passes)
    }

    /// What the program asks for goes before what the driver found.
    fn moved_by_request(&mut self, block: u64, copied: PageMask) {
        self.unmap(block, copied);
        self.thrashing.forget(block, copied);
    }
}
