//! An iteration out of a stream of operations, for planners that take iterations: each operation that uses blocks is a kernel, each block a tensor.

use std::collections::HashMap;

use thiserror::Error;

use crate::{
    circle::Window,
    draft::{Draft, DraftKernel, Invalid},
    id::{BlockId, OpId, TensorId},
    iteration::{Access, Iteration, Role, Tensor},
    ops::{Launch, Op, OpKind, OpStream},
};

/// From when to when a block is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lives {
    /// From its malloc to its free, as the program has it: these are kernels too, that write it. Allocators count so.
    Allocated,
    /// From its first use to its last. Managed memory counts so: what was not touched has no memory, and what is not used again need not have any.
    Used,
}

/// Why there is no iteration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NoIteration {
    #[error("mallocs {first} to {end} of a trace that has {mallocs}")]
    OutsideTrace { first: usize, end: usize, mallocs: usize },
    #[error("the trace does not tell what uses its blocks")]
    NoUses,
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Iteration {
    /// The iteration that begins with a stretch's first malloc and ends before the first malloc after it.
    ///
    /// A kernel lasts until the next operation; a launch for as long as it ran, where the trace tells. Tensors are named by the place of their malloc in
    /// the iteration. What is used after the iteration is persistent, and so is what is there before and after it. A block that ends in the iteration and
    /// one that begins in its place there after that and is used in the next are one tensor.
    ///
    /// # Errors
    /// If the stream has not so many mallocs, or tells nothing of uses.
    pub fn of_ops(stream: &OpStream, window: Window, lives: Lives) -> Result<Self, NoIteration> {
        let mallocs: Vec<_> = stream
            .ops()
            .iter()
            .filter_map(|(id, op)| if let OpKind::Malloc(block) = op.kind { Some((id, block)) } else { None })
            .collect();
        let (first, end) = (window.first_malloc, window.first_malloc.saturating_add(window.mallocs));
        let outside = || NoIteration::OutsideTrace { first, end, mallocs: mallocs.len() };
        let own = mallocs.get(first..end).filter(|own| !own.is_empty()).ok_or_else(outside)?;
        let begin = own.first().map_or(OpId(0), |(op, _)| *op);
        let stop = mallocs.get(end).map_or(OpId(u32::MAX), |(op, _)| *op);
        let scope = Scope { stream, lives, begin, stop, last_use: last_uses(stream) };
        let mut maker = Maker { scope, draft: Draft::default(), tensors: HashMap::new() };
        maker.assign(&mallocs, window);
        maker.run();
        if !maker.draft.kernels.iter().any(|kernel| !kernel.inputs.is_empty()) {
            return Err(NoIteration::NoUses);
        }
        Ok(maker.draft.check()?)
    }
}

/// The last operation that uses each block.
fn last_uses(stream: &OpStream) -> HashMap<BlockId, OpId> {
    let mut last = HashMap::new();
    for (id, op) in stream.ops().iter() {
        match op.kind {
            OpKind::Read(block) | OpKind::Write(block) => drop(last.insert(block, id)),
            OpKind::Launch(launch) => {
                last.extend(stream.launches()[launch].arguments.iter().map(|argument| (argument.block, id)));
            }
            OpKind::Malloc(_) | OpKind::Free(_) => {}
        }
    }
    last
}

struct Scope<'a> {
    stream: &'a OpStream,
    lives: Lives,
    begin: OpId,
    /// One past the iteration's last operation.
    stop: OpId,
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

struct Maker<'a> {
    scope: Scope<'a>,
    draft: Draft,
    tensors: HashMap<BlockId, TensorId>,
}

