//! Moves by request: their queues, and the start and end of their transfers.

use planner::Tier;
use trace::{KernelId, TensorId};

use super::{Engine, NoVictim};
use crate::{
    event::Event,
    machine::to_ns,
    memory::Place,
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules, Mask, mask_bytes},
};

/// Kind of a move by request: its destination, and the memory that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveKind {
    /// To the GPU, from host memory.
    FromHost,
    /// To the GPU, from flash.
    FromFlash,
    /// New memory on the GPU, without contents.
    Populate,
    /// From the GPU to host memory.
    ToHost,
    /// From the GPU, or from the host, to flash.
    ToFlash,
}

/// Move by request: its remaining part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) tensor: TensorId,
    pub(crate) range: Granules,
    pub(crate) kind: MoveKind,
    pub(crate) done_before: Option<KernelId>,
    pub(crate) issued_ns: u64,
}

impl Move {
    /// Whether the move is away from the GPU.
    pub(crate) fn is_outbound(&self) -> bool {
        matches!(self.kind, MoveKind::ToHost | MoveKind::ToFlash)
    }

    pub(super) fn is_to_flash(&self) -> bool {
        self.kind == MoveKind::ToFlash
    }

    /// Whether the move is of this tensor, and its remaining range overlaps this one.
    pub(super) fn overlaps(&self, tensor: TensorId, range: Granules) -> bool {
        self.tensor == tensor && self.range.first < range.end && range.first < self.range.end
    }
}

/// Transfer of one block of a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) request: Move,
    pub(super) block: u64,
    pub(super) mask: Mask,
    pub(super) end_ns: u64,
    /// Whether the transfer takes a vacant frame.
    pub(super) reserves_frame: bool,
}

