//! Allocations of all contexts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use crate::{
    Error, Result,
    advice::Parts,
    backend::{Backend, Kind, Place, Range},
    handle::Handle,
};

/// An allocation, or registered memory of the host.
#[derive(Debug)]
pub(crate) struct Block {
    /// Addresses, of the length that was asked for.
    pub(crate) range: Range,
    /// Kind.
    pub(crate) kind: Kind,
    /// Memory of the program, registered.
    pub(crate) registered: bool,
    /// Context that allocated it.
    pub(crate) context: Handle,
    /// Device of that context.
    pub(crate) device: usize,
    /// Pool that it is of.
    pub(crate) pool: Option<Handle>,
    /// Flags of `cuMemHostAlloc` and others.
    pub(crate) flags: u32,
    /// Number among all blocks.
    pub(crate) id: u64,
    /// Advice, for managed memory.
    pub(crate) parts: Mutex<Parts>,
}

/// Allocations by address.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: RwLock<BTreeMap<u64, Arc<Block>>>,
    ids: std::sync::atomic::AtomicU64,
}

/// Who allocates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// Context.
    pub(crate) context: Handle,
    /// Its device.
    pub(crate) device: usize,
    /// Pool, if any.
    pub(crate) pool: Option<Handle>,
    /// Flags.
    pub(crate) flags: u32,
}

impl Memory {
    /// Allocates.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn allocate(&self, backend: &dyn Backend, kind: Kind, bytes: u64, owner: Owner) -> Result<Arc<Block>> {
        let address = backend.allocate(kind, bytes).map_err(crate::errors::of_backend)?;
        Ok(self.insert(Range { address, bytes }, kind, false, owner))
    }

    /// Registers memory of the program.
    ///
    /// # Errors
    /// A part of it is registered already.
    pub(crate) fn register(&self, backend: &dyn Backend, memory: Place, bytes: u64, owner: Owner) -> Result<()> {
        let range = Range { address: memory.address(), bytes };
        let last = self.read().range(..range.end()).next_back().map(|(_, block)| block.range.end());
        if last.is_some_and(|end| end > range.address) || backend.in_window(range.address) {
            return Err(Error::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        backend.register(memory, bytes);
        self.insert(range, Kind::Host, true, owner);
        Ok(())
    }

    fn insert(&self, range: Range, kind: Kind, registered: bool, owner: Owner) -> Arc<Block> {
        let Owner { context, device, pool, flags } = owner;
        let id = self.ids.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let parts = Mutex::new(Parts::new(range.address));
        let block = Arc::new(Block { range, kind, registered, context, device, pool, flags, id, parts });
        self.write().insert(range.address, Arc::clone(&block));
        block
    }

    /// Block that begins at an address.
    pub(crate) fn at(&self, address: u64) -> Option<Arc<Block>> {
        self.read().get(&address).cloned()
    }

    /// Block that has an address.
    pub(crate) fn find(&self, address: u64) -> Option<Arc<Block>> {
        let blocks = self.read();
        let (_, block) = blocks.range(..=address).next_back()?;
        (address < block.range.address.saturating_add(block.range.bytes.max(1))).then(|| Arc::clone(block))
    }

    /// Forgets a block, and gives its memory back. Whoever calls it has seen to it that nothing
    /// uses it.
    pub(crate) fn free(&self, backend: &dyn Backend, block: &Block) {
        {
            // Not another one, which has got the address since.
            let mut blocks = self.write();
            if blocks.get(&block.range.address).is_none_or(|found| found.id != block.id) {
                return;
            }
            blocks.remove(&block.range.address);
        }
        if block.registered {
            #[expect(unsafe_code, reason = "an address as a key alone")]
            // SAFETY: not accessed.
            backend.unregister(unsafe { Place::new(block.range.address) });
        } else {
            backend.release(block.kind, block.range);
        }
    }

    /// All blocks, in order of their addresses.
    pub(crate) fn all(&self) -> Vec<Arc<Block>> {
        self.read().values().cloned().collect()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u64, Arc<Block>>> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u64, Arc<Block>>> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }
}
