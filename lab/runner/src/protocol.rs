//! What the runner and its workers say to each other: one JSON value a line, over the worker's standard input and output.

use serde::{Deserialize, Serialize};

use crate::{check::Mismatch, residency::Residency, scenario::Variation, sys::swgpu::AccessCounters};

/// To a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// What to be; the first command. Answered with [`Reply::Ready`].
    Become {
        /// The scenario's file.
        scenario: String,
        /// How this run differs from it.
        variation: Variation,
        /// Which of its processes, from 0.
        process: usize,
        /// Attach the driver's counters.
        counters: bool,
    },
    /// Do the steps once. Answered with [`Reply::Done`], or [`Reply::Exiting`] or [`Reply::Dying`] if a step ends the process.
    Go,
    /// Cut the steps short.
    Stop,
    /// Answered with [`Reply::Figures`].
    Figures {
        /// Say where each page is, too.
        residency: bool,
    },
    /// Say what advice is in force on its memory. Answered with [`Reply::Advice`].
    Advice,
    /// Verify every byte, answer with [`Reply::Verified`], and end.
    Finish,
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Registered with the driver, memory mapped, nothing accessed yet.
    Ready {
        /// Descriptors in the worker: of the shared pages, and of the driver's counters, none if they are not attached.
        pages_fd: i32,
        tracker_fds: Vec<i32>,
    },
    /// The steps are done.
    Done,
    /// What only the process itself can know.
    Figures { findings: Findings, residency: Option<Vec<Residency>> },
    /// Of each of the driver's ranges that has any.
    Advice { advised: Vec<Advised> },
    /// A step ends the process: every byte is verified, these are its last words, and it is gone when this is read.
    Exiting { findings: Findings, code: u8 },
    /// A step kills the process.
    Dying,
    /// Every byte is verified.
    Verified { findings: Findings },
    /// The process could not go on.
    Failed { reason: String },
}

/// A range on which advice is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Advised {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// For people.
    pub(crate) what: String,
}

/// What a process found out so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    pub(crate) first_mismatch: Option<Mismatch>,
    /// What its GPU accesses moved, for each of its GPUs.
    pub(crate) accesses: Vec<AccessCounters>,
}

/// What the runner waits for.
#[derive(Debug)]
pub(crate) enum Event {
    Reply(usize, Reply),
    /// A worker's output ended: it is gone.
    Gone(usize),
    /// Somebody asked for the end.
    Stop,
}
