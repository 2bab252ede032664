//! Stream of operations from recorded calls, for planners and the simulator.

use std::collections::HashMap;

use call_ring::{Dim3, call::Call};
use thiserror::Error;
use trace::{
    BlockId, Recorder,
    ops::{Argument, Block, Invalid, Launch, OpStream, Signature},
};

use crate::program::{Effect, Program, Work};

/// Maximum number of operations of a stream, plus arguments of its launches. A program can multiply
/// both by graphs.
const OPS_MAX: usize = 1 << 18;
/// Maximum bytes of the names of all signatures: each has a copy of its function's name.
const NAMES_BYTES_MAX: usize = 4 << 20;

/// Reason why calls are not a valid stream of operations.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpsError {
    /// A count exceeds its limit.
    #[error("a trace of recorded calls has at most {max} {items}, and this one would have more")]
    TooLarge {
        /// Items that are counted.
        items: &'static str,
        /// Maximum number of them in a stream.
        max: usize,
    },
    /// The operations are not valid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Builder of a stream from calls in order. Pointers to unknown memory are omitted.
#[derive(Debug, Default)]
pub struct Ops {
    recorder: Recorder,
    program: Program,
    streams: HashMap<u64, u32>,
    /// Time of the last call, which never decreases.
    time_ns: u64,
    /// Number of operations and arguments so far.
    count: usize,
    /// Number of signatures so far, and bytes of their names.
    signatures: usize,
    names_bytes: usize,
}

fn dimensions(Dim3 { x, y, z }: Dim3) -> [u32; 3] {
    [x, y.into(), z.into()]
}

impl Ops {
    /// Builder of a stream that starts from a state of the program. Its memory counts as allocated
    /// at `time_ns`.
    ///
    /// # Errors
    /// If the program has too much memory, or too many blocks.
    pub fn with_program(program: Program, time_ns: u64) -> Result<Self, OpsError> {
        let mut ops = Self { time_ns, ..Self::default() };
        for block in program.live() {
            ops.malloc(block.address, block.bytes)?;
        }
        Ok(Self { program, ..ops })
    }

    /// Adds a call.
    ///
    /// # Errors
    /// If the stream would have too many operations, or too many bytes.
    pub fn add(&mut self, call: &Call) -> Result<(), OpsError> {
        // Times may decrease, as threads take the time before the number.
        self.time_ns = self.time_ns.max(call.stamp.time_ns);
        let sync = self.program.sync(call);
        let effects = self.program.apply(&call.action);
        let arguments = effects.iter().map(|effect| match effect {
            Effect::Launch { work, .. } => 1 + work.addresses.len(),
            Effect::Malloc { .. } | Effect::Free { .. } => 1,
        });
        let added = arguments.sum::<usize>() + usize::from(sync.is_some());
        self.count = self.count.saturating_add(added);
        if self.count > OPS_MAX {
            return Err(OpsError::TooLarge { items: "operations and arguments", max: OPS_MAX });
        }
        for effect in effects {
            match effect {
                Effect::Malloc { address, bytes } => self.malloc(address, bytes)?,
                Effect::Free { address } => drop(self.recorder.free(self.time_ns, address)?),
                Effect::Launch { stream, work } => self.launch(stream, work)?,
            }
        }
        if let Some(kind) = sync {
            self.recorder.sync(self.time_ns, kind)?;
        }
        Ok(())
    }

    /// Completes the stream.
    #[must_use]
    pub fn finish(self) -> OpStream {
        self.recorder.finish()
    }

    fn malloc(&mut self, address: u64, bytes: u64) -> Result<(), OpsError> {
        self.recorder.malloc(self.time_ns, address, Block { bytes, address: Some(address) })?;
        Ok(())
    }

