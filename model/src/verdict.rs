//! Verdicts on processes' use of managed memory, with their evidence.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::{Capabilities, GpuKey, OwnerKey, Pattern, ProcessId, Quantity};

/// Predicate of the remark on windows that could not be judged, by which programs recognise it.
pub const UNJUDGED: &str = "could not be judged";

/// Kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VerdictKind {
    /// Evicted memory is fetched again: the working set exceeds GPU memory.
    CapacityThrash,
    /// Memory goes back and forth between a CPU and a GPU, or two GPUs, that both use it.
    PingPong,
    /// The driver holds processors back from pages, or pins pages, because they go back and forth.
    DriverThrottling,
    /// More than the card holds is walked through once: evictions, but hardly anything is fetched again.
    Streaming,
    /// Faults come from memory that is touched for the first time.
    FirstTouchStorm,
}

impl VerdictKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::CapacityThrash, Self::PingPong, Self::DriverThrottling, Self::Streaming, Self::FirstTouchStorm];

    /// The name in labels and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CapacityThrash => "capacity_thrash",
            Self::PingPong => "ping_pong",
            Self::DriverThrottling => "driver_throttling",
            Self::Streaming => "streaming",
            Self::FirstTouchStorm => "first_touch_storm",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::CapacityThrash => "capacity thrash",
            Self::PingPong => "ping-pong",
            Self::DriverThrottling => "throttled",
            Self::Streaming => "streaming",
            Self::FirstTouchStorm => "first touches",
        }
    }

    /// The meaning for people, as a sentence.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::CapacityThrash => "Evicted memory is fetched again: more memory is in use than the GPU holds",
            Self::PingPong => "Memory goes back and forth between a CPU and a GPU, or two GPUs, that both use it",
            Self::DriverThrottling => "The driver throttles processors, or pins pages, because pages bounce",
            Self::Streaming => "More memory than the GPU holds is used once: evictions, but hardly any refetches",
            Self::FirstTouchStorm => "Faults come from memory that is touched for the first time",
        }
    }

    /// Inputs of the kind that only block records have: without them it is unavailable.
    #[must_use]
    pub const fn needs_records_for(self) -> Option<&'static str> {
        match self {
            Self::CapacityThrash => Some("whether fetched bytes were evicted before"),
            Self::PingPong => Some("how often blocks bounce between CPUs and GPUs"),
            Self::Streaming => {
                Some("whether fetched bytes are new, so that the verdict needs a window without fetches")
            }
            Self::DriverThrottling | Self::FirstTouchStorm => None,
        }
    }

    /// Quantities without which the kind cannot be judged.
    const fn inputs(self) -> &'static [Quantity] {
        match self {
            Self::CapacityThrash | Self::PingPong => &[Quantity::CopyCauses, Quantity::Reuse],
            Self::DriverThrottling => &[Quantity::Throttles],
            Self::Streaming => &[Quantity::CopyCauses],
            Self::FirstTouchStorm => &[Quantity::CopyCauses, Quantity::Populated],
        }
    }

    /// Inputs of the kind that are not counted: with any, the kind is not judged.
    pub fn lacks(self, capabilities: Capabilities) -> impl Iterator<Item = Quantity> {
        self.inputs().iter().copied().filter(move |quantity| !capabilities.has(*quantity))
    }

    /// Whether all inputs of the kind are counted.
    #[must_use]
    pub fn is_judged(self, capabilities: Capabilities) -> bool {
        self.lacks(capabilities).next().is_none()
    }

    /// Whether it is thrashing: work is done again that was done before.
    #[must_use]
    pub const fn is_thrashing(self) -> bool {
        matches!(self, Self::CapacityThrash | Self::PingPong | Self::DriverThrottling)
    }
}

/// Minimum bounces of a ping-pong, four round trips: a single one is a hand-over.
pub const ENOUGH_BOUNCES: u64 = 8;

/// Inputs of a decision: counts between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = VerdictInputs))]
pub struct Inputs {
    /// GPU fault entries.
    pub fault_entries: u64,
    /// CPU faults.
    pub cpu_faults: u64,
    /// Bytes copied from the host to the GPU.
    pub bytes_htod: u64,
    /// Bytes copied from the GPU to the host.
    pub bytes_dtoh: u64,
    /// Bytes copied directly from other GPUs to the GPU.
    #[serde(default)]
    pub bytes_dtod: u64,
    /// Bytes of the process evicted from the GPU, for itself or for others.
    pub evicted_bytes: u64,
    /// Bytes of any process, itself included, evicted from the GPU for this process.
    #[serde(default)]
    pub induced_eviction_bytes: u64,
    /// Bytes that became resident without a copy.
    pub populated_bytes: u64,
    /// Bytes copied to the GPU, by block records.
    pub fetched_bytes: u64,
    /// Refetched part of `fetched_bytes`: evicted before.
    pub refetched_bytes: u64,
    /// CPU-reclaimed part of `fetched_bytes`: taken before by a CPU that faulted.
    pub cpu_reclaimed_bytes: u64,
    /// Times that a block changed sides between a CPU that faulted and a GPU.
    pub bounces: u64,
    /// Peer-reclaimed part of `fetched_bytes`: taken before by another GPU that faulted, and taken back.
    #[serde(default)]
    pub peer_reclaimed_bytes: u64,
    /// Times that the GPU took a block from another GPU by a fault.
    #[serde(default)]
    pub peer_bounces: u64,
    /// Times that the driver throttled a processor.
    pub throttles: u64,
    /// Sum of their durations.
    pub throttled_ns: u64,
    /// Pages that the driver found to be thrashing.
    pub thrashing_pages: u64,
    /// Bytes that the driver mapped remotely because of that. 0 unless a tool is attached.
    pub pinned_bytes: u64,
    /// Block records that were left out or lost: what rests on records is a lower bound then.
    pub missing_records: u64,
}

