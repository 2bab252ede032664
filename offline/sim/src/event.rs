//! Events of a run, for observers: tests, and pictures of memory over time.

use planner::Tier;
use trace::{KernelId, TensorId};

use crate::{
    thrashing::Processor,
    units::{Granules, Mask},
};

/// Event of a run. Events come in the order of their decisions. Their times may go back by up to
/// the service of a fault batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Start of an iteration.
    Began {
        /// Time.
        at_ns: u64,
    },
    /// Allocation of addresses to a tensor.
    Placed {
        /// Tensor.
        tensor: TensorId,
        /// Range of its contents; its memory may be larger.
        range: Granules,
    },
    /// Contents written by the CPU.
    Written {
        /// Range.
        range: Granules,
        /// Host memory, or flash if the host is full.
        on: Tier,
        /// Time.
        at_ns: u64,
    },
    /// Discarded contents, which are not needed any more.
    Discarded {
        /// Range.
        range: Granules,
        /// Time.
        at_ns: u64,
    },
    /// Granules of a block on the GPU, or some of their pages where CPU and GPU share a granule.
    Arrived {
        /// Block.
        block: u64,
        /// Granules.
        mask: Mask,
        /// Whether contents were copied; false for a first touch.
        with_contents: bool,
        /// Time of completion.
        at_ns: u64,
    },
    /// Granules of a block, or some of their pages, that left the GPU.
    Left {
        /// Block.
        block: u64,
        /// Granules.
        mask: Mask,
        /// Destination.
        to: Tier,
        /// Time of completion.
        at_ns: u64,
    },
    /// Granules of a block written from host memory to flash.
    Spilled {
        /// Block.
        block: u64,
        /// Granules.
        mask: Mask,
        /// Time of completion.
        at_ns: u64,
    },
    /// Decision of the driver about a page; only where CPU and GPU contend for memory.
    Page {
        /// Page of 4 KiB.
        page: u64,
        /// Decision.
        decided: Decision,
        /// Time.
        at_ns: u64,
    },
    /// Execution of a kernel.
    Ran {
        /// Kernel.
        kernel: KernelId,
        /// Start.
        start_ns: u64,
        /// End.
        end_ns: u64,
    },
}

/// Decision of the driver about a thrashing page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The page thrashes.
    Thrashes,
    /// A processor is throttled.
    Throttled {
        /// Processor.
        processor: Processor,
        /// End.
        until_ns: u64,
    },
    /// The page stays there, whichever processor accesses it.
    Pinned {
        /// Location.
        on: Processor,
    },
    /// The pin has ended.
    Unpinned,
}

/// Observer of events.
pub type Observer<'a> = dyn FnMut(Event) + 'a;
