//! All limits of acting, each with its reason, as in docs/policies.md.

use std::time::Duration;

/// Limits of the loop, for all policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Length of the measurements before and after a proposal. Equal to the window of verdicts: a
    /// window that shows a verdict also shows its end.
    pub window: Duration,
    /// Maximum bytes migrated per second on the node, for all processes together. A quarter of the
    /// bandwidth of the slowest link in use: the rest is left to the programs.
    pub node_bytes_per_second: u64,
    /// Maximum bytes migrated per second for one process, unless an override sets a lower limit.
    pub process_bytes_per_second: u64,
    /// Host memory that stays free for programs, in bytes.
    pub host_reserve_bytes: u64,
    /// Share of GPU memory that is never filled: 1 / this. It is left to contexts, kernels and the
    /// driver.
    pub gpu_reserve_part: u64,
    /// First cool-down of a policy after its rollback, in windows. Each further rollback doubles
    /// it.
    pub cool_down_windows: u32,
    /// Maximum cool-down, in windows.
    pub cool_down_windows_max: u32,
    /// Maximum number of retained ended decisions.
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

/// Time between the first orders and the evaluated window, as a share of the window: the initial
/// migrations of a proposal are not held against it.
pub(crate) const SETTLING: f64 = 0.25;
/// Maximum of that time for a policy that takes longer to settle, in windows.
pub(crate) const SETTLING_MAX: f64 = 4.0;
/// Windows between two checks of a confirmed proposal.
pub(crate) const VERIFY_AGAIN_WINDOWS: u32 = 4;
/// Lower bound of noise, even if all previous windows were equal...
pub(crate) const NOISE_MIN: f64 = 0.05;
/// ...and its upper bound: otherwise any difference would count as noise.
pub(crate) const NOISE_MAX: f64 = 0.25;
/// Cool-down of a policy that ended its own proposal or plan before a benefit was known, in
/// windows. Otherwise it would detect the same phase again at once.
pub(crate) const SHORT_COOLDOWN_WINDOWS: u32 = 2;
/// Share of its promise that a proposal has to achieve. Promises are derived from a single window.
pub(crate) const PROMISE_MET_MIN: f64 = 0.5;
/// Share of its recent work below which a process counts as paused in a window. Windows vary.
pub(crate) const ACTIVE_MIN: f64 = 0.5;
/// Share of its cost without a proposal at which a program is back in its own state.
pub(crate) const RETURNED_MIN: f64 = 0.5;
/// Maximum wait for that after acting was switched off, in windows: the program may have changed
/// since.
pub(crate) const RETURN_WINDOWS_MAX: u32 = 15;
/// Share of its work before the proposal below which a process is idle.
pub(crate) const IDLE_BELOW: f64 = 0.05;
/// Consecutive idle windows before an unconfirmed proposal is rolled back. A program that runs from
/// resident memory has no faults and looks idle, and an idle one costs nothing.
pub(crate) const IDLE_WINDOWS: u32 = 4;
/// Maximum affected bytes per remotely accessed byte for a program that is not idle: the GPU accesses
/// at least a tenth of the affected pages once, 32 bytes of each.
pub(crate) const TOUCHED_BYTES_PER_REMOTE_BYTE: u64 = 10 * 4096 / 32;
/// Minimum arrivals outside the affected memory for a measurement of the program's pace, in bytes:
/// two blocks.
pub(crate) const PACE_BYTES_MIN: u64 = 4 << 20;
/// Failed attempts at a withdrawal after which the failure is reported to an operator.
pub(crate) const WITHDRAWAL_ATTEMPTS_REPORTED: u32 = 5;
/// Maximum pause between two attempts, in intervals. It doubles after each attempt, up to a minute
/// at the default interval.
pub(crate) const WITHDRAWAL_PAUSE_MAX: u32 = 600;
/// Retention of the account of an unseen process: its spent budget, and its exclusion from advice. A
/// process may be missing from one snapshot.
pub(crate) const ABSENT_MAX: Duration = Duration::from_mins(1);
/// Maximum number of ranges per process: the busiest are considered.
pub(crate) const RANGES_MAX: usize = 4096;
/// Maximum number of ranges of a decision, the largest ones: decisions and their events are retained.
pub(crate) const DECISION_RANGES_MAX: usize = 1024;
/// Maximum number of separate parts of memory that a proposal gives advice on, the largest ones:
/// orders, their rollback and the journal grow with them.
pub(crate) const ADVISED_PARTS_MAX: usize = 128;
/// Bytes charged per renewal: it fetches a page if the block was evicted.
pub(crate) const RENEWAL_BYTES: u64 = 64 << 10;
/// Maximum share of a budget for renewals: 1 / this. The rest is left to prefetches.
pub(crate) const RENEWALS_PART: u64 = 2;
/// Maximum cost of another policy, relative to the confirmed one, for it to be tried instead.
pub(crate) const BETTER_COST_MAX: f64 = 0.9;
/// The same limit for an untried policy: the midpoint of a promise is no measurement, and a change
/// costs two windows.
pub(crate) const BETTER_COST_MAX_UNTRIED: f64 = 0.7;
/// Maximum relative additional time of a policy that counts as equally fast. Between such policies,
/// the bytes over the link decide.
pub(crate) const EQUAL_TIME_TOLERANCE: f64 = 0.1;
/// Maximum promised bytes over the link of an untried policy, relative to the confirmed one, for it
/// to be tried at an equal promised time.
pub(crate) const FEWER_BYTES_MAX_UNTRIED: f64 = 0.5;
/// Model for the comparison of proposals, from offline/machines/a100.toml: bandwidth of the link...
pub(crate) const LINK_BYTES_PER_SECOND: f64 = 24.8e9;
/// ...and duration of a fault batch.
pub(crate) const BATCH_SECONDS: f64 = 84e-6;

/// Blocks per control block, which gets no advice: at least `min`, and more for memory of this many
/// `blocks` that control blocks would split it into more than half of [`ADVISED_PARTS_MAX`] parts.
pub(crate) const fn control_spacing(min: usize, blocks: usize) -> usize {
    let of_large = blocks.div_ceil(ADVISED_PARTS_MAX / 2);
    if of_large > min { of_large } else { min }
}
