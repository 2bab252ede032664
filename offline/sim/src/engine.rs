//! Memory, the links and the driver in time: who calls it says what the kernel faults on and what is to be moved, and learns when that is done.
//!
//! Each direction of the link carries one transfer at a time, and so does flash. Moves by request begin when a lane is free, in the order in which they were
//! issued; what faults ask for goes before all that has not begun. A block that is on its way is nowhere else, and not to be evicted.

mod cpu;
mod moves;
mod service;
mod stores;

use std::collections::{BTreeMap, VecDeque};

use moves::Flight;
pub(crate) use moves::{Move, Way};
pub(crate) use service::Service;
use trace::TensorId;

use crate::{
    event::{Event, Observer},
    machine::Machine,
    mask::BlockMask,
    memory::{Memory, Placed},
    units::{GRANULE_BYTES, GRANULES_PER_BLOCK, Granules, Mask},
};

/// One transfer after the other.
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

/// What was moved, and what the driver did for it. Counted when it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes_htod: u64,
    pub(crate) bytes_dtoh: u64,
    /// Copies to the GPU, but for a schedule's.
    pub(crate) transfers_htod: u64,
    pub(crate) bytes_ssd_read: u64,
    pub(crate) bytes_ssd_written: u64,
    pub(crate) faults: u64,
    pub(crate) fault_batches: u64,
    pub(crate) cpu_faults: u64,
    /// Of what went to the host, what the driver evicted; and how many blocks.
    pub(crate) evicted_bytes: u64,
    pub(crate) evictions: u64,
}

