//! Memory operations of a run, in the order in which the program issued them.

mod recorder;

pub use recorder::Recorder;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    id::{BlockId, Id, LaunchId, MAX_ENTRIES, OpId, SignatureId, Table},
    iteration::Access,
};

/// Allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Requested size, before any rounding.
    pub bytes: u64,
    /// Address from the program's allocator, if the trace records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
}

/// Function and launch configuration: the identity of a launch without its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// Name of the function, or kind of copy.
    pub name: String,
    /// Grid dimensions in thread blocks; zeros for copies and fills.
    #[serde(default)]
    pub grid: [u32; 3],
    /// Block dimensions in threads; zeros for copies and fills.
    #[serde(default)]
    pub block: [u32; 3],
}

/// Launch of work on the GPU. The time of its op is the time of submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Function and launch configuration.
    pub signature: SignatureId,
    /// CUDA stream, within which launches run in order.
    #[serde(default)]
    pub stream: u32,
    /// Start on the GPU, if the trace records it, by the clock of the ops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// Duration on the GPU, if the trace records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<u64>,
    /// Blocks that the launch names; a block once for each address in it, if the trace records
    /// these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Argument>,
}

/// Block that a launch names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Id of the block.
    pub block: BlockId,
    /// Kind of access, if the trace records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Offset in the block of the address that the launch has, if the trace records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
    /// Bytes from there that the launch accesses, if the trace records it, as of copies and fills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Argument {
    /// Block of which nothing else is known.
    #[must_use]
    pub const fn of(block: BlockId) -> Self {
        Self { block, access: None, offset_bytes: None, bytes: None }
    }
}

/// What the program waits for in a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncKind {
    /// All work of a context.
    Context,
    /// Work of a stream.
    Stream,
    /// An event.
    Event,
    /// A copy to host memory, such as that of a loss.
    Copy,
}

/// Kind of op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// Allocation of a block.
    Malloc(BlockId),
    /// Free of a block.
    Free(BlockId),
    /// Read of a block.
    Read(BlockId),
    /// Write of a block.
    Write(BlockId),
    /// Launch of work on the GPU.
    Launch(LaunchId),
    /// Wait of the program for the GPU.
    Sync(SyncKind),
}

/// Operation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// Time by the trace's own clock; never less than that of the previous op.
    pub time_ns: u64,
    /// Kind.
    #[serde(flatten)]
    pub kind: OpKind,
}

/// Operations of a run, validated. Times never decrease. A block is allocated at most once, freed
/// at most once, and used only between. A block from before the trace has no malloc; one alive at
/// its end has no free. All ids are of this stream.
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

/// Stream in JSON, before validation.
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
    /// All blocks.
    #[must_use]
    pub fn blocks(&self) -> &Table<BlockId, Block> {
        &self.blocks
    }

    /// Signatures of the launches, each once.
    #[must_use]
    pub fn signatures(&self) -> &Table<SignatureId, Signature> {
        &self.signatures
    }

    /// All launches in the order of their ops.
    #[must_use]
    pub fn launches(&self) -> &Table<LaunchId, Launch> {
        &self.launches
    }

    /// All ops in order.
    #[must_use]
    pub fn ops(&self) -> &Table<OpId, Op> {
        &self.ops
    }

    /// Malloc of a block; `None` if before the trace.
    #[must_use]
    pub fn malloc_of(&self, block: BlockId) -> Option<OpId> {
        self.mallocs[block]
    }

    /// Free of a block; `None` if not within the trace.
    #[must_use]
    pub fn free_of(&self, block: BlockId) -> Option<OpId> {
        self.frees[block]
    }

    /// Bytes allocated after each op, blocks from before the trace included.
    #[must_use]
    pub fn live_bytes(&self) -> Table<OpId, u64> {
        let before = self.mallocs.iter().filter(|(_, op)| op.is_none());
        let mut live: u64 = before.map(|(block, _)| self.blocks[block].bytes).sum();
        let after_each = self.ops.values().iter().map(|op| {
            match op.kind {
                OpKind::Malloc(block) => live += self.blocks[block].bytes,
                OpKind::Free(block) => live -= self.blocks[block].bytes,
                OpKind::Read(_) | OpKind::Write(_) | OpKind::Launch(_) | OpKind::Sync(_) => {}
            }
            live
        });
        after_each.collect()
    }
}

/// Reason why ops are not a valid stream.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "documented by the messages")]
pub enum Invalid {
    #[error("more than {MAX_ENTRIES} ops or blocks")]
    TooMany,
    #[error("time decreases from {before_ns} ns to {time_ns} ns")]
    TimeDecreases { before_ns: u64, time_ns: u64 },
    #[error("block of 0 bytes")]
    EmptyBlock,
    #[error("the sum of block sizes exceeds 64 bits")]
    BytesOverflow,
    #[error("{key:#x} is already allocated")]
    AllocatedTwice { key: u64 },
    #[error("{key:#x} is not allocated")]
    NotAllocated { key: u64 },
    #[error("unknown block, launch or signature {index}")]
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
        // Blocks without a malloc are from before the trace. The id of a block is its key.
        let allocated: std::collections::HashSet<_> = ops.iter().filter_map(|op| malloc(op.kind)).collect();
        for (id, block) in blocks.iter().filter(|(id, _)| !allocated.contains(id)) {
            recorder.preallocated(u64::from(id.0), block.clone())?;
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
                OpKind::Sync(kind) => recorder.sync(time_ns, kind)?,
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
