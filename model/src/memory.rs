//! Where in a process's memory it happened, all of it.

use crate::{Block, Range};

/// Memory of one process: its ranges, blocks and residency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// By address.
    pub blocks: Vec<Block>,
    /// By address.
    pub ranges: Vec<Range>,
}