impl Maker<'_> {
    /// Which tensor each block is: those of the iteration's own mallocs, then those from before that are there still.
    fn assign(&mut self, mallocs: &[(OpId, BlockId)], Window { first_malloc, mallocs: period }: Window) {
        let own = mallocs.get(first_malloc..first_malloc + period).unwrap_or_default();
        for (place, &(_, block)) in own.iter().enumerate() {
            let persistent = self.scope.used_from(block, self.scope.stop);
            self.tensor(block, format!("malloc {place}"), persistent);
        }
        let places: HashMap<_, _> = mallocs.iter().enumerate().map(|(number, &(_, block))| (block, number)).collect();
        for (block, entry) in self.scope.stream.blocks().iter() {
            let number = places.get(&block).copied();
            let begins_later = number.is_some_and(|number| number >= first_malloc);
            if begins_later || self.scope.freed_before(block, self.scope.begin) {
                continue;
            }
            let twin = number.and_then(|number| own.get((number + period).checked_sub(first_malloc)?));
            // Freed late, it is there beside the block that begins in its place.
            let twin = twin.filter(|(malloc, _)| self.scope.freed_before(block, *malloc));
            let twin = twin.and_then(|(_, twin)| self.tensors.get(twin)).copied();
            let continues = |id: &TensorId| {
                let twin = self.draft.tensors.get(id.0 as usize);
                twin.is_some_and(|twin| twin.persistent && twin.bytes == entry.bytes)
            };
            if let Some(twin) = twin.filter(continues) {
                self.tensors.insert(block, twin);
                continue;
            }
            // What ends in this iteration has another in its place in the next.
            let stays = match self.scope.lives {
                Lives::Allocated => !self.scope.freed_before(block, self.scope.stop),
                Lives::Used => self.scope.used_from(block, self.scope.stop),
            };
            let name = number.map_or("before the trace".to_owned(), |_| "before".to_owned());
            self.tensor(block, name, stays);
        }
    }

    fn tensor(&mut self, block: BlockId, name: String, persistent: bool) {
        let bytes = self.scope.stream.blocks()[block].bytes;
        let id = self.draft.tensor(Tensor { name, bytes, role: Role::Other, persistent });
        self.tensors.insert(block, id);
    }

    fn run(&mut self) {
        let stream = self.scope.stream;
        let allocated = self.scope.lives == Lives::Allocated;
        if allocated {
            let waiting =
                self.held(|scope, block| scope.stream.malloc_of(block).is_none_or(|malloc| malloc < scope.begin));
            self.draft.kernel(DraftKernel {
                name: "held from before".to_owned(),
                outputs: waiting,
                ..Default::default()
            });
        }
        let range = self.scope.begin.0 as usize..(self.scope.stop.0 as usize).min(stream.ops().len());
        let ops = stream.ops().values().get(range).unwrap_or_default();
        let next_times = ops.iter().skip(1).map(|op| op.time_ns).chain(self.end_ns());
        // The last operation of a trace takes no time: there is nothing after it.
        for (op, next_ns) in ops.iter().zip(next_times.chain(ops.last().map(|op| op.time_ns))) {
            self.step(*op, next_ns - op.time_ns, allocated);
        }
        if allocated {
            let still = self.held(|scope, block| !scope.freed_before(block, scope.stop));
            self.draft.kernel(DraftKernel {
                name: "held until after".to_owned(),
                outputs: still,
                ..Default::default()
            });
        }
    }

    fn end_ns(&self) -> Option<u64> {
        self.scope.stream.ops().find(self.scope.stop).map(|op| op.time_ns)
    }

    /// The tensors of blocks that are allocated at one of the iteration's ends, those apart that are there all the time.
    fn held(&self, there: impl Fn(&Scope<'_>, BlockId) -> bool) -> Vec<TensorId> {
        let passing = |id: &TensorId| self.draft.tensors.get(id.0 as usize).is_some_and(|tensor| !tensor.persistent);
        let held = self.tensors.iter().filter(|(block, id)| passing(id) && there(&self.scope, **block));
        let mut held: Vec<_> = held.map(|(_, &id)| id).collect();
        held.sort_unstable();
        held
    }

    /// Adds an operation as a kernel. Where blocks live from use to use, those that make and drop them only pass time.
    fn step(&mut self, op: Op, until_next_ns: u64, allocated: bool) {
        let id = |block: BlockId| self.tensors.get(&block).copied();
        let own = |name: &str, inputs: Option<TensorId>, outputs: Option<TensorId>| DraftKernel {
            name: name.to_owned(),
            duration_ns: until_next_ns,
            inputs: inputs.into_iter().collect(),
            outputs: outputs.into_iter().collect(),
        };
        let kernel = match op.kind {
            OpKind::Malloc(block) => own("malloc", None, id(block).filter(|_| allocated)),
            OpKind::Free(block) => own("free", None, id(block).filter(|_| allocated)),
            OpKind::Read(block) => own("read", id(block), None),
            OpKind::Write(block) => own("write", None, id(block)),
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
