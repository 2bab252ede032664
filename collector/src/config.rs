//! Configuration of the collector.

use std::{sync::Arc, time::Duration};

use abi::{RecordLimit, block::WINDOW_NS};
use model::{OwnerNames, ToolsLevel};
use sys::{Roots, executable::Program};
use tokio::sync::watch;

/// Bytes of a block record in the ring, with the ring's own header.
const RECORD_BYTES: u32 = 56;
const _: () = assert!(RECORD_BYTES as usize == size_of::<abi::BlockRecord>() + 8);

/// Choice of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceChoice {
    /// Probes, or the driver's tools where the kernel has neither kprobes nor fentry.
    #[default]
    Auto,
    /// Probes alone.
    Probes,
    /// The driver's tools alone.
    Tools,
}

/// Configuration of the collector.
#[derive(Clone, Debug)]
pub struct Config {
    /// Source of counts.
    pub source: SourceChoice,
    /// Level of the driver's tools.
    pub tools_level: ToolsLevel,
    /// Whether the probes are cross-checked by the driver's own counters, on one process at a time.
    pub crosscheck: bool,
    /// Program whose main function calls [`sys::actor::run_if_spawner`] first: it holds the trackers of
    /// the driver's tools.
    pub program: Program,
    /// Interval of readings without a request.
    pub interval: Duration,
    /// Retention of a process after its end.
    pub ended_retention: Duration,
    /// Maximum of ended processes.
    pub max_ended: usize,
    /// Root folders of /proc and /sys.
    pub roots: Roots,
    /// Block records.
    pub records: Records,
    /// Maxima of blocks and ranges.
    pub blocks: BlockLimits,
    /// Maximum and retention of owners with separate sums.
    pub owners: OwnerLimits,
    /// Names of pods, as last read.
    pub owner_names: watch::Receiver<Arc<OwnerNames>>,
}

/// Retention, which may change at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Retention of a process after its end.
    pub ended_retention: Duration,
    /// Maximum of ended processes.
    pub max_ended: usize,
    /// Maximum and retention of owners with separate sums.
    pub owners: OwnerLimits,
}

/// Limits of owners with separate sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Maximum of owners.
    pub max: usize,
    /// Maximum of pairs of evictor and victim.
    pub max_eviction_pairs: usize,
    /// Retention after an owner's last activity.
    pub retention: Duration,
}

impl OwnerLimits {
    /// Maximum of one user's units, containers and jobs; root's have no separate limit.
    pub(crate) const fn user_max(&self) -> usize {
        self.max.div_ceil(4)
    }
}

impl Default for OwnerLimits {
    fn default() -> Self {
        Self { max: 256, max_eviction_pairs: 1024, retention: Duration::from_hours(1) }
    }
}

/// Maxima of 2 MiB blocks and ranges. Beyond them, those not seen for longest are forgotten. Each
/// block takes 96 bytes, and at most ten in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Maximum of one process.
    pub of_process: usize,
    /// Maximum of all processes together.
    pub of_all: usize,
    /// Maximum of ranges of all processes together; each has at most 16,384. Beyond it, adjacent
    /// mappings are merged.
    pub ranges_of_all: usize,
    /// Maximum of blocks of one process whose returns by request are counted; 0 if nobody probes launches.
    pub returns_of_process: usize,
}

impl Default for BlockLimits {
    /// 1 TiB of memory of one process, and 2 TiB of all: 64 MiB and 128 MiB here. Eight processes
    /// with the maximum of ranges: 40 MiB.
    fn default() -> Self {
        Self { of_process: 524_288, of_all: 1_048_576, ranges_of_all: 131_072, returns_of_process: 0 }
    }
}

/// Configuration of block records. Counts do not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records {
    /// Whether they are enabled.
    pub enabled: bool,
    /// Records that each CPU may write per second.
    pub max_per_second: u32,
    /// Size of their ring: a power of two, and at least a page.
    pub ring_bytes: u32,
}

impl Records {
    /// Limits of the probes: records of a CPU in a window, and in three quarters of the ring.
    pub(crate) const fn limit(&self) -> RecordLimit {
        const WINDOWS_PER_SECOND: u32 = 10;
        const _: () = assert!(WINDOW_NS * WINDOWS_PER_SECOND as u64 == 1_000_000_000);
        let per_window = if self.enabled { self.max_per_second.div_ceil(WINDOWS_PER_SECOND) } else { 0 };
        let used_bytes = self.ring_bytes - self.ring_bytes / 4;
        // Half of it for one VA space.
        let per_space = used_bytes / 2 / RECORD_BYTES;
        RecordLimit { per_window, used_bytes, per_space }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self { enabled: true, max_per_second: 100_000, ring_bytes: 4 << 20 }
    }
}

impl Config {
    pub(crate) const fn retention(&self) -> Retention {
        Retention { ended_retention: self.ended_retention, max_ended: self.max_ended, owners: self.owners }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            source: SourceChoice::default(),
            tools_level: ToolsLevel::default(),
            crosscheck: false,
            program: Program::this(),
            interval: Duration::from_secs(1),
            ended_retention: Duration::from_mins(5),
            max_ended: 1024,
            roots: Roots::default(),
            records: Records::default(),
            blocks: BlockLimits::default(),
            owners: OwnerLimits::default(),
            owner_names: watch::channel(Arc::default()).1,
        }
    }
}