    fn launch(&mut self, stream: u64, Work { function, grid, block, addresses, bytes }: Work) -> Result<(), OpsError> {
        let mut arguments: Vec<Argument> = Vec::new();
        for address in addresses.iter().copied() {
            if let Some((block, offset)) = self.block(address) {
                let argument = Argument { offset_bytes: Some(offset), bytes, ..Argument::of(block) };
                if !arguments.contains(&argument) {
                    arguments.push(argument);
                }
            }
        }
        let count = u32::try_from(self.streams.len()).map_err(|_| Invalid::TooMany)?;
        let stream = *self.streams.entry(stream).or_insert(count);
        let name = self.program.name(function).into_owned();
        let signature = Signature { name, grid: dimensions(grid), block: dimensions(block) };
        let name_bytes = signature.name.len();
        let signature = self.recorder.signature(signature);
        if signature.0 as usize >= self.signatures {
            self.signatures += 1;
            self.names_bytes += name_bytes;
        }
        if self.names_bytes > NAMES_BYTES_MAX {
            return Err(OpsError::TooLarge { items: "bytes of function names", max: NAMES_BYTES_MAX });
        }
        let launch = Launch { signature, stream, start_ns: None, duration_ns: None, arguments };
        self.recorder.launch(self.time_ns, launch)?;
        Ok(())
    }

    /// Live block that contains an address, and the offset in it.
    fn block(&self, address: u64) -> Option<(BlockId, u64)> {
        let begin = self.program.block(address)?.address;
        self.recorder.block(begin).ok().map(|block| (block, address - begin))
    }
}

#[cfg(test)]
mod tests {
    use call_ring::{
        MemoryKind, Stamp, SyncKind, Target,
        call::{Action, Pointer},
    };
    use trace::ops::{self, OpKind};

    use super::*;

    fn call(time_ns: u64, action: Action) -> Call {
        Call {
            stamp: Stamp { sequence: 0, time_ns, thread: 1 },
            is_asynchronous: false,
            is_cut: false,
            number: None,
            action,
        }
    }

    fn malloc(address: u64) -> Action {
        Action::Malloc { stream: 0, address, bytes: 4096, kind: MemoryKind::Managed, device: 0 }
    }

    fn launch(target: Target, addresses: &[u64]) -> Action {
        let pointers = addresses.iter().map(|address| Pointer { offset_bytes: 0, address: *address }).collect();
        let one = Dim3::new(1, 1, 1);
        Action::Launch { target, function: 5, grid: one, block: one, shared_bytes: 0, pointers: Some(pointers) }
    }

    fn stream(actions: Vec<Action>) -> OpStream {
        let mut ops = Ops::default();
        for (time_ns, action) in (0..).zip(actions) {
            ops.add(&call(time_ns, action)).unwrap();
        }
        ops.finish()
    }

    #[test]
    fn launch_names_each_address_in_a_live_block_once() {
        let stream = stream(vec![
            malloc(0x10000),
            malloc(0x20000),
            Action::Function { function: 5, name: "add".to_owned() },
            launch(Target::Stream(9), &[0x10000, 0x10ff8, 0x20008, 0x10ff8, 0x30000]),
            Action::Free { stream: 0, address: 0x10000 },
            launch(Target::Stream(9), &[0x10000, 0x20000]),
        ]);
        let blocks = |at: usize| {
            let launch = &stream.launches().values()[at];
            launch.arguments.iter().map(|argument| (argument.block.0, argument.offset_bytes)).collect::<Vec<_>>()
        };
        assert_eq!(blocks(0), [(0, Some(0)), (0, Some(0xff8)), (1, Some(8))]);
        assert_eq!(blocks(1), [(1, Some(0))]);
        assert_eq!(stream.signatures().values()[0].name, "add");
    }

    #[test]
    fn operations_beyond_the_maximum_are_refused() {
        let mut ops = Ops { count: OPS_MAX - 1, ..Ops::default() };
        ops.add(&call(0, malloc(0x10000))).unwrap();
        let refused = ops.add(&call(1, malloc(0x20000)));
        assert_eq!(refused, Err(OpsError::TooLarge { items: "operations and arguments", max: OPS_MAX }));
    }

