//! Every limit that acting depends on, each with its reason. docs/policies.md has the same ones.

use std::time::Duration;

/// Limits of the loop, for all policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// How long before and after are measured. The same as that of verdicts: what a verdict needs to be told is enough to see it gone.
    pub window: Duration,
    /// Bytes that may be moved a second on the node, all processes together. A quarter of what a link of the slowest kind in use moves: the rest is the
    /// programs' own.
    pub node_bytes_per_second: u64,
    /// Limit of one process, where no override sets a lower one.
    pub process_bytes_per_second: u64,
    /// Host memory that is left alone: programs need some to live.
    pub host_reserve_bytes: u64,
    /// Share of GPU memory that is never filled: 1 / this, for contexts, kernels and the driver.
    pub gpu_reserve_part: u64,
    /// First cooldown of a policy after its rollback, in windows; each further rollback doubles it.
    pub cool_down_windows: u32,
    /// Maximum cooldown, in windows.
    pub cool_down_windows_max: u32,
    /// Decisions that are over and are remembered.
    pub decisions_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: crate::thresholds::WINDOW,
            node_bytes_per_second: 4 << 30,
            process_bytes_per_second: 4 << 30,
            host_reserve_bytes: 1 << 30,
            gpu_reserve_part: 50,
            cool_down_windows: 15,
            cool_down_windows_max: 1800,
            decisions_max: 512,
        }
    }
}

/// What is seen after the first orders and before the window that counts, as a part of the window: moves that a plan begins with are no fault of it.
pub(crate) const SETTLING: f64 = 0.25;
/// And no more than this, in windows, where a policy says that it takes longer to settle.
pub(crate) const SETTLING_MAX: f64 = 4.0;
/// Windows between two looks at a plan that is kept.
pub(crate) const LOOK_AGAIN_WINDOWS: u32 = 4;
/// Noise is no less than this, however even the windows before were...
pub(crate) const NOISE_MIN: f64 = 0.05;
/// ...and no more than this, or anything would pass for it.
pub(crate) const NOISE_MAX: f64 = 0.25;
/// For so many windows a policy rests that found its own phase over before it was known to help: it would find it there again at once.
pub(crate) const PAUSE_WINDOWS: u32 = 2;
/// A plan that promised so much has to bring half of it: promises rest on what one window showed.
pub(crate) const KEPT_PROMISE: f64 = 0.5;
/// With less than this part of what it did lately, a process pauses in a window. No two windows are the same.
pub(crate) const AT_WORK: f64 = 0.5;
/// With less than this part of what it did before, a process is idle.
pub(crate) const IDLE: f64 = 0.05;
/// For so many windows a program may be idle before a plan was seen to help: where much is kept it comes through that without a fault, and one that is idle
/// costs nobody anything.
pub(crate) const IDLE_WINDOWS: u32 = 4;
/// Unless the GPU reaches what the plan touched across the link: a tenth of its pages once, at 32 bytes each.
pub(crate) const TOUCHED_BYTES_PER_REMOTE_BYTE: u64 = 10 * 4096 / 32;
/// Fewer bytes that arrived in memory that a plan left alone do not tell how fast the program goes: two blocks.
pub(crate) const PACE_BYTES: u64 = 4 << 20;
/// Times that the driver refuses to withdraw something before somebody should know.
pub(crate) const WITHDRAWALS_TOLD: u32 = 5;
/// Looks between two tries, at the most: twice as many after each, up to a minute at the default interval.
pub(crate) const WITHDRAWALS_REST_MAX: u32 = 600;
/// For so long what a process has spent, and that it gets no more advice, is remembered while it is not seen: one snapshot may miss it.
pub(crate) const UNSEEN_MAX: Duration = Duration::from_mins(1);
/// Maximum ranges considered of a process: the busiest.
pub(crate) const RANGES_MAX: usize = 4096;
/// Bytes that a renewal is charged: the page that it brings if its block is gone.
pub(crate) const RENEWAL_BYTES: u64 = 64 << 10;
/// Maximum share of a budget for renewals: 1 / this, so that prefetches keep some.
pub(crate) const RENEWALS_PART: u64 = 2;
/// Another policy is tried instead of one that is kept if it is expected to leave less than this part of what that one leaves.
pub(crate) const BETTER: f64 = 0.9;
/// And less than this part, if it was never tried: the middle of a promise is no measurement, and a change costs two windows.
pub(crate) const BETTER_UNTRIED: f64 = 0.7;
/// One that takes no more than this part longer is as fast: what goes over the link decides then.
pub(crate) const AS_FAST: f64 = 0.1;
/// Of one that is as fast by its promise alone: it has to promise to leave less than this part of the bytes over the link.
pub(crate) const FEWER_UNTRIED: f64 = 0.5;
/// Modelled, for comparing proposals, by the values of offline/machines/a100.toml: what a link moves a second...
pub(crate) const LINK_BYTES_PER_SECOND: f64 = 24.8e9;
/// ...and how long a batch of faults takes.
pub(crate) const BATCH_SECONDS: f64 = 84e-6;
