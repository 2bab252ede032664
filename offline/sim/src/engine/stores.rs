//! What is off the GPU: in host memory as far as that has room, else on flash, which writes one block after the other.

use planner::Tier;

use super::Engine;
use crate::{
    event::Event,
    memory::{Place, Placed},
    units::Granules,
};

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Granules that the host has room for besides what is on its way there.
    fn host_room(&self) -> u64 {
        let leaving =
            self.leaving.filter(|flight| !flight.of.is_to_flash()).map_or(0, |flight| flight.mask.count_ones());
        self.host_limit_granules.saturating_sub(self.memory.host_granules() + u64::from(leaving))
    }

    pub(super) fn host_takes<M: Placed>(&self, mask: M) -> bool {
        u64::from(mask.granules().count_ones()) <= self.host_room()
    }

    /// Puts what is not there yet where it went: to the host if it has room.
    pub(super) fn settle<M: Placed>(&mut self, block: u64, mask: M, to_flash: bool, at_ns: u64) -> Tier {
        let rest = M::place(&self.memory, block).without(mask);
        if !to_flash && self.host_takes(mask) {
            M::put(&mut self.memory, block, Place { host: rest.host | mask, ..rest });
            return Tier::Host;
        }
        self.write_flash(block, mask, at_ns);
        M::put(&mut self.memory, block, Place { flash: rest.flash | mask, ..rest });
        Tier::Flash
    }

    /// When flash can read what it has of a block: after it has written it.
    pub(super) fn readable_ns(&self, block: u64) -> u64 {
        self.written.get(&block).copied().unwrap_or(0)
    }

    fn write_flash<M: Placed>(&mut self, block: u64, mask: M, at_ns: u64) {
        let end_ns = self.flash_write.take(at_ns, self.machine.flash_write.transfer_ns(mask.bytes()));
        self.traffic.bytes_ssd_written += mask.bytes();
        self.written.insert(block, end_ns);
    }

    /// The CPU puts contents there, whatever there was: into host memory as far as that has room, the rest onto flash. That takes time where there is one.
    pub(crate) fn write_by_cpu(&mut self, range: Granules, from_ns: Option<u64>) {
        self.memory.discard(range);
        let host_end = range.end.min(range.first.saturating_add(self.host_room()));
        let on_host = Granules { end: host_end, ..range };
        let on_flash = Granules { first: host_end, ..range };
        for (block, mask) in on_host.blocks() {
            let place = self.memory.place(block);
            self.memory.put(block, Place { host: place.host | mask, cpu_mapped: place.cpu_mapped | mask, ..place });
        }
        for (block, mask) in on_flash.blocks().filter(|&(_, mask)| mask != 0) {
            let place = self.memory.place(block);
            self.memory.put(block, Place { flash: place.flash | mask, ..place });
            if let Some(from_ns) = from_ns {
                self.write_flash(block, mask, from_ns);
            }
        }
        let at_ns = from_ns.unwrap_or(0);
        // First what leaves room on the host.
        for (range, on) in [(on_flash, Tier::Flash), (on_host, Tier::Host)] {
            if range.count() > 0 {
                self.tell(Event::Written { range, on, at_ns });
            }
        }
    }
}
