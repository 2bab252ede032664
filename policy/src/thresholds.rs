//! Every limit that verdicts depend on. docs/verdicts.md has the same ones.

use std::time::Duration;

/// Thresholds of a kind. Shares are of the bytes that arrived at the GPU: copied from the host, or populated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Fewer arrived bytes are no evidence for a share: 256 pages of 4 KiB.
    pub arrived_bytes: f64,
    /// From this share on, what is done for no good costs: if a quarter was there before, the bus carries a third more than it had to.
    pub share: f64,
    /// Then most of what comes is new.
    pub populated_ratio: f64,
    /// A fault populates no more than its block; more comes from prefetches, which are no faults.
    pub faults_per_populated_block: f64,
    /// Four times there and back: once is a hand-over.
    pub bounces: f64,
    /// So many the driver itself needs to pin a page: its `uvm_perf_thrashing_pin_threshold`.
    pub throttles: f64,
    /// One for nine changes of sides. Memory that the driver deals with has one for four or more; what it leaves alone has none.
    pub throttle_ratio: f64,
    /// Fewer of the copies in the block records say nothing of the others.
    pub recorded_ratio: f64,
}

/// The only ones.
pub const THRESHOLDS: Thresholds = Thresholds {
    arrived_bytes: (1 << 20) as f64,
    share: 0.25,
    populated_ratio: 0.5,
    faults_per_populated_block: 1.0,
    bounces: 8.0,
    throttles: ENOUGH_THROTTLES as f64,
    throttle_ratio: 0.1,
    recorded_ratio: 0.01,
};

/// A verdict in force needs only this part of each least value, and may exceed each upper limit by as much as that leaves, so that a value that
/// wavers about a limit does not make it come and go. Windows of one steady program differ by less.
pub const LENIENCY: f64 = 0.8;

/// Windows in a row without a verdict after which it ends: one alone may be a pause.
pub const CONTRARY_WINDOWS: usize = 2;

/// A window has seen enough once this arrived at the GPU: two of the blocks that the driver evicts.
pub const ENOUGH_BYTES: u64 = 4 << 20;
/// Or after so many faults of GPUs and CPUs: one full batch.
pub const ENOUGH_FAULTS: u64 = 256;
/// Or after so many throttles, which stand for faults that the driver does not let happen.
pub const ENOUGH_THROTTLES: u64 = 10;

/// The least that a window lasts, unless another length is asked for: a verdict within some seconds, and several steps of most programs in it.
pub const WINDOW: Duration = Duration::from_secs(2);
/// A window that has lasted this many times as long and has not seen enough is quiet.
pub const QUIET_WINDOWS: u32 = 2;
/// A reading that is early by this part of a window ends it all the same: timers are not exact, and the next one may be a second away.
pub const EARLY: f64 = 0.05;

/// Ended verdicts that are remembered.
pub const ENDED_MAX: usize = 256;
/// Ranges that a verdict names.
pub const RANGES_MAX: usize = 8;
/// Minimum share of the traffic of a range that is named.
pub const RANGE_SHARE_MIN: f64 = 0.01;
