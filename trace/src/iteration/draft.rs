//! Draft of an iteration, which importers and generators fill. Its fields are those of the JSON.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    id::{Id, KernelId, MAX_ENTRIES, Table, TensorId},
    iteration::{Access, Iteration, Kernel, Location, Operand, Role, Tensor, Use, row},
};

/// Iteration before validation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// Name of the program, for people.
    #[serde(default)]
    pub name: String,
    /// Tensors; kernels refer to them by index.
    pub tensors: Vec<Tensor>,
    /// Kernels in order of execution.
    pub kernels: Vec<DraftKernel>,
    /// Locations of the tensors, in their order; empty if they are unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
}

/// Kernel of a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftKernel {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Duration with all its tensors on the GPU.
    pub duration_ns: u64,
    /// Tensors that the kernel reads.
    #[serde(default)]
    pub inputs: Vec<TensorId>,
    /// Tensors that the kernel writes, its workspace included. Tensors changed in place are in both
    /// lists.
    #[serde(default)]
    pub outputs: Vec<TensorId>,
}

/// Maximum of the sum of tensor bytes, and of the sum of kernel durations in ns, of an iteration.
/// Four times as much fits 64 bits: users of an iteration may round sizes up and add stalls.
pub const MAX_TOTAL: u64 = 1 << 62;

/// Reason why a draft is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "documented by the messages")]
pub enum Invalid {
    #[error("no kernels")]
    NoKernels,
    #[error("more than {MAX_ENTRIES} tensors or kernels")]
    TooMany,
    #[error("tensor {tensor} holds no bytes")]
    EmptyTensor { tensor: TensorId },
    #[error("the tensors hold more than {MAX_TOTAL} bytes")]
    TooManyBytes,
    #[error("{locations} locations of {tensors} tensors")]
    Locations { locations: usize, tensors: usize },
    #[error("tensor {tensor} is not within its allocation")]
    OutsideAllocation { tensor: TensorId },
    #[error("the kernels take more than {MAX_TOTAL} nanoseconds")]
    TooLong,
    #[error("kernel {kernel} refers to unknown tensor {tensor}; number of tensors: {tensors}")]
    UnknownTensor { kernel: KernelId, tensor: TensorId, tensors: usize },
    #[error("tensor {tensor} is a workspace and persistent")]
    PersistentWorkspace { tensor: TensorId },
    #[error("tensor {tensor} is a workspace of another kernel and used by kernel {kernel}")]
    SharedWorkspace { tensor: TensorId, kernel: KernelId },
    #[error("tensor {tensor} is a workspace and read by kernel {kernel}")]
    WorkspaceRead { tensor: TensorId, kernel: KernelId },
}

impl Draft {
    /// Adds a tensor and returns its id.
    pub fn tensor(&mut self, tensor: Tensor) -> TensorId {
        self.tensors.push(tensor);
        TensorId::new(self.tensors.len() - 1)
    }

    /// Adds a kernel after the others and returns its id.
    pub fn kernel(&mut self, kernel: DraftKernel) -> KernelId {
        self.kernels.push(kernel);
        KernelId::new(self.kernels.len() - 1)
    }

    /// Validates the draft and converts it to an iteration.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(self) -> Result<Iteration, Invalid> {
        let Self { name, tensors, kernels, locations } = self;
        if kernels.is_empty() {
            return Err(Invalid::NoKernels);
        }
        if tensors.len() >= MAX_ENTRIES || kernels.len() >= MAX_ENTRIES {
            return Err(Invalid::TooMany);
        }
        let tensors = Table::from(tensors);
        check_tensors(&tensors)?;
        check_locations(&tensors, &locations)?;

        let mut operands = Vec::new();
        let mut operand_starts = vec![0];
        let mut owner: Table<TensorId, Option<KernelId>> = Table::of(None, tensors.len());
        for (index, kernel) in kernels.iter().enumerate() {
            let merged = merge(&kernel.inputs, &kernel.outputs);
            for operand in &merged {
                check_operand(KernelId::new(index), *operand, &tensors, &mut owner)?;
            }
            operands.extend(merged);
            operand_starts.push(operands.len());
        }
        let (uses, use_starts) = transpose(&operands, &operand_starts, tensors.len());
        let kernels: Table<_, _> =
            kernels.into_iter().map(|DraftKernel { name, duration_ns, .. }| Kernel { name, duration_ns }).collect();
        let start_ns = start_times(&kernels)?;
        let locations = locations.into();
        Ok(Iteration { name, tensors, locations, kernels, operands, operand_starts, uses, use_starts, start_ns })
    }
}

