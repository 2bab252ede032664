//! Timing model of an iteration on managed memory: NVIDIA's UVM driver, its links and memories.
//! docs/simulator.md lists what the model covers and what it omits.
//!
//! iteration, machine, schedule -> [`planned`], or [`driver`] or [`ideal`] without a schedule ->
//! [`Outcome`]
//!
//! * [`machine`] - costs of links, memories and driver, from a file for each machine
//! * [`units`] - pages, granules, blocks; `mask` - parts of a block
//! * [`tree`] - the driver's tree prefetcher
//! * [`thrashing`] - the driver's detection of contention between CPU and GPU
//! * [`memory`] - residency of blocks, and the eviction order
//! * `address` - addresses of tensors
//! * `engine` - transfers and the service of faults over time
//! * `walk` - accesses of a kernel to its tensors
//! * [`pages`] - programs that access memory page by page, instead of iterations
//! * [`setup`] - environment of an iteration
//! * [`mod@run`] - iterations
//! * [`traffic`] - lower bound of the bytes that cross the link
//! * [`outcome`] - cost of an iteration
//! * [`mod@auto_plan`] - search for the best schedule
//! * [`event`] - events for observers
//! * [`history`] - memory and transfers over time, from events

mod address;
pub mod auto_plan;
mod engine;
pub mod event;
pub mod history;
pub mod machine;
mod mask;
pub mod memory;
pub mod outcome;
pub mod pages;
pub mod run;
pub mod setup;
pub mod thrashing;
pub mod traffic;
pub mod tree;
pub mod units;
mod walk;

pub use auto_plan::{AutoPlan, auto_plan, bound_bytes, bound_s};
pub use event::{Decision, Event};
pub use history::History;
pub use machine::{Machine, MachineError};
pub use outcome::Outcome;
pub use pages::Pages;
pub use run::{RunError, driver, ideal, observed, planned};
pub use setup::{Freed, Setup};
pub use thrashing::Processor;
