//! Copies.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target, kind::ASYNCHRONOUS};

use crate::{
    cuda::{Copy2d, Copy3d, CuResult, Handle},
    program::read,
    real::hooks,
    recorder::{Recorder, record_success},
};

/// Copy: source, destination and size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    to: u64,
    from: u64,
    bytes: usize,
    rows: usize,
}

impl Copy {
    const fn flat(to: u64, from: u64, bytes: usize) -> Self {
        Self { to, from, bytes, rows: 1 }
    }

    fn from_2d(copy: *const Copy2d) -> Option<Self> {
        let Copy2d { from, to, width_bytes, rows } = read(copy)?;
        Some(Self { to: to.address(), from: from.address(), bytes: width_bytes.wrapping_mul(rows), rows })
    }

    pub(super) fn from_3d(copy: *const Copy3d) -> Option<Self> {
        let Copy3d { from, to, width_bytes, rows, planes } = read(copy)?;
        let rows = rows.wrapping_mul(planes);
        Some(Self { to: to.address(), from: from.address(), bytes: width_bytes.wrapping_mul(rows), rows })
    }

    pub(super) fn record(self, recorder: &Recorder, target: Target, flags: u8) {
        let words = [self.to, self.from, self.bytes as u64, self.rows as u64];
        recorder.record_work(Kind::Copy, flags, target, words, |_| {});
    }
}

fn record_copy(
    result: CuResult,
    copy: impl FnOnce() -> Option<Copy>,
    flags: u8,
    stream: Handle,
    is_per_thread: bool,
) -> CuResult {
    record_success(result, |recorder| {
        if let Some(copy) = copy() {
            copy.record(recorder, recorder.target(stream, is_per_thread), flags);
        }
    })
}

/// Records a synchronous copy, in the default stream.
fn record_sync(result: CuResult, copy: impl FnOnce() -> Option<Copy>, is_per_thread: bool) -> CuResult {
    record_copy(result, copy, 0, 0, is_per_thread)
}

/// Records a copy that was submitted to a stream.
fn record_async(
    result: CuResult,
    copy: impl FnOnce() -> Option<Copy>,
    stream: Handle,
    is_per_thread: bool,
) -> CuResult {
    record_copy(result, copy, ASYNCHRONOUS, stream, is_per_thread)
}

hooks! {
    cuMemcpy / cuMemcpy_ptds = fn(to: u64, from: u64, bytes: usize) |real, per_thread| {
        record_sync(real(), || Some(Copy::flat(to, from, bytes)), per_thread)
    }

    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds = fn(to: u64, from: u64, bytes: usize) |real, per_thread| {
        record_sync(real(), || Some(Copy::flat(to, from, bytes)), per_thread)
    }

    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds = fn(to: u64, from: u64, bytes: usize) |real, per_thread| {
        record_sync(real(), || Some(Copy::flat(to, from, bytes)), per_thread)
    }

    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds = fn(to: u64, from: u64, bytes: usize) |real, per_thread| {
        record_sync(real(), || Some(Copy::flat(to, from, bytes)), per_thread)
    }

    cuMemcpyPeer / cuMemcpyPeer_ptds = fn(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize,
    ) |real, per_thread| {
        record_sync(real(), || Some(Copy::flat(to, from, bytes)), per_thread)
    }

    cuMemcpyAsync / cuMemcpyAsync_ptsz = fn(to: u64, from: u64, bytes: usize, stream: Handle) |real, per_thread| {
        record_async(real(), || Some(Copy::flat(to, from, bytes)), stream, per_thread)
    }

    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz = fn(
        to: u64, from: u64, bytes: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), || Some(Copy::flat(to, from, bytes)), stream, per_thread)
    }

    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz = fn(
        to: u64, from: u64, bytes: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), || Some(Copy::flat(to, from, bytes)), stream, per_thread)
    }

    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz = fn(
        to: u64, from: u64, bytes: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), || Some(Copy::flat(to, from, bytes)), stream, per_thread)
    }

    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz = fn(
        to: u64, to_context: Handle, from: u64, from_context: Handle, bytes: usize, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), || Some(Copy::flat(to, from, bytes)), stream, per_thread)
    }

    cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds = fn(copy: *const Copy2d) |real, per_thread| {
        record_sync(real(), || Copy::from_2d(copy), per_thread)
    }

    cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds = fn(copy: *const Copy2d) |real, per_thread| {
        record_sync(real(), || Copy::from_2d(copy), per_thread)
    }

    cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds = fn(copy: *const Copy3d) |real, per_thread| {
        record_sync(real(), || Copy::from_3d(copy), per_thread)
    }

    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz = fn(copy: *const Copy2d, stream: Handle) |real, per_thread| {
        record_async(real(), || Copy::from_2d(copy), stream, per_thread)
    }

    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz = fn(copy: *const Copy3d, stream: Handle) |real, per_thread| {
        record_async(real(), || Copy::from_3d(copy), stream, per_thread)
    }
}