fn check_tensors(tensors: &Table<TensorId, Tensor>) -> Result<(), Invalid> {
    let mut sum = 0_u64;
    for (id, tensor) in tensors.iter() {
        if tensor.bytes == 0 {
            return Err(Invalid::EmptyTensor { tensor: id });
        }
        if tensor.persistent && tensor.role == Role::Workspace {
            return Err(Invalid::PersistentWorkspace { tensor: id });
        }
        sum = add_within_limit(sum, tensor.bytes).ok_or(Invalid::TooManyBytes)?;
    }
    Ok(())
}

fn check_locations(tensors: &Table<TensorId, Tensor>, locations: &[Location]) -> Result<(), Invalid> {
    if !locations.is_empty() && locations.len() != tensors.len() {
        return Err(Invalid::Locations { locations: locations.len(), tensors: tensors.len() });
    }
    for ((id, tensor), location) in tensors.iter().zip(locations) {
        let Location { address, allocation_address, allocation_bytes } = *location;
        let end = allocation_address.checked_add(allocation_bytes).filter(|end| *end <= MAX_TOTAL);
        let is_within = end.is_some_and(|end| {
            address >= allocation_address && address.checked_add(tensor.bytes).is_some_and(|behind| behind <= end)
        });
        if !is_within {
            return Err(Invalid::OutsideAllocation { tensor: id });
        }
    }
    Ok(())
}

fn add_within_limit(sum: u64, value: u64) -> Option<u64> {
    sum.checked_add(value).filter(|&sum| sum <= MAX_TOTAL)
}

fn check_operand(
    kernel: KernelId,
    Operand { tensor, access }: Operand,
    tensors: &Table<TensorId, Tensor>,
    owner: &mut Table<TensorId, Option<KernelId>>,
) -> Result<(), Invalid> {
    let Some(entry) = tensors.find(tensor) else {
        return Err(Invalid::UnknownTensor { kernel, tensor, tensors: tensors.len() });
    };
    if entry.role == Role::Workspace {
        if access.reads() {
            return Err(Invalid::WorkspaceRead { tensor, kernel });
        }
        if owner[tensor].replace(kernel).is_some() {
            return Err(Invalid::SharedWorkspace { tensor, kernel });
        }
    }
    Ok(())
}

/// Operands of a kernel: inputs in their order, then those only written, in their order.
fn merge(inputs: &[TensorId], outputs: &[TensorId]) -> Vec<Operand> {
    let written: HashSet<_> = outputs.iter().copied().collect();
    let mut seen = HashSet::new();
    let mut operands = Vec::with_capacity(inputs.len() + outputs.len());
    for &tensor in inputs.iter().filter(|&&tensor| seen.insert(tensor)) {
        let access = if written.contains(&tensor) { Access::ReadWrite } else { Access::Read };
        operands.push(Operand { tensor, access });
    }
    for &tensor in outputs {
        if seen.insert(tensor) {
            operands.push(Operand { tensor, access: Access::Write });
        }
    }
    operands
}

/// Transposes operands by kernel to uses by tensor. All operands exist.
fn transpose(operands: &[Operand], operand_starts: &[usize], tensors: usize) -> (Vec<Use>, Vec<usize>) {
    let mut by_tensor: Table<TensorId, Vec<Use>> = Table::of(Vec::new(), tensors);
    for (kernel, _) in operand_starts.iter().skip(1).enumerate() {
        for operand in row(operands, operand_starts, kernel) {
            by_tensor[operand.tensor].push(Use { kernel: KernelId::new(kernel), access: operand.access });
        }
    }
    let mut uses = Vec::with_capacity(operands.len());
    let mut starts = vec![0];
    for tensor_uses in by_tensor.values() {
        uses.extend_from_slice(tensor_uses);
        starts.push(uses.len());
    }
    (uses, starts)
}

impl TryFrom<Draft> for Iteration {
    type Error = Invalid;

    fn try_from(draft: Draft) -> Result<Self, Invalid> {
        draft.check()
    }
}

impl From<Iteration> for Draft {
    fn from(iteration: Iteration) -> Self {
        let kernels = iteration.kernels.iter().map(|(id, kernel)| DraftKernel {
            name: kernel.name.clone(),
            duration_ns: kernel.duration_ns,
            inputs: iteration.inputs(id).collect(),
            outputs: iteration.outputs(id).collect(),
        });
        let kernels = kernels.collect();
        let (tensors, locations) = (iteration.tensors.values().to_vec(), iteration.locations.values().to_vec());
        Self { name: iteration.name, tensors, kernels, locations }
    }
}

pub(crate) fn start_times(kernels: &Table<KernelId, Kernel>) -> Result<Table<KernelId, u64>, Invalid> {
    let mut starts = Vec::with_capacity(kernels.len() + 1);
    let mut now = 0_u64;
    starts.push(now);
    for kernel in kernels.values() {
        now = add_within_limit(now, kernel.duration_ns).ok_or(Invalid::TooLong)?;
        starts.push(now);
    }
    Ok(starts.into())
}
