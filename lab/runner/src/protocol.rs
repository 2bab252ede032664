//! What the runner and its workers say to each other: one JSON value a line, over the worker's standard input and output.

use serde::{Deserialize, Serialize};

use crate::{check::Checked, scenario::Process, sys::counters::ProcessCounters};

/// To a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// What to be; the first command. Answered with [`Reply::Ready`]. `number` counts the scenario's processes from 1.
    Become { number: u64, process: Process },
    /// Do the steps once. Answered with [`Reply::Done`], or [`Reply::Exiting`] if a step ends the process.
    Go,
    /// Cut the steps short.
    Stop,
    /// Answered with [`Reply::Figures`].
    Figures,
    /// Verify every byte, answer with [`Reply::Verified`], and end.
    Finish,
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Registered with the driver, memory mapped, nothing accessed yet.
    Ready,
    /// The steps are done.
    Done,
    /// What the driver counted so far, and what was found in memory.
    Figures { counters: ProcessCounters, checked: Checked },
    /// A step ends the process: every byte is verified, these figures are its last, and it is gone when this is read.
    Exiting { counters: ProcessCounters, checked: Checked, code: u8 },
    /// Every byte is verified.
    Verified { checked: Checked },
    /// The process could not go on.
    Failed { reason: String },
}
