//! Live policies: proposals of steps on the memory of a process at one GPU, and their trial.
//!
//! A [`live_policy::LivePolicy`] inspects a [`live_policy::View`] of the process at each interval.
//! When it detects its phase, it makes a proposal: first steps, and the savings that it promises.
//! What the guard admits becomes an order. The window of counts before it is compared with the
//! windows after it. A benefit confirms the proposal; harm, or no benefit, rolls it back.
//!
//! [`catalogue`] -> [`candidate`] -> guard -> [`open`] -> [`verification`] -> confirmed, or
//! [`rollback`]
//!
//! * [`track`]: one process at one GPU: counts, at most one open decision, cool-downs
//! * [`live_policy`]: interface of a policy
//! * [`catalogue`]: implementations of the policies; [`auto_live`]: the choice among them
//! * [`policies`]: one file per policy, and their common parts
//! * [`open`]: open decision; [`ledger`]: its advice in force; [`rollback`]: withdrawals of advice
//! * [`arrivals`]: arrivals in each block, shared by the GPUs of a process
//! * [`meter`]: counts before and after the first order; [`verification`]: the windows to compare;
//!   [`comparison`]: the result; [`cost`]: its measure
//!
//! [`model::Proposal`] is the type of a proposal. Depends on the modules of `act`, not on `plans`.

pub(super) mod arrivals;
mod auto_live;
mod candidate;
pub(super) mod catalogue;
mod comparison;
mod cost;
pub(super) mod ledger;
pub mod live_policy;
mod meter;
pub(super) mod open;
mod policies;
pub(super) mod rollback;
pub(super) mod track;
mod verification;
