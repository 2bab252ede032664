//! Copies.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target, kind::ASYNCHRONOUS};

use crate::{
    cuda::{BatchCopy, Copy2d, Copy3d, CuResult, Handle},
    program::{read, read_at},
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

    /// Copy of a batch; `None` if one side is an array, whose elements have an unknown size.
    fn from_batch(copy: &BatchCopy) -> Option<Self> {
        let [width_bytes, height, depth] = copy.extent;
        let rows = height.wrapping_mul(depth);
        let bytes = width_bytes.wrapping_mul(rows);
        Some(Self { to: copy.to.address()?, from: copy.from.address()?, bytes, rows })
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

/// Records copies that were submitted to a stream by one call. `None` is a copy that is not recorded.
fn record_batch(
    result: CuResult,
    copies: impl Iterator<Item = Option<Copy>>,
    stream: Handle,
    is_per_thread: bool,
) -> CuResult {
    record_success(result, |recorder| {
        let target = recorder.target(stream, is_per_thread);
        for copy in copies {
            match copy {
                Some(copy) => copy.record(recorder, target, ASYNCHRONOUS),
                None => recorder.count_unrecorded(),
            }
        }
    })
}

/// Copies of three arrays. A size of 0 is no copy.
fn flat_batch(
    to: *const u64,
    from: *const u64,
    sizes: *const usize,
    count: usize,
) -> impl Iterator<Item = Option<Copy>> {
    let copies = (0..count).map(move |at| Some(Copy::flat(read_at(to, at)?, read_at(from, at)?, read_at(sizes, at)?)));
    copies.filter(|copy| copy.is_none_or(|copy| copy.bytes != 0))
}

/// Copies of an array of operations.
fn batch(list: *const BatchCopy, count: usize) -> impl Iterator<Item = Option<Copy>> {
    (0..count).map(move |at| Copy::from_batch(&read_at(list, at)?))
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

    cuMemcpy3DPeer / cuMemcpy3DPeer_ptds = fn(copy: *const Copy3d) |real, per_thread| {
        record_sync(real(), || Copy::from_3d(copy), per_thread)
    }

    cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz = fn(copy: *const Copy3d, stream: Handle) |real, per_thread| {
        record_async(real(), || Copy::from_3d(copy), stream, per_thread)
    }

    cuMemcpyWithAttributesAsync / cuMemcpyWithAttributesAsync_ptsz = fn(
        to: u64, from: u64, bytes: usize, attributes: *mut u8, stream: Handle,
    ) |real, per_thread| {
        record_async(real(), || Some(Copy::flat(to, from, bytes)), stream, per_thread)
    }

    cuMemcpy3DWithAttributesAsync / cuMemcpy3DWithAttributesAsync_ptsz = fn(
        copy: *const BatchCopy, flags: u64, stream: Handle,
    ) |real, per_thread| {
        record_batch(real(), batch(copy, 1), stream, per_thread)
    }

    // The arrays are read after the call, and the driver has read them in it.
    cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz = fn(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *mut u8,
        attribute_begins: *mut usize, attribute_count: usize, failed: *mut usize, stream: Handle,
    ) |real, per_thread| {
        record_batch(real(), flat_batch(to, from, sizes, count), stream, per_thread)
    }

    cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz = fn(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *mut u8,
        attribute_begins: *mut usize, attribute_count: usize, stream: Handle,
    ) |real, per_thread| {
        record_batch(real(), flat_batch(to, from, sizes, count), stream, per_thread)
    }

    cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz = fn(
        count: usize, list: *const BatchCopy, failed: *mut usize, flags: u64, stream: Handle,
    ) |real, per_thread| {
        record_batch(real(), batch(list, count), stream, per_thread)
    }

    cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz = fn(
        count: usize, list: *const BatchCopy, flags: u64, stream: Handle,
    ) |real, per_thread| {
        record_batch(real(), batch(list, count), stream, per_thread)
    }
}
