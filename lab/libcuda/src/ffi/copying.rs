//! Copies.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_PEER_v1, CUDA_MEMCPY3D_v2, CUcontext, CUdeviceptr, CUmemorytype as Type, CUstream,
};
use serde_json::json;

use super::{
    args::{Any, In, place},
    functions,
    stream::{default, resolve},
};
use crate::{
    Error, Result,
    backend::Origin,
    context::Context,
    copy::{Copy, Extent, Layout, Side},
    driver::Driver,
    operation::Operation,
    stream::Stream,
};

/// Submits a copy. The program may use its own memory again as soon as the documentation says:
/// pageable memory that is read is copied first, and pageable memory that is written is waited for.
fn submit(driver: &Driver, context: &Arc<Context>, stream: &Stream, copy: Copy, synchronous: bool) -> Result<()> {
    let (to, from) = copy.sides(&driver.machine.memory, driver.machine.backend.as_ref())?;
    let line = driver.machine.log.write("memcpy", stream.id, || {
        let (target, source) = (copy.to.place.address(), copy.from.place.address());
        json!({
            "to": target, "from": source, "bytes": copy.extent.bytes(), "rows": copy.extent.rows * copy.extent.planes,
            "to_side": side_name(to), "from_side": side_name(from), "async": !synchronous,
        })
    });
    let copy = if from == Side::Pageable && !synchronous { copy.stage() } else { copy };
    let origin = Origin { line, stream: stream.id, node: None };
    let point = context.submit(stream, Operation::Copy(copy).of(origin))?;
    match point {
        Some(point) if synchronous || to == Side::Pageable => {
            point.wait();
            context.check()
        }
        None if synchronous => Err(Error::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        _ => Ok(()),
    }
}

const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Pageable => "pageable",
        Side::Pinned => "pinned",
        Side::Gpu => "gpu",
    }
}

fn now(driver: &Driver, context: &Arc<Context>, copy: Copy) -> Result<()> {
    submit(driver, context, &default(context), copy, true)
}

fn later(driver: &Driver, context: &Arc<Context>, stream: CUstream, copy: Copy) -> Result<()> {
    let (context, stream) = resolve(driver, context, stream)?;
    submit(driver, &context, &stream, copy, false)
}

/// Copy of one row. Null is no memory, of neither side.
fn flat(to: u64, from: u64, bytes: usize) -> Result<Copy> {
    let is_null = to == 0 || from == 0;
    if is_null && bytes != 0 {
        Err(Error::CUDA_ERROR_INVALID_VALUE)
    } else {
        Ok(Copy::flat(place(to), place(from), bytes as u64))
    }
}

/// Copy between addresses of the GPU, which have to be known.
fn known(driver: &Driver, to: Option<u64>, from: Option<u64>, copy: Copy) -> Result<Copy> {
    let unknown = |address: u64| driver.machine.memory.find(address).is_none();
    let lacks = to.is_some_and(unknown) || from.is_some_and(unknown);
    if lacks && copy.extent.bytes() != 0 { Err(Error::CUDA_ERROR_INVALID_VALUE) } else { Ok(copy) }
}

/// One side of a copy of rows.
struct Rows {
    kind: Type,
    host: u64,
    device: u64,
    x_bytes: usize,
    y: usize,
    z: usize,
    pitch_bytes: usize,
    height: usize,
}

impl Rows {
    fn layout(&self, extent: Extent) -> Result<Layout> {
        let base = match self.kind {
            Type::CU_MEMORYTYPE_HOST => self.host,
            Type::CU_MEMORYTYPE_DEVICE | Type::CU_MEMORYTYPE_UNIFIED => self.device,
            Type::CU_MEMORYTYPE_ARRAY => return Err(Error::CUDA_ERROR_NOT_SUPPORTED),
        };
        let row_bytes = if self.pitch_bytes == 0 { extent.width_bytes } else { self.pitch_bytes as u64 };
        let height = if self.height == 0 { extent.rows } else { self.height as u64 };
        let plane_bytes = row_bytes.saturating_mul(height);
        let offset = (self.x_bytes as u64)
            .saturating_add((self.y as u64).saturating_mul(row_bytes))
            .saturating_add((self.z as u64).saturating_mul(plane_bytes));
        Ok(Layout { place: place(base).after(offset), row_bytes, plane_bytes })
    }
}

