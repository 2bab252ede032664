//! What happens in a run, for whoever wants to watch: tests, and pictures of memory over time.

use planner::Tier;
use trace::{KernelId, TensorId};

use crate::{
    thrashing::Processor,
    units::{Granules, Mask},
};

/// Something that happened. Events come in the order in which they are decided; their times may go back by as much as a batch of faults takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An iteration begins.
    Began {
        /// When.
        at_ns: u64,
    },
    /// A tensor has addresses from now on.
    Placed {
        /// Which.
        tensor: TensorId,
        /// Its contents; its memory may reach further.
        range: Granules,
    },
    /// The CPU has put contents there.
    Written {
        /// Where.
        range: Granules,
        /// In host memory, or on flash where that has no room.
        on: Tier,
        /// When.
        at_ns: u64,
    },
    /// What is there is not needed any more.
    Discarded {
        /// Where.
        range: Granules,
        /// When.
        at_ns: u64,
    },
    /// Granules of a block are on the GPU, or some pages of them where CPU and GPU share one.
    Arrived {
        /// Which block.
        block: u64,
        /// Which granules.
        mask: Mask,
        /// Copied from elsewhere; not memory that nobody touched before.
        with_contents: bool,
        /// From when on.
        at_ns: u64,
    },
    /// Granules of a block, or some pages of them, are not on the GPU any more.
    Left {
        /// Which block.
        block: u64,
        /// Which granules.
        mask: Mask,
        /// Where they are.
        to: Tier,
        /// From when on.
        at_ns: u64,
    },
    /// Granules of a block went from host memory to flash.
    Spilled {
        /// Which block.
        block: u64,
        /// Which granules.
        mask: Mask,
        /// From when on.
        at_ns: u64,
    },
    /// The driver has decided something about a page: only where CPU and GPU take memory from one another.
    Page {
        /// Which page of 4 KiB.
        page: u64,
        /// What.
        decided: Decision,
        /// When.
        at_ns: u64,
    },
    /// A kernel has run.
    Ran {
        /// Which.
        kernel: KernelId,
        /// From when.
        start_ns: u64,
        /// Until when.
        end_ns: u64,
    },
}

/// What the driver decides about a page that thrashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It thrashes.
    Thrashes,
    /// A processor is held back from it.
    Throttled {
        /// Who.
        processor: Processor,
        /// Until when.
        until_ns: u64,
    },
    /// It stays there, whoever touches it.
    Pinned {
        /// Where.
        on: Processor,
    },
    /// It does so no more.
    Unpinned,
}

/// Whoever watches.
pub type Observer<'a> = dyn FnMut(Event) + 'a;