    #[test]
    fn synchronous_copy_to_the_host_is_a_sync() {
        let target = Target::Stream(0);
        let copy = |to, from| Action::Copy { target, to, from, bytes: 4, rows: 1 };
        let pinned = Action::Malloc { stream: 0, address: 0x20000, bytes: 4096, kind: MemoryKind::Host, device: 0 };
        let mut ops = Ops::default();
        let actions = [
            (malloc(0x10000), false),
            (pinned, false),
            (copy(0x10000, 0x20000), false),
            (copy(0x20000, 0x10000), true),
            (Action::Sync { kind: SyncKind::Stream, handle: 0 }, false),
            (copy(0x20000, 0x10000), false),
            (copy(0x7000, 0x10008), false),
        ];
        for (action, is_asynchronous) in actions {
            ops.add(&Call { is_asynchronous, ..call(1, action) }).unwrap();
        }
        let launch = |id| OpKind::Launch(trace::LaunchId(id));
        let [stream, copy] = [ops::SyncKind::Stream, ops::SyncKind::Copy].map(OpKind::Sync);
        let stream_of_ops = ops.finish();
        let kinds: Vec<OpKind> = stream_of_ops.ops().values().iter().map(|op| op.kind).skip(2).collect();
        assert_eq!(kinds, [launch(0), launch(1), stream, launch(2), copy, launch(3), copy]);
    }

    #[test]
    fn graph_launch_expands_to_the_launches_of_its_nodes() {
        let node = |node| Target::Graph { graph: 7, node };
        let stream = stream(vec![
            malloc(0x10000),
            malloc(0x20000),
            launch(node(1), &[0x10000]),
            launch(node(2), &[0x20000]),
            Action::GraphInstantiated { graph: 7, executable: 8 },
            Action::GraphLaunch { stream: 1, executable: 8 },
            launch(Target::Executable { executable: 8, node: 1 }, &[0x20000]),
            Action::GraphLaunch { stream: 1, executable: 8 },
        ]);
        let blocks: Vec<u32> = stream.launches().values().iter().map(|launch| launch.arguments[0].block.0).collect();
        assert_eq!(blocks, [0, 1, 1, 1]);
    }

    #[test]
    fn stream_begins_with_the_memory_that_the_program_had_before() {
        let mut program = Program::default();
        for action in [malloc(0x10000), malloc(0x20000), Action::Free { stream: 0, address: 0x10000 }] {
            program.apply(&action);
        }
        program.apply(&Action::Function { function: 5, name: "add".to_owned() });
        let mut ops = Ops::with_program(program, 7).unwrap();
        ops.add(&call(9, launch(Target::Stream(9), &[0x10000, 0x20000]))).unwrap();
        let stream = ops.finish();
        let kinds: Vec<(u64, OpKind)> = stream.ops().values().iter().map(|op| (op.time_ns, op.kind)).collect();
        assert_eq!(kinds, [(7, OpKind::Malloc(BlockId(0))), (9, OpKind::Launch(trace::LaunchId(0)))]);
        assert_eq!(stream.launches().values()[0].arguments.len(), 1);
        assert_eq!(stream.signatures().values()[0].name, "add");
    }

    #[test]
    fn address_that_is_allocated_again_without_a_free_is_another_block() {
        let stream = stream(vec![malloc(0x10000), malloc(0x10000)]);
        let kinds: Vec<OpKind> = stream.ops().values().iter().map(|op| op.kind).collect();
        assert_eq!(kinds, [OpKind::Malloc(BlockId(0)), OpKind::Free(BlockId(0)), OpKind::Malloc(BlockId(1))]);
    }

    #[test]
    fn name_bytes_of_a_stream_are_bounded() {
        let mut ops = Ops::default();
        ops.add(&call(0, Action::Function { function: 5, name: "x".repeat(1024) })).unwrap();
        let launch = |x| Action::Launch {
            target: Target::Stream(0),
            function: 5,
            grid: Dim3::new(x, 1, 1),
            block: Dim3::new(1, 1, 1),
            shared_bytes: 0,
            pointers: None,
        };
        let added = (1..20_000).take_while(|x| ops.add(&call(1, launch(*x))).is_ok()).count();
        assert_eq!(added, NAMES_BYTES_MAX / 1024);
        // A launch with a known configuration adds no bytes.
        let mut ops = Ops::default();
        assert!((0..20_000).all(|x| ops.add(&call(1, launch(1 + x % 10))).is_ok()));
    }
}
