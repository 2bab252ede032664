//! All limits of acting, each with its reason. docs/policies.md has the same ones.

use std::time::Duration;

/// Limits of the loop, for all policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Length of the measurements before and after. Equal to that of verdicts: what suffices for a
    /// verdict suffices to see its end.
    pub window: Duration,
    /// Bytes migrated per second on the node, for all processes together. A quarter of the
    /// bandwidth of the slowest link in use: the rest is for the programs.
    pub node_bytes_per_second: u64,
    /// Limit of one process, unless an override sets a lower one.
    pub process_bytes_per_second: u64,
    /// Host memory that stays free for programs.
    pub host_reserve_bytes: u64,
    /// Share of GPU memory that is never filled: 1 / this, for contexts, kernels and the driver.
    pub gpu_reserve_part: u64,
    /// First cooldown of a policy after its rollback, in windows; each further rollback doubles it.
    pub cool_down_windows: u32,
    /// Maximum cooldown, in windows.
    pub cool_down_windows_max: u32,
    /// Ended decisions that are remembered.
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

/// Time between the first orders and the window that counts, as a share of the window: a plan's
/// initial migrations are not its fault.
pub(crate) const SETTLING: f64 = 0.25;
/// Maximum of that time, in windows, if a policy needs longer to settle.
pub(crate) const SETTLING_MAX: f64 = 4.0;
/// Windows between two checks of a confirmed plan.
pub(crate) const LOOK_AGAIN_WINDOWS: u32 = 4;
/// Lower bound of noise, however even the windows before were...
pub(crate) const NOISE_MIN: f64 = 0.05;
/// ...and its upper bound, or any difference would count as noise.
pub(crate) const NOISE_MAX: f64 = 0.25;
/// Cool-down in windows of a policy that found its own phase over before a benefit was known: it
/// would find the phase there again at once.
pub(crate) const PAUSE_WINDOWS: u32 = 2;
/// Share of its promise that a plan has to achieve: promises rest on one window.
pub(crate) const KEPT_PROMISE: f64 = 0.5;
/// Share of its recent work below which a process pauses in a window. No two windows are the same.
pub(crate) const AT_WORK: f64 = 0.5;
/// Share of its former work below which a process is idle.
pub(crate) const IDLE: f64 = 0.05;
/// Windows that a program may be idle before a plan showed a benefit: a program that runs from
/// resident memory has no faults, and an idle one costs nothing.
pub(crate) const IDLE_WINDOWS: u32 = 4;
/// Unless the GPU accesses the touched memory remotely: a tenth of its pages once, at 32 bytes
/// each.
pub(crate) const TOUCHED_BYTES_PER_REMOTE_BYTE: u64 = 10 * 4096 / 32;
/// Minimum arrivals in memory outside a plan to measure the program's pace: two blocks.
pub(crate) const PACE_BYTES: u64 = 4 << 20;
/// Failed withdrawals after which an operator is informed.
pub(crate) const WITHDRAWALS_REPORTED: u32 = 5;
/// Maximum pause between two attempts, in intervals: it doubles after each, up to a minute at the
/// default interval.
pub(crate) const WITHDRAWALS_REST_MAX: u32 = 600;
/// Time for which a process's spent budget, and its exclusion from advice, are remembered while it
/// is not seen: one snapshot may miss it.
pub(crate) const UNSEEN_MAX: Duration = Duration::from_mins(1);
/// Maximum ranges considered of a process: the busiest.
pub(crate) const RANGES_MAX: usize = 4096;
/// Bytes charged per renewal: the page that it fetches if its block is gone.
pub(crate) const RENEWAL_BYTES: u64 = 64 << 10;
/// Maximum share of a budget for renewals: 1 / this, so that prefetches keep some.
pub(crate) const RENEWALS_PART: u64 = 2;
/// Maximum cost of another policy relative to a confirmed one for it to be tried instead.
pub(crate) const BETTER: f64 = 0.9;
/// The same for an untried one: the middle of a promise is no measurement, and a change costs two
/// windows.
pub(crate) const BETTER_UNTRIED: f64 = 0.7;
/// Maximum additional time of a policy that counts as equally fast: the bytes over the link decide
/// then.
pub(crate) const AS_FAST: f64 = 0.1;
/// Maximum share of bytes over the link that an untried policy may promise to leave, if it is
/// equally fast by its promise alone.
pub(crate) const FEWER_UNTRIED: f64 = 0.5;
/// Modelled values to compare proposals, from offline/machines/a100.toml: bandwidth of a link...
pub(crate) const LINK_BYTES_PER_SECOND: f64 = 24.8e9;
/// ...and duration of a fault batch.
pub(crate) const BATCH_SECONDS: f64 = 84e-6;
