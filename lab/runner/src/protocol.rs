//! Protocol between the runner and its workers: one JSON value per line, over the worker's standard
//! input and output.

use gpu::swgpu::AccessCounters;
use serde::{Deserialize, Serialize};

use crate::{check::Mismatch, residency::Residency, scenario::Variation};

/// Command to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Assigns a process of a scenario; the first command. The reply is [`Reply::Ready`].
    Assign {
        /// Text of the scenario's file.
        scenario: String,
        /// Variation of this run.
        variation: Variation,
        /// Index of the process in the scenario.
        process: usize,
        /// Whether to attach the driver's counters.
        counters: bool,
    },
    /// Runs the steps once. The reply is [`Reply::Done`], or [`Reply::Exiting`] or [`Reply::Dying`]
    /// if a step ends the process.
    Go,
    /// Cuts the steps short. Has no reply.
    Stop,
    /// Queries the figures. The reply is [`Reply::Figures`].
    Figures {
        /// Whether to include the residency of each page.
        residency: bool,
    },
    /// Queries the advice in force on its memory. The reply is [`Reply::Advice`].
    Advice,
    /// Verifies every byte, replies with [`Reply::Verified`], and exits.
    Finish,
}

/// Reply of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The process is registered with the driver and its memory mapped; nothing is accessed yet.
    Ready {
        /// Descriptors in the worker: of the shared pages, and of the driver's counters; none of
        /// these if they are not attached.
        pages_fd: i32,
        tracker_fds: Vec<i32>,
    },
    /// The steps are done.
    Done,
    /// Figures that only the process itself can know.
    Figures { findings: Findings, residency: Option<Vec<Residency>> },
    /// Advice in force, by range of the driver.
    Advice { advised: Vec<Advised> },
    /// A step ends the process: every byte is verified. Its last reply; the process exits after it.
    Exiting { findings: Findings, code: u8 },
    /// A step kills the process.
    Dying,
    /// Every byte is verified.
    Verified { findings: Findings },
    /// The process failed.
    Failed { reason: String },
}

/// Range of the driver with advice in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Advised {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Kinds of advice, for display.
    pub(crate) description: String,
}

/// Findings of a process up to now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) first_mismatch: Option<Mismatch>,
    /// Accesses of each of its GPUs, with the bytes that they moved.
    pub(crate) accesses: Vec<AccessCounters>,
}

/// Event that the runner waits for.
#[derive(Debug)]
pub(crate) enum Event {
    Reply(usize, Reply),
    /// The worker's output ended: it has exited.
    Exited(usize),
    /// A request to stop arrived.
    Stop,
}
