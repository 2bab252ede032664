//! Memsets.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use serde_json::json;

use super::{
    args::place,
    functions,
    stream::{default, resolve},
};
use crate::{
    Result,
    backend::{Kind, Origin},
    context::Context,
    copy::{Fill, Layout},
    driver::Driver,
    operation::Operation,
    stream::Stream,
};

/// Fill of rows of units.
pub(super) fn fill(address: u64, pitch_bytes: usize, value: u32, unit_bytes: usize, width: usize, rows: usize) -> Fill {
    let to = Layout { place: place(address), row_bytes: pitch_bytes as u64, plane_bytes: 0 };
    Fill::new(to, value, unit_bytes, width as u64, rows as u64)
}

fn submit(driver: &Driver, context: &Arc<Context>, stream: &Stream, fill: Fill, synchronous: bool) -> Result<()> {
    fill.side(&driver.machine.memory, driver.machine.backend.as_ref())?;
    let address = fill.to.place.address();
    let line = driver.machine.log.write("memset", stream.id, || {
        let bytes = fill.unit.len() as u64 * fill.width * fill.rows;
        json!({ "address": address, "bytes": bytes, "rows": fill.rows, "unit": fill.unit, "async": !synchronous })
    });
    // Of device memory the driver does not wait for the end.
    let waits =
        synchronous && driver.machine.memory.find(address).is_some_and(|block| !matches!(block.kind, Kind::Device(_)));
    let origin = Origin { line, stream: stream.id, node: None };
    match context.submit(stream, Operation::Fill(fill).of(origin))? {
        Some(point) if waits => {
            point.wait();
            context.check()
        }
        _ => Ok(()),
    }
}

fn now(driver: &Driver, context: &Arc<Context>, fill: Fill) -> Result<()> {
    submit(driver, context, &default(context), fill, true)
}

fn later(driver: &Driver, context: &Arc<Context>, stream: CUstream, fill: Fill) -> Result<()> {
    let (context, stream) = resolve(driver, context, stream)?;
    submit(driver, &context, &stream, fill, false)
}

functions! {
    context(driver, context) fn cuMemsetD8_v2 <cuMemsetD8_v2_ptds>(address: CUdeviceptr, value: u8, count: usize) {
        now(driver, &context, fill(address, 0, value.into(), 1, count, 1))
    }

    context(driver, context) fn cuMemsetD16_v2 <cuMemsetD16_v2_ptds>(address: CUdeviceptr, value: u16, count: usize) {
        now(driver, &context, fill(address, 0, value.into(), 2, count, 1))
    }

    context(driver, context) fn cuMemsetD32_v2 <cuMemsetD32_v2_ptds>(address: CUdeviceptr, value: u32, count: usize) {
        now(driver, &context, fill(address, 0, value, 4, count, 1))
    }

    context(driver, context) fn cuMemsetD8Async <cuMemsetD8Async_ptsz>
        (address: CUdeviceptr, value: u8, count: usize, stream: CUstream)
    {
        later(driver, &context, stream, fill(address, 0, value.into(), 1, count, 1))
    }

    context(driver, context) fn cuMemsetD16Async <cuMemsetD16Async_ptsz>
        (address: CUdeviceptr, value: u16, count: usize, stream: CUstream)
    {
        later(driver, &context, stream, fill(address, 0, value.into(), 2, count, 1))
    }

    context(driver, context) fn cuMemsetD32Async <cuMemsetD32Async_ptsz>
        (address: CUdeviceptr, value: u32, count: usize, stream: CUstream)
    {
        later(driver, &context, stream, fill(address, 0, value, 4, count, 1))
    }

    context(driver, context) fn cuMemsetD2D8_v2 <cuMemsetD2D8_v2_ptds>
        (address: CUdeviceptr, pitch_bytes: usize, value: u8, width: usize, rows: usize)
    {
        now(driver, &context, fill(address, pitch_bytes, value.into(), 1, width, rows))
    }

    context(driver, context) fn cuMemsetD2D16_v2 <cuMemsetD2D16_v2_ptds>
        (address: CUdeviceptr, pitch_bytes: usize, value: u16, width: usize, rows: usize)
    {
        now(driver, &context, fill(address, pitch_bytes, value.into(), 2, width, rows))
    }

    context(driver, context) fn cuMemsetD2D32_v2 <cuMemsetD2D32_v2_ptds>
        (address: CUdeviceptr, pitch_bytes: usize, value: u32, width: usize, rows: usize)
    {
        now(driver, &context, fill(address, pitch_bytes, value, 4, width, rows))
    }

    context(driver, context) fn cuMemsetD2D8Async <cuMemsetD2D8Async_ptsz>
        (address: CUdeviceptr, pitch_bytes: usize, value: u8, width: usize, rows: usize, stream: CUstream)
    {
        later(driver, &context, stream, fill(address, pitch_bytes, value.into(), 1, width, rows))
    }

    context(driver, context) fn cuMemsetD2D16Async <cuMemsetD2D16Async_ptsz>
        (address: CUdeviceptr, pitch_bytes: usize, value: u16, width: usize, rows: usize, stream: CUstream)
    {
        later(driver, &context, stream, fill(address, pitch_bytes, value.into(), 2, width, rows))
    }

    context(driver, context) fn cuMemsetD2D32Async <cuMemsetD2D32Async_ptsz>
        (address: CUdeviceptr, pitch_bytes: usize, value: u32, width: usize, rows: usize, stream: CUstream)
    {
        later(driver, &context, stream, fill(address, pitch_bytes, value, 4, width, rows))
    }
}
