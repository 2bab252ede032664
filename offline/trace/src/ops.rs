//! A run of a program as its memory operations, in the order in which the program issued them.

mod recorder;

pub use recorder::Recorder;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    id::{BlockId, Id, LaunchId, MAX_ENTRIES, OpId, SignatureId, Table},
    iteration::Access,
};

/// One allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// As asked for, before any rounding.
    pub bytes: u64,
    /// Where the program's own allocator put it, where the trace tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
}

/// A function and how it is launched: what tells one launch from another without looking into it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// The function, or the kind of copy.
    pub name: String,
    /// Blocks of threads; zeros for what has none.
    #[serde(default)]
    pub grid: [u32; 3],
    /// Threads of a block; zeros for what has none.
    #[serde(default)]
    pub block: [u32; 3],
}

/// Work given to the GPU. The op's time is when it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// What runs.
    pub signature: SignatureId,
    /// In what order with the others.
    #[serde(default)]
    pub stream: u32,
    /// When the GPU began with it, where the trace tells. On the clock of the ops' times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// How long it ran, where the trace tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// The blocks that it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// A block that a launch names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Which block.
    pub block: BlockId,
    /// What for, where the trace tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
}

/// What an op does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// The block begins.
    Malloc(BlockId),
    /// The block ends.
    Free(BlockId),
    /// Something reads the block.
    Read(BlockId),
    /// Something writes the block.
    Write(BlockId),
    /// Work is given to the GPU.
    Launch(LaunchId),
}

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// On the trace's own clock; never less than that of the op before.
    pub time_ns: u64,
    /// What it does.
    #[serde(flatten)]
    pub kind: OpKind,
}

/// A run. Times never go back. A block is allocated at most once and freed at most once, and used only between; what was allocated before the trace
/// began has no malloc, what is still there at its end has no free. All ids are of this stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct OpStream {
    pub(crate) blocks: Table<BlockId, Block>,
    pub(crate) signatures: Table<SignatureId, Signature>,
    pub(crate) launches: Table<LaunchId, Launch>,
    pub(crate) ops: Table<OpId, Op>,
    #[serde(skip)]
    pub(crate) mallocs: Table<BlockId, Option<OpId>>,
    #[serde(skip)]
    pub(crate) frees: Table<BlockId, Option<OpId>>,
}

/// A stream as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    blocks: Vec<Block>,
    #[serde(default)]
    signatures: Vec<Signature>,
    #[serde(default)]
    launches: Vec<Launch>,
    ops: Vec<Op>,
}

impl OpStream {
    /// The allocations.
    #[must_use]
    pub fn blocks(&self) -> &Table<BlockId, Block> {
        &self.blocks
    }

    /// What was launched, each kind once.
    #[must_use]
    pub fn signatures(&self) -> &Table<SignatureId, Signature> {
        &self.signatures
    }

    /// The launches in the order of their ops.
    #[must_use]
    pub fn launches(&self) -> &Table<LaunchId, Launch> {
        &self.launches
    }

    /// All steps in order.
    #[must_use]
    pub fn ops(&self) -> &Table<OpId, Op> {
        &self.ops
    }

    /// Where a block begins; `None` if before the trace.
    #[must_use]
    pub fn malloc_of(&self, block: BlockId) -> Option<OpId> {
        self.mallocs[block]
    }

    /// Where a block ends; `None` if after the trace.
    #[must_use]
    pub fn free_of(&self, block: BlockId) -> Option<OpId> {
        self.frees[block]
    }

    /// Bytes allocated after each op, those from before the trace among them.
    #[must_use]
    pub fn live_bytes(&self) -> Table<OpId, u64> {
        let before = self.mallocs.iter().filter(|(_, op)| op.is_none());
        let mut live: u64 = before.map(|(block, _)| self.blocks[block].bytes).sum();
        let after_each = self.ops.values().iter().map(|op| {
            match op.kind {
                OpKind::Malloc(block) => live += self.blocks[block].bytes,
                OpKind::Free(block) => live -= self.blocks[block].bytes,
                OpKind::Read(_) | OpKind::Write(_) | OpKind::Launch(_) => {}
            }
            live
        });
        after_each.collect()
    }
}

/// Why ops are no stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Invalid {
    #[error("more than {MAX_ENTRIES} ops or blocks")]
    TooMany,
    #[error("the time goes back, from {before_ns} ns to {time_ns} ns")]
    TimeGoesBack { before_ns: u64, time_ns: u64 },
    #[error("a block of no bytes")]
    EmptyBlock,
    #[error("the blocks hold more than 64 bits of bytes")]
    BytesOverflow,
    #[error("{key:#x} is allocated already")]
    AllocatedTwice { key: u64 },
    #[error("{key:#x} is not allocated")]
    NotAllocated { key: u64 },
    #[error("there is no block, launch or signature {index}")]
    Unknown { index: u32 },
}

impl TryFrom<Parts> for OpStream {
    type Error = Invalid;

    fn try_from(Parts { blocks, signatures, launches, ops }: Parts) -> Result<Self, Invalid> {
        let blocks: Table<BlockId, Block> = blocks.into();
        let launches: Table<LaunchId, Launch> = launches.into();
        let known = |block: BlockId| blocks.find(block).ok_or(Invalid::Unknown { index: block.0 });
        let mut recorder = Recorder::default();
        let signatures: Vec<_> = signatures.into_iter().map(|signature| recorder.signature(signature)).collect();
        // What is used without a malloc was there before. An id serves as the key of its block.
        let made: std::collections::HashSet<_> = ops.iter().filter_map(|op| malloc(op.kind)).collect();
        for (id, block) in blocks.iter().filter(|(id, _)| !made.contains(id)) {
            recorder.held_before(u64::from(id.0), block.clone())?;
        }
        for Op { time_ns, kind } in ops {
            let key = |block: BlockId| known(block).map(|_| u64::from(block.0));
            match kind {
                OpKind::Malloc(block) => {
                    recorder.malloc(time_ns, u64::from(block.0), known(block)?.clone()).map(drop)?;
                }
                OpKind::Free(block) => recorder.free(time_ns, key(block)?).map(drop)?,
                OpKind::Read(block) => recorder.read(time_ns, key(block)?)?,
                OpKind::Write(block) => recorder.write(time_ns, key(block)?)?,
                OpKind::Launch(id) => {
                    let launch = launches.find(id).ok_or(Invalid::Unknown { index: id.0 })?;
                    let signature = launch.signature;
                    let signature = signatures.get(signature.index()).ok_or(Invalid::Unknown { index: signature.0 })?;
                    let arguments = launch.arguments.iter().map(|argument| {
                        let key = u64::from(argument.block.0);
                        recorder.block(key).map(|block| Argument { block, ..*argument })
                    });
                    let arguments = arguments.collect::<Result<_, _>>()?;
                    recorder.launch(time_ns, Launch { signature: *signature, arguments, ..launch.clone() })?;
                }
            }
        }
        Ok(recorder.finish())
    }
}

fn malloc(kind: OpKind) -> Option<BlockId> {
    if let OpKind::Malloc(block) = kind { Some(block) } else { None }
}
