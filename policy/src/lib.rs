//! Verdicts and live policies. No I/O and no clock: the time is that of the snapshots.
//!
//! **Verdicts** on a process's use of managed memory at a GPU, with their evidence.
//! docs/verdicts.md defines the kinds and the windows.
//!
//! snapshots -> `reading` -> [`window`] -> [`decision`] -> `hysteresis` -> verdicts
//!
//! * [`judge`]: the window and the verdict of each process and GPU
//! * `reading`: cumulative counts of a process at a GPU in one snapshot
//! * [`window`]: counts of a period that is long enough in time and in events
//! * [`thresholds`]: every limit, with its reason
//! * [`decision`]: the kind of a window, by conditions that a person can check
//! * `hysteresis`: begin and end of a verdict
//! * `verdict_time`: the time for which verdicts held, by owner
//! * `ranges`: ranges that a verdict involves
//! * `victims`: evictions by victim and evictor
//!
//! **Live policies and plans**: their guard, verification and rollback. docs/policies.md describes
//! them.

pub mod act;
pub mod decision;
mod hysteresis;
pub mod judge;
mod ranges;
mod reading;
pub mod rules;
pub mod thresholds;
mod verdict_time;
mod victims;
pub mod window;

pub use hysteresis::Change;
pub use judge::Judge;
