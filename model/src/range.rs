//! The ranges of a process's managed memory: one for each mapping, which is one for each allocation.

use std::{collections::BTreeMap, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::{GpuKey, Residency};

/// Traffic that brings back what was there before. From block records: a lower bound where records were left out.
///
/// Counted by 2 MiB block: returning bytes are compared with the bytes that left that block, not page by page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reuse {
    /// Bytes copied to a GPU, as the records tell: what the shares below are shares of.
    pub fetched_bytes: u64,
    /// Refetched part of `fetched_bytes`: in blocks that had lost as much by eviction since the last fetch.
    pub refetched_bytes: u64,
    /// CPU-reclaimed part of `fetched_bytes`: in blocks that had given as much to a CPU that faulted.
    pub cpu_reclaimed_bytes: u64,
    /// Times that a block changed sides between a CPU that faulted and a GPU.
    pub bounces: u64,
}

/// Blocks that a GPU took from other GPUs of the process, by its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerReuse {
    /// Bytes copied to the GPU then, in blocks that one of them had taken from it before.
    pub reclaimed_bytes: u64,
    /// Number of blocks taken, by the GPU that had each.
    pub bounces: BTreeMap<GpuKey, u64>,
}

impl PeerReuse {
    /// Number of blocks taken from all of them.
    #[must_use]
    pub fn total_bounces(&self) -> u64 {
        self.bounces.values().fold(0, |sum, bounces| sum.saturating_add(*bounces))
    }
}

impl AddAssign<&Self> for Reuse {
    fn add_assign(&mut self, other: &Self) {
        let Self { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces } = other;
        for (mine, theirs) in [
            (&mut self.fetched_bytes, fetched_bytes),
            (&mut self.refetched_bytes, refetched_bytes),
            (&mut self.cpu_reclaimed_bytes, cpu_reclaimed_bytes),
            (&mut self.bounces, bounces),
        ] {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

/// Counts of a range, from block records. Monotonic while the range exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeCounts {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from the host to a GPU.
    pub bytes_htod: u64,
    /// Bytes copied from a GPU to the host.
    pub bytes_dtoh: u64,
    /// Bytes copied from one GPU to another.
    pub bytes_dtod: u64,
    /// Bytes that became resident at a GPU with nothing to copy.
    pub populated_bytes: u64,
    /// Bytes pushed out because memory was needed; they are in the copied bytes too.
    pub evicted_bytes: u64,
    /// Times that a block, or a part of it, was pushed out.
    pub evictions: u64,
    /// Reuse.
    pub reuse: Reuse,
}

impl AddAssign<&Self> for RangeCounts {
    fn add_assign(&mut self, other: &Self) {
        // Destructured without `..`: a new count that is not summed does not compile.
        let Self {
            fault_entries,
            cpu_faults,
            bytes_htod,
            bytes_dtoh,
            bytes_dtod,
            populated_bytes,
            evicted_bytes,
            evictions,
            reuse,
        } = other;
        for (mine, theirs) in [
            (&mut self.fault_entries, fault_entries),
            (&mut self.cpu_faults, cpu_faults),
            (&mut self.bytes_htod, bytes_htod),
            (&mut self.bytes_dtoh, bytes_dtoh),
            (&mut self.bytes_dtod, bytes_dtod),
            (&mut self.populated_bytes, populated_bytes),
            (&mut self.evicted_bytes, evicted_bytes),
            (&mut self.evictions, evictions),
        ] {
            *mine = mine.saturating_add(*theirs);
        }
        self.reuse += reuse;
    }
}

impl RangeCounts {
    /// Pages of 4 KiB copied or populated, faults and evictions: what makes a range busy.
    #[must_use]
    pub const fn activity(&self) -> u64 {
        const PAGE_BYTES: u64 = 4096;
        let bytes = self.bytes_htod.saturating_add(self.bytes_dtoh).saturating_add(self.bytes_dtod);
        let pages = bytes.saturating_add(self.populated_bytes) / PAGE_BYTES;
        pages.saturating_add(self.fault_entries).saturating_add(self.cpu_faults).saturating_add(self.evictions)
    }
}

/// In which order a range is faulted on, as far as faults show. Accesses that hit raise none and are not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PatternKind {
    /// Upwards or downwards, without gaps.
    Sequential,
    /// With a constant distance, in bytes; negative downwards.
    Strided {
        /// From one place to the next.
        stride_bytes: i64,
    },
    /// Repeated passes in the same order, from one end to the other.
    Cyclic,
    /// No order.
    Random,
    /// No order, and a small part of the range has most of it.
    HotSet,
    /// Not enough was seen, or no pattern fits.
    Unknown,
}

impl PatternKind {
    /// The name in JSON and on screens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Strided { .. } => "strided",
            Self::Cyclic => "cyclic",
            Self::Random => "random",
            Self::HotSet => "hot_set",
            Self::Unknown => "unknown",
        }
    }
}

/// A pattern with how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pattern {
    /// Kind.
    pub kind: PatternKind,
    /// The share of what was seen lately that fits it, from 0 to 1; 0 where it is unknown.
    pub confidence: f64,
    /// Number of steps, from one faulted place to the next, that the classification rests on.
    pub steps: u64,
}

impl Pattern {
    /// Nothing seen.
    pub const UNKNOWN: Self = Self { kind: PatternKind::Unknown, confidence: 0.0, steps: 0 };
}

/// A range of managed memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// First address.
    pub begin: u64,
    /// The address behind the last.
    pub end: u64,
    /// Whether it is mapped still, as /proc said last. Where /proc was not read, ranges are those that blocks showed.
    pub mapped: bool,
    /// Counts.
    pub counts: RangeCounts,
    /// Resident bytes, all GPUs together.
    pub residency: Residency,
    /// Access pattern.
    pub pattern: Pattern,
}

/// The ranges of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranges {
    /// The busiest, busiest first.
    pub busiest: Vec<Range>,
    /// Number of ranges.
    pub known: u64,
    /// Number of mappings. Where they are too many, neighbours form one range.
    pub mappings: u64,
    /// Ranges evicted from the table to make room: of those not mapped, the ones not seen for longest.
    pub forgotten: u64,
}
