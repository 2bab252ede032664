//! What the CPU touches: it faults on what it does not map, and the driver brings that back, widened by the same tree as for a GPU.

use policy::planner::Tier;

use super::Engine;
use crate::{
    event::Event,
    memory::Place,
    units::{Mask, mask_bytes},
};

impl<O: FnMut(Event)> Engine<'_, O> {
    /// The CPU touches a granule.
    pub(crate) fn touch_by_cpu(&mut self, block: u64, granule: Mask) {
        let place = self.memory.place(block);
        if place.cpu_mapped & granule != 0 {
            return;
        }
        self.traffic.cpu_faults += 1;
        // What is on the host already is mapped with it: what the driver evicted comes without a copy.
        let wanted = self.wanted(block, place.host, granule);
        let (from_gpu, from_flash) = (wanted & place.gpu, wanted & place.flash);
        self.traffic.bytes_dtoh += mask_bytes(from_gpu);
        self.traffic.bytes_ssd_read += mask_bytes(from_flash);
        let rest = place.without(wanted);
        let arrived = Place { host: rest.host | wanted, cpu_mapped: rest.cpu_mapped | wanted, ..rest };
        self.memory.put(block, arrived);
        if from_gpu != 0 {
            self.left.push(block);
            self.tell(Event::Left { block, mask: from_gpu, to: Tier::Host, at_ns: self.clock_ns });
        }
    }
}
