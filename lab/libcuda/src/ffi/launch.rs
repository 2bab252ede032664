//! Launches of kernels and of functions of the program.

use std::sync::{Arc, atomic::Ordering};

use cudarc::driver::sys::{CUfunction, CUhostFn, CUlaunchConfig, CUstream};
use ptx::{Kernel, Launch};
use serde_json::{Value, json};

use super::{
    args::{Any, In},
    functions,
    occupancy::resident_blocks,
    stream::resolve,
};
use crate::{
    Error, Result,
    backend::Origin,
    context::Context,
    driver::Driver,
    host::HostCall,
    operation::{KernelLaunch, Operation},
};

/// Keys of the list `extra` of a launch.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_BYTES: usize = 2;
/// Most blocks in y and z.
const GRID_MAX: u32 = 65535;
const THREADS_MAX: u64 = 1024;
/// Attribute of a launch that makes it cooperative.
const COOPERATIVE: u32 = 2;

/// Arguments of a launch: a pointer to each, or one buffer with all.
#[derive(Clone, Copy)]
pub(super) struct Arguments {
    /// Pointers by parameter.
    pub(super) each: Any,
    /// List of keys and values.
    pub(super) extra: Any,
}

impl Arguments {
    fn gather(self, kernel: &Kernel) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(kernel.argument_bytes()).unwrap_or(0)];
        let each = self.each.input::<*mut u8>();
        if !each.is_null() {
            for (at, parameter) in kernel.parameters().iter().enumerate() {
                let length = usize::try_from(parameter.bytes).unwrap_or(0);
                let value = Any::from_pointer(each.at(at)?).input::<u8>().list(length)?;
                let offset = usize::try_from(parameter.offset_bytes).unwrap_or(0);
                let target = bytes.get_mut(offset..offset.saturating_add(length));
                target.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?.copy_from_slice(&value);
            }
            return Ok(bytes);
        }
        let extra = self.extra.input::<usize>();
        if extra.is_null() {
            return if bytes.is_empty() { Ok(bytes) } else { Err(Error::CUDA_ERROR_INVALID_VALUE) };
        }
        let (mut buffer, mut length) = (Any::null(), 0);
        for at in (0..).step_by(2) {
            match extra.at(at)? {
                EXTRA_END => break,
                EXTRA_BUFFER => buffer = Any::from_address(extra.at(at + 1)?),
                EXTRA_BYTES => length = Any::from_address(extra.at(at + 1)?).input::<usize>().read()?,
                _ => return Err(Error::CUDA_ERROR_INVALID_VALUE),
            }
        }
        let given = buffer.input::<u8>().list(length.min(bytes.len()))?;
        for (byte, value) in bytes.iter_mut().zip(given) {
            *byte = value;
        }
        Ok(bytes)
    }
}

/// Size of a launch.
#[derive(Clone, Copy)]
pub(super) struct Size {
    /// Blocks.
    pub(super) grid: [u32; 3],
    /// Threads of a block.
    pub(super) block: [u32; 3],
    /// Dynamic shared memory, in bytes.
    pub(super) shared_bytes: u32,
}

impl Size {
    fn blocks(self) -> i64 {
        self.grid.iter().fold(1, |blocks: i64, extent| blocks.saturating_mul(i64::from(*extent)))
    }

    fn threads(self) -> i32 {
        self.block
            .iter()
            .fold(1, |threads: i32, extent| threads.saturating_mul(i32::try_from(*extent).unwrap_or(i32::MAX)))
    }
}

