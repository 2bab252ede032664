//! Allocations and frees.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, MemoryKind};

use crate::{
    blocks::Block,
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{Recorder, enter_gate, record_success, unique_stream},
};

/// Adds a block, and records its allocation. Variables at its addresses have ended: the program has
/// unloaded them by a call that was not seen, or another thread is just unloading them.
fn add_block(
    recorder: &'static Recorder,
    stream: Handle,
    address: u64,
    bytes: usize,
    kind: MemoryKind,
    is_pooled: bool,
) {
    let end = address.saturating_add(bytes as u64);
    recorder.end_variables(|variable| (address..end).contains(&variable.address));
    add_memory(recorder, stream, address, bytes, kind, is_pooled);
}

/// Adds the block of an allocation or of a variable, and records it.
pub(super) fn add_memory(
    recorder: &Recorder,
    stream: Handle,
    address: u64,
    bytes: usize,
    kind: MemoryKind,
    is_pooled: bool,
) {
    let bytes = bytes as u64;
    let block = Block::new(address, bytes, driver::current_context(), kind == MemoryKind::Managed);
    if !recorder.blocks.add(if is_pooled { block.in_pool() } else { block }) {
        recorder.count_unrecorded();
    }
    recorder.record(Kind::Malloc, 0, [stream, address, bytes, kind as u64, driver::current_device()]);
}

/// Records a successful allocation, whose address the driver has written to `address`.
fn record_allocation(
    result: CuResult,
    stream: Handle,
    address: *const u64,
    bytes: usize,
    kind: MemoryKind,
) -> CuResult {
    record_success(result, |recorder| {
        if let Some(address) = read(address) {
            add_block(recorder, stream, address, bytes, kind, false);
        }
    })
}

/// Kind of a pool's memory: pools may be of managed memory, or of the host's.
fn pool_kind(address: u64) -> MemoryKind {
    if driver::is_managed(address) {
        MemoryKind::Managed
    } else if driver::is_on_host(address) {
        MemoryKind::Host
    } else {
        MemoryKind::Pool
    }
}

/// Records a successful allocation from a pool.
fn record_pool_allocation(result: CuResult, stream: Handle, address: *const u64, bytes: usize) -> CuResult {
    record_success(result, |recorder| {
        if let Some(address) = read(address) {
            add_block(recorder, stream, address, bytes, pool_kind(address), true);
        }
    })
}

/// Records a successful registration of host memory for access by devices.
fn record_registration(result: CuResult, address: u64, bytes: usize) -> CuResult {
    record_success(result, |recorder| add_block(recorder, 0, address, bytes, MemoryKind::Registered, false))
}

/// Frees memory. Records the free before the driver call, because the driver may give the address to
/// another thread after it. If the call fails, restores the entries and records [`Kind::NotFreed`].
fn free(stream: Handle, address: u64, real: impl FnOnce() -> CuResult) -> CuResult {
    let Some((recorder, _call)) = enter_gate().filter(|_| address != 0) else { return real() };
    // Set if the memory was not recorded and has the address of a variable that no longer exists.
    let mut variable = None;
    recorder.variables.remove(|known| known.address == address, |removed| variable = Some(removed));
    // `None` if the block was allocated before the recorder started, or did not fit into the table.
    let block = recorder.remove(address);
    let is_recording = recorder.is_recording();
    if is_recording {
        recorder.record(Kind::Free, 0, [stream, address, 0, 0, 0]);
    }
    let result = real();
    if !result.is_ok() {
        if let Some(block) = block {
            recorder.restore(block);
        }
        if let Some(variable) = variable {
            recorder.variables.insert(variable);
        }
        if is_recording {
            recorder.record(Kind::NotFreed, 0, [stream, address, 0, 0, 0]);
        }
    }
    result
}

hooks! {
    cuMemAllocManaged = fn(address: *mut u64, bytes: usize, flags: u32) |real, per_thread| {
        record_allocation(real(), 0, address, bytes, MemoryKind::Managed)
    }

    cuMemAlloc_v2 = fn(address: *mut u64, bytes: usize) |real, per_thread| {
        record_allocation(real(), 0, address, bytes, MemoryKind::Device)
    }

    cuMemAllocPitch_v2 = fn(
        address: *mut u64, pitch_bytes: *mut usize, width_bytes: usize, rows: usize, unit_bytes: u32,
    ) |real, per_thread| {
        let result = real();
        let pitch_bytes = if result.is_ok() { read(pitch_bytes) } else { None };
        record_allocation(result, 0, address, pitch_bytes.unwrap_or(0).saturating_mul(rows), MemoryKind::Device)
    }

    cuMemAllocAsync / cuMemAllocAsync_ptsz = fn(address: *mut u64, bytes: usize, stream: Handle) |real, per_thread| {
        record_pool_allocation(real(), unique_stream(stream, per_thread), address, bytes)
    }

    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz = fn(
        address: *mut u64, bytes: usize, pool: Handle, stream: Handle,
    ) |real, per_thread| {
        record_pool_allocation(real(), unique_stream(stream, per_thread), address, bytes)
    }

    cuMemAllocHost_v2 = fn(address: *mut u64, bytes: usize) |real, per_thread| {
        record_allocation(real(), 0, address, bytes, MemoryKind::Host)
    }

    cuMemHostAlloc = fn(address: *mut u64, bytes: usize, flags: u32) |real, per_thread| {
        record_allocation(real(), 0, address, bytes, MemoryKind::Host)
    }

    cuMemHostRegister = fn(address: u64, bytes: usize, flags: u32) |real, per_thread| {
        record_registration(real(), address, bytes)
    }

    cuMemHostRegister_v2 = fn(address: u64, bytes: usize, flags: u32) |real, per_thread| {
        record_registration(real(), address, bytes)
    }

    cuMemHostUnregister = fn(address: u64) |real, per_thread| {
        free(0, address, real)
    }

    cuMemFree_v2 = fn(address: u64) |real, per_thread| {
        free(0, address, real)
    }

    cuMemFreeAsync / cuMemFreeAsync_ptsz = fn(address: u64, stream: Handle) |real, per_thread| {
        free(unique_stream(stream, per_thread), address, real)
    }

    cuMemFreeHost = fn(address: u64) |real, per_thread| {
        free(0, address, real)
    }
}
