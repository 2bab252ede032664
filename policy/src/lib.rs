//! What uvmd thinks. No I/O and no clock: time is what snapshots say.
//!
//! **Verdicts**: what is wrong with a process's use of managed memory at a GPU, since when, and what that rests on. docs/verdicts.md defines the kinds
//! and the windows.
//!
//! snapshots -> [`reading`] -> [`window`] -> [`decision`] -> [`hysteresis`] -> verdicts
//!
//! * [`judge`]: keeps a window and a verdict for each process and GPU
//! * [`reading`]: what one snapshot says of a process at a GPU
//! * [`window`]: cuts what is counted into stretches that are long enough in time and in events
//! * [`thresholds`]: every limit, with its reason
//! * [`decision`]: from what was counted in a stretch to a kind, by conditions that a person can check
//! * [`hysteresis`]: when a verdict begins, stands and ends
//! * [`held`]: the time for which verdicts held, by owner
//! * [`ranges`]: which ranges a verdict is about
//! * [`victims`]: who loses memory to whom
//!
//! **Live policies**: plans, their guard, verification and rollback. docs/policies.md describes them.
//!
//! * [`act`]: the loop, and the policies
//! * [`rules`]: what operators want for whom

pub mod act;
pub mod decision;
mod held;
mod hysteresis;
pub mod judge;
mod ranges;
mod reading;
pub mod rules;
pub mod thresholds;
mod victims;
pub mod window;

pub use hysteresis::Change;
pub use judge::Judge;
