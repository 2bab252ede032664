//! What the records of all VA spaces are made into, beside the counts of each.

use abi::{BlockRecord, block::RecordKind};

use super::{replays::Replays, tally::SharedEvent, timeline::Timeline};
use crate::{clock, ledger::Generation};

/// Block records, and the timeline of all GPUs.
#[derive(Default)]
pub(super) struct Sink {
    pub(super) blocks: Vec<BlockRecord>,
    /// None without records of faults.
    pub(super) timeline: Option<Timeline>,
    /// To be added to times of the driver's clock.
    pub(super) raw_to_boot_ns: u64,
}

impl Sink {
    /// Adds a part of the history of a GPU.
    pub(super) fn add_event(&mut self, generation: Generation, event: SharedEvent) {
        if let Some(timeline) = &mut self.timeline {
            timeline.add(generation, event);
        }
    }

    /// Adds a block record, with the time of the driver's clock. Faults of one batch at one block are
    /// one record: the driver sorts a batch by address.
    pub(super) fn add_block(&mut self, record: BlockRecord) {
        let boottime_ns = record.boottime_ns.wrapping_add(self.raw_to_boot_ns);
        let key = |record: &BlockRecord| (record.generation, record.address, record.gpu, record.kind, record.cause);
        match self.blocks.last_mut() {
            Some(last) if record.kind == RecordKind::GpuFaults as u16 && key(last) == key(&record) => {
                last.events = last.events.saturating_add(record.events);
                last.slots |= record.slots;
            }
            _ => self.blocks.push(BlockRecord { boottime_ns, ..record }),
        }
    }

    /// Ends a reading of all queues: adds the replays and the losses, and puts the events of all GPUs in
    /// order. `lack_faults`: VA spaces with faults without a record; `ended`: those without further
    /// records; `began_ns`: time of the driver's clock at which the reading began.
    pub(super) fn advance(
        &mut self,
        replays: &mut Replays,
        lack_faults: &[Generation],
        ended: &[Generation],
        began_ns: u64,
    ) {
        let Some(timeline) = &mut self.timeline else { return };
        for generation in lack_faults {
            timeline.lost_faults(*generation);
        }
        if !replays.read(|replay| timeline.add_replay(replay)) {
            timeline.lost_replays();
        }
        timeline.advance(began_ns);
        for generation in ended {
            timeline.finish(*generation, clock::nanoseconds(sys::clock::raw()));
        }
    }

    /// Takes every evictor of this reading and the next for unknown: a VA space that is not counted may
    /// have faulted.
    pub(super) const fn doubt(&mut self) {
        if let Some(timeline) = &mut self.timeline {
            timeline.lost_replays();
        }
    }

    /// Puts the block records from this one on in the order of their times.
    pub(super) fn sort_blocks(&mut self, from: usize) {
        if let Some(records) = self.blocks.get_mut(from..) {
            records.sort_by_key(|record| record.boottime_ns);
        }
    }
}
