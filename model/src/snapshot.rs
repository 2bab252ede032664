//! Everything known at one moment, as the collector publishes it.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    Blocks, Counters, Crosschecks, Degradation, EvictionPair, FatalError, GpuKey, Owner, OwnerEvictions, OwnerKey,
    OwnerNames, OwnerTotals, PeerReuse, ProcessId, Quantity, QuotaRefusals, Ranges, Residency, Reuse, Sites,
};

/// Source of the facts about a GPU beyond its UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuSource {
    /// NVIDIA's management library.
    Nvml,
    /// The driver's files below /proc.
    Procfs,
}

impl GpuSource {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Procfs => "procfs",
        }
    }
}

/// A GPU as nvidia-uvm knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// The driver's processor id that it had last; `None` once another GPU has that id.
    pub id: Option<u32>,
    /// The product's name, where the driver tells it.
    pub name: Option<String>,
    /// NVML's index, by which nvidia-smi and DCGM name it.
    pub index: Option<u32>,
    /// Its address on the PCI bus, as in `0000:17:00.0`.
    pub pci_address: Option<String>,
    /// All of its memory.
    pub memory_bytes: Option<u64>,
    /// Used memory, managed and other.
    pub memory_used_bytes: Option<u64>,
    /// Rate of its `PCIe` link in each direction, without the overhead of packets; `None` if unknown, or another link.
    pub link_bytes_per_second: Option<u64>,
    /// Source of these facts.
    pub source: Option<GpuSource>,
}

/// One process that uses managed memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Identity.
    pub id: ProcessId,
    /// Time of its start.
    pub started_at: Option<SystemTime>,
    /// Its short name (comm).
    pub name: String,
    /// Its real user id.
    pub uid: u32,
    /// Name of the user, if the node knows one.
    pub user: Option<String>,
    /// Its cgroup: the unified hierarchy's path, or the memory controller's where that is still of version 1.
    pub cgroup: Option<PathBuf>,
    /// Time at which its last VA space was destroyed, or the process was found gone; `None` before.
    pub exited_at: Option<SystemTime>,
    /// CPU faults, which belong to no GPU, and events that could not be counted.
    pub host: Counters,
    /// Counters by GPU.
    pub gpus: BTreeMap<GpuKey, Counters>,
    /// Time from which it is counted, if it may have used the driver before. What it did before is in no
    /// count, and its earlier advice is unknown.
    pub counted_from: Option<SystemTime>,
    /// Bytes of managed memory mapped, as /proc said last; `None` if it could not be read.
    pub managed_bytes: Option<u64>,
    /// Steady growth of these; `None` if there is none, or it is unknown.
    pub managed_growth: Option<ManagedGrowth>,
    /// Where it happened.
    pub blocks: Blocks,
    /// Its command line, arguments separated by spaces; `None` if it could not be read.
    pub command_line: Option<String>,
    /// Owner.
    pub owner: Owner,
    /// Where its managed memory is, and how it is used.
    pub ranges: Ranges,
    /// Residency by GPU.
    pub residency: BTreeMap<GpuKey, Residency>,
    /// Reuse: traffic that brought back what was there before.
    pub reuse: BTreeMap<GpuKey, Reuse>,
    /// Instructions that raise its CPU faults.
    pub sites: Sites,
    /// Blocks that each GPU took from other ones; without GPUs that took none.
    pub peer_reuse: BTreeMap<GpuKey, PeerReuse>,
}

impl Process {
    /// A process of which nothing else is known.
    #[must_use]
    pub fn new(id: ProcessId, name: impl Into<String>) -> Self {
        Self {
            id,
            started_at: None,
            name: name.into(),
            uid: 0,
            user: None,
            cgroup: None,
            exited_at: None,
            host: Counters::ZERO,
            gpus: BTreeMap::new(),
            counted_from: None,
            managed_bytes: None,
            managed_growth: None,
            blocks: Blocks::default(),
            command_line: None,
            owner: Owner::default(),
            ranges: Ranges::default(),
            residency: BTreeMap::new(),
            reuse: BTreeMap::new(),
            sites: Sites::default(),
            peer_reuse: BTreeMap::new(),
        }
    }

    /// Everything counted for this process.
    #[must_use]
    pub fn total(&self) -> Counters {
        self.gpus.values().chain([&self.host]).sum()
    }
}

/// Steady growth of managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedGrowth {
    /// Bytes at its start.
    pub from_bytes: u64,
    /// Bytes at its end.
    pub to_bytes: u64,
    /// Time between both.
    pub over: Duration,
}

/// The driver that is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// As in `/sys/module/nvidia_uvm/version`.
    pub version: String,
    /// The family of struct layouts in use, such as `550-555`; `None` while none is.
    pub layout: Option<String>,
    /// Attachment of the probes, `kprobe` or `fentry`; `None` while there is none.
    pub attachment: Option<&'static str>,
    /// Module parameters that change what is counted, by name. They are fixed when the driver is loaded.
    pub parameters: BTreeMap<String, String>,
    /// Reason why resident and populated memory is not counted, as one sentence; `None` where it is.
    pub residency_unavailable: Option<String>,
}

