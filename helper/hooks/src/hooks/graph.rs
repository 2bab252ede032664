//! Graphs: their nodes as they are made and changed, and their launches.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target};

use super::launch::Launch;
use crate::{
    cuda::{Copy3, CuResult, FillNode, Handle, KernelNode, KernelNode2, Node, NodeParams},
    program::read,
    real::hooks,
    recorder::{named_stream, recording},
};

fn kernel(result: CuResult, target: Target, node: Option<KernelNode>) -> CuResult {
    if result.is_ok()
        && let (Some(recorder), Some(KernelNode { function, grid, block, shared_bytes, each, extra })) =
            (recording(), node)
    {
        Launch { function, grid, block, shared_bytes, each, extra }.record(recorder, target);
    }
    result
}

fn kernel_2(node: *const KernelNode2) -> Option<KernelNode> {
    let KernelNode2 { first, kernel, .. } = read(node)?;
    Some(if first.function == 0 { KernelNode { function: kernel, ..first } } else { first })
}

fn copy(result: CuResult, target: Target, copy: *const Copy3) -> CuResult {
    if result.is_ok()
        && let (Some(recorder), Some(Copy3 { from, to, width_bytes, rows, planes })) = (recording(), read(copy))
    {
        let rows = rows.wrapping_mul(planes);
        let words = [to.address(), from.address(), width_bytes.wrapping_mul(rows) as u64, rows as u64];
        recorder.record_work(Kind::Copy, 0, target, words, |_| {});
    }
    result
}

fn fill(result: CuResult, target: Target, fill: *const FillNode) -> CuResult {
    if result.is_ok()
        && let (Some(recorder), Some(FillNode { address, unit_bytes, width, rows, .. })) = (recording(), read(fill))
    {
        let bytes = width.wrapping_mul(unit_bytes as usize).wrapping_mul(rows);
        recorder.record_work(Kind::Fill, 0, target, [address, bytes as u64, rows as u64, 0], |_| {});
    }
    result
}

/// A node of any kind.
fn any(result: CuResult, target: Target, params: *const NodeParams) -> CuResult {
    let Some(params) = read(params).filter(|_| result.is_ok()) else { return result };
    match params.node() {
        Node::Kernel(node) => kernel(result, target, kernel_2(node)),
        Node::Copy(node) => copy(result, target, node),
        Node::Fill(node) => fill(result, target, node),
        Node::Other => result,
    }
}

fn graph(graph: Handle, node: *const Handle) -> Target {
    Target::Graph { graph, node: read(node).unwrap_or(0) }
}

fn changes(result: CuResult, kind: Kind, words: [u64; 3]) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        let [stream, first, second] = words;
        recorder.record(kind, 0, [stream, first, second, 0, 0]);
    }
    result
}

fn instantiates(result: CuResult, graph: Handle, executable: *const Handle) -> CuResult {
    match read(executable) {
        Some(executable) if result.is_ok() => changes(result, Kind::GraphInstantiated, [0, graph, executable]),
        _ => result,
    }
}

