//! How faults are served: what the driver does for each page, and what comes along.

use super::{Pages, at};
use crate::{
    engine::{NoVictim, Service},
    event::{Decision, Event},
    machine::to_ns,
    mask::{BlockMask, PageMask},
    thrashing::{Hint, Processor},
    tree,
};

/// What the driver does for the faulted pages of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    /// Comes to the GPU.
    to_gpu: PageMask,
    /// Is pinned in host memory.
    pinned: PageMask,
}

impl<O: FnMut(Event)> Pages<'_, O> {
    /// Serves a fault of the CPU; whether the page was not held back.
    pub(super) fn serve_cpu(&mut self, block: u64, page: usize) -> bool {
        self.counts.cpu_faults += 1;
        let fault = PageMask::of_page(page);
        let place = self.engine.memory.pages(block);
        let hint = self.thrashing.hint((block, page), Processor::Cpu, place.host.has(page), self.now_ns);
        self.count(block, page, Processor::Cpu, hint, self.now_ns);
        if let Hint::Throttle { until_ns, .. } = hint {
            // The kernel may wake it up to half as much later, and does where nothing else wakes it.
            let nap_ns = until_ns.saturating_sub(self.now_ns);
            self.wait(nap_ns.saturating_add(nap_ns / 2).max(1));
            return false;
        }
        let begun_ns = self.now_ns.saturating_add(to_ns(self.engine.machine.faults.cpu_fault_ns.value));
        let (copied, end_ns) = if self.is_by_pages(block) {
            let wanted = self.wanted_pages(block, place.host, fault);
            self.engine.bring_to_host(block, wanted, fault, begun_ns)
        } else {
            let (host, granule) = (self.engine.memory.place(block).host, fault.granules());
            let wanted = self.engine.wanted(block, host, granule);
            let (copied, end_ns) = self.engine.bring_to_host(block, wanted, granule, begun_ns);
            (copied.pages(), end_ns)
        };
        self.moved(block, copied, fault, Processor::Cpu, begun_ns);
        if matches!(hint, Hint::Pin { .. }) {
            self.map_remotely(block, fault);
        }
        self.now_ns = self.now_ns.max(end_ns);
        true
    }

    /// Serves a batch of faults of the GPU.
    pub(super) fn serve_gpu(&mut self, mut pages: Vec<u64>) -> Result<(), NoVictim> {
        self.counts.fault_instances += pages.len() as u64;
        pages.dedup();
        self.counts.fault_entries += pages.len() as u64;
        pages.sort_unstable();
        let mut batch: Vec<(u64, PageMask)> = Vec::new();
        for (block, page) in pages.into_iter().map(at) {
            match batch.last_mut() {
                Some((last, faulted)) if *last == block => faulted.insert(page),
                _ => batch.push((block, PageMask::of_page(page))),
            }
        }
        // Time goes on even where a batch costs nothing: somebody may be held back.
        let mut service = Service::from(self.now_ns.saturating_add(self.engine.batch_ns().max(1)));
        for (block, faulted) in batch {
            self.serve_block(&mut service, block, faulted)?;
        }
        self.now_ns = self.now_ns.max(self.engine.end_service(&service));
        Ok(())
    }

    fn serve_block(&mut self, service: &mut Service, block: u64, faulted: PageMask) -> Result<(), NoVictim> {
        let Decided { mut to_gpu, pinned } = self.decide(block, faulted, service.at_ns());
        if !pinned.is_empty() {
            // It is there already, or goes there from flash.
            let (copied, _) = self.engine.bring_to_host(block, pinned, pinned, service.at_ns());
            self.moved(block, copied, pinned, Processor::Cpu, service.at_ns());
            self.map_remotely(block, pinned);
            // Where the host has no room it cannot stay there.
            to_gpu = to_gpu | (pinned & !self.engine.memory.pages(block).host);
        }
        if to_gpu.is_empty() {
            return Ok(());
        }
        // The driver copies at once what lies together and comes for the same reason: it has faulted, or the tree adds it (`block_copy_resident_pages_between`).
        let (copied, begun_ns) = if !pinned.is_empty() {
            // What goes to two places brings nothing along.
            self.engine.bring(service, block, to_gpu, to_gpu)?
        } else if self.is_by_pages(block) {
            let wanted = self.wanted_pages(block, self.engine.memory.pages(block).gpu, to_gpu);
            self.engine.bring(service, block, wanted, to_gpu)?
        } else {
            let on_gpu = self.engine.memory.place(block).gpu;
            let wanted = self.engine.wanted(block, on_gpu, to_gpu.granules() & !on_gpu);
            let (copied, begun_ns) = self.engine.bring(service, block, wanted, to_gpu)?;
            (copied.pages(), begun_ns)
        };
        self.moved(block, copied, to_gpu, Processor::Gpu, begun_ns);
        Ok(())
    }

    fn decide(&mut self, block: u64, faulted: PageMask, now_ns: u64) -> Decided {
        let on_host = self.engine.memory.pages(block).host;
        let mut decided = Decided::default();
        for page in faulted.iter() {
            let hint = self.thrashing.hint((block, page), Processor::Gpu, on_host.has(page), now_ns);
            self.count(block, page, Processor::Gpu, hint, now_ns);
            match hint {
                Hint::Throttle { .. } => {}
                Hint::Pin { on: Processor::Cpu, .. } => decided.pinned.insert(page),
                Hint::Pin { on: Processor::Gpu, .. } | Hint::Serve => decided.to_gpu.insert(page),
            }
        }
        decided
    }

    /// Whether granules are too coarse for what is to be done with a block.
    pub(super) fn is_by_pages(&self, block: u64) -> bool {
        self.engine.memory.is_split(block) || !self.thrashing.pages(block).is_empty()
    }

    fn wanted_pages(&self, block: u64, resident: PageMask, faulted: PageMask) -> PageMask {
        let threshold_percent = self.engine.machine.faults.prefetch_threshold_percent.value;
        let (thrashing, whole) = (self.thrashing.pages(block), self.engine.whole(block));
        tree::region_of_pages(resident, faulted, thrashing, whole, threshold_percent)
    }

    /// Pages were copied for faults on some of them: nobody but their new owner maps them.
    fn moved(&mut self, block: u64, copied: PageMask, faulted: PageMask, to: Processor, at_ns: u64) {
        self.unmap(block, copied);
        // What is copied because it was pinned there is no event, run by run.
        let pinned = self.thrashing.pinned(block, copied & faulted);
        let silent = (copied & faulted).each_run().filter(|&run| run & pinned == run);
        let silent = silent.fold(PageMask::default(), |silent, run| silent | run);
        let found = self.thrashing.moved(block, copied & !silent, to, at_ns);
        self.counts.thrashing_pages += found.count() as u64;
        for page in found.iter() {
            self.tell(block, page, Decision::Thrashes, at_ns);
        }
    }

    /// All who use them map pages that are pinned in host memory.
    fn map_remotely(&mut self, block: u64, pages: PageMask) {
        let on_host = self.engine.memory.pages(block).host;
        let mapped = self.remote.entry(block).or_default();
        *mapped = *mapped | (pages & on_host);
    }

    fn count(&mut self, block: u64, page: usize, processor: Processor, hint: Hint, at_ns: u64) {
        match hint {
            // A GPU faults on and on; a CPU sleeps.
            Hint::Throttle { until_ns, begins } if begins || processor == Processor::Cpu => {
                self.counts.throttles += 1;
                self.tell(block, page, Decision::Throttled { processor, until_ns }, at_ns);
            }
            Hint::Pin { on, begins: true } => {
                self.counts.pins += 1;
                self.tell(block, page, Decision::Pinned { on }, at_ns);
            }
            Hint::Serve | Hint::Throttle { .. } | Hint::Pin { .. } => {}
        }
    }
}
