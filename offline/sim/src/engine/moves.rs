//! Moves by request: their queues, and how their blocks begin and end to move.

use planner::Tier;
use trace::{KernelId, TensorId};

use super::{Engine, NoVictim};
use crate::{
    event::Event,
    machine::to_ns,
    memory::Place,
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules, Mask, mask_bytes},
};

/// Where a move by request goes, and what it takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the GPU: what is in host memory.
    FromHost,
    /// To the GPU: what is on flash.
    FromFlash,
    /// Memory on the GPU, without contents.
    Fill,
    /// From the GPU to host memory.
    ToHost,
    /// From the GPU, or from the host, to flash.
    ToFlash,
}

/// A move by request, as far as it is still to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) tensor: TensorId,
    pub(crate) range: Granules,
    pub(crate) way: Way,
    pub(crate) done_before: Option<KernelId>,
    pub(crate) issued_ns: u64,
}

impl Move {
    /// From the GPU.
    pub(crate) fn leaves(&self) -> bool {
        matches!(self.way, Way::ToHost | Way::ToFlash)
    }

    pub(super) fn is_to_flash(&self) -> bool {
        self.way == Way::ToFlash
    }

    /// Whether it is of that tensor, and some of that range is still to be done.
    pub(super) fn meets(&self, tensor: TensorId, range: Granules) -> bool {
        self.tensor == tensor && self.range.first < range.end && range.first < self.range.end
    }
}

