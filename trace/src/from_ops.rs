//! Conversion of a stream of operations to an iteration, for planners that take iterations. Each
//! operation becomes a kernel, and each block a tensor.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    circle::Window,
    draft::{Draft, DraftKernel, Invalid},
    footprints::{Footprints, Until},
    id::{BlockId, OpId, TensorId},
    iteration::{Access, Iteration, Role, Tensor},
    ops::{Argument, Launch, Op, OpKind, OpStream},
};

/// Definition of the lifetime of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// From malloc to free, as allocators count. Both are kernels that write the block.
    Allocated,
    /// From first use to last, as for managed memory: an untouched block has no memory, and one
    /// that is not used again needs none.
    Used,
}

/// Consecutive launches of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchWindow {
    /// Number of the first launch, from 0.
    pub first_launch: usize,
    /// Number of launches: one iteration.
    pub launches: usize,
}

/// Iteration of a stream, by its mallocs or by its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IterationWindow {
    /// From its first malloc to the first of the next iteration.
    Mallocs(Window),
    /// From its first launch to the first of the next iteration, for programs that allocate nothing
    /// in an iteration.
    Launches(LaunchWindow),
}

impl From<Window> for IterationWindow {
    fn from(window: Window) -> Self {
        Self::Mallocs(window)
    }
}

impl From<LaunchWindow> for IterationWindow {
    fn from(window: LaunchWindow) -> Self {
        Self::Launches(window)
    }
}

impl IterationWindow {
    /// Window of the iteration before, if the run has that many mallocs or launches.
    fn earlier(self) -> Option<Self> {
        Some(match self {
            Self::Mallocs(Window { first_malloc, mallocs }) => {
                Window { first_malloc: first_malloc.checked_sub(mallocs.max(1))?, mallocs }.into()
            }
            Self::Launches(LaunchWindow { first_launch, launches }) => {
                LaunchWindow { first_launch: first_launch.checked_sub(launches.max(1))?, launches }.into()
            }
        })
    }

    /// First operation, and the one after the last.
    fn range(self, stream: &OpStream) -> Result<(OpId, OpId), ConversionError> {
        let ids = |is_one: fn(&OpKind) -> bool| -> Vec<OpId> {
            stream.ops().iter().filter(|(_, op)| is_one(&op.kind)).map(|(id, _)| id).collect()
        };
        let (ids, first, count) = match self {
            Self::Mallocs(Window { first_malloc, mallocs }) => {
                (ids(|kind| matches!(kind, OpKind::Malloc(_))), first_malloc, mallocs)
            }
            Self::Launches(LaunchWindow { first_launch, launches }) => {
                (ids(|kind| matches!(kind, OpKind::Launch(_))), first_launch, launches)
            }
        };
        let end = first.saturating_add(count);
        let begin = ids.get(first..end).and_then(<[OpId]>::first).copied().ok_or(match self {
            Self::Mallocs(_) => ConversionError::OutsideTrace { first, end, mallocs: ids.len() },
            Self::Launches(_) => ConversionError::LaunchesOutsideTrace { first, end, launches: ids.len() },
        })?;
        Ok((begin, ids.get(end).copied().unwrap_or(OpId(u32::MAX))))
    }
}

/// Reason why a stream cannot be converted to an iteration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "documented by the messages")]
pub enum ConversionError {
    #[error("mallocs {first} to {end} are outside the trace, which has {mallocs}")]
    OutsideTrace { first: usize, end: usize, mallocs: usize },
    #[error("launches {first} to {end} are outside the trace, which has {launches}")]
    LaunchesOutsideTrace { first: usize, end: usize, launches: usize },
    #[error("the trace records no uses of its blocks")]
    NoUses,
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Iteration {
    /// Iteration in a window of a stream.
    ///
    /// A kernel lasts until the next operation; a launch lasts for its duration, if the trace
    /// records it. Tensors are named by the number of their malloc in the iteration. Blocks used
    /// after the iteration are persistent, and so are blocks alive before and after it. A block
    /// that ends in the iteration and its successor are one tensor: the successor begins later in
    /// the iteration, with the same malloc number, and is used in the next.
    ///
    /// # Errors
    /// If the window is not within the stream, or the stream records no uses.
    pub fn of_ops(
        stream: &OpStream,
        window: impl Into<IterationWindow>,
        lives: Lives,
    ) -> Result<Self, ConversionError> {
        let (begin, end_op) = window.into().range(stream)?;
        let mallocs = mallocs_of(stream);
        let before = |id: OpId| mallocs.partition_point(|(op, _)| *op < id);
        let window = Window { first_malloc: before(begin), mallocs: before(end_op) - before(begin) };
        let scope = Scope { stream, lives, begin, end_op, last_use: last_uses(stream) };
        let mut builder = Builder { scope, draft: Draft::default(), tensors: HashMap::new() };
        builder.assign_tensors(&mallocs, window);
        builder.add_kernels();
        if !builder.draft.kernels.iter().any(|kernel| !kernel.inputs.is_empty()) {
            return Err(ConversionError::NoUses);
        }
        Ok(builder.draft.check()?)
    }
}

/// Iteration of a run whose launches have addresses, with what the run does before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedIteration {
    /// The iteration, with locations.
    pub iteration: Iteration,
    /// The run up to there, in parts: one up to the first iteration of this period, or later, and the
    /// iterations behind that. At most [`BEFORE_MAX`] of these, the last ones.
    pub before: Vec<Iteration>,
}

