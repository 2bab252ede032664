//! Nodes of graphs.

use std::sync::Arc;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType as Type,
};

use super::{
    args::{Any, In, Out, set_handles},
    context, copying, fill, functions,
    graph::{executable, node, of_handle},
    launch::{Arguments, Size, prepare},
};
use crate::{
    Error, Result,
    context::Context,
    driver::Driver,
    event::Event,
    graph::{Content, Node},
    host::HostCall,
    operation::Operation,
};

fn add(
    driver: &Driver,
    to: Out<CUgraphNode>,
    graph: CUgraph,
    dependencies: In<CUgraphNode>,
    count: usize,
    content: Content,
) -> Result<()> {
    if to.is_null() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let dependencies = dependencies.list(count)?.into_iter().map(<*mut _>::addr).collect();
    to.set_handle(of_handle(driver, graph)?.add(driver, content, dependencies)?)
}

/// Context of a node: the one that is named, or the current one.
fn context_of(driver: &Driver, named: CUcontext) -> Result<Arc<Context>> {
    context::of_handle(driver, named)
}

fn kernel_v1(driver: &Driver, parameters: In<CUDA_KERNEL_NODE_PARAMS_v1>) -> Result<Content> {
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

fn kernel(driver: &Driver, given: &CUDA_KERNEL_NODE_PARAMS_v2) -> Result<Content> {
    let function = if given.func.is_null() { given.kern.addr() } else { given.func.addr() };
    // A kernel of a module has its context; one of a library needs one.
    let context = match driver.functions.get(function).and_then(|function| driver.contexts.get(function.context)) {
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

fn memcpy(driver: &Driver, parameters: In<CUDA_MEMCPY3D_v2>) -> Result<Content> {
    let copy = copying::copy_3d(&parameters.read()?)?;
    copy.sides(&driver.memory, driver.backend.as_ref())?;
    Ok(Content::Operation(Operation::Copy(copy)))
}

fn memset(driver: &Driver, parameters: In<CUDA_MEMSET_NODE_PARAMS_v1>) -> Result<Content> {
    let given = parameters.read()?;
    if !matches!(given.elementSize, 1 | 2 | 4) {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let unit_bytes = usize::try_from(given.elementSize).unwrap_or(1);
    let fill = fill::fill(given.dst, given.pitch, given.value, unit_bytes, given.width, given.height);
    fill.side(&driver.memory, driver.backend.as_ref())?;
    Ok(Content::Operation(Operation::Fill(fill)))
}

fn host(parameters: In<CUDA_HOST_NODE_PARAMS_v1>) -> Result<Content> {
    let given = parameters.read()?;
    // SAFETY: the ABI demands that the function can be called as long as the graph runs.
    let call = unsafe { HostCall::new(given.fn_, given.userData) };
    Ok(Content::Operation(Operation::Host(call.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?)))
}

fn event(driver: &Driver, event: CUevent) -> Result<Arc<Event>> {
    driver.events.get(event.addr()).ok_or(Error::CUDA_ERROR_INVALID_HANDLE)
}

/// Replaces what a node does by something of the same kind.
fn replace(node: &mut Node, content: Content) -> Result<()> {
    if kind(&node.content) != kind(&content) {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    node.content = content;
    Ok(())
}

fn set(driver: &Driver, of: CUgraphNode, content: Content) -> Result<()> {
    let (graph, found) = node(driver, of)?;
    graph.change(found.handle, |node| replace(node, content))
}

fn set_in(driver: &Driver, of: CUgraphExec, node: CUgraphNode, content: Content) -> Result<()> {
    executable(driver, of)?.change(node.addr(), |node| replace(node, content))
}

const fn kind(content: &Content) -> u32 {
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

functions! {
    driver(driver) fn cuGraphAddEmptyNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize)
    {
        add(driver, to, graph, dependencies, count, Content::Operation(Operation::Nothing))
    }

    driver(driver) fn cuGraphAddKernelNode_v2
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize,
         parameters: In<CUDA_KERNEL_NODE_PARAMS_v2>)
    {
        add(driver, to, graph, dependencies, count, kernel(driver, &parameters.read()?)?)
    }

    driver(driver) fn cuGraphAddKernelNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize,
         parameters: In<CUDA_KERNEL_NODE_PARAMS_v1>)
    {
        add(driver, to, graph, dependencies, count, kernel_v1(driver, parameters)?)
    }

    driver(driver) fn cuGraphAddMemcpyNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize,
         parameters: In<CUDA_MEMCPY3D_v2>, _context: CUcontext)
    {
        add(driver, to, graph, dependencies, count, memcpy(driver, parameters)?)
    }

    driver(driver) fn cuGraphAddMemsetNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize,
         parameters: In<CUDA_MEMSET_NODE_PARAMS_v1>, _context: CUcontext)
    {
        add(driver, to, graph, dependencies, count, memset(driver, parameters)?)
    }

    driver(driver) fn cuGraphAddHostNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize,
         parameters: In<CUDA_HOST_NODE_PARAMS_v1>)
    {
        add(driver, to, graph, dependencies, count, host(parameters)?)
    }

    driver(driver) fn cuGraphAddChildGraphNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize, child: CUgraph)
    {
        let child = of_handle(driver, child)?.copy(driver);
        add(driver, to, graph, dependencies, count, Content::Child(child))
    }

    driver(driver) fn cuGraphAddEventRecordNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize, of: CUevent)
    {
        add(driver, to, graph, dependencies, count, Content::Record(event(driver, of)?))
    }

    driver(driver) fn cuGraphAddEventWaitNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize, of: CUevent)
    {
        add(driver, to, graph, dependencies, count, Content::Wait(event(driver, of)?))
    }

    driver(driver) fn cuGraphKernelNodeSetParams_v2(of: CUgraphNode, parameters: In<CUDA_KERNEL_NODE_PARAMS_v2>) {
        set(driver, of, kernel(driver, &parameters.read()?)?)
    }

    driver(driver) fn cuGraphKernelNodeSetParams(of: CUgraphNode, parameters: In<CUDA_KERNEL_NODE_PARAMS_v1>) {
        set(driver, of, kernel_v1(driver, parameters)?)
    }

    driver(driver) fn cuGraphMemcpyNodeSetParams(of: CUgraphNode, parameters: In<CUDA_MEMCPY3D_v2>) {
        set(driver, of, memcpy(driver, parameters)?)
    }

    driver(driver) fn cuGraphMemsetNodeSetParams(of: CUgraphNode, parameters: In<CUDA_MEMSET_NODE_PARAMS_v1>) {
        set(driver, of, memset(driver, parameters)?)
    }

    driver(driver) fn cuGraphHostNodeSetParams(of: CUgraphNode, parameters: In<CUDA_HOST_NODE_PARAMS_v1>) {
        set(driver, of, host(parameters)?)
    }

    driver(driver) fn cuGraphExecKernelNodeSetParams_v2
        (of: CUgraphExec, node: CUgraphNode, parameters: In<CUDA_KERNEL_NODE_PARAMS_v2>)
    {
        set_in(driver, of, node, kernel(driver, &parameters.read()?)?)
    }

    driver(driver) fn cuGraphExecKernelNodeSetParams
        (of: CUgraphExec, node: CUgraphNode, parameters: In<CUDA_KERNEL_NODE_PARAMS_v1>)
    {
        set_in(driver, of, node, kernel_v1(driver, parameters)?)
    }

    driver(driver) fn cuGraphExecMemcpyNodeSetParams
        (of: CUgraphExec, node: CUgraphNode, parameters: In<CUDA_MEMCPY3D_v2>, _context: CUcontext)
    {
        set_in(driver, of, node, memcpy(driver, parameters)?)
    }

    driver(driver) fn cuGraphExecMemsetNodeSetParams
        (of: CUgraphExec, node: CUgraphNode, parameters: In<CUDA_MEMSET_NODE_PARAMS_v1>, _context: CUcontext)
    {
        set_in(driver, of, node, memset(driver, parameters)?)
    }

    driver(driver) fn cuGraphExecHostNodeSetParams
        (of: CUgraphExec, node: CUgraphNode, parameters: In<CUDA_HOST_NODE_PARAMS_v1>)
    {
        set_in(driver, of, node, host(parameters)?)
    }

    driver(driver) fn cuGraphHostNodeGetParams(of: CUgraphNode, to: Out<CUDA_HOST_NODE_PARAMS_v1>) {
        let Content::Operation(Operation::Host(call)) = node(driver, of)?.1.content else {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        };
        let (function, argument) = call.parts();
        to.set(CUDA_HOST_NODE_PARAMS_v1 { fn_: function, userData: argument })
    }

    driver(driver) fn cuGraphChildGraphNodeGetGraph(of: CUgraphNode, graph: Out<CUgraph>) {
        let Content::Child(child) = node(driver, of)?.1.content else {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        };
        graph.set_handle(child.handle)
    }

    driver(driver) fn cuGraphNodeGetType(of: CUgraphNode, to: Out<u32>) { to.set(kind(&node(driver, of)?.1.content)) }

    driver(driver) fn cuGraphNodeGetDependencies(of: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) {
        set_handles(nodes, count, &node(driver, of)?.1.dependencies)
    }

    driver(driver) fn cuGraphNodeGetDependentNodes(of: CUgraphNode, nodes: Out<CUgraphNode>, count: Out<usize>) {
        let (graph, found) = node(driver, of)?;
        let all = graph.nodes();
        let behind = all.iter().filter(|node| node.dependencies.contains(&found.handle));
        set_handles(nodes, count, &behind.map(|node| node.handle).collect::<Vec<_>>())
    }

    driver(driver) fn cuGraphNodeFindInClone(to: Out<CUgraphNode>, original: CUgraphNode, clone: CUgraph) {
        let nodes = of_handle(driver, clone)?.nodes();
        let found = nodes.iter().find(|node| node.original == original.addr());
        to.set_handle(found.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?.handle)
    }

    driver(driver) fn cuGraphDestroyNode(of: CUgraphNode) {
        let (graph, found) = node(driver, of)?;
        graph.remove(driver, found.handle);
        Ok(())
    }

    driver(driver) fn cuGraphNodeSetEnabled(of: CUgraphExec, node: CUgraphNode, enabled: u32) {
        executable(driver, of)?.change(node.addr(), |node| {
            node.enabled = enabled != 0;
            Ok(())
        })
    }

    driver(driver) fn cuGraphNodeGetEnabled(of: CUgraphExec, node: CUgraphNode, enabled: Out<u32>) {
        let nodes = executable(driver, of)?.nodes();
        let found = nodes.iter().find(|other| other.handle == node.addr());
        enabled.set(u32::from(found.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?.enabled))
    }
}