impl Inputs {
    /// Bytes copied to the GPU, from the host or from other GPUs.
    #[must_use]
    pub const fn copied_bytes(&self) -> u64 {
        self.bytes_htod.saturating_add(self.bytes_dtod)
    }

    /// Whether memory bounced between GPUs rather than between CPUs and the GPU: the side with enough
    /// bounces, else the one that took back more bytes, else the one with more bounces.
    #[must_use]
    pub fn is_between_gpus(&self) -> bool {
        let rank = |bounces, reclaimed_bytes| (bounces >= ENOUGH_BOUNCES, reclaimed_bytes, bounces);
        rank(self.peer_bounces, self.peer_reclaimed_bytes) > rank(self.bounces, self.cpu_reclaimed_bytes)
    }
}

/// A condition that was checked, so that a person can check it too.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Condition with value and limit: "92 % of arriving bytes were refetched (limit 25 %)".
    pub description: String,
    /// A short name for programs: `refetch_ratio`.
    pub name: &'static str,
    /// Value.
    pub value: f64,
    /// Threshold.
    pub threshold: f64,
    /// Whether it is as the verdict needs it.
    pub met: bool,
}

/// A range that the verdict is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Involved {
    /// First address.
    pub begin: u64,
    /// The address behind the last.
    pub end: u64,
    /// Access pattern.
    pub pattern: Pattern,
    /// Its share of the traffic that the verdict is about, from 0 to 1.
    pub traffic_ratio: f64,
    /// Share of the bytes fetched into it in the window that had been there before, from 0 to 1.
    pub refetch_ratio: f64,
}

/// A verdict on one process at one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Process.
    pub process: ProcessId,
    /// Where.
    pub gpu: GpuKey,
    /// The other GPU, if blocks bounce between two: the one from which this one took most.
    pub peer: Option<GpuKey>,
    /// Kind.
    pub kind: VerdictKind,
    /// The beginning of the first window that showed it.
    pub started_at: SystemTime,
    /// Time of its confirmation.
    pub confirmed_at: SystemTime,
    /// The end of the last window that showed it, if it is over.
    pub ended_at: Option<SystemTime>,
    /// The busiest ranges involved, busiest first.
    pub ranges: Vec<Involved>,
    /// The last window that showed it.
    pub window: Duration,
    /// Inputs of that window.
    pub inputs: Inputs,
    /// Inputs since the verdict's begin.
    pub total: Inputs,
    /// Checks of that window.
    pub checks: Vec<Check>,
}

impl Verdict {
    /// Bytes that came to the GPU and left it in the last window: the verdict with most is the worst.
    #[must_use]
    pub const fn traffic_bytes(&self) -> u64 {
        let Inputs { bytes_dtoh, populated_bytes, .. } = self.inputs;
        self.inputs.copied_bytes().saturating_add(bytes_dtoh).saturating_add(populated_bytes)
    }
}

/// A process that lost memory to another one in the last window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Victim.
    pub victim: ProcessId,
    /// Evictor.
    pub evictor: ProcessId,
    /// Where.
    pub gpu: GpuKey,
    /// Bytes evicted in the window.
    pub bytes: u64,
    /// The window.
    pub window: Duration,
}

/// Windows of a process at a GPU that one late reading covered together, and that show no verdict
/// together: each of them alone may have shown one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unjudged {
    /// Process.
    pub process: ProcessId,
    /// Where.
    pub gpu: GpuKey,
    /// The reading before.
    pub started_at: SystemTime,
    /// The late reading.
    pub ended_at: SystemTime,
    /// Whole windows between the two.
    pub windows: u64,
}

/// Key of the time for which verdicts held.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerdictTimeKey {
    /// Owner of the processes.
    pub owner: OwnerKey,
    /// GPU of the verdicts.
    pub gpu: GpuKey,
    /// Kind of the verdicts.
    pub kind: VerdictKind,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_between_gpus(
        (bounces, cpu_reclaimed_bytes): (u64, u64),
        (peer_bounces, peer_reclaimed_bytes): (u64, u64),
    ) -> bool {
        let inputs = Inputs { cpu_reclaimed_bytes, bounces, peer_reclaimed_bytes, peer_bounces, ..Inputs::default() };
        inputs.is_between_gpus()
    }

    #[test]
    fn side_is_the_one_with_enough_bounces_and_more_reclaimed_bytes() {
        assert!(!is_between_gpus((100, 60), (101, 5)), "few bytes in many bounces");
        assert!(is_between_gpus((101, 5), (100, 60)));
        assert!(!is_between_gpus((8, 60), (7, 90)), "too few bounces");
        assert!(is_between_gpus((7, 90), (8, 60)));
        // Throttled memory may move hardly, or not at all.
        assert!(is_between_gpus((3, 0), (4, 0)));
        assert!(!is_between_gpus((4, 0), (4, 0)));
        assert!(!is_between_gpus((0, 0), (0, 0)));
    }
}
