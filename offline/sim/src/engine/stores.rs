//! Memory outside the GPU: on the host up to its capacity, otherwise on flash, which writes one
//! block after the other.

use planner::Tier;

use super::Engine;
use crate::{
    event::Event,
    memory::{Place, Placed},
    units::Granules,
};

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Granules that fit on the host, besides those in transit to it.
    fn host_room(&self) -> u64 {
        let leaving = self
            .leaving
            .filter(|transfer| !transfer.request.is_to_flash())
            .map_or(0, |transfer| transfer.mask.count_ones());
        self.host_limit_granules.saturating_sub(self.memory.host_granules() + u64::from(leaving))
    }

    pub(super) fn fits_host<M: Placed>(&self, mask: M) -> bool {
        u64::from(mask.granules().count_ones()) <= self.host_room()
    }

    /// Stores part of a block off the GPU: on the host if it fits, otherwise on flash.
    pub(super) fn store<M: Placed>(&mut self, block: u64, mask: M, to_flash: bool, at_ns: u64) -> Tier {
        let rest = M::place(&self.memory, block).without(mask);
        if !to_flash && self.fits_host(mask) {
            M::put(&mut self.memory, block, Place { host: rest.host | mask, ..rest });
            return Tier::Host;
        }
        self.write_flash(block, mask, at_ns);
        M::put(&mut self.memory, block, Place { flash: rest.flash | mask, ..rest });
        Tier::Flash
    }

    /// Time from which flash can read a block: the end of its last write.
    pub(super) fn readable_ns(&self, block: u64) -> u64 {
        self.written.get(&block).copied().unwrap_or(0)
    }

    fn write_flash<M: Placed>(&mut self, block: u64, mask: M, at_ns: u64) {
        let end_ns = self.flash_write.take(at_ns, self.machine.flash_write.transfer_ns(mask.bytes()));
        self.traffic.bytes_ssd_written += mask.bytes();
        self.written.insert(block, end_ns);
    }

    /// Writes contents by the CPU, in place of any earlier ones: into host memory up to its
    /// capacity, the rest onto flash. Writes to flash take time if `from_ns` is given.
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
        // The range outside host memory goes first.
        for (range, on) in [(on_flash, Tier::Flash), (on_host, Tier::Host)] {
            if range.count() > 0 {
                self.emit(Event::Written { range, on, at_ns });
            }
        }
    }
}