/// Whether a source delivers, and if not, why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// Something the source needs is missing; it looks again by itself. Each reason is one sentence that says what to do.
    Waiting {
        /// Missing prerequisite.
        missing: Vec<String>,
    },
    /// The driver is there but must not be counted on: unknown version, failed self-test.
    Refused {
        /// Reason and remedy.
        reason: String,
    },
    /// Counting.
    Counting {
        /// Since when.
        since: SystemTime,
    },
}

impl SourceState {
    /// Names of all states.
    pub const NAMES: [&'static str; 3] = ["waiting", "refused", "counting"];

    /// Name in labels and JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Refused { .. } => "refused",
            Self::Counting { .. } => "counting",
        }
    }
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeStatus {
    /// The driver function it is attached to.
    pub name: String,
    /// Number of runs.
    pub hits: u64,
    /// Time spent in it, where the kernel measures that.
    pub run_time: Option<Duration>,
    /// Uncounted events and the reason, if it could not be attached; `None` where it is attached.
    pub missing: Option<String>,
}

/// Records of what happened to single blocks. Nothing else depends on them: counts stay exact whatever becomes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFigures {
    /// None are wanted.
    pub is_off: bool,
    /// Written by the probes.
    pub written: u64,
    /// Left out by the probes because too many came at once.
    pub sampled_out: u64,
    /// Lost because the ring was full.
    pub dropped: u64,
}

/// Status of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// `ebpf`, and in time `tools` and `replay`.
    pub backend: &'static str,
    /// Quantities that it does not count on any driver.
    pub not_counted: Vec<Quantity>,
    /// Whether it delivers.
    pub state: SourceState,
    /// Warnings: missing data and the remedy, each as one sentence.
    pub warnings: Vec<String>,
    /// Reasons why it counts less than it should; empty without any.
    pub degraded: Vec<Degradation>,
    /// Entries of the probes' maps that users were refused.
    pub quota_refusals: Vec<QuotaRefusals>,
    /// The driver, once one is there.
    pub driver: Option<DriverInfo>,
    /// The driver's global fatal error; `None` if none is known.
    pub fatal_error: Option<FatalError>,
    /// The probes, those that this driver lacks among them.
    pub probes: Vec<ProbeStatus>,
    /// Events that were not counted, by reason. Every reason is always present, most with 0.
    pub dropped_events: BTreeMap<&'static str, u64>,
    /// Block records, which are not among them.
    pub block_records: RecordFigures,
    /// Cross-checks by the driver's own counters; `None` where they are off.
    pub crosschecks: Option<Crosschecks>,
}

impl SourceStatus {
    /// Status of the eBPF source in this state, without driver, probes, warnings and losses.
    #[must_use]
    pub fn new(state: SourceState) -> Self {
        Self {
            backend: "ebpf",
            not_counted: Vec::new(),
            state,
            warnings: Vec::new(),
            degraded: Vec::new(),
            quota_refusals: Vec::new(),
            driver: None,
            fatal_error: None,
            probes: Vec::new(),
            dropped_events: BTreeMap::new(),
            block_records: RecordFigures::default(),
            crosschecks: None,
        }
    }
}

/// Everything known at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Time of the snapshot, by a clock that may be set.
    pub taken: SystemTime,
    /// The same by a clock that is never set, since the source started: for durations.
    pub elapsed: Duration,
    /// The source.
    pub source: SourceStatus,
    /// The GPUs seen so far, and those that were counted on.
    pub gpus: BTreeMap<GpuKey, Gpu>,
    /// Running processes, and those that exited recently.
    pub processes: Vec<Process>,
    /// Sums over all processes ever seen on each GPU, so that they never go back when a process is forgotten.
    /// Only what is [`GpuKey::Pending`] does, when it moves to its GPU.
    pub gpu_totals: BTreeMap<GpuKey, Counters>,
    /// CPU faults of all processes ever seen, and events that no process is known for.
    pub host_totals: Counters,
    /// Reuse of the traffic at each GPU, of all processes ever seen; as `gpu_totals`.
    pub reuse_totals: BTreeMap<GpuKey, Reuse>,
    /// Sums by owner, which outlive its processes. Their number is bounded; what finds no room is in [`OwnerKey::Other`].
    pub owners: BTreeMap<OwnerKey, OwnerTotals>,
    /// Names of pods.
    pub owner_names: Arc<OwnerNames>,
    /// Evictions by victim and evictor.
    pub evictions: Vec<EvictionPair>,
    /// Evictions by owner, beyond the life of processes.
    pub owner_evictions: Vec<OwnerEvictions>,
}

impl Snapshot {
    /// A snapshot with nothing in it yet.
    #[must_use]
    pub fn empty(taken: SystemTime, source: SourceStatus) -> Self {
        Self {
            taken,
            elapsed: Duration::ZERO,
            source,
            gpus: BTreeMap::new(),
            processes: Vec::new(),
            gpu_totals: BTreeMap::new(),
            host_totals: Counters::ZERO,
            reuse_totals: BTreeMap::new(),
            owners: BTreeMap::new(),
            owner_names: Arc::default(),
            evictions: Vec::new(),
            owner_evictions: Vec::new(),
        }
    }

    /// Events not counted, over all reasons.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.source.dropped_events.values().sum()
    }
}
