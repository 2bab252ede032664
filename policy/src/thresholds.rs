//! All limits of verdicts. docs/verdicts.md has the same ones.

use std::time::Duration;

use model::verdict::ENOUGH_BOUNCES;

/// Thresholds of a kind. Shares are of the bytes that arrived at the GPU: copied from the host, or
/// populated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Minimum arrived bytes as evidence for a share: 256 pages of 4 KiB.
    pub arrived_bytes: f64,
    /// Share from which useless traffic is costly: if a quarter was there before, the bus carries a
    /// third more than necessary.
    pub share: f64,
    /// Share from which most arrivals are new.
    pub populated_ratio: f64,
    /// Faults per populated block: a fault populates at most its block; more comes from prefetches,
    /// which are no faults.
    pub faults_per_populated_block: f64,
    /// Minimum bounces, four round trips: a single one is a hand-over.
    pub bounces: f64,
    /// Minimum throttles, equal to the driver's `uvm_perf_thrashing_pin_threshold`.
    pub throttles: f64,
    /// One throttle for nine bounces. Memory that the driver throttles has one for four or more;
    /// other memory has none.
    pub throttle_ratio: f64,
    /// Minimum share of copies with block records, as evidence for the others.
    pub recorded_ratio: f64,
}

/// Thresholds in use.
pub const THRESHOLDS: Thresholds = Thresholds {
    arrived_bytes: (1 << 20) as f64,
    share: 0.25,
    populated_ratio: 0.5,
    faults_per_populated_block: 1.0,
    bounces: ENOUGH_BOUNCES as f64,
    throttles: ENOUGH_THROTTLES as f64,
    throttle_ratio: 0.1,
    recorded_ratio: 0.01,
};

/// Share of each minimum that suffices for a verdict in force, which may also exceed each maximum
/// accordingly, so that a value near a limit does not make it flap. Windows of one steady program
/// differ by less.
pub const LENIENCY: f64 = 0.8;

/// Windows in a row without a verdict after which it ends: one alone may be a pause.
pub const CONTRARY_WINDOWS: usize = 2;

/// Arrivals at the GPU that complete a window: two of the blocks that the driver evicts.
pub const ENOUGH_BYTES: u64 = 4 << 20;
/// Faults of GPUs and CPUs that complete a window: one full batch.
pub const ENOUGH_FAULTS: u64 = 256;
/// Throttles that complete a window, which represent faults that the driver prevents.
pub const ENOUGH_THROTTLES: u64 = 10;

/// Default minimum duration of a window: short enough for a verdict within a few seconds, long
/// enough for several steps of most programs.
pub const WINDOW: Duration = Duration::from_secs(2);
/// Multiple of the minimum after which an incomplete window counts as quiet.
pub const QUIET_WINDOWS: u32 = 2;
/// Part of a window by which a reading may be early and still end it: timers are not exact, and the
/// next one may be a second away.
pub const EARLY: f64 = 0.05;

/// Number of windows, and of intervals, between two readings from which the later one is late. Below
/// it, no whole window is hidden.
pub const LATE_WINDOWS: u64 = 2;
/// Share of the copied bytes with block records below which a window waits for the next reading,
/// unless records are known to be missing.
pub const RECORDED_IN_TIME: f64 = 0.5;

/// Maximum number of retained late readings without a verdict.
pub const UNJUDGED_MAX: usize = 64;
/// Maximum number of retained ended verdicts.
pub const ENDED_MAX: usize = 256;
/// Maximum number of ranges in a verdict.
pub const RANGES_MAX: usize = 8;
/// Minimum share of the traffic of a range that is named.
pub const RANGE_SHARE_MIN: f64 = 0.01;
