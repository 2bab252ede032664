//! What an iteration costs on managed memory: a timing model of NVIDIA's UVM driver, its links and memories. docs/simulator.md says what it models and what
//! it does not.
//!
//! iteration, machine, schedule -> [`planned`], or [`driver`] or [`ideal`] without a schedule -> [`Outcome`]
//!
//! * [`machine`] - what links, memories and the driver cost, from a file for each machine
//! * [`units`] - pages, granules, blocks; `mask` - some of a block
//! * [`tree`] - the driver's prefetcher
//! * [`thrashing`] - how it finds memory that CPU and GPU take from one another
//! * [`memory`] - where blocks are, and whose turn it is to be evicted
//! * `address` - which addresses tensors have
//! * `engine` - transfers and the service of faults in time
//! * `walk` - how a kernel goes through its tensors
//! * [`pages`] - programs that touch memory page by page, instead of iterations
//! * [`setup`] - where an iteration runs
//! * [`mod@run`] - iterations
//! * [`outcome`] - what an iteration took
//! * [`mod@auto_plan`] - the best schedule of all that are tried
//! * [`event`] - what happened, for whoever watches
//! * [`history`] - of that, memory and transfers over time

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
pub mod tree;
pub mod units;
mod walk;

pub use auto_plan::{AutoPlan, auto_plan, bound_s};
pub use event::{Decision, Event};
pub use history::History;
pub use machine::{Machine, MachineError};
pub use outcome::Outcome;
pub use pages::Pages;
pub use run::{RunError, driver, ideal, observed, planned};
pub use setup::{Freed, Setup};
pub use thrashing::Processor;
