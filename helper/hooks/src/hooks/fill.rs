//! Fills of memory.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, kind::ASYNCHRONOUS};

use crate::{
    cuda::{CuResult, Handle},
    real::hooks,
    recorder::recording,
};

fn fills(
    result: CuResult,
    address: u64,
    (bytes, rows): (usize, usize),
    flags: u8,
    stream: Handle,
    is_per_thread: bool,
) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        let words = [address, bytes.wrapping_mul(rows) as u64, rows as u64, 0];
        recorder.record_work(Kind::Fill, flags, recorder.target(stream, is_per_thread), words, |_| {});
    }
    result
}

/// Fills whose program waits for them, but for device memory, in the default stream.
fn now(result: CuResult, address: u64, size: (usize, usize), is_per_thread: bool) -> CuResult {
    fills(result, address, size, 0, 0, is_per_thread)
}

/// Fills that are submitted to a stream.
fn later(result: CuResult, address: u64, size: (usize, usize), stream: Handle, is_per_thread: bool) -> CuResult {
    fills(result, address, size, ASYNCHRONOUS, stream, is_per_thread)
}

hooks! {
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds = fn(address: u64, value: u8, count: usize) |real, per_thread| {
        now(real(), address, (count, 1), per_thread)
    }

    cuMemsetD8Async / cuMemsetD8Async_ptsz = fn(address: u64, value: u8, count: usize, stream: Handle)
        |real, per_thread|
    {
        later(real(), address, (count, 1), stream, per_thread)
    }

    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds = fn(address: u64, pitch_bytes: usize, value: u8, width: usize, rows: usize) |real, per_thread|
    {
        now(real(), address, (width, rows), per_thread)
    }

    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz = fn(address: u64, pitch_bytes: usize, value: u8, width: usize, rows: usize, stream: Handle) |real, per_thread|
    {
        later(real(), address, (width, rows), stream, per_thread)
    }

    cuMemsetD16_v2 / cuMemsetD16_v2_ptds = fn(address: u64, value: u16, count: usize) |real, per_thread| {
        now(real(), address, (count.wrapping_mul(2), 1), per_thread)
    }

    cuMemsetD16Async / cuMemsetD16Async_ptsz = fn(address: u64, value: u16, count: usize, stream: Handle)
        |real, per_thread|
    {
        later(real(), address, (count.wrapping_mul(2), 1), stream, per_thread)
    }

    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds = fn(address: u64, pitch_bytes: usize, value: u16, width: usize, rows: usize) |real, per_thread|
    {
        now(real(), address, (width.wrapping_mul(2), rows), per_thread)
    }

    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz = fn(address: u64, pitch_bytes: usize, value: u16, width: usize, rows: usize, stream: Handle) |real, per_thread|
    {
        later(real(), address, (width.wrapping_mul(2), rows), stream, per_thread)
    }

    cuMemsetD32_v2 / cuMemsetD32_v2_ptds = fn(address: u64, value: u32, count: usize) |real, per_thread| {
        now(real(), address, (count.wrapping_mul(4), 1), per_thread)
    }

    cuMemsetD32Async / cuMemsetD32Async_ptsz = fn(address: u64, value: u32, count: usize, stream: Handle)
        |real, per_thread|
    {
        later(real(), address, (count.wrapping_mul(4), 1), stream, per_thread)
    }

    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds = fn(address: u64, pitch_bytes: usize, value: u32, width: usize, rows: usize) |real, per_thread|
    {
        now(real(), address, (width.wrapping_mul(4), rows), per_thread)
    }

    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz = fn(address: u64, pitch_bytes: usize, value: u32, width: usize, rows: usize, stream: Handle) |real, per_thread|
    {
        later(real(), address, (width.wrapping_mul(4), rows), stream, per_thread)
    }
}
