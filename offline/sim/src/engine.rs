//! Simulation of memory, links and driver over time. Callers pass faults and moves, and receive the
//! times at which these complete.
//!
//! Each direction of the link carries one transfer at a time, and so does flash. Moves by request
//! begin when a lane is free, in the order of their issue. Faults go before moves that have not
//! begun. A block in transit is in no other transfer, and is not evicted.

mod cpu;
mod moves;
mod service;
mod stores;

use std::collections::{BTreeMap, VecDeque};

use moves::Transfer;
pub(crate) use moves::{Move, MoveKind};
pub(crate) use service::Service;
use trace::TensorId;

use crate::{
    event::{Event, Observer},
    machine::Machine,
    mask::BlockMask,
    memory::{Memory, Placed},
    units::{GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, Mask},
};

/// Resource that carries one transfer after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    free_ns: u64,
}

impl Lane {
    fn take(&mut self, from_ns: u64, duration_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(from_ns) + duration_ns;
        self.free_ns
    }
}

/// Cumulative transfers and driver work, counted at completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes_htod: u64,
    pub(crate) bytes_dtoh: u64,
    /// Copies to the GPU, without those of a schedule.
    pub(crate) transfers_htod: u64,
    pub(crate) bytes_ssd_read: u64,
    pub(crate) bytes_ssd_written: u64,
    pub(crate) faults: u64,
    pub(crate) fault_batches: u64,
    pub(crate) cpu_faults: u64,
    /// Bytes that the driver evicted, a part of `bytes_dtoh`; and evicted blocks.
    pub(crate) evicted_bytes: u64,
    pub(crate) evictions: u64,
}

/// Error: no block can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoVictim;

pub(crate) struct Engine<'m, O = &'m mut Observer<'m>> {
    pub(crate) machine: &'m Machine,
    pub(crate) memory: Memory,
    frames: u64,
    host_limit_granules: u64,
    clock_ns: u64,
    to_gpu: Lane,
    to_host: Lane,
    flash_read: Lane,
    flash_write: Lane,
    /// Completion time of the last flash write of each block.
    written: BTreeMap<u64, u64>,
    /// Queues of moves: host to GPU, flash to GPU, GPU to host, to flash, and populating on the
    /// GPU, which needs no link.
    queues: [VecDeque<Move>; 5],
    /// Transfer to the GPU over the link.
    arriving: Option<Transfer>,
    /// Transfer that flash reads, or that is read and waits for the link.
    reading: Option<Transfer>,
    /// Transfer to the host over the link.
    leaving: Option<Transfer>,
    pub(crate) traffic: Traffic,
    pub(crate) peak_blocks: u64,
    /// Blocks that are not evicted for moves: runs by their first block, with the block past their
    /// last.
    pub(crate) protected: BTreeMap<u64, u64>,
    /// Block in transit for which threads wait. If there is no other victim, protected blocks are
    /// evicted for it, as for faults.
    awaited: Option<u64>,
    /// Blocks that left the GPU since the last check.
    pub(crate) departed: Vec<u64>,
    /// Allocated granules of blocks that end early.
    pub(crate) partial: BTreeMap<u64, Mask>,
    observer: O,
    /// Whether the observer sees no events.
    pub(crate) is_muted: bool,
}

impl<'m, O: FnMut(Event)> Engine<'m, O> {
    pub(crate) fn new(machine: &'m Machine, frames: u64, host_bytes: u64, observer: O) -> Self {
        Self {
            machine,
            memory: Memory::default(),
            frames,
            host_limit_granules: host_bytes / GRANULE_BYTES,
            clock_ns: 0,
            to_gpu: Lane::default(),
            to_host: Lane::default(),
            flash_read: Lane::default(),
            flash_write: Lane::default(),
            written: BTreeMap::new(),
            queues: Default::default(),
            arriving: None,
            reading: None,
            leaving: None,
            traffic: Traffic::default(),
            peak_blocks: 0,
            protected: BTreeMap::new(),
            awaited: None,
            departed: Vec::new(),
            partial: BTreeMap::new(),
            observer,
            is_muted: false,
        }
    }

    pub(crate) fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    pub(crate) fn emit(&mut self, event: Event) {
        if !self.is_muted {
            (self.observer)(event);
        }
    }

    /// Discards a range, in transit or not.
    pub(crate) fn discard(&mut self, tensor: TensorId, range: Granules) {
        self.cancel(|request| request.overlaps(tensor, range));
        for transfer in [&mut self.arriving, &mut self.reading, &mut self.leaving].into_iter().flatten() {
            if transfer.request.tensor == tensor {
                transfer.mask &= !range.within(transfer.block);
            }
        }
        self.memory.discard(range);
        self.emit(Event::Discarded { range, at_ns: self.clock_ns });
    }

    /// Discards a range outside the GPU, in transit to it or not.
    pub(crate) fn discard_off_gpu(&mut self, tensor: TensorId, range: Granules) {
        self.cancel(|request| request.overlaps(tensor, range));
        let first_of = |block: u64| block * u64::from(GRANULES_PER_BLOCK);
        for (block, within) in range.blocks() {
            let place = self.memory.place(block);
            let mut elsewhere = within & (place.host | place.flash);
            while elsewhere != 0 {
                let (skip, count) =
                    (elsewhere.trailing_zeros(), (elsewhere >> elsewhere.trailing_zeros()).trailing_ones());
                let first = first_of(block) + u64::from(skip);
                let range = Granules { first, end: first + u64::from(count) };
                self.memory.discard(range);
                self.emit(Event::Discarded { range, at_ns: self.clock_ns });
                elsewhere &= !range.within(block);
            }
        }
    }

