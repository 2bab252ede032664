//! Iteration of a training or inference loop: tensors, and kernels in order of execution.

pub mod draft;

pub use draft::Draft;
use draft::{Invalid, start_times};
use serde::{Deserialize, Serialize};

use crate::id::{Id, KernelId, Table, TensorId};

/// Purpose of a tensor. Only planners that work by layers read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Parameter of the model.
    Weight,
    /// Gradient of a parameter or an activation, written by the backward pass.
    Gradient,
    /// Result of the forward pass.
    Activation,
    /// Batch of data or labels.
    Input,
    /// State of the optimizer for a parameter: momentum, variance.
    OptimizerState,
    /// Scratch memory of one kernel: unused before and after it.
    Workspace,
    /// Role that the trace does not record.
    #[default]
    Other,
}

/// Bytes that are allocated, used and freed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// Name for people. Need not be unique; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Size; more than 0.
    pub bytes: u64,
    /// Purpose.
    #[serde(default)]
    pub role: Role,
    /// Whether the contents are valid across iterations, as those of weights: the tensor is alive
    /// at every kernel, used or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
}

/// Place of a tensor in the address space of a recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// Address of the first byte.
    pub address: u64,
    /// First address of the allocation that contains the tensor.
    pub allocation_address: u64,
    /// Size of that allocation.
    pub allocation_bytes: u64,
}

/// Access of a kernel to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Read of the contents.
    Read,
    /// Write that overwrites all contents.
    Write,
    /// Read, and write in place.
    ReadWrite,
}

impl Access {
    /// Whether the access reads the contents.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether the access changes the contents.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Kernel: work between two points at which memory may be migrated. Its tensors are
/// [`Iteration::operands`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name for people, and for planners that know the names of a trace.
    pub name: String,
    /// Duration with all its tensors on the GPU.
    pub duration_ns: u64,
}

/// Tensor of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Id of the tensor.
    pub tensor: TensorId,
    /// Kind of access.
    pub access: Access,
}

/// Kernel that uses a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Id of the kernel.
    pub kernel: KernelId,
    /// Kind of access.
    pub access: Access,
}

/// One iteration, validated: at least one kernel; no empty tensor; every operand is one of its
/// tensors, once per kernel. A workspace belongs to one kernel and is not persistent. The sums of
/// all bytes and of all durations are at most [`draft::MAX_TOTAL`]. If tensors have locations, all
/// have, each within its allocation, and no address is above that limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Draft", into = "Draft")]
pub struct Iteration {
    pub(crate) name: String,
    pub(crate) tensors: Table<TensorId, Tensor>,
    /// Empty, or one for each tensor.
    pub(crate) locations: Table<TensorId, Location>,
    pub(crate) kernels: Table<KernelId, Kernel>,
    /// Operands by kernel; those of kernel k are `operand_starts[k]..operand_starts[k + 1]`. Uses
    /// by tensor likewise.
    pub(crate) operands: Vec<Operand>,
    pub(crate) operand_starts: Vec<usize>,
    pub(crate) uses: Vec<Use>,
    pub(crate) use_starts: Vec<usize>,
    /// Start of each kernel, and the end of the last.
    pub(crate) start_ns: Table<KernelId, u64>,
}

impl Iteration {
    /// Name of the program, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All tensors.
    #[must_use]
    pub fn tensors(&self) -> &Table<TensorId, Tensor> {
        &self.tensors
    }

    /// Locations of all tensors; `None` if they are unknown.
    #[must_use]
    pub fn locations(&self) -> Option<&Table<TensorId, Location>> {
        (!self.locations.is_empty()).then_some(&self.locations)
    }

    /// All kernels in order of execution.
    #[must_use]
    pub fn kernels(&self) -> &Table<KernelId, Kernel> {
        &self.kernels
    }

    /// Tensors that a kernel needs on the GPU, each once: inputs first, then those that it only
    /// writes, its workspace included.
    #[must_use]
    pub fn operands(&self, kernel: KernelId) -> &[Operand] {
        row(&self.operands, &self.operand_starts, kernel.index())
    }

    /// Tensors that a kernel reads.
    pub fn inputs(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.operands(kernel).iter().filter(|operand| operand.access.reads()).map(|operand| operand.tensor)
    }

    /// Tensors that a kernel writes, its workspace included.
    pub fn outputs(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.operands(kernel).iter().filter(|operand| operand.access.writes()).map(|operand| operand.tensor)
    }

    /// Bytes of a kernel's scratch memory.
    #[must_use]
    pub fn workspace_bytes(&self, kernel: KernelId) -> u64 {
        let scratch = self.outputs(kernel).map(|id| &self.tensors[id]).filter(|tensor| tensor.role == Role::Workspace);
        scratch.map(|tensor| tensor.bytes).sum()
    }

    /// Kernels that use a tensor, in order.
    #[must_use]
    pub fn uses(&self, tensor: TensorId) -> &[Use] {
        row(&self.uses, &self.use_starts, tensor.index())
    }

    /// Start of a kernel without stalls; for one past the last, the end of the iteration.
    #[must_use]
    pub fn start_ns(&self, kernel: KernelId) -> u64 {
        self.start_ns[kernel]
    }

    /// Duration of the iteration without stalls.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.start_ns.values().last().copied().unwrap_or(0)
    }

    /// One past the last kernel.
    #[must_use]
    pub fn end(&self) -> KernelId {
        KernelId::new(self.kernels.len())
    }

    /// Copy with other durations, such as those of another machine.
    ///
    /// # Errors
    /// If the sum of durations exceeds [`draft::MAX_TOTAL`].
    pub fn with_durations(&self, duration_ns: impl Fn(KernelId, &Kernel) -> u64) -> Result<Self, Invalid> {
        let mut other = self.clone();
        for (id, kernel) in self.kernels.iter() {
            other.kernels[id].duration_ns = duration_ns(id, kernel);
        }
        other.start_ns = start_times(&other.kernels)?;
        Ok(other)
    }
}

/// Row of a matrix that is stored row by row. Empty if the row does not exist.
pub(crate) fn row<'a, T>(cells: &'a [T], starts: &[usize], index: usize) -> &'a [T] {
    match starts.get(index..).unwrap_or_default() {
        [from, to, ..] => cells.get(*from..*to).unwrap_or_default(),
        _ => &[],
    }
}
