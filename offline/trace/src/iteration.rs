//! One iteration of a training or inference loop: tensors, and kernels in the order in which they run.

pub mod draft;

pub use draft::Draft;
use draft::{Invalid, start_times};
use serde::{Deserialize, Serialize};

use crate::id::{Id, KernelId, Table, TensorId};

/// What a tensor is for. Planners that go by layers need it; the others do not look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A parameter of the model.
    Weight,
    /// What the backward pass makes: of a parameter or of an activation.
    Gradient,
    /// What the forward pass makes.
    Activation,
    /// A batch of data or of labels.
    Input,
    /// What an optimizer keeps of a parameter: momentum, variance.
    OptimizerState,
    /// A kernel's scratch memory: nothing before it and nothing after it.
    Workspace,
    /// The trace does not tell.
    #[default]
    Other,
}

/// A tensor: bytes that are made, used and dropped together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// For people. Need not be unique; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// More than zero.
    pub bytes: u64,
    /// What it is for.
    #[serde(default)]
    pub role: Role,
    /// It keeps its contents from one iteration to the next, as weights do: alive at every kernel, used or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent: bool,
}

/// What a kernel does to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Needs what is in it.
    Read,
    /// Makes it, whatever was in it.
    Write,
    /// Needs it and changes it.
    ReadWrite,
}

impl Access {
    /// Whether what is in it is needed.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether it changes.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// A kernel: what runs between two points where memory may be rearranged. Its tensors are [`Iteration::operands`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What it computes, for people and for planners that know the trace's names.
    pub name: String,
    /// How long it runs with all its tensors on the GPU.
    pub duration_ns: u64,
}

/// A tensor as a kernel uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Which tensor.
    pub tensor: TensorId,
    /// What for.
    pub access: Access,
}

/// A kernel as a tensor is used by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Which kernel.
    pub kernel: KernelId,
    /// What for.
    pub access: Access,
}

/// One iteration. It has a kernel at least; every operand is one of its tensors; a kernel names a tensor once; a workspace belongs to one kernel and is
/// not persistent; no tensor is empty; the sums of all bytes and of all durations fit 64 bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Draft", into = "Draft")]
pub struct Iteration {
    pub(crate) name: String,
    pub(crate) tensors: Table<TensorId, Tensor>,
    pub(crate) kernels: Table<KernelId, Kernel>,
    /// By kernel; those of kernel k lie at `operand_starts[k]..operand_starts[k + 1]`. The same below.
    pub(crate) operands: Vec<Operand>,
    pub(crate) operand_starts: Vec<usize>,
    pub(crate) uses: Vec<Use>,
    pub(crate) use_starts: Vec<usize>,
    /// One more than there are kernels.
    pub(crate) start_ns: Table<KernelId, u64>,
}

impl Iteration {
    /// What it is an iteration of, for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tensors.
    #[must_use]
    pub fn tensors(&self) -> &Table<TensorId, Tensor> {
        &self.tensors
    }

    /// The kernels in the order in which they run.
    #[must_use]
    pub fn kernels(&self) -> &Table<KernelId, Kernel> {
        &self.kernels
    }

    /// The tensors that a kernel needs on the GPU, each once: inputs first, then what it only writes, its workspace among them.
    #[must_use]
    pub fn operands(&self, kernel: KernelId) -> &[Operand] {
        row(&self.operands, &self.operand_starts, kernel.index())
    }

    /// What a kernel reads.
    pub fn inputs(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.operands(kernel).iter().filter(|operand| operand.access.reads()).map(|operand| operand.tensor)
    }

    /// What a kernel writes, its workspace among it.
    pub fn outputs(&self, kernel: KernelId) -> impl Iterator<Item = TensorId> {
        self.operands(kernel).iter().filter(|operand| operand.access.writes()).map(|operand| operand.tensor)
    }

    /// A kernel's scratch memory.
    #[must_use]
    pub fn workspace_bytes(&self, kernel: KernelId) -> u64 {
        let scratch = self.outputs(kernel).map(|id| &self.tensors[id]).filter(|tensor| tensor.role == Role::Workspace);
        scratch.map(|tensor| tensor.bytes).sum()
    }

    /// The kernels that use a tensor, in order.
    #[must_use]
    pub fn uses(&self, tensor: TensorId) -> &[Use] {
        row(&self.uses, &self.use_starts, tensor.index())
    }

    /// When a kernel starts if nothing holds anything up; for one past the last, when the iteration ends.
    #[must_use]
    pub fn start_ns(&self, kernel: KernelId) -> u64 {
        self.start_ns[kernel]
    }

    /// How long the iteration takes if nothing holds anything up.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.start_ns.values().last().copied().unwrap_or(0)
    }

    /// One past the last kernel.
    #[must_use]
    pub fn end(&self) -> KernelId {
        KernelId::new(self.kernels.len())
    }

    /// The same with other durations, such as those of another machine.
    ///
    /// # Errors
    /// If they add up to more than 64 bits of nanoseconds.
    pub fn with_durations(&self, duration_ns: impl Fn(KernelId, &Kernel) -> u64) -> Result<Self, Invalid> {
        let mut other = self.clone();
        for (id, kernel) in self.kernels.iter() {
            other.kernels[id].duration_ns = duration_ns(id, kernel);
        }
        other.start_ns = start_times(&other.kernels)?;
        Ok(other)
    }
}

/// The row of a matrix whose rows lie one after the other. Empty where there is no such row.
pub(crate) fn row<'a, T>(cells: &'a [T], starts: &[usize], index: usize) -> &'a [T] {
    match starts.get(index..).unwrap_or_default() {
        [from, to, ..] => cells.get(*from..*to).unwrap_or_default(),
        _ => &[],
    }
}
