//! Earliest possible creation of a VA space that is found, by earlier searches.
//!
//! * A process that has the driver open had no VA space, or none that was not counted, at its last
//!   inspection.
//! * Others had not opened the driver while the references to its module did not change. An open and
//!   a close between two looks hide each other: what they hide is found by a later inspection, and
//!   may be older.
//! * Without either: the start of the process.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

/// Times since boot at which processes had no VA space that was not counted. A VA space that is found
/// was created after that.
#[derive(Debug, Default)]
pub(super) struct CreationBounds {
    of_processes: BTreeMap<u32, Duration>,
    /// Last look before which the references had not changed.
    unchanged_at: Duration,
    /// Last inspection.
    inspected_at: Duration,
}

impl CreationBounds {
    /// Records a look at which the references were those of the last one.
    pub(super) fn unchanged(&mut self, now: Duration) {
        self.unchanged_at = now;
    }

    /// Records an inspection, at which these processes had the driver open or were not inspected.
    /// `has_changed`: whether the references had; `remains`: whether a process that the inspection
    /// did not list still has the driver open.
    pub(super) fn inspected(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        has_changed: bool,
        remains: impl Fn(u32) -> bool,
        now: Duration,
    ) {
        let before =
            if has_changed && self.inspected_at > Duration::ZERO { self.unchanged_at } else { self.inspected_at };
        let pids: HashSet<u32> = pids.into_iter().collect();
        self.of_processes.retain(|pid, _| pids.contains(pid) || remains(*pid));
        for pid in pids {
            self.of_processes.entry(pid).or_insert(before);
        }
        (self.unchanged_at, self.inspected_at) = (now, now);
    }

    /// Records that a process has no VA space that is not counted.
    pub(super) fn set_without_space(&mut self, pid: u32, now: Duration) {
        self.of_processes.insert(pid, now);
    }

    /// Time after which a VA space of a process that is found now was created. `start`: that of the
    /// process, which may have the number of a former one.
    pub(super) fn created_after(&self, pid: u32, start: Duration) -> Duration {
        self.of_processes.get(&pid).map_or(start, |at| start.max(*at))
    }
}