/// Most iterations of a run before one that is simulated.
pub const BEFORE_MAX: usize = 16;

impl RecordedIteration {
    /// Iteration in a window of a stream, with the memory that addresses tell ([`Footprints`]);
    /// `None` of a stream in which a launch names memory without an address, or none does at all.
    ///
    /// # Errors
    /// If the window is not within the stream, or too much memory overlaps.
    pub fn of(stream: &OpStream, window: impl Into<IterationWindow>) -> Result<Option<Self>, ConversionError> {
        let arguments = || stream.launches().values().iter().flat_map(|launch| &launch.arguments);
        let has_address =
            |argument: &Argument| argument.offset_bytes.is_some() && stream.blocks()[argument.block].address.is_some();
        if arguments().next().is_none() || !arguments().all(has_address) {
            return Ok(None);
        }
        let window = window.into();
        let (begin, end) = window.range(stream)?;
        let part = |begin, end| Footprints::of(stream, begin..end, Until::NextBetween).iteration(stream);
        let iteration = part(begin, end)?;
        let mut begins = vec![begin];
        let mut earlier = window.earlier();
        while let Some(window) = earlier {
            begins.push(window.range(stream)?.0);
            earlier = window.earlier();
        }
        begins.reverse();
        let omitted = begins.len().saturating_sub(BEFORE_MAX + 1);
        let first = begins.first().map(|first| (OpId(0), *first));
        let iterations = begins.iter().zip(begins.iter().skip(1)).skip(omitted).map(|(begin, end)| (*begin, *end));
        let mut before = Vec::new();
        for (begin, end) in first.into_iter().chain(iterations) {
            match part(begin, end) {
                Ok(iteration) => before.push(iteration),
                Err(Invalid::NoKernels) => {}
                Err(invalid) => return Err(invalid.into()),
            }
        }
        Ok(Some(Self { iteration, before }))
    }
}

/// Mallocs in order, with their blocks.
fn mallocs_of(stream: &OpStream) -> Vec<(OpId, BlockId)> {
    let block = |(id, op): (OpId, &Op)| if let OpKind::Malloc(block) = op.kind { Some((id, block)) } else { None };
    stream.ops().iter().filter_map(block).collect()
}

/// Last operation that uses each block.
fn last_uses(stream: &OpStream) -> HashMap<BlockId, OpId> {
    let mut last = HashMap::new();
    for (id, op) in stream.ops().iter() {
        match op.kind {
            OpKind::Read(block) | OpKind::Write(block) => drop(last.insert(block, id)),
            OpKind::Launch(launch) => {
                last.extend(stream.launches()[launch].arguments.iter().map(|argument| (argument.block, id)));
            }
            OpKind::Malloc(_) | OpKind::Free(_) | OpKind::Sync(_) => {}
        }
    }
    last
}

struct Scope<'a> {
    stream: &'a OpStream,
    lives: Lives,
    begin: OpId,
    /// One past the last operation of the iteration.
    end_op: OpId,
    last_use: HashMap<BlockId, OpId>,
}

impl Scope<'_> {
    fn used_from(&self, block: BlockId, op: OpId) -> bool {
        self.last_use.get(&block).is_some_and(|&last| last >= op)
    }

    fn freed_before(&self, block: BlockId, op: OpId) -> bool {
        self.stream.free_of(block).is_some_and(|free| free < op)
    }
}

struct Builder<'a> {
    scope: Scope<'a>,
    draft: Draft,
    tensors: HashMap<BlockId, TensorId>,
}