fn rows(to: &Rows, from: &Rows, extent: Extent) -> Result<Copy> {
    Ok(Copy { to: to.layout(extent)?, from: from.layout(extent)?, extent, staged: None, origin: Origin::NONE })
}

/// Copy of a structure of two dimensions.
fn copy_2d(copy: &CUDA_MEMCPY2D_v2) -> Result<Copy> {
    let extent = Extent { width_bytes: copy.WidthInBytes as u64, rows: copy.Height as u64, planes: 1 };
    let to = Rows {
        kind: copy.dstMemoryType,
        host: copy.dstHost.expose_provenance() as u64,
        device: copy.dstDevice,
        x_bytes: copy.dstXInBytes,
        y: copy.dstY,
        z: 0,
        pitch_bytes: copy.dstPitch,
        height: 0,
    };
    let from = Rows {
        kind: copy.srcMemoryType,
        host: copy.srcHost.expose_provenance() as u64,
        device: copy.srcDevice,
        x_bytes: copy.srcXInBytes,
        y: copy.srcY,
        z: 0,
        pitch_bytes: copy.srcPitch,
        height: 0,
    };
    rows(&to, &from, extent)
}

macro_rules! copy_3d {
    ($copy:expr) => {{
        let copy = $copy;
        let extent =
            Extent { width_bytes: copy.WidthInBytes as u64, rows: copy.Height as u64, planes: copy.Depth as u64 };
        let to = Rows {
            kind: copy.dstMemoryType,
            host: copy.dstHost.expose_provenance() as u64,
            device: copy.dstDevice,
            x_bytes: copy.dstXInBytes,
            y: copy.dstY,
            z: copy.dstZ,
            pitch_bytes: copy.dstPitch,
            height: copy.dstHeight,
        };
        let from = Rows {
            kind: copy.srcMemoryType,
            host: copy.srcHost.expose_provenance() as u64,
            device: copy.srcDevice,
            x_bytes: copy.srcXInBytes,
            y: copy.srcY,
            z: copy.srcZ,
            pitch_bytes: copy.srcPitch,
            height: copy.srcHeight,
        };
        rows(&to, &from, extent)
    }};
}

/// Copy of a structure of three dimensions.
pub(super) fn copy_3d(copy: &CUDA_MEMCPY3D_v2) -> Result<Copy> {
    copy_3d!(copy)
}

fn copy_peer(copy: &CUDA_MEMCPY3D_PEER_v1) -> Result<Copy> {
    copy_3d!(copy)
}

