//! The loop that acts: from what is wrong with a process to steps that put it right, and back when they do not. docs/policies.md describes it.
//!
//! * [`reactor`]: what a policy sees and says

pub mod reactor;

pub use reactor::{Next, Reactor, Running, View};
