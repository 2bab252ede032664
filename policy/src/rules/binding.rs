//! Overrides for one process. An id alone matches any process that has it, later or after the next boot. Overrides
//! of the API therefore apply to the process that had the id at their creation, and end with it.

use std::fmt;

use model::Override;
use thiserror::Error;

/// Reason why an override for one process is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoProcess {
    /// No process has the id.
    #[error("there is no process {0}")]
    Missing(u32),
    /// Another process has the id.
    #[error("that process {pid} has exited; the one with the id now started at tick {start_ticks}")]
    Exited {
        /// Id of both.
        pid: u32,
        /// Start of the process that has the id now.
        start_ticks: u64,
    },
    /// The process cannot be read.
    #[error("the process {pid} cannot be read: {reason}")]
    Unreadable {
        /// Its id.
        pid: u32,
        /// The reason.
        reason: String,
    },
}

/// Override bound to the process that has its id now. `start_ticks` reads the start of the process with an id, if
/// there is one.
///
/// # Errors
/// If the override is for one process, and that does not exist or cannot be read.
pub fn bind<E: fmt::Display>(
    rule: &Override,
    start_ticks: impl FnOnce(u32) -> Result<Option<u64>, E>,
) -> Result<Override, NoProcess> {
    let mut rule = rule.clone();
    let Some(pid) = rule.selector.pid else { return Ok(rule) };
    let start_ticks = start_ticks(pid).map_err(|error| NoProcess::Unreadable { pid, reason: error.to_string() })?;
    let start_ticks = start_ticks.ok_or(NoProcess::Missing(pid))?;
    if rule.selector.start_ticks.is_some_and(|expected| expected != start_ticks) {
        return Err(NoProcess::Exited { pid, start_ticks });
    }
    rule.selector.start_ticks = Some(start_ticks);
    Ok(rule)
}

/// Whether the process of an override has exited. `start_ticks` reads the start of the process with an id, if there
/// is one. An unreadable process may be alive.
pub fn has_ended<E>(rule: &Override, start_ticks: impl FnOnce(u32) -> Result<Option<u64>, E>) -> bool {
    let (Some(pid), Some(expected)) = (rule.selector.pid, rule.selector.start_ticks) else { return false };
    start_ticks(pid).is_ok_and(|start| start != Some(expected))
}
