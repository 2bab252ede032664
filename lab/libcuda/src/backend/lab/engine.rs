//! Copies and fills by an engine of a GPU: accesses of the GPU, as kernels make them.
#![expect(unsafe_code, reason = "copies memory of the devices' views and memory that the program gave")]

use std::ptr;

use gpu::{
    Kind,
    mirror::{Place, Touch},
    swgpu::AccessCounters,
};
use ptx::{Access, MemoryFault};

use super::{PAGE_BYTES, SECTOR_BYTES, device::Device};
use crate::backend::Range;

/// Bytes that are touched, and then transferred, at a time: a VA block.
const STEP_BYTES: u64 = 2 << 20;

/// One side of a transfer.
pub(super) struct Side<'a> {
    /// Address in this process.
    pointer: u64,
    /// Managed memory, which the device accesses by its mirror: its address.
    managed: Option<(&'a Device, u64)>,
}

impl<'a> Side<'a> {
    /// Memory that does not migrate, at an address of this process.
    pub(super) const fn plain(pointer: u64) -> Self {
        Self { pointer, managed: None }
    }

    /// Managed memory that a device accesses.
    pub(super) fn managed(device: &'a Device, range: Range) -> Self {
        Self { pointer: device.view(range.address), managed: Some((device, range.address)) }
    }
}

fn pointer(address: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

/// Engine of a device.
pub(super) struct Engine<'a> {
    device: &'a Device,
    counters: AccessCounters,
}

impl<'a> Engine<'a> {
    pub(super) fn new(device: &'a Device) -> Self {
        Self { device, counters: AccessCounters::default() }
    }

    /// Copies; ranges of ordinary memory may overlap.
    pub(super) fn copy(mut self, to: &Side<'_>, from: &Side<'_>, bytes: u64) -> Result<(), MemoryFault> {
        if to.managed.is_none() && from.managed.is_none() {
            // SAFETY: memory of a device's view, or ordinary memory by the contract of `Place`.
            unsafe { ptr::copy(pointer(from.pointer).cast_const(), pointer(to.pointer), length(bytes)) };
            return Ok(());
        }
        for at in (0..bytes).step_by(length(STEP_BYTES)) {
            let step = STEP_BYTES.min(bytes - at);
            self.touch(from, at, step, Access::Read)?;
            self.touch(to, at, step, Access::Write)?;
            let (to, from) = (pointer(to.pointer + at), pointer(from.pointer + at).cast_const());
            // SAFETY: memory of a device's view, in which the mirror faults in what the GPU cannot translate,
            // or ordinary memory by the contract of `Place`.
            unsafe { ptr::copy(from, to, length(step)) };
        }
        self.finish()
    }

    /// Writes a pattern again and again, `bytes` in all.
    pub(super) fn fill(mut self, to: &Side<'_>, unit: &[u8], bytes: u64) -> Result<(), MemoryFault> {
        if unit.is_empty() || bytes == 0 {
            return Ok(());
        }
        let unit_bytes = unit.len() as u64;
        // Whole units, so that each step begins with one.
        let step_bytes = STEP_BYTES / unit_bytes * unit_bytes;
        let pattern: Vec<u8> = unit.iter().copied().cycle().take(length(step_bytes.min(bytes))).collect();
        for at in (0..bytes).step_by(length(step_bytes)) {
            let step = step_bytes.min(bytes - at);
            self.touch(to, at, step, Access::Write)?;
            // SAFETY: memory of a device's view, or ordinary memory by the contract of `Place`.
            unsafe { ptr::copy_nonoverlapping(pattern.as_ptr(), pointer(to.pointer + at), length(step)) };
        }
        self.finish()
    }

    /// Faults in the pages of a part of a side, and counts those that stay remote.
    fn touch(&mut self, side: &Side<'_>, at: u64, bytes: u64, access: Access) -> Result<(), MemoryFault> {
        let Some((device, address)) = side.managed else { return Ok(()) };
        let range = Range { address: address + at, bytes };
        self.counters.accesses += bytes.div_ceil(SECTOR_BYTES);
        let kind = if access == Access::Write { Kind::Write } else { Kind::Read };
        let pages = (range.address & !(PAGE_BYTES - 1)..range.end()).step_by(length(PAGE_BYTES));
        let missing = pages.filter(|page| !device.permits(*page, access.permission()));
        let mut touches: Vec<Touch> = missing.map(|page| Touch::new(page, kind)).collect();
        if touches.is_empty() {
            return Ok(());
        }
        let fault = MemoryFault { address: range.address };
        device.space.touch(&mut touches, device.window).map_err(|_| fault)?;
        for touch in touches {
            // Of the first and the last page, a part.
            let begin = touch.address().max(range.address);
            let bytes = range.end().min(touch.address() + PAGE_BYTES) - begin;
            let millibytes = bytes * 1000;
            match (touch.place(), access) {
                (Place::Host, Access::Read) => self.counters.remote_htod_millibytes += millibytes,
                (Place::Host, _) => self.counters.remote_dtoh_millibytes += millibytes,
                (Place::Peer, Access::Read) => self.counters.remote_from_peer_millibytes += millibytes,
                (Place::Peer, _) => self.counters.remote_to_peer_millibytes += millibytes,
                (Place::Local | Place::Other, _) => continue,
            }
            self.counters.remote_accesses += bytes.div_ceil(SECTOR_BYTES);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), MemoryFault> {
        match self.device.space.accessed(self.counters) {
            Ok(true) => Ok(()),
            _ => Err(MemoryFault { address: 0 }),
        }
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