    /// Completes the moves that end until a time.
    pub(crate) fn run_until(&mut self, limit_ns: u64) -> Result<(), NoVictim> {
        while self.step(limit_ns)? {}
        self.clock_ns = self.clock_ns.max(limit_ns);
        Ok(())
    }

    /// Completes moves until a time, or until a block has left the GPU.
    pub(crate) fn run_until_departure(&mut self, limit_ns: u64) -> Result<(), NoVictim> {
        while self.departed.is_empty() {
            if !self.step(limit_ns)? {
                self.clock_ns = self.clock_ns.max(limit_ns);
                break;
            }
        }
        Ok(())
    }

    /// Completes moves while a condition holds. The clock is then the time at which it ended.
    pub(crate) fn run_while(&mut self, unfinished: impl Fn(&Self) -> bool) -> Result<(), NoVictim> {
        while unfinished(self) && self.step(u64::MAX)? {}
        Ok(())
    }

    /// Advances to the next end of a transfer, if there is one by the limit.
    fn step(&mut self, limit_ns: u64) -> Result<bool, NoVictim> {
        self.start_departure(limit_ns);
        self.start_flash_read(limit_ns);
        self.start_arrival(limit_ns)?;
        // Flash accepts the next block when it has written the last.
        let outbound = self.queues[2].front().or(self.queues[3].front());
        let flash = outbound.map(|_| self.flash_write.free_ns).filter(|&free_ns| free_ns > self.clock_ns);
        let reading = self.reading.map(|transfer| transfer.end_ns).filter(|&end_ns| end_ns > self.clock_ns);
        let (arriving, leaving) = (self.arriving.map(|f| f.end_ns), self.leaving.map(|f| f.end_ns));
        let Some(next_ns) = [arriving, reading, leaving, flash].into_iter().flatten().min() else { return Ok(false) };
        if next_ns > limit_ns {
            return Ok(false);
        }
        self.clock_ns = self.clock_ns.max(next_ns);
        if let Some(transfer) = self.arriving.take_if(|transfer| transfer.end_ns <= next_ns) {
            self.finish_arrival(transfer);
        }
        if let Some(transfer) = self.leaving.take_if(|transfer| transfer.end_ns <= next_ns) {
            self.finish_departure(transfer);
        }
        Ok(true)
    }

    /// Frames without a resident block and without one in transit to them.
    fn vacant(&self) -> u64 {
        let reserved =
            u64::from(self.arriving.is_some_and(|transfer| {
                transfer.reserves_frame && self.memory.needs_frame(transfer.block, transfer.mask)
            }));
        self.frames.saturating_sub(self.memory.frames() + reserved)
    }

    /// Evicts the blocks of a frame in the driver's order; when it is free.
    fn evict(&mut self, from_ns: u64, is_protected: impl Fn(u64) -> bool) -> Result<u64, NoVictim> {
        let transfers = [self.arriving, self.leaving].map(|transfer| transfer.map(|transfer| transfer.block));
        let victims = self.memory.victims(|block| transfers.contains(&Some(block)) || is_protected(block));
        let victims = victims.ok_or(NoVictim)?;
        self.traffic.evictions += 1;
        let mut end_ns = from_ns;
        for (victim, mask) in victims {
            end_ns = if self.memory.is_split(victim) {
                self.evict_from(victim, self.memory.pages(victim).gpu, end_ns)
            } else {
                self.evict_from(victim, mask, end_ns)
            };
        }
        Ok(end_ns)
    }

    fn evict_from<M: Placed>(&mut self, victim: u64, mask: M, from_ns: u64) -> u64 {
        // Memory that does not fit on the host goes to flash, once flash has written the last
        // block.
        let from_ns = if self.fits_host(mask) { from_ns } else { from_ns.max(self.flash_write.free_ns) };
        let end_ns = self.to_host.take(from_ns, self.to_host_ns(mask));
        let bytes = self.bytes_of(victim, mask);
        self.traffic.bytes_dtoh += bytes;
        self.traffic.evicted_bytes += bytes;
        let to = self.store(victim, mask, false, end_ns);
        self.departed.push(victim);
        self.emit(Event::Left { block: victim, mask: mask.granules(), to, at_ns: end_ns });
        end_ns
    }

    /// Allocated bytes of a part of a block.
    fn bytes_of<M: Placed>(&self, block: u64, mask: M) -> u64 {
        let Some(allocated) = self.memory.parts(block) else { return mask.bytes() };
        let granules = mask.granules();
        let has = |granule: &(usize, &u32)| granules >> granule.0 & 1 == 1;
        allocated.iter().enumerate().filter(has).map(|(_, bytes)| u64::from(*bytes)).sum()
    }

    fn to_gpu_ns(&self, mask: Mask) -> u64 {
        mask.runs().map(|bytes| self.machine.link_to_gpu.transfer_ns(bytes)).sum()
    }

    fn to_host_ns<M: Placed>(&self, mask: M) -> u64 {
        mask.runs().map(|bytes| self.machine.link_to_host.transfer_ns(bytes)).sum()
    }
}
