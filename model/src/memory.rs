//! Where in a process's memory it happened, all of it.

use crate::{Block, Range};

/// What is known of one process's memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// By address.
    pub blocks: Vec<Block>,
    /// By address.
    pub ranges: Vec<Range>,
}
