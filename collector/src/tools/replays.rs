//! The node's replays: a queue on an empty VA space of uvmd's own, which has those of all GPUs.
//!
//! It is held only while something is counted, as the driver cannot be unloaded meanwhile.

use std::{io, num::NonZeroUsize, time::Duration};

use sys::{
    pidfd::PidFd,
    trackers::{Holder, HolderError, Memory},
    uvm::{
        records::{EventKind, Record, Replay},
        tracker::Layout,
    },
};

use super::queue::Queue;
use crate::ledger::Generation;

const KINDS: [EventKind; 1] = [EventKind::Replay];
/// Time after a failure until the next attempt.
const RETRY: Duration = Duration::from_secs(10);

/// The queue of replays, while there is one.
#[derive(Default)]
pub(super) struct Replays {
    held: Option<Held>,
    /// Time since boot before which it is not attached again.
    not_before: Duration,
    /// Whether the last reading had all replays.
    are_whole: bool,
}

struct Held {
    generation: Generation,
    process: PidFd,
    memory: Memory,
    queue: Queue,
    /// Whether the driver writes replays.
    is_watching: bool,
    is_releasing: bool,
}

impl Replays {
    /// Whether a queue is to be attached, at this time since boot.
    pub(super) fn are_missing(&self, now: Duration) -> bool {
        self.held.is_none() && now >= self.not_before
    }

    /// Begins an attachment, under this generation. Returns the request to a holder.
    pub(super) fn begin(
        &mut self,
        generation: Generation,
        layout: Layout,
    ) -> io::Result<impl FnOnce(&mut Holder) -> Result<(), HolderError> + '_> {
        let queue = Queue::new(0, &KINDS);
        let memory = Memory::new(NonZeroUsize::new(Queue::pages()).unwrap_or(NonZeroUsize::MIN))?;
        let process = PidFd::open(std::process::id()).map_err(io::Error::other)?;
        let held =
            &*self.held.insert(Held { generation, process, memory, queue, is_watching: false, is_releasing: false });
        Ok(move |holder: &mut Holder| {
            let (page, records, kinds) = held.queue.request();
            holder.create(generation, &held.process, &held.memory)?;
            holder.watch(generation, page, layout, records, kinds)
        })
    }

    /// Whether it is under this generation.
    pub(super) fn are(&self, generation: Generation) -> bool {
        self.held.as_ref().is_some_and(|held| held.generation == generation)
    }

    /// Records that the driver writes replays.
    pub(super) const fn watching(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_watching = true;
        }
    }

    /// Its generation, if it is to be released and was not.
    pub(super) fn begin_release(&mut self) -> Option<Generation> {
        let held = self.held.as_mut().filter(|held| !held.is_releasing)?;
        held.is_releasing = true;
        Some(held.generation)
    }

    /// Ends it. `failed_at`: time since boot at which it could not be attached or held.
    pub(super) fn end(&mut self, failed_at: Option<Duration>) {
        self.held = None;
        if let Some(now) = failed_at {
            self.not_before = now.saturating_add(RETRY);
        }
    }

    /// Memory of its queue.
    #[cfg(test)]
    pub(super) fn memory(&self) -> &Memory {
        &self.held.as_ref().unwrap().memory
    }

    /// Its generation, while the driver writes replays.
    pub(super) fn generation(&self) -> Option<Generation> {
        self.held.as_ref().filter(|held| held.is_watching && !held.is_releasing).map(|held| held.generation)
    }

    /// Whether the last reading had all replays.
    pub(super) const fn are_whole(&self) -> bool {
        self.are_whole
    }

    /// Reads the replays so far. Whether all of them were there.
    pub(super) fn read(&mut self, take: impl FnMut(&Replay)) -> bool {
        self.are_whole = self.read_all(take);
        self.are_whole
    }

    fn read_all(&mut self, mut take: impl FnMut(&Replay)) -> bool {
        let Some(held) = &mut self.held else { return false };
        held.queue.read(&held.memory, u32::MAX, |record| {
            if let Record::Replay(replay) = record {
                take(&replay);
            }
        });
        let has_dropped = held.queue.has_dropped();
        held.is_watching && !has_dropped && held.queue.broken().is_none()
    }
}
