//! Service of faults: the driver's decision for each page, and prefetched pages.

use super::{Pages, position};
use crate::{
    engine::{NoVictim, Service},
    event::{Decision, Event},
    machine::to_ns,
    mask::{BlockMask, PageMask},
    thrashing::{Hint, Processor},
    tree,
};

/// Decision of the driver for the faulted pages of a block.
#[derive(Clone, Copy, Debug, Default)]
struct FaultDecision {
    /// Pages that become resident on the GPU.
    to_gpu: PageMask,
    /// Pages that are pinned in host memory.
    pinned: PageMask,
}

impl<O: FnMut(Event)> Pages<'_, O> {
    /// Services a CPU fault; false if the CPU was throttled.
    pub(super) fn serve_cpu(&mut self, block: u64, page: usize) -> bool {
        self.counts.cpu_faults += 1;
        let fault = PageMask::of_page(page);
        let place = self.engine.memory.pages(block);
        let hint = self.thrashing.hint((block, page), Processor::Cpu, place.host.has(page), self.now_ns);
        self.record_hint(block, page, Processor::Cpu, hint, self.now_ns);
        if let Hint::Throttle { until_ns, .. } = hint {
            // The kernel may extend the sleep by half, and does if nothing else wakes the CPU.
            let nap_ns = until_ns.saturating_sub(self.now_ns);
            self.wait(nap_ns.saturating_add(nap_ns / 2).max(1));
            return false;
        }
        let start_ns = self.now_ns.saturating_add(to_ns(self.engine.machine.faults.cpu_fault_ns.value));
        let (copied, end_ns) = if self.is_by_pages(block) {
            let region = self.fault_region(block, place.host, fault);
            self.engine.migrate_to_host(block, region, fault, start_ns)
        } else {
            let (host, granule) = (self.engine.memory.place(block).host, fault.granules());
            let region = self.engine.fault_region(block, host, granule);
            let (copied, end_ns) = self.engine.migrate_to_host(block, region, granule, start_ns);
            (copied.pages(), end_ns)
        };
        self.record_move(block, copied, fault, Processor::Cpu, start_ns);
        if matches!(hint, Hint::Pin { .. }) {
            self.map_remotely(block, fault);
        }
        self.now_ns = self.now_ns.max(end_ns);
        true
    }

    /// Services a batch of GPU faults.
    pub(super) fn serve_gpu(&mut self, mut pages: Vec<u64>) -> Result<(), NoVictim> {
        self.counts.fault_instances += pages.len() as u64;
        pages.dedup();
        self.counts.fault_entries += pages.len() as u64;
        pages.sort_unstable();
        let mut batch: Vec<(u64, PageMask)> = Vec::new();
        for (block, page) in pages.into_iter().map(position) {
            match batch.last_mut() {
                Some((last, faulted)) if *last == block => faulted.insert(page),
                _ => batch.push((block, PageMask::of_page(page))),
            }
        }
        // Time advances even if a batch costs nothing, since a processor may be throttled.
        let mut service = Service::from(self.now_ns.saturating_add(self.engine.batch_ns().max(1)));
        for (block, faulted) in batch {
            self.serve_block(&mut service, block, faulted)?;
        }
        self.now_ns = self.now_ns.max(self.engine.end_service(&service));
        Ok(())
    }

    fn serve_block(&mut self, service: &mut Service, block: u64, faulted: PageMask) -> Result<(), NoVictim> {
        let FaultDecision { mut to_gpu, pinned } = self.decide(block, faulted, service.at_ns());
        if !pinned.is_empty() {
            // The pages are on the host already, or go there from flash.
            let (copied, _) = self.engine.migrate_to_host(block, pinned, pinned, service.at_ns());
            self.record_move(block, copied, pinned, Processor::Cpu, service.at_ns());
            self.map_remotely(block, pinned);
            // Pages that do not fit on the host cannot be pinned there.
            to_gpu = to_gpu | (pinned & !self.engine.memory.pages(block).host);
        }
        if to_gpu.is_empty() {
            return Ok(());
        }
        // The driver copies adjacent pages together if they have the same cause: a fault, or the
        // tree prefetcher (`block_copy_resident_pages_between`).
        let (copied, start_ns) = if !pinned.is_empty() {
            // Faults with two destinations prefetch nothing.
            self.engine.fault_in(service, block, to_gpu, to_gpu)?
        } else if self.is_by_pages(block) {
            let region = self.fault_region(block, self.engine.memory.pages(block).gpu, to_gpu);
            self.engine.fault_in(service, block, region, to_gpu)?
        } else {
            let on_gpu = self.engine.memory.place(block).gpu;
            let region = self.engine.fault_region(block, on_gpu, to_gpu.granules() & !on_gpu);
            let (copied, start_ns) = self.engine.fault_in(service, block, region, to_gpu)?;
            (copied.pages(), start_ns)
        };
        self.record_move(block, copied, to_gpu, Processor::Gpu, start_ns);
        Ok(())
    }

    fn decide(&mut self, block: u64, faulted: PageMask, now_ns: u64) -> FaultDecision {
        let on_host = self.engine.memory.pages(block).host;
        let mut decision = FaultDecision::default();
        for page in faulted.iter() {
            let hint = self.thrashing.hint((block, page), Processor::Gpu, on_host.has(page), now_ns);
            self.record_hint(block, page, Processor::Gpu, hint, now_ns);
            match hint {
                Hint::Throttle { .. } => {}
                Hint::Pin { on: Processor::Cpu, .. } => decision.pinned.insert(page),
                Hint::Pin { on: Processor::Gpu, .. } | Hint::Serve => decision.to_gpu.insert(page),
            }
        }
        decision
    }

    /// Whether the block needs page granularity.
    pub(super) fn is_by_pages(&self, block: u64) -> bool {
        self.engine.memory.is_split(block) || !self.thrashing.pages(block).is_empty()
    }

    fn fault_region(&self, block: u64, resident: PageMask, faulted: PageMask) -> PageMask {
        let threshold_percent = self.engine.machine.faults.prefetch_threshold_percent.value;
        let (thrashing, allocated) = (self.thrashing.pages(block), self.engine.allocated(block));
        tree::region_of_pages(resident, faulted, thrashing, allocated, threshold_percent)
    }

    /// Records that pages were copied for faults on some of them. Only their new owner maps them.
    fn record_move(&mut self, block: u64, copied: PageMask, faulted: PageMask, to: Processor, at_ns: u64) {
        self.unmap(block, copied);
        // Runs of pages that were copied because they were pinned there are no events.
        let pinned = self.thrashing.pinned(block, copied & faulted);
        let ignored = (copied & faulted).each_run().filter(|&run| run & pinned == run);
        let ignored = ignored.fold(PageMask::default(), |ignored, run| ignored | run);
        let thrashing = self.thrashing.record_move(block, copied & !ignored, to, at_ns);
        self.counts.thrashing_pages += thrashing.count() as u64;
        for page in thrashing.iter() {
            self.emit(block, page, Decision::Thrashes, at_ns);
        }
    }

    /// Maps pages pinned in host memory on the GPU.
    fn map_remotely(&mut self, block: u64, pages: PageMask) {
        let on_host = self.engine.memory.pages(block).host;
        let mapped = self.remote.entry(block).or_default();
        *mapped = *mapped | (pages & on_host);
    }

    fn record_hint(&mut self, block: u64, page: usize, processor: Processor, hint: Hint, at_ns: u64) {
        match hint {
            // A throttled GPU faults repeatedly; a CPU sleeps.
            Hint::Throttle { until_ns, begins } if begins || processor == Processor::Cpu => {
                self.counts.throttles += 1;
                self.emit(block, page, Decision::Throttled { processor, until_ns }, at_ns);
            }
            Hint::Pin { on, begins: true } => {
                self.counts.pins += 1;
                self.emit(block, page, Decision::Pinned { on }, at_ns);
            }
            Hint::Serve | Hint::Throttle { .. } | Hint::Pin { .. } => {}
        }
    }
}
