//! Occupancy: how many blocks a multiprocessor holds at a time.

use cudarc::driver::sys::{CUfunction, CUoccupancyB2DSize};

use super::{args::Out, functions};
use crate::{
    Error, Result,
    context::Context,
    driver::Driver,
    module::{Function, SHARED_BYTES_MAX},
};

const THREADS: i32 = 1024;
const BLOCKS: i32 = 16;
const MULTIPROCESSORS: i32 = 4;

fn blocks(function: &Function, threads: i32, dynamic_bytes: usize) -> Result<i32> {
    if threads <= 0 {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let most = i32::try_from(function.kernel.max_threads()).unwrap_or(THREADS);
    if threads > most {
        return Ok(0);
    }
    let shared = u64::from(function.kernel.shared_bytes()).saturating_add(dynamic_bytes as u64);
    let by_shared = SHARED_BYTES_MAX.unsigned_abs().into();
    let by_shared = i32::try_from(u64::checked_div(by_shared, shared).unwrap_or(u64::MAX)).unwrap_or(i32::MAX);
    Ok((THREADS / ((threads + 31) / 32 * 32).max(1)).min(BLOCKS).min(by_shared))
}

/// Blocks of a kernel that the device holds at a time.
pub(super) fn resident_blocks(function: &Function, threads: i32, dynamic_bytes: usize) -> Result<i32> {
    Ok(blocks(function, threads, dynamic_bytes)? * MULTIPROCESSORS)
}

fn potential(
    driver: &Driver,
    context: &Context,
    function: CUfunction,
    grid: Out<i32>,
    block: Out<i32>,
    limit: i32,
    dynamic_bytes: usize,
) -> Result<()> {
    let function = driver.function(context, function.addr())?;
    let most = i32::try_from(function.kernel.max_threads()).unwrap_or(THREADS);
    let threads = if limit > 0 { most.min(limit) } else { most };
    block.set(threads)?;
    grid.set(resident_blocks(&function, threads, dynamic_bytes)?)
}

functions! {
    context(driver, context) fn cuOccupancyMaxActiveBlocksPerMultiprocessor
        (count: Out<i32>, function: CUfunction, threads: i32, dynamic_bytes: usize)
    {
        count.set(blocks(driver.function(&context, function.addr())?.as_ref(), threads, dynamic_bytes)?)
    }

    context(driver, context) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        (count: Out<i32>, function: CUfunction, threads: i32, dynamic_bytes: usize, _flags: u32)
    {
        count.set(blocks(driver.function(&context, function.addr())?.as_ref(), threads, dynamic_bytes)?)
    }

    context(driver, context) fn cuOccupancyMaxPotentialBlockSize
        (grid: Out<i32>, block: Out<i32>, function: CUfunction, _sizes: CUoccupancyB2DSize, dynamic_bytes: usize,
         limit: i32)
    {
        potential(driver, &context, function, grid, block, limit, dynamic_bytes)
    }

    context(driver, context) fn cuOccupancyMaxPotentialBlockSizeWithFlags
        (grid: Out<i32>, block: Out<i32>, function: CUfunction, _sizes: CUoccupancyB2DSize, dynamic_bytes: usize,
         limit: i32, _flags: u32)
    {
        potential(driver, &context, function, grid, block, limit, dynamic_bytes)
    }

    context(driver, context) fn cuOccupancyAvailableDynamicSMemPerBlock
        (bytes: Out<usize>, function: CUfunction, blocks: i32, threads: i32)
    {
        let function = driver.function(&context, function.addr())?;
        if blocks <= 0 || threads <= 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let each = u32::try_from(SHARED_BYTES_MAX / blocks).unwrap_or(0);
        bytes.set(each.saturating_sub(function.kernel.shared_bytes()) as usize)
    }
}