/// What it is about to run out of.
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
    /// By block: when flash has written what it last took of it.
    written: BTreeMap<u64, u64>,
    /// To the GPU from the host; from flash; from the GPU to the host; to flash; and memory on the GPU that nothing crosses the link for.
    queues: [VecDeque<Move>; 5],
    /// Crossing the link to the GPU.
    arriving: Option<Flight>,
    /// Being read from flash, or read and waiting for the link.
    reading: Option<Flight>,
    /// Crossing the link to the host.
    leaving: Option<Flight>,
    pub(crate) traffic: Traffic,
    pub(crate) peak_blocks: u64,
    /// Blocks that make no room for moves: by the first of each run, one past its last.
    pub(crate) kept: BTreeMap<u64, u64>,
    /// A block on its way that threads wait for: where there is no other, even what is kept makes room for it, as it does for what faults ask for.
    awaited: Option<u64>,
    /// Blocks that left the GPU since somebody looked.
    pub(crate) left: Vec<u64>,
    /// Granules of blocks that end early.
    pub(crate) short: BTreeMap<u64, Mask>,
    observer: O,
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
            kept: BTreeMap::new(),
            awaited: None,
            left: Vec::new(),
            short: BTreeMap::new(),
            observer,
        }
    }

    pub(crate) fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    pub(crate) fn tell(&mut self, event: Event) {
        (self.observer)(event);
    }

    /// Forgets what is in a range, on its way or not.
    pub(crate) fn discard(&mut self, tensor: TensorId, range: Granules) {
        self.cancel(|of| of.meets(tensor, range));
        for flight in [&mut self.arriving, &mut self.reading, &mut self.leaving].into_iter().flatten() {
            if flight.of.tensor == tensor {
                flight.mask &= !range.within(flight.block);
            }
        }
        self.memory.discard(range);
        self.tell(Event::Discarded { range, at_ns: self.clock_ns });
    }

    /// Forgets what is in a range but not on the GPU, on its way there or not.
    pub(crate) fn drop_elsewhere(&mut self, tensor: TensorId, range: Granules) {
        self.cancel(|of| of.meets(tensor, range));
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
                self.tell(Event::Discarded { range, at_ns: self.clock_ns });
                elsewhere &= !range.within(block);
            }
        }
    }

    /// Carries out moves as far as they are done at a time.
    pub(crate) fn run_until(&mut self, limit_ns: u64) -> Result<(), NoVictim> {
        while self.step(limit_ns)? {}
        self.clock_ns = self.clock_ns.max(limit_ns);
        Ok(())
    }

    /// The same, or until a block has left the GPU.
    pub(crate) fn run_until_something_leaves(&mut self, limit_ns: u64) -> Result<(), NoVictim> {
        while self.left.is_empty() {
            if !self.step(limit_ns)? {
                self.clock_ns = self.clock_ns.max(limit_ns);
                break;
            }
        }
        Ok(())
    }

    /// Carries out moves until something is so; the clock is then when it became so.
    pub(crate) fn run_while(&mut self, unfinished: impl Fn(&Self) -> bool) -> Result<(), NoVictim> {
        while unfinished(self) && self.step(u64::MAX)? {}
        Ok(())
    }

    /// Goes on to the next end of a transfer, if there is one until then.
    fn step(&mut self, limit_ns: u64) -> Result<bool, NoVictim> {
        self.start_leaving(limit_ns);
        self.start_reading(limit_ns);
        self.start_arriving(limit_ns)?;
        // Flash takes the next block when it has written the last.
        let leaves = self.queues[2].front().or(self.queues[3].front());
        let flash = leaves.map(|_| self.flash_write.free_ns).filter(|&free_ns| free_ns > self.clock_ns);
        let reading = self.reading.map(|flight| flight.end_ns).filter(|&end_ns| end_ns > self.clock_ns);
        let (arriving, leaving) = (self.arriving.map(|f| f.end_ns), self.leaving.map(|f| f.end_ns));
        let Some(next_ns) = [arriving, reading, leaving, flash].into_iter().flatten().min() else { return Ok(false) };
        if next_ns > limit_ns {
            return Ok(false);
        }
        self.clock_ns = self.clock_ns.max(next_ns);
        if let Some(flight) = self.arriving.take_if(|flight| flight.end_ns <= next_ns) {
            self.arrive(flight);
        }
        if let Some(flight) = self.leaving.take_if(|flight| flight.end_ns <= next_ns) {
            self.leave(flight);
        }
        Ok(true)
    }

    /// Frames that nothing is in and nothing is on its way to.
    fn vacant(&self) -> u64 {
        let reserved =
            u64::from(self.arriving.is_some_and(|flight| flight.reserves && self.memory.place(flight.block).gpu == 0));
        self.frames.saturating_sub(self.memory.resident_blocks() + reserved)
    }

    /// Evicts as the driver does; when the frame is free.
    fn evict(&mut self, from_ns: u64, keep: impl Fn(u64) -> bool) -> Result<u64, NoVictim> {
        let flights = [self.arriving, self.leaving].map(|flight| flight.map(|flight| flight.block));
        let victim = self.memory.victim(|block| flights.contains(&Some(block)) || keep(block)).ok_or(NoVictim)?;
        self.traffic.evictions += 1;
        if self.memory.is_split(victim) {
            let pages = self.memory.pages(victim).gpu;
            Ok(self.evict_from(victim, pages, from_ns))
        } else {
            Ok(self.evict_from(victim, self.memory.place(victim).gpu, from_ns))
        }
    }

    fn evict_from<M: Placed>(&mut self, victim: u64, mask: M, from_ns: u64) -> u64 {
        // What the host has no room for goes to flash, when that has written the last.
        let from_ns = if self.host_takes(mask) { from_ns } else { from_ns.max(self.flash_write.free_ns) };
        let end_ns = self.to_host.take(from_ns, self.to_host_ns(mask));
        self.traffic.bytes_dtoh += mask.bytes();
        self.traffic.evicted_bytes += mask.bytes();
        let to = self.settle(victim, mask, false, end_ns);
        self.left.push(victim);
        self.tell(Event::Left { block: victim, mask: mask.granules(), to, at_ns: end_ns });
        end_ns
    }

    fn to_gpu_ns(&self, mask: Mask) -> u64 {
        mask.runs().map(|bytes| self.machine.link_to_gpu.transfer_ns(bytes)).sum()
    }

    fn to_host_ns<M: Placed>(&self, mask: M) -> u64 {
        mask.runs().map(|bytes| self.machine.link_to_host.transfer_ns(bytes)).sum()
    }
}
