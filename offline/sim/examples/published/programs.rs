//! The programs that Ganguly et al. ran, as they touch managed memory: sizes, kernels, blocks of threads and which words each touches, from the programs themselves.

mod dense;
mod random;

use sim::RunError;

use crate::gpu::{Process, Space};

type Body = dyn Fn(&mut Process<'_>) -> Result<(), RunError>;

/// All of them.
pub(crate) const ALL: [fn() -> Program; 7] =
    [dense::backprop, dense::fdtd, dense::hotspot, dense::nw, random::sssp, random::ra, random::bfs];

/// A program.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Its managed memory.
    pub(crate) space: Space,
    /// It has memory on the GPU alone as well, less than a block: CUDA takes one.
    pub(crate) has_device_memory: bool,
    /// What it touches depends on data, and these are not those that it was published with.
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
