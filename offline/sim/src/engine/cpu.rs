//! Migration to the host other than by eviction: by CPU accesses, or by request.

use planner::Tier;

use super::Engine;
use crate::{
    event::Event,
    memory::{Place, Placed},
};

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Migrates part of a block to the host, where the CPU maps it. Returns the part copied from
    /// the GPU, and the completion time. Memory that is on the host already is mapped too, so
    /// memory that the driver evicted needs no copy.
    ///
    /// If the host lacks room for all of `requested`, only `minimum` is migrated. If it lacks room
    /// for that as well, `minimum` goes to flash and the CPU maps nothing. The real driver would
    /// fail there.
    pub(crate) fn migrate_to_host<M: Placed>(
        &mut self,
        block: u64,
        requested: M,
        minimum: M,
        from_ns: u64,
    ) -> (M, u64) {
        let place = M::place(&self.memory, block);
        let granules = self.memory.place(block);
        let fits = |engine: &Self, mask: M| engine.fits_host(mask.granules() & !granules.host);
        let Some(mask) = [requested, minimum].into_iter().find(|&mask| fits(self, mask)) else {
            return self.spill(block, minimum, from_ns);
        };
        let (from_gpu, from_flash) = (mask & place.gpu, mask & place.flash);
        let mut at_ns = from_ns;
        if !from_flash.is_empty() {
            let read_ns = self.machine.flash_read.transfer_ns(from_flash.bytes());
            at_ns = self.flash_read.take(at_ns.max(self.readable_ns(block)), read_ns);
            self.traffic.bytes_ssd_read += from_flash.bytes();
        }
        at_ns = self.copy_off(from_gpu, at_ns);
        let rest = place.without(mask);
        M::put(&mut self.memory, block, Place { host: rest.host | mask, cpu_mapped: rest.cpu_mapped | mask, ..rest });
        self.emit_departure(block, from_gpu, Tier::Host, at_ns);
        (from_gpu, at_ns)
    }

    fn spill<M: Placed>(&mut self, block: u64, mask: M, from_ns: u64) -> (M, u64) {
        let place = M::place(&self.memory, block);
        let (from_gpu, on_flash) = (mask & place.gpu, mask & place.flash);
        if !on_flash.is_empty() {
            self.traffic.bytes_ssd_read += on_flash.bytes();
        }
        let at_ns = self.copy_off(from_gpu, from_ns.max(self.flash_write.free_ns));
        let new = mask & !on_flash;
        if !new.is_empty() {
            self.store(block, new, true, at_ns);
        }
        self.emit_departure(block, from_gpu, Tier::Flash, at_ns);
        (from_gpu, at_ns)
    }

    fn copy_off<M: Placed>(&mut self, from_gpu: M, from_ns: u64) -> u64 {
        self.traffic.bytes_dtoh += from_gpu.bytes();
        if from_gpu.is_empty() { from_ns } else { self.to_host.take(from_ns, self.to_host_ns(from_gpu)) }
    }

    fn emit_departure<M: Placed>(&mut self, block: u64, from_gpu: M, to: Tier, at_ns: u64) {
        if !from_gpu.is_empty() {
            self.departed.push(block);
            self.emit(Event::Left { block, mask: from_gpu.granules(), to, at_ns });
        }
    }
}
