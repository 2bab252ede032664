//! Values in memory that streams write and wait for.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use serde_json::json;

use super::{
    args::{Any, place},
    functions,
    stream::resolve,
};
use crate::{
    Error, Result,
    backend::Origin,
    context::Context,
    copy::{Fill, Layout},
    driver::Driver,
    operation::Operation,
    value::{Comparison, Wait},
};

/// `CU_STREAM_WAIT_VALUE_FLUSH`: copies of other devices are visible in any case.
const FLUSH: u32 = 1 << 30;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`: writes have their order in any case.
const NO_BARRIER: u32 = 1;
/// Words of a `CUstreamBatchMemOpParams`: operation, address, value, flags, and two more.
const PARAMETER_WORDS: usize = 6;
/// Most operations of a batch.
const BATCH_MAX: u32 = 256;

/// Value of 4 or 8 bytes in memory.
#[derive(Clone, Copy)]
struct Value {
    address: u64,
    bytes: usize,
    bits: u64,
}

impl Value {
    fn new(address: u64, bytes: usize, bits: u64) -> Self {
        Self { address, bytes, bits }
    }

    fn to(self, driver: &Driver, flags: u32) -> Result<Operation> {
        if flags & !NO_BARRIER != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Operation::Fill(self.fill(driver)?))
    }

    fn awaited(self, driver: &Driver, flags: u32) -> Result<Operation> {
        let comparison = match flags & !FLUSH {
            0 => Comparison::GreaterOrEqual,
            1 => Comparison::Equal,
            2 => Comparison::And,
            3 => Comparison::Nor,
            _ => return Err(Error::CUDA_ERROR_INVALID_VALUE),
        };
        let fill = self.fill(driver)?;
        Ok(Operation::Wait(Wait { place: fill.to.place, bytes: self.bytes, value: self.bits, comparison }))
    }

    /// Fill of the value's place, which is checked.
    fn fill(self, driver: &Driver) -> Result<Fill> {
        let unit = self.bits.to_le_bytes().into_iter().take(self.bytes).collect();
        let to = Layout { place: place(self.address), row_bytes: 0, plane_bytes: 0 };
        let fill = Fill { to, unit, width: 1, rows: 1, origin: Origin::NONE };
        fill.side(&driver.machine.memory, driver.machine.backend.as_ref())?;
        Ok(fill)
    }
}

fn submit(driver: &Driver, context: &Arc<Context>, stream: CUstream, operations: Vec<Operation>) -> Result<()> {
    let (context, stream) = resolve(driver, context, stream)?;
    for operation in operations {
        let name = if matches!(operation, Operation::Wait(_)) { "wait_value" } else { "write_value" };
        let line = driver.machine.log.write(name, stream.id, || json!({}));
        let origin = Origin { line, stream: stream.id, node: None };
        context.submit(&stream, operation.of(origin))?;
    }
    Ok(())
}

fn write(driver: &Driver, context: &Arc<Context>, stream: CUstream, value: Value, flags: u32) -> Result<()> {
    submit(driver, context, stream, vec![value.to(driver, flags)?])
}

fn wait(driver: &Driver, context: &Arc<Context>, stream: CUstream, value: Value, flags: u32) -> Result<()> {
    submit(driver, context, stream, vec![value.awaited(driver, flags)?])
}

fn batch(driver: &Driver, context: &Arc<Context>, stream: CUstream, count: u32, parameters: Any) -> Result<()> {
    if count > BATCH_MAX {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let words = parameters.input::<u64>();
    let mut operations = Vec::new();
    for at in (0..count as usize).map(|at| at * PARAMETER_WORDS) {
        let [kind, address, value, flags] = [words.at(at)?, words.at(at + 1)?, words.at(at + 2)?, words.at(at + 3)?];
        // Types and flags are halves of their words.
        let [kind, flags] = [kind, flags].map(|word| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX));
        operations.push(match kind {
            1 => Value::new(address, 4, value).awaited(driver, flags)?,
            2 => Value::new(address, 4, value).to(driver, flags)?,
            4 => Value::new(address, 8, value).awaited(driver, flags)?,
            5 => Value::new(address, 8, value).to(driver, flags)?,
            // A flush of writes of other devices, and a barrier.
            3 | 6 => Operation::Nothing,
            _ => return Err(Error::CUDA_ERROR_INVALID_VALUE),
        });
    }
    submit(driver, context, stream, operations)
}

functions! {
    context(driver, context) fn cuStreamWriteValue32_v2 [cuStreamWriteValue32]
        <cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2_ptsz>
        (stream: CUstream, address: CUdeviceptr, value: u32, flags: u32)
    {
        write(driver, &context, stream, Value::new(address, 4, value.into()), flags)
    }

    context(driver, context) fn cuStreamWriteValue64_v2 [cuStreamWriteValue64]
        <cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2_ptsz>
        (stream: CUstream, address: CUdeviceptr, value: u64, flags: u32)
    {
        write(driver, &context, stream, Value::new(address, 8, value), flags)
    }

    context(driver, context) fn cuStreamWaitValue32_v2 [cuStreamWaitValue32]
        <cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2_ptsz>
        (stream: CUstream, address: CUdeviceptr, value: u32, flags: u32)
    {
        wait(driver, &context, stream, Value::new(address, 4, value.into()), flags)
    }

    context(driver, context) fn cuStreamWaitValue64_v2 [cuStreamWaitValue64]
        <cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2_ptsz>
        (stream: CUstream, address: CUdeviceptr, value: u64, flags: u32)
    {
        wait(driver, &context, stream, Value::new(address, 8, value), flags)
    }

    context(driver, context) fn cuStreamBatchMemOp_v2 [cuStreamBatchMemOp]
        <cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2_ptsz>
        (stream: CUstream, count: u32, parameters: Any, _flags: u32)
    {
        batch(driver, &context, stream, count, parameters)
    }
}
