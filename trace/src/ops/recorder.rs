//! Construction of a stream of operations.

use std::collections::HashMap;

use crate::{
    id::{BlockId, Id, LaunchId, MAX_ENTRIES, OpId, SignatureId},
    ops::{Argument, Block, Invalid, Launch, Op, OpKind, OpStream, Signature, SyncKind},
};

/// Builder of a stream from ops that name blocks by keys: addresses, or other identifiers of the
/// trace. A key may be reused after its block is freed.
#[derive(Debug, Default)]
pub struct Recorder {
    stream: OpStream,
    live: HashMap<u64, BlockId>,
    signature_ids: HashMap<Signature, SignatureId>,
    bytes: u64,
}

impl Recorder {
    /// Returns the id of a signature; adds the signature if it is new.
    pub fn signature(&mut self, signature: Signature) -> SignatureId {
        if let Some(id) = self.signature_ids.get(&signature) {
            return *id;
        }
        let id = self.stream.signatures.push(signature.clone());
        self.signature_ids.insert(signature, id);
        id
    }

    /// Returns the block that is allocated under a key.
    ///
    /// # Errors
    /// If no block is allocated under the key.
    pub fn block(&self, key: u64) -> Result<BlockId, Invalid> {
        self.live.get(&key).copied().ok_or(Invalid::NotAllocated { key })
    }

    /// Records a block from before the trace.
    ///
    /// # Errors
    /// If the key is in use, or the block is empty.
    pub fn preallocated(&mut self, key: u64, block: Block) -> Result<BlockId, Invalid> {
        if block.bytes == 0 {
            return Err(Invalid::EmptyBlock);
        }
        if self.live.contains_key(&key) {
            return Err(Invalid::AllocatedTwice { key });
        }
        if self.stream.blocks.len() >= MAX_ENTRIES {
            return Err(Invalid::TooMany);
        }
        self.bytes = self.bytes.checked_add(block.bytes).ok_or(Invalid::BytesOverflow)?;
        let id = self.stream.blocks.push(block);
        self.stream.mallocs.push(None);
        self.stream.frees.push(None);
        self.live.insert(key, id);
        Ok(id)
    }

    /// Records the allocation of a block.
    ///
    /// # Errors
    /// If the key is in use, the block is empty, or the time decreases.
    pub fn malloc(&mut self, time_ns: u64, key: u64, block: Block) -> Result<BlockId, Invalid> {
        self.check_time(time_ns)?;
        let id = self.preallocated(key, block)?;
        self.stream.mallocs[id] = Some(self.push(time_ns, OpKind::Malloc(id))?);
        Ok(id)
    }

    /// Records the free of a block.
    ///
    /// # Errors
    /// If no block is allocated under the key, or the time decreases.
    pub fn free(&mut self, time_ns: u64, key: u64) -> Result<BlockId, Invalid> {
        let id = self.block(key)?;
        self.stream.frees[id] = Some(self.push(time_ns, OpKind::Free(id))?);
        self.live.remove(&key);
        Ok(id)
    }

    /// Records a read of a block.
    ///
    /// # Errors
    /// If no block is allocated under the key, or the time decreases.
    pub fn read(&mut self, time_ns: u64, key: u64) -> Result<(), Invalid> {
        self.push(time_ns, OpKind::Read(self.block(key)?)).map(drop)
    }

    /// Records a write of a block.
    ///
    /// # Errors
    /// If no block is allocated under the key, or the time decreases.
    pub fn write(&mut self, time_ns: u64, key: u64) -> Result<(), Invalid> {
        self.push(time_ns, OpKind::Write(self.block(key)?)).map(drop)
    }

    /// Removes the last op if it is a write of the block under a key, for traces that log a write
    /// for other reasons.
    pub fn undo_write(&mut self, key: u64) {
        let last = self.stream.ops.values().last().map(|op| op.kind);
        if last.is_some() && last == self.block(key).ok().map(OpKind::Write) {
            self.stream.ops.pop();
        }
    }

    /// Records a launch of work on the GPU.
    ///
    /// # Errors
    /// If the launch names an unknown block or signature, or a freed block, or the time decreases.
    pub fn launch(&mut self, time_ns: u64, launch: Launch) -> Result<LaunchId, Invalid> {
        if self.stream.signatures.find(launch.signature).is_none() {
            return Err(Invalid::Unknown { index: launch.signature.0 });
        }
        for Argument { block, .. } in &launch.arguments {
            if self.stream.frees.find(*block) != Some(&None) {
                return Err(Invalid::Unknown { index: block.0 });
            }
        }
        let id = LaunchId::new(self.stream.launches.len());
        self.push(time_ns, OpKind::Launch(id))?;
        self.stream.launches.push(launch);
        Ok(id)
    }

    /// Records a wait of the program for the GPU.
    ///
    /// # Errors
    /// If the time decreases.
    pub fn sync(&mut self, time_ns: u64, kind: SyncKind) -> Result<(), Invalid> {
        self.push(time_ns, OpKind::Sync(kind)).map(drop)
    }

    /// Returns the recorded stream.
    #[must_use]
    pub fn finish(self) -> OpStream {
        self.stream
    }

    fn check_time(&self, time_ns: u64) -> Result<(), Invalid> {
        let before_ns = self.stream.ops.values().last().map_or(0, |op| op.time_ns);
        if time_ns < before_ns { Err(Invalid::TimeDecreases { before_ns, time_ns }) } else { Ok(()) }
    }

    fn push(&mut self, time_ns: u64, kind: OpKind) -> Result<OpId, Invalid> {
        self.check_time(time_ns)?;
        if self.stream.ops.len() >= MAX_ENTRIES {
            return Err(Invalid::TooMany);
        }
        Ok(self.stream.ops.push(Op { time_ns, kind }))
    }
}
