//! Plans for a CUDA program, made of its recorded calls while it runs.
//!
//! recorded calls -> iterations -> footprints in blocks of the driver -> schedule of a planner ->
//! moves at launches, which the helper makes, or uvmd from outside
//!
//! * [`follower`]: the calls of a process, and the plan for it
//! * [`budget`]: memory of a follower
//! * [`claims`]: limits of what a program says of its memory; [`ranges`]: sets of addresses
//! * [`coverage`]: how much of what the GPU faults on is known
//! * [`refusal`]: reasons why there is no plan
//! * [`pieces`]: memory that an iteration uses, and which launches use it
//! * [`probe`]: which blocks of its footprint a launch accesses
//! * [`table`]: moves of a plan or a probe, as a helper follows them
//! * [`methods`]: methods of making moves between launches
//! * [`planning`]: the best moves of some methods, at once or by a process that answers later
//! * [`traffic`]: bytes over the link and faults, with a plan and without one
//! * [`tracker`]: place of a program in a plan that is carried out from outside
//! * `turns`: turns of users at what takes much memory for a moment
//!
//! No I/O, no clock: the same calls give the same plan.

pub mod budget;
pub mod claims;
pub mod coverage;
pub mod follower;
pub mod methods;
mod moves;
pub mod pieces;
pub mod planning;
pub mod probe;
pub mod ranges;
pub mod refusal;
mod sequence;
pub mod table;
pub mod tracker;
pub mod traffic;
mod turns;

pub use budget::{HELD_BYTES_MAX, TURN_BYTES_MAX};
pub use claims::ClaimLimits;
pub use coverage::FaultCounts;
pub use follower::{Begin, Change, Follower, Planned, ProbeQuota, Probing, Settings, State};
pub use methods::Method;
pub use planning::{Answer, BestOutline, Outliner};
pub use probe::{Evidence, Figures, Observation};
pub use ranges::Ranges;
pub use refusal::Refusal;
pub use table::Table;
pub use tracker::{Begun, Ending, Tracker};
pub use traffic::{Bytes, Traffic};
