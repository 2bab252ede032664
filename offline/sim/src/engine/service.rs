//! Service of faults by the driver: prefetched granules, evictions, and their time.

use super::{Engine, NoVictim};
use crate::{
    event::Event,
    machine::to_ns,
    mask::PageMask,
    memory::{Place, Placed},
    tree,
    units::Mask,
};

/// Service of a batch of faults, block by block.
pub(crate) struct Service {
    cpu_ns: f64,
    end_ns: u64,
}

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Time from a fault to the driver's fetch of its batch.
    pub(crate) fn batch_ns(&self) -> u64 {
        to_ns(self.machine.faults.batch_ns.value)
    }

    /// Allocated granules of a block.
    pub(crate) fn allocated(&self, block: u64) -> Mask {
        self.partial.get(&block).copied().unwrap_or(Mask::MAX)
    }

    /// Granules to make resident at a processor for faults on a block, by the tree prefetcher.
    pub(crate) fn fault_region(&self, block: u64, resident: Mask, faulted: Mask) -> Mask {
        tree::region(resident, faulted, self.allocated(block), self.machine.faults.prefetch_threshold_percent.value)
    }

    /// Services a fetched batch of faults; when the threads continue. Blocks are in order, once
    /// each, and not in transit. A block can be evicted for a later one of the same batch, as by
    /// the driver: its threads fault again.
    pub(crate) fn service(&mut self, at_ns: u64, batch: &[(u64, Mask)]) -> Result<u64, NoVictim> {
        let mut service = Service::from(at_ns);
        for &(block, faulted) in batch {
            let on_gpu = self.memory.place(block).gpu;
            let region = self.fault_region(block, on_gpu, faulted & !on_gpu);
            self.fault_in(&mut service, block, region, PageMask::default())?;
        }
        Ok(self.end_service(&service))
    }

    /// Ends the service of a batch; when the faulting threads continue.
    pub(crate) fn end_service(&mut self, service: &Service) -> u64 {
        self.traffic.fault_batches += 1;
        service.end_ns.max(service.at_ns())
    }

    /// Makes part of a block resident on the GPU because of a fault. Returns the copied part, and
    /// the time at which the driver began to copy. Pages in `separate` are copied separately from
    /// the others.
    pub(crate) fn fault_in<M: Placed>(
        &mut self,
        service: &mut Service,
        block: u64,
        region: M,
        separate: PageMask,
    ) -> Result<(M, u64), NoVictim> {
        let faults = &self.machine.faults;
        let place = M::place(&self.memory, block);
        let mask = region & !place.gpu;
        let (copied, first_touch) = (mask & place.populated(), mask & !place.populated());
        service.cpu_ns += copied.transfers(separate).len() as f64 * faults.transfer_ns.value
            + mib(copied & place.cpu_mapped) * faults.cpu_mapped_ns_per_mib.value
            + mib(copied & !place.cpu_mapped) * faults.evicted_ns_per_mib.value
            + mib(first_touch) * faults.populate_ns_per_mib.value;
        let start_ns = service.at_ns();
        let arrived_ns = self.make_resident(block, mask, separate, start_ns, 0)?;
        service.end_ns = service.end_ns.max(arrived_ns);
        Ok((copied, start_ns))
    }

    /// Makes part of a block resident on the GPU, and evicts for it as needed. Returns the
    /// completion time, at least `min_ns` later.
    pub(crate) fn make_resident<M: Placed>(
        &mut self,
        block: u64,
        mask: M,
        separate: PageMask,
        from_ns: u64,
        min_ns: u64,
    ) -> Result<u64, NoVictim> {
        let mut ready_ns = from_ns;
        if self.memory.needs_frame(block, mask.granules()) && self.vacant() == 0 {
            ready_ns = self.evict(ready_ns, |_| false)?;
        }
        let place = M::place(&self.memory, block);
        let (copied, first_touch) = (mask & place.populated(), mask & !place.populated());
        let from_flash = copied & place.flash;
        if !from_flash.is_empty() {
            ready_ns = ready_ns.max(self.readable_ns(block));
            ready_ns = self.flash_read.take(ready_ns, self.machine.flash_read.transfer_ns(from_flash.bytes()));
            self.traffic.bytes_ssd_read += from_flash.bytes();
        }
        let transfers = copied.transfers(separate);
        let arrived_ns = if copied.is_empty() {
            ready_ns + min_ns
        } else {
            let link_ns: u64 = transfers.iter().map(|&bytes| self.machine.link_to_gpu.transfer_ns(bytes)).sum();
            self.to_gpu.take(ready_ns, link_ns.max(min_ns))
        };
        self.traffic.bytes_htod += self.bytes_of(block, copied);
        self.traffic.transfers_htod += transfers.len() as u64;
        M::put(&mut self.memory, block, Place { gpu: place.gpu | mask, ..place.without(mask) });
        self.peak_blocks = self.peak_blocks.max(self.frames - self.vacant());
        for (mask, with_contents) in
            [(copied, true), (first_touch, false)].into_iter().filter(|(mask, _)| !mask.is_empty())
        {
            self.emit(Event::Arrived { block, mask: mask.granules(), with_contents, at_ns: arrived_ns });
        }
        Ok(arrived_ns)
    }
}

impl Service {
    pub(crate) fn from(at_ns: u64) -> Self {
        Self { cpu_ns: at_ns as f64, end_ns: 0 }
    }

    /// Driver's time in the service.
    pub(crate) fn at_ns(&self) -> u64 {
        to_ns(self.cpu_ns)
    }
}

fn mib<M: Placed>(mask: M) -> f64 {
    mask.bytes() as f64 / f64::from(1 << 20)
}
