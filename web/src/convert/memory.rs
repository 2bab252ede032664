//! Ranges of a process's memory, and heat maps.

use std::time::SystemTime;

use model::{Capabilities, PatternKind, Process, Quantity, Snapshot};

use super::{address, time};

/// Limits of figures from faults.
const CAVEATS: [&str; 3] = [
    "Accesses to memory that is resident or mapped raise no fault: their number and order are unknown.",
    "Counts and patterns are those of 2 MiB blocks since uvmd counts, from block records, without dropped and sampled-out ones.",
    "Refetched bytes are by block, not by page: a block of which one half is evicted and the other fetched counts as refetched.",
];

pub(crate) fn ranges(snapshot: &Snapshot, process: &Process) -> api::Ranges {
    let model::Blocks { forgotten, sampled_out_records, dropped_records, .. } = &process.blocks;
    api::Ranges {
        time: time(snapshot.taken),
        ranges: process.ranges.busiest.iter().map(|each| range(each, Capabilities::of(snapshot))).collect(),
        ranges_known: process.ranges.known,
        mappings: process.ranges.mappings,
        ranges_forgotten: process.ranges.forgotten,
        blocks_forgotten: *forgotten,
        block_records_sampled_out: *sampled_out_records,
        block_records_dropped: *dropped_records,
        caveats: CAVEATS.map(str::to_owned).into(),
    }
}

fn range(range: &model::Range, capabilities: Capabilities) -> api::Range {
    api::Range {
        begin: address(range.begin),
        end: address(range.end),
        bytes: range.end.saturating_sub(range.begin),
        mapped: range.mapped,
        resident: capabilities.counted(Quantity::Resident, range.residency),
        pattern: pattern(range.pattern),
        counts: counts(&range.counts, capabilities),
    }
}

fn counts(counts: &model::RangeCounts, capabilities: Capabilities) -> api::RangeCounts {
    let model::RangeCounts {
        fault_entries,
        cpu_faults,
        bytes_htod,
        bytes_dtoh,
        bytes_dtod,
        populated_bytes,
        evicted_bytes,
        evictions,
        reuse,
    } = *counts;
    api::RangeCounts {
        fault_entries: capabilities.counted(Quantity::BlockFaults, fault_entries),
        cpu_faults: capabilities.counted(Quantity::BlockFaults, cpu_faults),
        bytes_htod,
        bytes_dtoh,
        bytes_dtod,
        populated_bytes: capabilities.counted(Quantity::Populated, populated_bytes),
        evicted_bytes,
        evictions: capabilities.counted(Quantity::Evictions, evictions),
        reuse,
    }
}

pub(super) fn pattern(pattern: model::Pattern) -> api::Pattern {
    let stride_bytes = match pattern.kind {
        PatternKind::Strided { stride_bytes } => Some(stride_bytes),
        PatternKind::Sequential
        | PatternKind::Cyclic
        | PatternKind::Random
        | PatternKind::HotSet
        | PatternKind::Unknown => None,
    };
    api::Pattern {
        kind: pattern.kind.name().to_owned(),
        stride_bytes,
        confidence: pattern.confidence,
        steps: pattern.steps,
    }
}

pub(crate) fn heat_map(taken: SystemTime, map: &model::HeatMap, capabilities: Capabilities) -> api::HeatMap {
    api::HeatMap {
        time: time(taken),
        ranges: map.ranges.iter().map(|each| heat_range(each, capabilities)).collect(),
        ranges_omitted: map.ranges_omitted,
    }
}

fn heat_range(range: &model::HeatRange, capabilities: Capabilities) -> api::HeatRange {
    api::HeatRange {
        begin: address(range.begin),
        end: address(range.end),
        cell_bytes: range.cell_bytes,
        cells: range.cells.iter().map(|cell| heat_cell(cell, capabilities)).collect(),
    }
}

fn heat_cell(cell: &model::HeatCell, capabilities: Capabilities) -> api::HeatCell {
    const NANOSECONDS: f64 = 1e9;
    let model::HeatCell {
        fault_entries,
        cpu_faults,
        fetched_bytes,
        bytes_dtoh,
        evicted_bytes,
        refetched_bytes,
        resident,
        idle_ns,
    } = *cell;
    api::HeatCell {
        fault_entries: capabilities.counted(Quantity::BlockFaults, fault_entries),
        cpu_faults: capabilities.counted(Quantity::BlockFaults, cpu_faults),
        fetched_bytes,
        bytes_dtoh,
        evicted_bytes,
        refetched_bytes,
        resident: capabilities.counted(Quantity::Resident, resident),
        idle_seconds: idle_ns.map(|idle| idle as f64 / NANOSECONDS),
    }
}
