//! A kernel that is ready to run.

use std::sync::atomic::AtomicBool;

use crate::ast::Function;
use crate::machine::program::Program;
use crate::{Counts, KernelError, Launch, Memory};

/// Parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset in the arguments.
    pub offset_bytes: u32,
    /// Size.
    pub bytes: u32,
}

/// Kernel that is ready to run.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    parameters: Vec<Parameter>,
    program: Program,
}

impl Kernel {
    pub(crate) fn new(function: &Function, program: Program) -> Self {
        let mut parameters = Vec::new();
        let mut end = 0u64;
        for parameter in &function.prototype.parameters {
            let offset = end.next_multiple_of(parameter.align_bytes);
            end = offset + parameter.bytes;
            parameters.push(Parameter { offset_bytes: offset as u32, bytes: parameter.bytes as u32 });
        }
        Self { name: function.name.clone(), parameters, program }
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Parameters in order.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Bytes of all arguments.
    #[must_use]
    pub fn argument_bytes(&self) -> u32 {
        self.program.argument_bytes
    }

    /// Shared memory that it declares, per block.
    #[must_use]
    pub fn shared_bytes(&self) -> u32 {
        self.program.shared_bytes
    }

    /// Local memory, per thread.
    #[must_use]
    pub fn local_bytes(&self) -> u32 {
        self.program.local_bytes
    }

    /// Registers of 32 bits, per thread.
    #[must_use]
    pub fn registers(&self) -> u32 {
        (self.program.words + 2 * self.program.longs) as u32
    }

    /// Threads of a block at most: `.maxntid` or `.reqntid` where the text has them, else 1,024.
    #[must_use]
    pub fn max_threads(&self) -> u32 {
        self.program.max_threads
    }

    /// Whether it calls `malloc`.
    #[must_use]
    pub fn uses_heap(&self) -> bool {
        self.program.uses_heap
    }

    /// Runs a launch to its end.
    ///
    /// # Errors
    /// The launch is refused, or an instruction ended the kernel.
    pub fn run<M: Memory>(&self, launch: &Launch, memory: &mut M) -> Result<Counts, KernelError> {
        crate::machine::run(&self.program, launch, memory, None)
    }

    /// Runs a launch to its end, or until another thread sets `cancel`: it is looked at after some
    /// thousand instructions of a warp.
    ///
    /// # Errors
    /// As of [`Kernel::run`], and [`KernelError::Cancelled`].
    pub fn run_until<M: Memory>(
        &self,
        launch: &Launch,
        memory: &mut M,
        cancel: &AtomicBool,
    ) -> Result<Counts, KernelError> {
        crate::machine::run(&self.program, launch, memory, Some(cancel))
    }
}
