//! What comes to the host by other ways than eviction: because the CPU touches it, or by request.

use planner::Tier;

use super::Engine;
use crate::{
    event::Event,
    memory::{Place, Placed},
};

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Brings something of a block to the host, where the CPU maps it; what was copied from the GPU, and when it is there. What is on the host already is
    /// mapped with it: what the driver evicted comes without a copy.
    ///
    /// Where the host has no room for all of it, `least` comes alone; where it has none for that, `least` goes to flash, and the CPU maps nothing: there the
    /// real driver would fail.
    pub(crate) fn bring_to_host<M: Placed>(&mut self, block: u64, wanted: M, least: M, from_ns: u64) -> (M, u64) {
        let place = M::place(&self.memory, block);
        let granules = self.memory.place(block);
        let fits = |engine: &Self, mask: M| engine.host_takes(mask.granules() & !granules.host);
        let Some(mask) = [wanted, least].into_iter().find(|&mask| fits(self, mask)) else {
            return self.spill(block, least, from_ns);
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
        self.tell_left(block, from_gpu, Tier::Host, at_ns);
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
            self.settle(block, new, true, at_ns);
        }
        self.tell_left(block, from_gpu, Tier::Flash, at_ns);
        (from_gpu, at_ns)
    }

    fn copy_off<M: Placed>(&mut self, from_gpu: M, from_ns: u64) -> u64 {
        self.traffic.bytes_dtoh += from_gpu.bytes();
        if from_gpu.is_empty() { from_ns } else { self.to_host.take(from_ns, self.to_host_ns(from_gpu)) }
    }

    fn tell_left<M: Placed>(&mut self, block: u64, from_gpu: M, to: Tier, at_ns: u64) {
        if !from_gpu.is_empty() {
            self.left.push(block);
            self.tell(Event::Left { block, mask: from_gpu.granules(), to, at_ns });
        }
    }
}