impl<O: FnMut(Event)> Engine<'_, O> {
    /// Adds a move to the end of the queue of its kind.
    pub(crate) fn issue(&mut self, request: Move) {
        let queue = match request.kind {
            MoveKind::FromHost => 0,
            MoveKind::FromFlash => 1,
            MoveKind::ToHost => 2,
            MoveKind::ToFlash => 3,
            MoveKind::Populate => 4,
        };
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.push_back(request);
        }
    }

    /// Whether a move that matches is not complete.
    pub(crate) fn pending(&self, matches: impl Fn(&Move) -> bool) -> bool {
        let transfers = [self.arriving, self.reading, self.leaving];
        self.queues.iter().flatten().any(&matches)
            || transfers.iter().flatten().any(|transfer| matches(&transfer.request))
    }

    /// Whether a block is in transit to the GPU.
    pub(crate) fn in_transit(&self, block: u64) -> bool {
        [self.arriving, self.reading].iter().flatten().any(|transfer| transfer.block == block)
    }

    /// Completes moves until a block in transit, for which threads wait, is on the GPU.
    pub(crate) fn await_block(&mut self, block: u64) -> Result<(), NoVictim> {
        self.awaited = Some(block);
        let result = self.run_while(|engine| engine.in_transit(block));
        self.awaited = None;
        result
    }

    /// Cancels moves that have not begun.
    pub(crate) fn cancel(&mut self, matches: impl Fn(&Move) -> bool) {
        for queue in &mut self.queues {
            queue.retain(|request| !matches(request));
        }
    }

    /// Next block, with its granules, of the first move of a queue that can proceed. Moves with
    /// nothing left are complete. A move to the GPU of a tensor that is still to leave it waits,
    /// and lets others pass.
    fn next_block(&mut self, queue: usize) -> Option<(Move, u64, Mask)> {
        let mut at = 0;
        while let Some(&request) = self.queues.get(queue)?.get(at) {
            let found = request.range.blocks().find_map(|(block, within)| {
                let place = self.memory.place(block);
                let mask = within
                    & match request.kind {
                        MoveKind::FromHost => place.host,
                        MoveKind::FromFlash => place.flash,
                        MoveKind::Populate => !place.populated(),
                        MoveKind::ToHost => place.gpu,
                        MoveKind::ToFlash => place.gpu | place.host,
                    };
                (mask != 0).then_some((block, mask))
            });
            if let Some((block, mask)) = found {
                // The next search begins here.
                if let Some(request) = self.queues.get_mut(queue)?.get_mut(at) {
                    request.range.first = request.range.first.max(block * (BLOCK_BYTES / GRANULE_BYTES));
                }
                return Some((request, block, mask));
            }
            if !request.is_outbound()
                && self.pending(|other| other.is_outbound() && other.overlaps(request.tensor, request.range))
            {
                at += 1;
            } else {
                self.queues.get_mut(queue)?.remove(at);
            }
        }
        None
    }

    pub(super) fn start_arrival(&mut self, limit_ns: u64) -> Result<(), NoVictim> {
        if self.arriving.is_some() {
            return Ok(());
        }
        // Blocks read from flash go first: they wait in a buffer.
        let read = self.reading.filter(|transfer| transfer.end_ns <= self.clock_ns);
        let (request, block, mask) = match read {
            Some(Transfer { request, block, mask, .. }) => (request, block, mask),
            // Memory without contents does not wait for transfers over the link.
            None => match self.next_block(4).or_else(|| self.next_block(0)) {
                Some(next) => next,
                None => return Ok(()),
            },
        };
        let mut from_ns = self.clock_ns.max(self.to_gpu.free_ns).max(request.issued_ns);
        if from_ns > limit_ns {
            return Ok(());
        }
        let reserves_frame = self.memory.needs_frame(block, mask);
        if reserves_frame && self.vacant() == 0 {
            let departure_pending =
                self.leaving.is_some() || self.next_block(2).is_some() || self.next_block(3).is_some();
            if departure_pending {
                return Ok(());
            }
            let protected = std::mem::take(&mut self.protected);
            let is_protected = |block| protected.range(..=block).next_back().is_some_and(|(_, &end)| block < end);
            let evicted = match self.evict(from_ns, is_protected) {
                Err(NoVictim) if self.awaited == Some(block) => self.evict(from_ns, |_| false),
                other => other,
            };
            self.protected = protected;
            from_ns = match evicted {
                // Waits until the kernels that need protected memory have run.
                Err(NoVictim) if !self.protected.is_empty() && self.awaited != Some(block) => return Ok(()),
                other => other?,
            };
        }
        if read.is_some() {
            self.reading = None;
        }
        let link_ns = if request.kind == MoveKind::Populate { 0 } else { self.to_gpu_ns(mask) };
        let end_ns = self.to_gpu.take(from_ns, link_ns.max(to_ns(self.machine.requests.block_ns.value)));
        self.arriving = Some(Transfer { request, block, mask, end_ns, reserves_frame });
        self.peak_blocks = self.peak_blocks.max(self.frames - self.vacant());
        Ok(())
    }

    pub(super) fn start_flash_read(&mut self, limit_ns: u64) {
        if self.reading.is_some() {
            return;
        }
        let Some((request, block, mask)) = self.next_block(1) else { return };
        // The previous transfer of the block may still be on the link.
        if self.arriving.is_some_and(|transfer| transfer.block == block) {
            return;
        }
        let from_ns = self.clock_ns.max(self.flash_read.free_ns).max(request.issued_ns).max(self.readable_ns(block));
        if from_ns <= limit_ns {
            let end_ns = self.flash_read.take(from_ns, self.machine.flash_read.transfer_ns(mask_bytes(mask)));
            self.reading = Some(Transfer { request, block, mask, end_ns, reserves_frame: false });
        }
    }

    pub(super) fn start_departure(&mut self, limit_ns: u64) {
        if self.leaving.is_some() {
            return;
        }
        let flash_ready = self.flash_write.free_ns <= self.clock_ns;
        let flash = if flash_ready { self.next_block(3) } else { None };
        // Memory that does not fit on the host goes to flash, if flash is ready.
        let host = self.next_block(2).filter(|&(_, _, mask)| flash_ready || self.fits_host(mask));
        let next = match (host, flash) {
            (Some(host), Some(flash)) if flash.0.issued_ns < host.0.issued_ns => Some(flash),
            (host, flash) => host.or(flash),
        };
        let Some((request, block, mask)) = next else { return };
        let from_ns = self.clock_ns.max(self.to_host.free_ns).max(request.issued_ns);
        if from_ns <= limit_ns {
            let on_gpu = mask & self.memory.place(block).gpu;
            let block_ns = to_ns(self.machine.requests.block_ns.value);
            let end_ns = self.to_host.take(from_ns, self.to_host_ns(on_gpu).max(block_ns));
            self.leaving = Some(Transfer { request, block, mask, end_ns, reserves_frame: false });
        }
    }

    pub(super) fn finish_arrival(&mut self, transfer: Transfer) {
        let Transfer { request, block, end_ns, .. } = transfer;
        let place = self.memory.place(block);
        let mask = transfer.mask
            & match request.kind {
                MoveKind::Populate => !place.populated(),
                _ => place.host | place.flash,
            };
        if mask == 0 {
            return;
        }
        if request.kind != MoveKind::Populate {
            self.traffic.bytes_htod += self.bytes_of(block, mask);
            self.traffic.bytes_ssd_read += mask_bytes(mask & place.flash);
        }
        self.memory.put(block, Place { gpu: place.gpu | mask, ..place.without(mask) });
        self.emit(Event::Arrived { block, mask, with_contents: request.kind != MoveKind::Populate, at_ns: end_ns });
    }

    pub(super) fn finish_departure(&mut self, transfer: Transfer) {
        let Transfer { request, block, end_ns, .. } = transfer;
        let place = self.memory.place(block);
        let mask = transfer.mask & (place.gpu | place.host);
        let from_gpu = mask & place.gpu;
        self.traffic.bytes_dtoh += self.bytes_of(block, from_gpu);
        let to = self.store(block, mask, request.is_to_flash(), end_ns);
        if from_gpu != 0 {
            self.departed.push(block);
            self.emit(Event::Left { block, mask: from_gpu, to, at_ns: end_ns });
        }
        let from_host = mask & place.host;
        if from_host != 0 && to == Tier::Flash {
            self.emit(Event::Spilled { block, mask: from_host, at_ns: end_ns });
        }
    }
}

