//! Plans for a running CUDA program, computed from its recorded calls.
//!
//! recorded calls -> iterations -> footprints in driver blocks -> schedule of a planner -> moves at
//! launches, made by the helper
//!
//! * [`follower`]: follower of a process's calls, with its plan
//! * [`budget`]: memory budget of a follower
//! * [`claims`]: limits on the memory that a program claims; [`ranges`]: address sets
//! * [`coverage`]: share of the memory with GPU faults that launches name
//! * [`refusal`]: reasons for refusing a plan
//! * [`pieces`]: memory that an iteration uses, with the launches that use it
//! * [`probe`]: which blocks of its footprint a launch accesses
//! * [`table`]: table of moves, of a plan or a probe, as a helper follows it
//! * [`methods`]: methods of computing moves between launches
//! * [`planning`]: best moves of several methods, computed in place or by a planner process
//! * [`traffic`]: model of link traffic and faults, with and without a plan
//! * `turns`: fair turns of users at memory-intensive work
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
pub mod traffic;
mod turns;

pub use budget::{HELD_BYTES_MAX, TURN_BYTES_MAX};
pub use claims::ClaimLimits;
pub use coverage::FaultCounts;
pub use follower::{Change, Follower, IterationStart, Planned, ProbeQuota, Probing, Settings, State};
pub use methods::Method;
pub use planning::{Answer, BestOutline, Outliner};
pub use probe::{Evidence, Observation, ProbeCounts};
pub use ranges::Ranges;
pub use refusal::Refusal;
pub use table::Table;
pub use traffic::{Bytes, Traffic};
