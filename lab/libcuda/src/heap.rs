//! Memory that a context's kernels allocate by `malloc`.

use std::sync::{Arc, Mutex, PoisonError};

use ptx::Heap;

use crate::{
    Error, Result,
    backend::{Kind, Range},
    errors::of_backend,
    machine::Machine,
};

/// Size of a heap unless `cuCtxSetLimit` sets another.
pub(crate) const HEAP_BYTES: u64 = 8 << 20;

/// Heap of a context, which has memory from the first kernel on that allocates.
#[derive(Debug)]
pub(crate) struct DeviceHeap {
    device: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: u64,
    memory: Option<(Range, Arc<Mutex<Heap>>)>,
}

impl DeviceHeap {
    pub(crate) const fn new(device: usize) -> Self {
        Self { device, state: Mutex::new(State { bytes: HEAP_BYTES, memory: None }) }
    }

    /// Sets the size.
    ///
    /// # Errors
    /// A kernel uses the heap already.
    pub(crate) fn set_bytes(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.memory.is_some() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        state.bytes = bytes;
        Ok(())
    }

    /// Heap for a kernel.
    ///
    /// # Errors
    /// The device has no memory for it.
    pub(crate) fn get(&self, machine: &Machine) -> Result<Arc<Mutex<Heap>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, heap)) = &state.memory {
            return Ok(Arc::clone(heap));
        }
        let bytes = state.bytes;
        let address = machine.backend.allocate(Kind::Device(self.device), bytes).map_err(of_backend)?;
        let heap = Arc::new(Mutex::new(Heap::new(address, bytes)));
        state.memory = Some((Range { address, bytes }, Arc::clone(&heap)));
        Ok(heap)
    }

    /// Gives the memory back, which no kernel uses any more.
    pub(crate) fn release(&self, machine: &Machine) {
        let memory = self.state.lock().unwrap_or_else(PoisonError::into_inner).memory.take();
        if let Some((range, _)) = memory {
            machine.backend.release(Kind::Device(self.device), range);
        }
    }
}
