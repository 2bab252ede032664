//! Fills of memory.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target, kind::ASYNCHRONOUS};

use crate::{
    cuda::{CuResult, Handle},
    real::hooks,
    recorder::{Recorder, record_success},
};

/// Fill: address, bytes and rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    address: u64,
    bytes: usize,
    rows: usize,
}

impl Fill {
    pub(super) const fn new(address: u64, width: usize, rows: usize, unit_bytes: usize) -> Self {
        Self { address, bytes: width.wrapping_mul(unit_bytes).wrapping_mul(rows), rows }
    }

    pub(super) fn record(self, recorder: &Recorder, target: Target, flags: u8) {
        let words = [self.address, self.bytes as u64, self.rows as u64, 0];
        recorder.record_work(Kind::Fill, flags, target, words, |_| {});
    }
}

fn record_fill(result: CuResult, fill: Fill, flags: u8, stream: Handle, is_per_thread: bool) -> CuResult {
    record_success(result, |recorder| fill.record(recorder, recorder.target(stream, is_per_thread), flags))
}

/// Records a fill in the default stream. The call returns when the fill is complete, except for
/// device memory.
fn record_sync(result: CuResult, fill: Fill, is_per_thread: bool) -> CuResult {
    record_fill(result, fill, 0, 0, is_per_thread)
}

/// Records a fill that was submitted to a stream.
fn record_async(result: CuResult, fill: Fill, stream: Handle, is_per_thread: bool) -> CuResult {
    record_fill(result, fill, ASYNCHRONOUS, stream, is_per_thread)
}

hooks! {
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds = fn(address: u64, value: u8, count: usize) |real, per_thread| {
        record_sync(real(), Fill::new(address, count, 1, 1), per_thread)
    }

    cuMemsetD8Async / cuMemsetD8Async_ptsz = fn(
        address: u64, value: u8, count: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), Fill::new(address, count, 1, 1), stream, per_thread)
    }

    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds = fn(
        address: u64, pitch_bytes: usize, value: u8, width: usize, rows: usize,
    ) |real, per_thread| {
        record_sync(real(), Fill::new(address, width, rows, 1), per_thread)
    }

    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz = fn(
        address: u64, pitch_bytes: usize, value: u8, width: usize, rows: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), Fill::new(address, width, rows, 1), stream, per_thread)
    }

    cuMemsetD16_v2 / cuMemsetD16_v2_ptds = fn(address: u64, value: u16, count: usize) |real, per_thread| {
        record_sync(real(), Fill::new(address, count, 1, 2), per_thread)
    }

    cuMemsetD16Async / cuMemsetD16Async_ptsz = fn(
        address: u64, value: u16, count: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), Fill::new(address, count, 1, 2), stream, per_thread)
    }

    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds = fn(
        address: u64, pitch_bytes: usize, value: u16, width: usize, rows: usize,
    ) |real, per_thread| {
        record_sync(real(), Fill::new(address, width, rows, 2), per_thread)
    }

    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz = fn(
        address: u64, pitch_bytes: usize, value: u16, width: usize, rows: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), Fill::new(address, width, rows, 2), stream, per_thread)
    }

    cuMemsetD32_v2 / cuMemsetD32_v2_ptds = fn(address: u64, value: u32, count: usize) |real, per_thread| {
        record_sync(real(), Fill::new(address, count, 1, 4), per_thread)
    }

    cuMemsetD32Async / cuMemsetD32Async_ptsz = fn(
        address: u64, value: u32, count: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), Fill::new(address, count, 1, 4), stream, per_thread)
    }

    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds = fn(
        address: u64, pitch_bytes: usize, value: u32, width: usize, rows: usize,
    ) |real, per_thread| {
        record_sync(real(), Fill::new(address, width, rows, 4), per_thread)
    }

    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz = fn(
        address: u64, pitch_bytes: usize, value: u32, width: usize, rows: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), Fill::new(address, width, rows, 4), stream, per_thread)
    }
}