impl Builder<'_> {
    /// Assigns a tensor to each block: first to those allocated in the iteration, then to earlier
    /// ones that are still alive.
    fn assign_tensors(&mut self, mallocs: &[(OpId, BlockId)], Window { first_malloc, mallocs: period }: Window) {
        let in_window = mallocs.get(first_malloc..first_malloc + period).unwrap_or_default();
        for (index, &(_, block)) in in_window.iter().enumerate() {
            let persistent = self.scope.used_from(block, self.scope.end_op);
            self.tensor(block, format!("malloc {index}"), persistent);
        }
        let numbers: HashMap<_, _> = mallocs.iter().enumerate().map(|(number, &(_, block))| (block, number)).collect();
        for (block, entry) in self.scope.stream.blocks().iter() {
            let number = numbers.get(&block).copied();
            let begins_later = number.is_some_and(|number| number >= first_malloc);
            if begins_later || self.scope.freed_before(block, self.scope.begin) {
                continue;
            }
            let successor = number.and_then(|number| in_window.get((number + period).checked_sub(first_malloc)?));
            // A block freed after the malloc of its successor is a tensor beside it.
            let successor = successor.filter(|(malloc, _)| self.scope.freed_before(block, *malloc));
            let successor = successor.and_then(|(_, successor)| self.tensors.get(successor)).copied();
            let continues = |id: &TensorId| {
                let successor = self.draft.tensors.get(id.0 as usize);
                successor.is_some_and(|successor| successor.persistent && successor.bytes == entry.bytes)
            };
            if let Some(successor) = successor.filter(continues) {
                self.tensors.insert(block, successor);
                continue;
            }
            // A block that ends in this iteration has a successor in the next.
            let persistent = match self.scope.lives {
                Lives::Allocated => !self.scope.freed_before(block, self.scope.end_op),
                Lives::Used => self.scope.used_from(block, self.scope.end_op),
            };
            let name = number.map_or("before the trace".to_owned(), |_| "before".to_owned());
            self.tensor(block, name, persistent);
        }
    }

    fn tensor(&mut self, block: BlockId, name: String, persistent: bool) {
        let bytes = self.scope.stream.blocks()[block].bytes;
        let id = self.draft.tensor(Tensor { name, bytes, role: Role::Other, persistent });
        self.tensors.insert(block, id);
    }

    fn add_kernels(&mut self) {
        let stream = self.scope.stream;
        let allocated = self.scope.lives == Lives::Allocated;
        if allocated {
            let carried_in = self.boundary_tensors(|scope, block| {
                scope.stream.malloc_of(block).is_none_or(|malloc| malloc < scope.begin)
            });
            self.draft.kernel(DraftKernel {
                name: "held from before".to_owned(),
                outputs: carried_in,
                ..Default::default()
            });
        }
        let range = self.scope.begin.0 as usize..(self.scope.end_op.0 as usize).min(stream.ops().len());
        let ops = stream.ops().values().get(range).unwrap_or_default();
        let next_times = ops.iter().skip(1).map(|op| op.time_ns).chain(self.end_ns());
        // The last operation of a trace has no successor, so its duration is 0.
        for (op, next_ns) in ops.iter().zip(next_times.chain(ops.last().map(|op| op.time_ns))) {
            self.add_op(*op, next_ns - op.time_ns, allocated);
        }
        if allocated {
            let carried_out = self.boundary_tensors(|scope, block| !scope.freed_before(block, scope.end_op));
            self.draft.kernel(DraftKernel {
                name: "held until after".to_owned(),
                outputs: carried_out,
                ..Default::default()
            });
        }
    }

    fn end_ns(&self) -> Option<u64> {
        self.scope.stream.ops().find(self.scope.end_op).map(|op| op.time_ns)
    }

    /// Tensors of the blocks that are allocated at one end of the iteration, without persistent
    /// ones.
    fn boundary_tensors(&self, is_allocated: impl Fn(&Scope<'_>, BlockId) -> bool) -> Vec<TensorId> {
        let transient = |id: &TensorId| self.draft.tensors.get(id.0 as usize).is_some_and(|tensor| !tensor.persistent);
        let tensors = self.tensors.iter().filter(|(block, id)| transient(id) && is_allocated(&self.scope, **block));
        let mut tensors: Vec<_> = tensors.map(|(_, &id)| id).collect();
        tensors.sort_unstable();
        tensors
    }

    /// Adds an operation as a kernel. If blocks live from use to use, mallocs and frees are kernels
    /// without operands.
    fn add_op(&mut self, op: Op, until_next_ns: u64, allocated: bool) {
        let id = |block: BlockId| self.tensors.get(&block).copied();
        let kernel = |name: &str, inputs: Option<TensorId>, outputs: Option<TensorId>| DraftKernel {
            name: name.to_owned(),
            duration_ns: until_next_ns,
            inputs: inputs.into_iter().collect(),
            outputs: outputs.into_iter().collect(),
        };
        let kernel = match op.kind {
            OpKind::Malloc(block) => kernel("malloc", None, id(block).filter(|_| allocated)),
            OpKind::Free(block) => kernel("free", None, id(block).filter(|_| allocated)),
            OpKind::Read(block) => kernel("read", id(block), None),
            OpKind::Write(block) => kernel("write", None, id(block)),
            OpKind::Sync(_) => kernel("sync", None, None),
            OpKind::Launch(launch) => {
                let Launch { signature, duration_ns, arguments, .. } = &self.scope.stream.launches()[launch];
                let used = |uses: fn(Access) -> bool| {
                    let arguments = arguments.iter().filter(move |argument| argument.access.is_none_or(uses));
                    arguments.filter_map(|argument| id(argument.block)).collect()
                };
                DraftKernel {
                    name: self.scope.stream.signatures()[*signature].name.clone(),
                    duration_ns: duration_ns.unwrap_or(until_next_ns),
                    inputs: used(Access::reads),
                    outputs: used(Access::writes),
                }
            }
        };
        self.draft.kernel(kernel);
    }
}