/// A block of a move that is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) of: Move,
    pub(super) block: u64,
    pub(super) mask: Mask,
    pub(super) end_ns: u64,
    /// It takes a frame that nothing is resident in yet.
    pub(super) reserves: bool,
}

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Adds a move behind the others of its way.
    pub(crate) fn issue(&mut self, of: Move) {
        let queue = match of.way {
            Way::FromHost => 0,
            Way::FromFlash => 1,
            Way::ToHost => 2,
            Way::ToFlash => 3,
            Way::Fill => 4,
        };
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.push_back(of);
        }
    }

    /// Whether a move of that kind is not done yet.
    pub(crate) fn pending(&self, wanted: impl Fn(&Move) -> bool) -> bool {
        let flights = [self.arriving, self.reading, self.leaving];
        self.queues.iter().flatten().any(&wanted) || flights.iter().flatten().any(|flight| wanted(&flight.of))
    }

    /// Whether a block is on its way to the GPU.
    pub(crate) fn on_its_way(&self, block: u64) -> bool {
        [self.arriving, self.reading].iter().flatten().any(|flight| flight.block == block)
    }

    /// Carries out moves until a block on its way is there, for which threads wait.
    pub(crate) fn await_block(&mut self, block: u64) -> Result<(), NoVictim> {
        self.awaited = Some(block);
        let there = self.run_while(|engine| engine.on_its_way(block));
        self.awaited = None;
        there
    }

    /// Forgets moves that have not begun.
    pub(crate) fn cancel(&mut self, unwanted: impl Fn(&Move) -> bool) {
        for queue in &mut self.queues {
            queue.retain(|of| !unwanted(of));
        }
    }

    /// The next block of the first move of a queue that can go on, and what of it. Moves with nothing left are done; one to the GPU of a tensor that is still
    /// to leave it waits, and lets others pass.
    fn next_of(&mut self, queue: usize) -> Option<(Move, u64, Mask)> {
        let mut at = 0;
        while let Some(&of) = self.queues.get(queue)?.get(at) {
            let found = of.range.blocks().find_map(|(block, within)| {
                let place = self.memory.place(block);
                let mask = within
                    & match of.way {
                        Way::FromHost => place.host,
                        Way::FromFlash => place.flash,
                        Way::Fill => !place.populated(),
                        Way::ToHost => place.gpu,
                        Way::ToFlash => place.gpu | place.host,
                    };
                (mask != 0).then_some((block, mask))
            });
            if let Some((block, mask)) = found {
                // What was looked through is not looked through again.
                if let Some(of) = self.queues.get_mut(queue)?.get_mut(at) {
                    of.range.first = of.range.first.max(block * (BLOCK_BYTES / GRANULE_BYTES));
                }
                return Some((of, block, mask));
            }
            if !of.leaves() && self.pending(|other| other.leaves() && other.meets(of.tensor, of.range)) {
                at += 1;
            } else {
                self.queues.get_mut(queue)?.remove(at);
            }
        }
        None
    }

    pub(super) fn start_arriving(&mut self, limit_ns: u64) -> Result<(), NoVictim> {
        if self.arriving.is_some() {
            return Ok(());
        }
        // What was read from flash goes first: it waits in a buffer.
        let read = self.reading.filter(|flight| flight.end_ns <= self.clock_ns);
        let (of, block, mask) = match read {
            Some(Flight { of, block, mask, .. }) => (of, block, mask),
            // Memory without contents does not wait for what crosses the link.
            None => match self.next_of(4).or_else(|| self.next_of(0)) {
                Some(next) => next,
                None => return Ok(()),
            },
        };
        let mut from_ns = self.clock_ns.max(self.to_gpu.free_ns).max(of.issued_ns);
        if from_ns > limit_ns {
            return Ok(());
        }
        let reserves = self.memory.place(block).gpu == 0;
        if reserves && self.vacant() == 0 {
            let to_come = self.leaving.is_some() || self.next_of(2).is_some() || self.next_of(3).is_some();
            if to_come {
                return Ok(());
            }
            let kept = std::mem::take(&mut self.kept);
            let is_kept = |block| kept.range(..=block).next_back().is_some_and(|(_, &end)| block < end);
            let evicted = match self.evict(from_ns, is_kept) {
                Err(NoVictim) if self.awaited == Some(block) => self.evict(from_ns, |_| false),
                other => other,
            };
            self.kept = kept;
            from_ns = match evicted {
                // Until kernels have run that need what is kept.
                Err(NoVictim) if !self.kept.is_empty() && self.awaited != Some(block) => return Ok(()),
                other => other?,
            };
        }
        if read.is_some() {
            self.reading = None;
        }
        let link_ns = if of.way == Way::Fill { 0 } else { self.to_gpu_ns(mask) };
        let end_ns = self.to_gpu.take(from_ns, link_ns.max(to_ns(self.machine.requests.block_ns.value)));
        self.arriving = Some(Flight { of, block, mask, end_ns, reserves });
        self.peak_blocks = self.peak_blocks.max(self.frames - self.vacant());
        Ok(())
    }

    pub(super) fn start_reading(&mut self, limit_ns: u64) {
        if self.reading.is_some() {
            return;
        }
        let Some((of, block, mask)) = self.next_of(1) else { return };
        // The last one may still cross the link.
        if self.arriving.is_some_and(|flight| flight.block == block) {
            return;
        }
        let from_ns = self.clock_ns.max(self.flash_read.free_ns).max(of.issued_ns).max(self.readable_ns(block));
        if from_ns <= limit_ns {
            let end_ns = self.flash_read.take(from_ns, self.machine.flash_read.transfer_ns(mask_bytes(mask)));
            self.reading = Some(Flight { of, block, mask, end_ns, reserves: false });
        }
    }

    pub(super) fn start_leaving(&mut self, limit_ns: u64) {
        if self.leaving.is_some() {
            return;
        }
        let flash_takes = self.flash_write.free_ns <= self.clock_ns;
        let flash = if flash_takes { self.next_of(3) } else { None };
        // What the host has no room for goes to flash, when that takes it.
        let host = self.next_of(2).filter(|&(_, _, mask)| flash_takes || self.host_takes(mask));
        let next = match (host, flash) {
            (Some(host), Some(flash)) if flash.0.issued_ns < host.0.issued_ns => Some(flash),
            (host, flash) => host.or(flash),
        };
        let Some((of, block, mask)) = next else { return };
        let from_ns = self.clock_ns.max(self.to_host.free_ns).max(of.issued_ns);
        if from_ns <= limit_ns {
            let on_gpu = mask & self.memory.place(block).gpu;
            let block_ns = to_ns(self.machine.requests.block_ns.value);
            let end_ns = self.to_host.take(from_ns, self.to_host_ns(on_gpu).max(block_ns));
            self.leaving = Some(Flight { of, block, mask, end_ns, reserves: false });
        }
    }

    pub(super) fn arrive(&mut self, flight: Flight) {
        let Flight { of, block, end_ns, .. } = flight;
        let place = self.memory.place(block);
        let mask = flight.mask
            & match of.way {
                Way::Fill => !place.populated(),
                _ => place.host | place.flash,
            };
        if mask == 0 {
            return;
        }
        if of.way != Way::Fill {
            self.traffic.bytes_htod += mask_bytes(mask);
            self.traffic.bytes_ssd_read += mask_bytes(mask & place.flash);
        }
        self.memory.put(block, Place { gpu: place.gpu | mask, ..place.without(mask) });
        self.tell(Event::Arrived { block, mask, with_contents: of.way != Way::Fill, at_ns: end_ns });
    }

    pub(super) fn leave(&mut self, flight: Flight) {
        let Flight { of, block, end_ns, .. } = flight;
        let place = self.memory.place(block);
        let mask = flight.mask & (place.gpu | place.host);
        let from_gpu = mask & place.gpu;
        self.traffic.bytes_dtoh += mask_bytes(from_gpu);
        let to = self.settle(block, mask, of.is_to_flash(), end_ns);
        if from_gpu != 0 {
            self.left.push(block);
            self.tell(Event::Left { block, mask: from_gpu, to, at_ns: end_ns });
        }
        let from_host = mask & place.host;
        if from_host != 0 && to == Tier::Flash {
            self.tell(Event::Spilled { block, mask: from_host, at_ns: end_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use trace::id::Id;

    use super::*;
    use crate::{machine::Machine, units::GRANULES_PER_BLOCK};

    #[test]
    fn what_is_kept_makes_room_for_what_threads_wait_for_and_for_no_other_move() {
        let machine = Machine::named("a100").unwrap();
        let mut engine = Engine::new(&machine, 3, 0, |_| {});
        for block in 0..3 {
            engine.memory.put(block, Place { gpu: Mask::MAX, ..Place::default() });
        }
        engine.memory.put(3, Place { flash: Mask::MAX, ..Place::default() });
        engine.kept.insert(0, 3);
        let per_block = u64::from(GRANULES_PER_BLOCK);
        let range = Granules { first: 3 * per_block, end: 4 * per_block };
        engine.issue(Move { tensor: TensorId::new(0), range, way: Way::FromFlash, done_before: None, issued_ns: 0 });

        engine.run_until(1_000_000_000).unwrap();
        assert!(engine.on_its_way(3) && engine.memory.place(3).gpu == 0);

        engine.await_block(3).unwrap();
        assert!(!engine.on_its_way(3));
        assert_eq!((engine.memory.place(3).gpu, engine.memory.place(0).flash), (Mask::MAX, Mask::MAX));
    }
}
