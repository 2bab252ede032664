//! Programs of Ganguly et al., by their accesses to managed memory: sizes, kernels, thread blocks,
//! and the words that each accesses. All are from the programs' sources.

mod dense;
mod random;

use sim::RunError;

use crate::validation::gpu::{Process, Space};

type Body = dyn Fn(&mut Process<'_>) -> Result<(), RunError>;

/// All programs.
pub(crate) const ALL: [fn() -> Program; 7] =
    [dense::backprop, dense::fdtd, dense::hotspot, dense::nw, random::sssp, random::ra, random::bfs];

/// Program with its accesses.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Managed memory.
    pub(crate) space: Space,
    /// Whether it also has device memory, less than a block; CUDA takes one block.
    pub(crate) has_device_memory: bool,
    /// Whether accesses depend on data, and these differ from the published ones.
    pub(crate) has_own_data: bool,
    body: Box<Body>,
}

impl Program {
    fn new(
        name: &'static str,
        space: Space,
        body: impl Fn(&mut Process<'_>) -> Result<(), RunError> + 'static,
    ) -> Self {
        Self { name, space, has_device_memory: false, has_own_data: false, body: Box::new(body) }
    }

    pub(crate) fn run(&self, process: &mut Process<'_>) -> Result<(), RunError> {
        (self.body)(process)
    }
}
