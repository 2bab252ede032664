//! Readings of one snapshot: cumulative counts of a process at a GPU.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{Counters, GpuKey, PeerReuse, Process, RemoteCause, Reuse, Snapshot, verdict::Inputs};

use crate::ranges::RangesReading;

/// Time of a reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// By the calendar, which may be set.
    pub(crate) calendar: SystemTime,
    /// By a clock that is never set: for durations.
    pub(crate) elapsed: Duration,
}

impl Moment {
    pub(crate) const fn of(snapshot: &Snapshot) -> Self {
        Self { calendar: snapshot.taken, elapsed: snapshot.elapsed }
    }

    /// Time since an earlier reading.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        self.elapsed.saturating_sub(earlier.elapsed)
    }

    /// Calendar time of a later reading, as the sum of this one's calendar time and the elapsed
    /// time, so that the difference of two times is a duration even if the clock was set in
    /// between.
    pub(crate) fn calendar_of(self, later: Self) -> SystemTime {
        self.calendar + later.since(self)
    }
}

/// Cumulative counts at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) at: Moment,
    pub(crate) counted: Inputs,
    /// Busiest ranges of the process, for all GPUs.
    pub(crate) ranges: Arc<RangesReading>,
    /// Times that the GPU took a block from each other one.
    pub(crate) peers: BTreeMap<GpuKey, u64>,
}

/// Readings of one process.
pub(crate) struct ProcessReading {
    /// Counts without a GPU, added to those of each GPU.
    pub(crate) host: Reading,
    pub(crate) gpus: BTreeMap<GpuKey, Reading>,
}

impl Reading {
    /// Reading without counts.
    pub(crate) fn zero(at: Moment) -> Self {
        Self { at, counted: Inputs::default(), ranges: Arc::default(), peers: BTreeMap::new() }
    }
}

impl ProcessReading {
    pub(crate) fn of(process: &Process, at: Moment) -> Self {
        let ranges = Arc::new(RangesReading::of(&process.ranges));
        let host = add(
            &of_counters(&process.host),
            &Inputs {
                // CPU faults and missing records of a process are not counted by GPU.
                cpu_faults: process.host.cpu_faults(),
                missing_records: process.blocks.sampled_out_records.saturating_add(process.blocks.dropped_records),
                ..Inputs::default()
            },
        );
        let gpus = process.gpus.iter().map(|(gpu, counters)| {
            let reuse = process.reuse.get(gpu).copied().unwrap_or_default();
            let of_peers = process.peer_reuse.get(gpu).cloned().unwrap_or_default();
            let counted = add(&add(&add(&of_counters(counters), &of_reuse(reuse)), &of_peer_reuse(&of_peers)), &host);
            let peers = of_peers.bounces;
            (*gpu, Reading { at, counted, ranges: Arc::clone(&ranges), peers })
        });
        Self { gpus: gpus.collect(), host: Reading { at, counted: host, ranges, peers: BTreeMap::new() } }
    }
}

/// Counts of a process at a GPU, with all CPU faults of the process, but without its other counts
/// that belong to no GPU.
pub(crate) fn counted_at(process: &Process, gpu: GpuKey) -> Inputs {
    let counters = process.gpus.get(&gpu).map(of_counters).unwrap_or_default();
    let reuse = process.reuse.get(&gpu).copied().map(of_reuse).unwrap_or_default();
    let cpu = Inputs { cpu_faults: process.host.cpu_faults(), ..Inputs::default() };
    let peers = process.peer_reuse.get(&gpu).map(of_peer_reuse).unwrap_or_default();
    add(&add(&add(&counters, &reuse), &peers), &cpu)
}

fn of_counters(counters: &Counters) -> Inputs {
    Inputs {
        fault_entries: counters.fault_entries.total(),
        bytes_htod: counters.bytes_htod.total(),
        bytes_dtoh: counters.bytes_dtoh.total(),
        bytes_dtod: counters.bytes_dtod.total(),
        evicted_bytes: counters.evicted_bytes(),
        induced_eviction_bytes: counters.induced_eviction_bytes,
        populated_bytes: counters.populated_bytes,
        throttles: counters.throttles,
        throttled_ns: counters.throttled_ns,
        thrashing_pages: counters.thrashing_pages,
        pinned_bytes: counters.remote_mapped_bytes[RemoteCause::Thrashing],
        ..Inputs::default()
    }
}

fn of_reuse(reuse: Reuse) -> Inputs {
    let Reuse { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces } = reuse;
    Inputs { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces, ..Inputs::default() }
}

fn of_peer_reuse(reuse: &PeerReuse) -> Inputs {
    Inputs { peer_reclaimed_bytes: reuse.reclaimed_bytes, peer_bounces: reuse.total_bounces(), ..Inputs::default() }
}

/// Sum of two sets of counts.
pub(crate) fn add(one: &Inputs, other: &Inputs) -> Inputs {
    let (mut sum, mut other) = (*one, *other);
    for (mine, theirs) in fields(&mut sum).into_iter().zip(fields(&mut other)) {
        *mine = mine.saturating_add(*theirs);
    }
    sum
}

/// Difference of two sets of cumulative counts; `None` if a count decreased, for example because a
/// GPU became known or wrong counts were dropped.
pub(crate) fn difference(earlier: &Inputs, later: &Inputs) -> Option<Inputs> {
    let (mut earlier, mut difference) = (*earlier, *later);
    for (mine, theirs) in fields(&mut difference).into_iter().zip(fields(&mut earlier)) {
        *mine = mine.checked_sub(*theirs)?;
    }
    Some(difference)
}

/// All fields. The array has as many elements as the struct has fields, and no field can be
/// borrowed twice: a new input that is not listed does not compile.
const fn fields(inputs: &mut Inputs) -> [&mut u64; size_of::<Inputs>() / size_of::<u64>()] {
    [
        &mut inputs.fault_entries,
        &mut inputs.cpu_faults,
        &mut inputs.bytes_htod,
        &mut inputs.bytes_dtoh,
        &mut inputs.bytes_dtod,
        &mut inputs.evicted_bytes,
        &mut inputs.induced_eviction_bytes,
        &mut inputs.populated_bytes,
        &mut inputs.fetched_bytes,
        &mut inputs.refetched_bytes,
        &mut inputs.cpu_reclaimed_bytes,
        &mut inputs.bounces,
        &mut inputs.peer_reclaimed_bytes,
        &mut inputs.peer_bounces,
        &mut inputs.throttles,
        &mut inputs.throttled_ns,
        &mut inputs.thrashing_pages,
        &mut inputs.pinned_bytes,
        &mut inputs.missing_records,
    ]
}
