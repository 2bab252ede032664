//! Nodes of graphs.

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode,
};

use super::{
    args::{Any, In, Out, pointer, set_handles},
    functions,
    graph::{executable, node, of_handle},
    graph_parameters::{any, child, event, host, kernel, kernel_v1, kind, memcpy, memset, of_kernel, of_memset},
};
use crate::{
    Error, Result,
    driver::Driver,
    graph::{Content, Node},
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
    to.set_handle(of_handle(driver, graph)?.add(content, dependencies)?)
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
        add(driver, to, graph, dependencies, count, self::child(driver, child)?)
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

    driver(driver) fn cuGraphAddNode
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, count: usize, parameters: Any)
    {
        add(driver, to, graph, dependencies, count, any(driver, parameters)?)
    }

    driver(driver) fn cuGraphAddNode_v2
        (to: Out<CUgraphNode>, graph: CUgraph, dependencies: In<CUgraphNode>, edges: In<u64>, count: usize,
         parameters: Any)
    {
        // An edge with data has ports, or is of another type than a full dependency.
        if !edges.is_null() && edges.list(count)?.iter().any(|edge| *edge != 0) {
            return Err(Error::CUDA_ERROR_NOT_SUPPORTED);
        }
        add(driver, to, graph, dependencies, count, any(driver, parameters)?)
    }

    driver(driver) fn cuGraphNodeSetParams(of: CUgraphNode, parameters: Any) {
        set(driver, of, any(driver, parameters)?)
    }

    driver(driver) fn cuGraphExecNodeSetParams(of: CUgraphExec, node: CUgraphNode, parameters: Any) {
        set_in(driver, of, node, any(driver, parameters)?)
    }

    driver(driver) fn cuGraphKernelNodeGetParams_v2(of: CUgraphNode, to: Out<CUDA_KERNEL_NODE_PARAMS_v2>) {
        to.set(of_kernel(&node(driver, of)?.1.content)?)
    }

    driver(driver) fn cuGraphKernelNodeGetParams(of: CUgraphNode, to: Out<CUDA_KERNEL_NODE_PARAMS_v1>) {
        let found = of_kernel(&node(driver, of)?.1.content)?;
        to.set(CUDA_KERNEL_NODE_PARAMS_v1 {
            func: found.func,
            gridDimX: found.gridDimX,
            gridDimY: found.gridDimY,
            gridDimZ: found.gridDimZ,
            blockDimX: found.blockDimX,
            blockDimY: found.blockDimY,
            blockDimZ: found.blockDimZ,
            sharedMemBytes: found.sharedMemBytes,
            kernelParams: found.kernelParams,
            extra: found.extra,
        })
    }

    driver(driver) fn cuGraphMemsetNodeGetParams(of: CUgraphNode, to: Out<CUDA_MEMSET_NODE_PARAMS_v1>) {
        to.set(of_memset(&node(driver, of)?.1.content)?)
    }

    driver(driver) fn cuGraphEventRecordNodeGetEvent(of: CUgraphNode, to: Out<CUevent>) {
        let Content::Record(event) = node(driver, of)?.1.content else {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        };
        to.set(pointer(event.handle))
    }

    driver(driver) fn cuGraphEventWaitNodeGetEvent(of: CUgraphNode, to: Out<CUevent>) {
        let Content::Wait(event) = node(driver, of)?.1.content else {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        };
        to.set(pointer(event.handle))
    }

    driver(driver) fn cuGraphEventRecordNodeSetEvent(of: CUgraphNode, to: CUevent) {
        set(driver, of, Content::Record(event(driver, to)?))
    }

    driver(driver) fn cuGraphEventWaitNodeSetEvent(of: CUgraphNode, to: CUevent) {
        set(driver, of, Content::Wait(event(driver, to)?))
    }

    driver(driver) fn cuGraphExecEventRecordNodeSetEvent(of: CUgraphExec, node: CUgraphNode, to: CUevent) {
        set_in(driver, of, node, Content::Record(event(driver, to)?))
    }

    driver(driver) fn cuGraphExecEventWaitNodeSetEvent(of: CUgraphExec, node: CUgraphNode, to: CUevent) {
        set_in(driver, of, node, Content::Wait(event(driver, to)?))
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
        graph.remove(found.handle);
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