functions! {
    context(driver, context) fn cuMemcpy <cuMemcpy_ptds>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
        now(driver, &context, flat(to, from, bytes)?)
    }

    context(driver, context) fn cuMemcpyAsync <cuMemcpyAsync_ptsz>
        (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
    {
        later(driver, &context, stream, flat(to, from, bytes)?)
    }

    context(driver, context) fn cuMemcpyHtoD_v2 <cuMemcpyHtoD_v2_ptds>(to: CUdeviceptr, from: Any, bytes: usize) {
        now(driver, &context, known(driver, Some(to), None, flat(to, from.address(), bytes)?)?)
    }

    context(driver, context) fn cuMemcpyHtoDAsync_v2 <cuMemcpyHtoDAsync_v2_ptsz>
        (to: CUdeviceptr, from: Any, bytes: usize, stream: CUstream)
    {
        later(driver, &context, stream, known(driver, Some(to), None, flat(to, from.address(), bytes)?)?)
    }

    context(driver, context) fn cuMemcpyDtoH_v2 <cuMemcpyDtoH_v2_ptds>(to: Any, from: CUdeviceptr, bytes: usize) {
        now(driver, &context, known(driver, None, Some(from), flat(to.address(), from, bytes)?)?)
    }

    context(driver, context) fn cuMemcpyDtoHAsync_v2 <cuMemcpyDtoHAsync_v2_ptsz>
        (to: Any, from: CUdeviceptr, bytes: usize, stream: CUstream)
    {
        later(driver, &context, stream, known(driver, None, Some(from), flat(to.address(), from, bytes)?)?)
    }

    context(driver, context) fn cuMemcpyDtoD_v2 <cuMemcpyDtoD_v2_ptds>
        (to: CUdeviceptr, from: CUdeviceptr, bytes: usize)
    {
        now(driver, &context, known(driver, Some(to), Some(from), flat(to, from, bytes)?)?)
    }

    context(driver, context) fn cuMemcpyDtoDAsync_v2 <cuMemcpyDtoDAsync_v2_ptsz>
        (to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
    {
        later(driver, &context, stream, known(driver, Some(to), Some(from), flat(to, from, bytes)?)?)
    }

    context(driver, context) fn cuMemcpyPeer <cuMemcpyPeer_ptds>
        (to: CUdeviceptr, _to_context: CUcontext, from: CUdeviceptr, _from_context: CUcontext, bytes: usize)
    {
        now(driver, &context, known(driver, Some(to), Some(from), flat(to, from, bytes)?)?)
    }

    context(driver, context) fn cuMemcpyPeerAsync <cuMemcpyPeerAsync_ptsz>
        (to: CUdeviceptr, _to_context: CUcontext, from: CUdeviceptr, _from_context: CUcontext, bytes: usize,
         stream: CUstream)
    {
        later(driver, &context, stream, known(driver, Some(to), Some(from), flat(to, from, bytes)?)?)
    }

    context(driver, context) fn cuMemcpy2D_v2 <cuMemcpy2D_v2_ptds>(copy: In<CUDA_MEMCPY2D_v2>) {
        now(driver, &context, copy_2d(&copy.read()?)?)
    }

    context(driver, context) fn cuMemcpy2DUnaligned_v2 <cuMemcpy2DUnaligned_v2_ptds>(copy: In<CUDA_MEMCPY2D_v2>) {
        now(driver, &context, copy_2d(&copy.read()?)?)
    }

    context(driver, context) fn cuMemcpy2DAsync_v2 <cuMemcpy2DAsync_v2_ptsz>
        (copy: In<CUDA_MEMCPY2D_v2>, stream: CUstream)
    {
        later(driver, &context, stream, copy_2d(&copy.read()?)?)
    }

    context(driver, context) fn cuMemcpy3D_v2 <cuMemcpy3D_v2_ptds>(copy: In<CUDA_MEMCPY3D_v2>) {
        now(driver, &context, copy_3d(&copy.read()?)?)
    }

    context(driver, context) fn cuMemcpy3DAsync_v2 <cuMemcpy3DAsync_v2_ptsz>
        (copy: In<CUDA_MEMCPY3D_v2>, stream: CUstream)
    {
        later(driver, &context, stream, copy_3d(&copy.read()?)?)
    }

    context(driver, context) fn cuMemcpy3DPeer <cuMemcpy3DPeer_ptds>(copy: In<CUDA_MEMCPY3D_PEER_v1>) {
        now(driver, &context, copy_peer(&copy.read()?)?)
    }

    context(driver, context) fn cuMemcpy3DPeerAsync <cuMemcpy3DPeerAsync_ptsz>
        (copy: In<CUDA_MEMCPY3D_PEER_v1>, stream: CUstream)
    {
        later(driver, &context, stream, copy_peer(&copy.read()?)?)
    }
}
