//! How the driver serves faults: what comes along, what makes room for it, and what that takes.

use super::{Engine, NoVictim};
use crate::{
    event::Event,
    machine::to_ns,
    mask::PageMask,
    memory::{Place, Placed},
    tree,
    units::Mask,
};

/// The driver at work on a batch of faults, block by block.
pub(crate) struct Service {
    cpu_ns: f64,
    end_ns: u64,
}

impl<O: FnMut(Event)> Engine<'_, O> {
    /// From a fault to when the driver looks what has faulted.
    pub(crate) fn batch_ns(&self) -> u64 {
        to_ns(self.machine.faults.batch_ns.value)
    }

    /// All of a block that there is.
    pub(crate) fn whole(&self, block: u64) -> Mask {
        self.short.get(&block).copied().unwrap_or(Mask::MAX)
    }

    /// What is to become resident somewhere where some of a block is, when some of it has faulted.
    pub(crate) fn wanted(&self, block: u64, resident: Mask, faulted: Mask) -> Mask {
        tree::region(resident, faulted, self.whole(block), self.machine.faults.prefetch_threshold_percent.value)
    }

    /// Services a batch of faults that the driver has fetched; when the threads go on. Blocks are in order, each once, and not on their way. A block can be
    /// evicted for a later one of the same batch, as by the driver: its threads fault again.
    pub(crate) fn service(&mut self, at_ns: u64, batch: &[(u64, Mask)]) -> Result<u64, NoVictim> {
        let mut service = Service::from(at_ns);
        for &(block, faulted) in batch {
            let on_gpu = self.memory.place(block).gpu;
            let wanted = self.wanted(block, on_gpu, faulted & !on_gpu);
            self.bring(&mut service, block, wanted, PageMask::default())?;
        }
        Ok(self.end_service(&service))
    }

    /// When the threads go on whose faults these were.
    pub(crate) fn end_service(&mut self, service: &Service) -> u64 {
        self.traffic.fault_batches += 1;
        service.end_ns.max(service.at_ns())
    }

    /// Brings something of a block to the GPU because of a fault; what of it was copied, and when the driver has begun to copy it. Some pages are copied apart from
    /// the others.
    pub(crate) fn bring<M: Placed>(
        &mut self,
        service: &mut Service,
        block: u64,
        wanted: M,
        apart: PageMask,
    ) -> Result<(M, u64), NoVictim> {
        let faults = &self.machine.faults;
        let place = M::place(&self.memory, block);
        let mask = wanted & !place.gpu;
        let (copied, filled) = (mask & place.populated(), mask & !place.populated());
        service.cpu_ns += copied.transfers(apart).len() as f64 * faults.transfer_ns.value
            + mib(copied & place.cpu_mapped) * faults.cpu_mapped_ns_per_mib.value
            + mib(copied & !place.cpu_mapped) * faults.evicted_ns_per_mib.value
            + mib(filled) * faults.populate_ns_per_mib.value;
        let begun_ns = service.at_ns();
        let arrived_ns = self.take_in(block, mask, apart, begun_ns, 0)?;
        service.end_ns = service.end_ns.max(arrived_ns);
        Ok((copied, begun_ns))
    }

    /// Puts something of a block on the GPU, for which the driver makes room as it must; when it is there. It takes so long at least.
    pub(crate) fn take_in<M: Placed>(
        &mut self,
        block: u64,
        mask: M,
        apart: PageMask,
        from_ns: u64,
        least_ns: u64,
    ) -> Result<u64, NoVictim> {
        let mut ready_ns = from_ns;
        if self.memory.place(block).gpu == 0 && self.vacant() == 0 {
            ready_ns = self.evict(ready_ns, |_| false)?;
        }
        let place = M::place(&self.memory, block);
        let (copied, filled) = (mask & place.populated(), mask & !place.populated());
        let from_flash = copied & place.flash;
        if !from_flash.is_empty() {
            ready_ns = ready_ns.max(self.readable_ns(block));
            ready_ns = self.flash_read.take(ready_ns, self.machine.flash_read.transfer_ns(from_flash.bytes()));
            self.traffic.bytes_ssd_read += from_flash.bytes();
        }
        let transfers = copied.transfers(apart);
        let arrived_ns = if copied.is_empty() {
            ready_ns + least_ns
        } else {
            let link_ns: u64 = transfers.iter().map(|&bytes| self.machine.link_to_gpu.transfer_ns(bytes)).sum();
            self.to_gpu.take(ready_ns, link_ns.max(least_ns))
        };
        self.traffic.bytes_htod += copied.bytes();
        self.traffic.transfers_htod += transfers.len() as u64;
        M::put(&mut self.memory, block, Place { gpu: place.gpu | mask, ..place.without(mask) });
        self.peak_blocks = self.peak_blocks.max(self.frames - self.vacant());
        for (mask, with_contents) in [(copied, true), (filled, false)].into_iter().filter(|(mask, _)| !mask.is_empty())
        {
            self.tell(Event::Arrived { block, mask: mask.granules(), with_contents, at_ns: arrived_ns });
        }
        Ok(arrived_ns)
    }
}

impl Service {
    pub(crate) fn from(at_ns: u64) -> Self {
        Self { cpu_ns: at_ns as f64, end_ns: 0 }
    }

    /// Up to when the driver has come.
    pub(crate) fn at_ns(&self) -> u64 {
        to_ns(self.cpu_ns)
    }
}

fn mib<M: Placed>(mask: M) -> f64 {
    mask.bytes() as f64 / f64::from(1 << 20)
}