/// Kernel with grid and arguments, checked.
pub(super) fn prepare(
    driver: &Driver,
    context: &Context,
    function: usize,
    size: Size,
    arguments: Arguments,
) -> Result<KernelLaunch> {
    let function = driver.function(context, function)?;
    let Size { grid, block, shared_bytes } = size;
    let threads = block.iter().map(|count| u64::from(*count)).product::<u64>();
    let [_, y, z] = grid;
    let [.., deep] = block;
    if grid.contains(&0) || block.contains(&0) || y > GRID_MAX || z > GRID_MAX || threads > THREADS_MAX || deep > 64 {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let room = function.settings.dynamic_shared_bytes.load(Ordering::Relaxed);
    if i64::from(shared_bytes) > i64::from(room) {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    if threads > function.kernel.max_threads().into() {
        return Err(Error::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    }
    let arguments = arguments.gather(&function.kernel)?;
    let launch = Launch { grid, block, dynamic_shared_bytes: shared_bytes, arguments, ..Launch::default() };
    Ok(KernelLaunch::new(function, launch))
}

/// What the log says of a launch: with the allocations that aligned words of its arguments point
/// into.
pub(super) fn describe(driver: &Driver, kernel: &KernelLaunch) -> Value {
    let words = kernel.launch.arguments.chunks_exact(8);
    let words = words.map(|word| word.try_into().map_or(0, u64::from_le_bytes));
    let pointer = |(at, word): (usize, u64)| {
        let block = driver.machine.memory.find(word)?;
        Some(json!({ "at": at * 8, "base": block.range.address, "offset": word - block.range.address }))
    };
    let pointers: Vec<Value> = words.enumerate().filter_map(pointer).collect();
    json!({
        "kernel": kernel.function.kernel.name(), "grid": kernel.launch.grid, "block": kernel.launch.block,
        "shared": kernel.launch.dynamic_shared_bytes, "pointers": pointers,
    })
}

fn launch(
    driver: &Driver,
    context: &Arc<Context>,
    stream: CUstream,
    function: CUfunction,
    size: Size,
    arguments: Arguments,
    cooperative: bool,
) -> Result<()> {
    let (context, stream) = resolve(driver, context, stream)?;
    let mut kernel = prepare(driver, &context, function.addr(), size, arguments)?;
    kernel.cooperative = cooperative;
    if cooperative
        && size.blocks() > resident_blocks(&kernel.function, size.threads(), size.shared_bytes as usize)?.into()
    {
        return Err(Error::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    let line = driver.machine.log.write("launch", stream.id, || describe(driver, &kernel));
    let origin = Origin { line, stream: stream.id, node: None };
    context.submit(&stream, Operation::Kernel(kernel).of(origin)).map(|_| ())
}

functions! {
    context(driver, context) fn cuLaunchKernel <cuLaunchKernel_ptsz>
        (function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
         shared_bytes: u32, stream: CUstream, each: Any, extra: Any)
    {
        let size = Size { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        launch(driver, &context, stream, function, size, Arguments { each, extra }, false)
    }

    context(driver, context) fn cuLaunchCooperativeKernel <cuLaunchCooperativeKernel_ptsz>
        (function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
         shared_bytes: u32, stream: CUstream, each: Any)
    {
        let size = Size { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared_bytes };
        launch(driver, &context, stream, function, size, Arguments { each, extra: Any::null() }, true)
    }

    context(driver, context) fn cuLaunchKernelEx <cuLaunchKernelEx_ptsz>
        (config: In<CUlaunchConfig>, function: CUfunction, each: Any, extra: Any)
    {
        let config = config.read()?;
        let attributes = Any::from_pointer(config.attrs.cast()).input::<u32>();
        let mut cooperative = false;
        let stride = size_of::<cudarc::driver::sys::CUlaunchAttribute>() / 4;
        for at in 0..usize::try_from(config.numAttrs).unwrap_or(0) {
            // An attribute begins with its id, and has its value behind 8 bytes.
            if attributes.at(at * stride)? == COOPERATIVE {
                cooperative = attributes.at(at * stride + 2)? != 0;
            }
        }
        let size = Size {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            shared_bytes: config.sharedMemBytes,
        };
        launch(driver, &context, config.hStream, function, size, Arguments { each, extra }, cooperative)
    }

    context(driver, context) fn cuLaunchHostFunc <cuLaunchHostFunc_ptsz>
        (stream: CUstream, function: CUhostFn, argument: Any)
    {
        let (context, stream) = resolve(driver, &context, stream)?;
        // SAFETY: the ABI demands that the function can be called until it was.
        let call = unsafe { HostCall::new(function, argument.pointer()) };
        let call = call.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        driver.machine.log.write("host", stream.id, || json!({}));
        context.submit(&stream, Operation::Host(call)).map(|_| ())
    }
}
