//! Accesses of single lanes, for functions that the driver defines.

use std::sync::PoisonError;

use super::route::Route;
use super::{AccessSpace, Machine};
use crate::{Access, KernelError, MemoryFault};

impl Machine<'_, '_> {
    /// Reads a string of at most 4 KiB at the generic address of one lane; none: the warp parks.
    pub(crate) fn text(&mut self, address: u64, lane: usize) -> Result<Option<Vec<u8>>, KernelError> {
        let mut text = Vec::new();
        for index in 0..4096 {
            match self.byte(address.wrapping_add(index), lane)? {
                None => return Ok(None),
                Some(0) => break,
                Some(byte) => text.push(byte),
            }
        }
        Ok(Some(text))
    }

    /// Reads `N` bytes at the generic address of one lane.
    pub(crate) fn bytes<const N: usize>(&mut self, address: u64, lane: usize) -> Result<Option<[u8; N]>, KernelError> {
        let mut bytes = [0; N];
        for (index, byte) in bytes.iter_mut().enumerate() {
            match self.byte(address.wrapping_add(index as u64), lane)? {
                None => return Ok(None),
                Some(read) => *byte = read,
            }
        }
        Ok(Some(bytes))
    }

    fn byte(&mut self, address: u64, lane: usize) -> Result<Option<u8>, KernelError> {
        let loads = self.counts.loads;
        self.addresses[lane] = address;
        let mask = 1 << lane;
        let remote = match self.route(AccessSpace::Generic, Access::Read, mask, 1)? {
            Route::Park => return Ok(None),
            Route::Each { remote } => remote,
            Route::Direct | Route::Within => false,
        };
        let mut byte = 0;
        self.load_lanes(AccessSpace::Generic, mask, 1, remote, |_, _, _, value: u8| byte = value)?;
        self.counts.loads = loads;
        Ok(Some(byte))
    }

    /// 8 bytes of the running function's frame, in one lane.
    pub(crate) fn argument(&self, offset: u64, lane: usize) -> u64 {
        let start = lane * self.state.local_bytes + (self.state.frame_bytes + offset) as usize;
        let bytes = self.state.local.get(start..).unwrap_or_default();
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Sets bytes of the running function's frame, in one lane.
    pub(crate) fn set_result<const N: usize>(&mut self, offset: u64, lane: usize, value: [u8; N]) {
        let start = lane * self.state.local_bytes + (self.state.frame_bytes + offset) as usize;
        if let Some(bytes) = self.state.local.get_mut(start..start + N) {
            bytes.copy_from_slice(&value);
        }
    }

    /// Allocates from the heap; null without one, or where it is full.
    pub(crate) fn allocate(&mut self, bytes: u64) -> u64 {
        let heap = self.heap.map(|heap| heap.lock().unwrap_or_else(PoisonError::into_inner));
        heap.and_then(|mut heap| heap.allocate(bytes)).unwrap_or_default()
    }

    /// Frees an allocation of the heap, or null.
    pub(crate) fn release(&mut self, address: u64) -> Result<(), KernelError> {
        let heap = self.heap.map(|heap| heap.lock().unwrap_or_else(PoisonError::into_inner));
        if address == 0 || heap.is_some_and(|mut heap| heap.release(address)) {
            return Ok(());
        }
        Err(MemoryFault { address }.into())
    }
}
