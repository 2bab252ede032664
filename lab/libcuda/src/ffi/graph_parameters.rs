//! Parameters of nodes of graphs.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1, CUcontext, CUevent, CUgraph, CUgraphNodeType as Type,
};

use super::{
    args::{Any, In, pointer},
    context, copying, fill,
    graph::of_handle,
    launch::{Arguments, Size, prepare},
};
use crate::{
    Error, Result, context::Context, driver::Driver, event::Event, graph::Content, host::HostCall, operation::Operation,
};

/// Offset of what depends on the type in `CUgraphNodeParams`.
const UNION_BYTES: usize = 16;
/// Offset of the copy in `CUDA_MEMCPY_NODE_PARAMS`.
const COPY_BYTES: usize = 16;

/// Context of a node: the one that is named, or the current one.
fn context_of(driver: &Driver, named: CUcontext) -> Result<Arc<Context>> {
    context::of_handle(driver, named)
}

/// Content of a node of a kernel, from parameters without a context.
pub(super) fn kernel_v1(driver: &Driver, parameters: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Result<Content> {
    let given = parameters.read()?;
    kernel(
        driver,
        &CUDA_KERNEL_NODE_PARAMS_v2 {
            func: given.func,
            gridDimX: given.gridDimX,
            gridDimY: given.gridDimY,
            gridDimZ: given.gridDimZ,
            blockDimX: given.blockDimX,
            blockDimY: given.blockDimY,
            blockDimZ: given.blockDimZ,
            sharedMemBytes: given.sharedMemBytes,
            kernelParams: given.kernelParams,
            extra: given.extra,
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        },
    )
}

/// Content of a node of a kernel.
pub(super) fn kernel(driver: &Driver, given: &CUDA_KERNEL_NODE_PARAMS_v2) -> Result<Content> {
    let function = if given.func.is_null() { given.kern.addr() } else { given.func.addr() };
    // A kernel of a module has its context; one of a library needs one.
    let context =
        match driver.modules.functions.get(function).and_then(|function| driver.contexts.get(function.context)) {
            Some(context) => context,
            None => context_of(driver, given.ctx)?,
        };
    let size = Size {
        grid: [given.gridDimX, given.gridDimY, given.gridDimZ],
        block: [given.blockDimX, given.blockDimY, given.blockDimZ],
        shared_bytes: given.sharedMemBytes,
    };
    let each = Any::from_pointer(given.kernelParams.cast());
    let arguments = Arguments { each, extra: Any::from_pointer(given.extra.cast()) };
    Ok(Content::Operation(Operation::Kernel(prepare(driver, &context, function, size, arguments)?)))
}

/// Content of a node of a copy.
pub(super) fn memcpy(driver: &Driver, parameters: In<CUDA_MEMCPY3D_v2>) -> Result<Content> {
    let copy = copying::copy_3d(&parameters.read()?)?;
    copy.sides(&driver.machine.memory, driver.machine.backend.as_ref())?;
    Ok(Content::Operation(Operation::Copy(copy)))
}

/// Content of a node of a fill.
pub(super) fn memset(driver: &Driver, parameters: In<CUDA_MEMSET_NODE_PARAMS_v1>) -> Result<Content> {
    let given = parameters.read()?;
    if !matches!(given.elementSize, 1 | 2 | 4) {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let unit_bytes = usize::try_from(given.elementSize).unwrap_or(1);
    let fill = fill::fill(given.dst, given.pitch, given.value, unit_bytes, given.width, given.height);
    fill.side(&driver.machine.memory, driver.machine.backend.as_ref())?;
    Ok(Content::Operation(Operation::Fill(fill)))
}

/// Content of a node of a function of the program.
pub(super) fn host(parameters: In<CUDA_HOST_NODE_PARAMS_v1>) -> Result<Content> {
    let given = parameters.read()?;
    // SAFETY: the ABI demands that the function can be called as long as the graph runs.
    let call = unsafe { HostCall::new(given.fn_, given.userData) };
    Ok(Content::Operation(Operation::Host(call.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?)))
}

/// Event of a handle.
pub(super) fn event(driver: &Driver, event: CUevent) -> Result<Arc<Event>> {
    driver.events.get(event.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

/// Content of a node of any type, from `CUgraphNodeParams`.
pub(super) fn any(driver: &Driver, parameters: Any) -> Result<Content> {
    let given = parameters.input::<u32>().read()?;
    let is = |known: Type| known as u32 == given;
    let value = parameters.after(UNION_BYTES);
    if is(Type::CU_GRAPH_NODE_TYPE_EMPTY) {
        Ok(Content::Operation(Operation::Nothing))
    } else if is(Type::CU_GRAPH_NODE_TYPE_KERNEL) {
        // The third form of these parameters has the fields of the second.
        kernel(driver, &value.input::<CUDA_KERNEL_NODE_PARAMS_v2>().read()?)
    } else if is(Type::CU_GRAPH_NODE_TYPE_MEMCPY) {
        memcpy(driver, value.after(COPY_BYTES).input())
    } else if is(Type::CU_GRAPH_NODE_TYPE_MEMSET) {
        // The second form begins as the first, as it does for functions of the program.
        memset(driver, value.input())
    } else if is(Type::CU_GRAPH_NODE_TYPE_HOST) {
        host(value.input())
    } else if is(Type::CU_GRAPH_NODE_TYPE_GRAPH) {
        child(driver, value.input::<CUgraph>().read()?)
    } else if is(Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        Ok(Content::Record(event(driver, value.input::<CUevent>().read()?)?))
    } else if is(Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        Ok(Content::Wait(event(driver, value.input::<CUevent>().read()?)?))
    } else {
        Err(Error::CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Content of a node of a graph, which is copied.
pub(super) fn child(driver: &Driver, child: CUgraph) -> Result<Content> {
    Ok(Content::Child(driver.graphs.copy(of_handle(driver, child)?.as_ref())))
}

/// Parameters of a node of a kernel, with pointers to arguments that live as long as the node.
pub(super) fn of_kernel(content: &Content) -> Result<CUDA_KERNEL_NODE_PARAMS_v2> {
    let Content::Operation(Operation::Kernel(kernel)) = content else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    };
    let [grid_x, grid_y, grid_z] = kernel.launch.grid;
    let [block_x, block_y, block_z] = kernel.launch.block;
    Ok(CUDA_KERNEL_NODE_PARAMS_v2 {
        func: pointer(kernel.function.handle),
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: kernel.launch.dynamic_shared_bytes,
        kernelParams: Any::from_address(kernel.argument_pointers()).pointer().cast(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: pointer(kernel.function.context),
    })
}

/// Parameters of a node of a fill.
pub(super) fn of_memset(content: &Content) -> Result<CUDA_MEMSET_NODE_PARAMS_v1> {
    let Content::Operation(Operation::Fill(fill)) = content else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    };
    let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    Ok(CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: fill.to.place.address(),
        pitch: number(fill.to.row_bytes),
        value: fill.unit.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)),
        elementSize: u32::try_from(fill.unit.len()).unwrap_or(0),
        width: number(fill.width),
        height: number(fill.rows),
    })
}

/// Number of a node's type.
pub(super) const fn kind(content: &Content) -> u32 {
    let kind = match content {
        Content::Operation(Operation::Kernel(_)) => Type::CU_GRAPH_NODE_TYPE_KERNEL,
        Content::Operation(Operation::Copy(_)) => Type::CU_GRAPH_NODE_TYPE_MEMCPY,
        Content::Operation(Operation::Fill(_)) => Type::CU_GRAPH_NODE_TYPE_MEMSET,
        Content::Operation(Operation::Host(_)) => Type::CU_GRAPH_NODE_TYPE_HOST,
        Content::Operation(_) => Type::CU_GRAPH_NODE_TYPE_EMPTY,
        Content::Child(_) => Type::CU_GRAPH_NODE_TYPE_GRAPH,
        Content::Record(_) => Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Content::Wait(_) => Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
    };
    kind as u32
}