hooks! {
    cuGraphAddKernelNode = fn(node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode)
        |real, per_thread|
    {
        let result = real();
        kernel(result, graph(of, node), read(params))
    }

    cuGraphAddKernelNode_v2 = fn(node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode2)
        |real, per_thread|
    {
        let result = real();
        kernel(result, graph(of, node), kernel_2(params))
    }

    // Without the graph: a node's handle is the node's alone.
    cuGraphKernelNodeSetParams = fn(node: Handle, params: *const KernelNode) |real, per_thread| {
        kernel(real(), Target::Graph { graph: 0, node }, read(params))
    }

    cuGraphKernelNodeSetParams_v2 = fn(node: Handle, params: *const KernelNode2) |real, per_thread| {
        kernel(real(), Target::Graph { graph: 0, node }, kernel_2(params))
    }

    cuGraphExecKernelNodeSetParams = fn(executable: Handle, node: Handle, params: *const KernelNode) |real, per_thread| {
        kernel(real(), Target::Executable { executable, node }, read(params))
    }

    cuGraphExecKernelNodeSetParams_v2 = fn(executable: Handle, node: Handle, params: *const KernelNode2)
        |real, per_thread|
    {
        kernel(real(), Target::Executable { executable, node }, kernel_2(params))
    }

    cuGraphAddMemcpyNode = fn(node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const Copy3, context: Handle)
        |real, per_thread|
    {
        let result = real();
        copy(result, graph(of, node), params)
    }

    cuGraphMemcpyNodeSetParams = fn(node: Handle, params: *const Copy3) |real, per_thread| {
        copy(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecMemcpyNodeSetParams = fn(executable: Handle, node: Handle, params: *const Copy3, context: Handle)
        |real, per_thread|
    {
        copy(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddMemsetNode = fn(node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const FillNode, context: Handle)
        |real, per_thread|
    {
        let result = real();
        fill(result, graph(of, node), params)
    }

    cuGraphMemsetNodeSetParams = fn(node: Handle, params: *const FillNode) |real, per_thread| {
        fill(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecMemsetNodeSetParams = fn(executable: Handle, node: Handle, params: *const FillNode, context: Handle)
        |real, per_thread|
    {
        fill(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddNode = fn
        (node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const NodeParams)
        |real, per_thread|
    {
        let result = real();
        any(result, graph(of, node), params)
    }

    cuGraphAddNode_v2 = fn
        (node: *mut Handle, of: Handle, dependencies: *const Handle, edges: *const u8, count: usize,
         params: *const NodeParams) |real, per_thread|
    {
        let result = real();
        any(result, graph(of, node), params)
    }

    cuGraphNodeSetParams = fn(node: Handle, params: *const NodeParams) |real, per_thread| {
        any(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecNodeSetParams = fn(executable: Handle, node: Handle, params: *const NodeParams) |real, per_thread| {
        any(real(), Target::Executable { executable, node }, params)
    }

    cuGraphInstantiate = fn(executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize) |real, per_thread|
    {
        instantiates(real(), graph, executable)
    }

    cuGraphInstantiate_v2 = fn(executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize) |real, per_thread|
    {
        instantiates(real(), graph, executable)
    }

    cuGraphInstantiateWithFlags = fn(executable: *mut Handle, graph: Handle, flags: u64) |real, per_thread| {
        instantiates(real(), graph, executable)
    }

    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz = fn(executable: *mut Handle, graph: Handle, params: *mut u8) |real, per_thread|
    {
        instantiates(real(), graph, executable)
    }

    cuGraphExecUpdate = fn(executable: Handle, graph: Handle, node: *mut Handle, update: *mut u32) |real, per_thread| {
        changes(real(), Kind::GraphInstantiated, [0, graph, executable])
    }

    cuGraphExecUpdate_v2 = fn(executable: Handle, graph: Handle, update: *mut u8) |real, per_thread| {
        changes(real(), Kind::GraphInstantiated, [0, graph, executable])
    }

    cuGraphLaunch / cuGraphLaunch_ptsz = fn(executable: Handle, stream: Handle) |real, per_thread| {
        changes(real(), Kind::GraphLaunch, [named_stream(stream, per_thread), executable, 0])
    }

    cuGraphClone = fn(clone: *mut Handle, graph: Handle) |real, per_thread| {
        let result = real();
        match read(clone) {
            Some(clone) if result.is_ok() => changes(result, Kind::GraphCloned, [0, graph, clone]),
            _ => result,
        }
    }

    cuGraphDestroy = fn(graph: Handle) |real, per_thread| {
        changes(real(), Kind::GraphDestroyed, [0, graph, 0])
    }

    cuGraphExecDestroy = fn(executable: Handle) |real, per_thread| {
        changes(real(), Kind::ExecutableDestroyed, [0, executable, 0])
    }
}