#[cfg(test)]
mod tests {
    use trace::id::Id;

    use super::*;
    use crate::{machine::Machine, units::GRANULES_PER_BLOCK};

    #[test]
    fn protected_blocks_are_evicted_for_awaited_blocks_and_for_no_other_move() {
        let machine = Machine::named("a100").unwrap();
        let mut engine = Engine::new(&machine, 3, 0, |_| {});
        for block in 0..3 {
            engine.memory.put(block, Place { gpu: Mask::MAX, ..Place::default() });
        }
        engine.memory.put(3, Place { flash: Mask::MAX, ..Place::default() });
        engine.protected.insert(0, 3);
        let per_block = u64::from(GRANULES_PER_BLOCK);
        let range = Granules { first: 3 * per_block, end: 4 * per_block };
        engine.issue(Move {
            tensor: TensorId::new(0),
            range,
            kind: MoveKind::FromFlash,
            done_before: None,
            issued_ns: 0,
        });

        engine.run_until(1_000_000_000).unwrap();
        assert!(engine.in_transit(3) && engine.memory.place(3).gpu == 0);

        engine.await_block(3).unwrap();
        assert!(!engine.in_transit(3));
        assert_eq!((engine.memory.place(3).gpu, engine.memory.place(0).flash), (Mask::MAX, Mask::MAX));
    }
}
