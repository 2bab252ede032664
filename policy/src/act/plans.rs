//! Plans of moves at the launches of a process's iterations, and their trial.
//!
//! A planner makes a plan for iterations that repeat. The process follows the plan while its table
//! is published. A trial publishes and withdraws the table alternately, each time for a block of
//! iterations, and compares the blocks. A benefit confirms the plan; harm, or no benefit, withdraws
//! it. Moves leave no advice, so nothing else is rolled back.
//!
//! followed calls -> [`track`] -> guard -> [`open`] -> [`trial`] -> confirmed, or withdrawn
//!
//! * [`track`]: one process: at most one open plan, probes, cool-downs, and the table published
//! * [`open`]: open plan, its trial and the conditions under which it stays
//! * [`trial`]: arms and blocks of iterations; [`permutation`]: its test of significance
//! * [`counts`]: counts and moves per iteration; [`evidence`]: the figures of the decision
//!
//! Depends on the modules of `act`, not on `live`.

mod counts;
mod evidence;
mod open;
mod permutation;
pub(super) mod track;
mod trial;
