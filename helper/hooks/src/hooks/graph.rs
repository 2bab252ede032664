//! Graphs: their nodes as they are made and changed, and their launches.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target, token::Signature};

use super::{copy::Copy, fill::Fill, launch};
use crate::{
    cuda::{Copy3, CuResult, FillNode, Handle, KernelNode, KernelNode2, Node, NodeParams},
    program::read,
    real::hooks,
    recorder::{after, named_stream, recording},
};

fn kernel(result: CuResult, target: Target, node: Option<KernelNode>) -> CuResult {
    after(result, |recorder| {
        if let Some(node) = node {
            launch::record(recorder, target, &node);
        }
    })
}

fn kernel_2(node: *const KernelNode2) -> Option<KernelNode> {
    let KernelNode2 { first, kernel, .. } = read(node)?;
    Some(if first.function == 0 { KernelNode { function: kernel, ..first } } else { first })
}

fn copy(result: CuResult, target: Target, copy: *const Copy3) -> CuResult {
    after(result, |recorder| {
        if let Some(copy) = Copy::of_3(copy) {
            copy.record(recorder, target, 0);
        }
    })
}

fn fill(result: CuResult, target: Target, fill: *const FillNode) -> CuResult {
    after(result, |recorder| {
        if let Some(FillNode { address, unit_bytes, width, rows, .. }) = read(fill) {
            Fill::new(address, width, rows, unit_bytes as usize).record(recorder, target, 0);
        }
    })
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

fn changes(result: CuResult, kind: Kind, [stream, first, second]: [u64; 3]) -> CuResult {
    after(result, |recorder| recorder.record(kind, 0, [stream, first, second, 0, 0]))
}

/// Something is made of a graph, whose handle was written.
fn makes(result: CuResult, kind: Kind, graph: Handle, made: *const Handle) -> CuResult {
    let made = if result.is_ok() { read(made) } else { None };
    changes(result, kind, [0, graph, made.unwrap_or(0)])
}

hooks! {
    cuGraphAddKernelNode = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode,
    ) |real, per_thread| {
        let result = real();
        kernel(result, graph(of, node), read(params))
    }

    cuGraphAddKernelNode_v2 = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode2,
    ) |real, per_thread| {
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

    cuGraphExecKernelNodeSetParams = fn(
        executable: Handle, node: Handle, params: *const KernelNode,
    ) |real, per_thread| {
        kernel(real(), Target::Executable { executable, node }, read(params))
    }

    cuGraphExecKernelNodeSetParams_v2 = fn(
        executable: Handle, node: Handle, params: *const KernelNode2,
    ) |real, per_thread| {
        kernel(real(), Target::Executable { executable, node }, kernel_2(params))
    }

    cuGraphAddMemcpyNode = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const Copy3,
        context: Handle,
    ) |real, per_thread| {
        let result = real();
        copy(result, graph(of, node), params)
    }

    cuGraphMemcpyNodeSetParams = fn(node: Handle, params: *const Copy3) |real, per_thread| {
        copy(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecMemcpyNodeSetParams = fn(
        executable: Handle, node: Handle, params: *const Copy3, context: Handle,
    ) |real, per_thread| {
        copy(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddMemsetNode = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const FillNode,
        context: Handle,
    ) |real, per_thread| {
        let result = real();
        fill(result, graph(of, node), params)
    }

    cuGraphMemsetNodeSetParams = fn(node: Handle, params: *const FillNode) |real, per_thread| {
        fill(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecMemsetNodeSetParams = fn(
        executable: Handle, node: Handle, params: *const FillNode, context: Handle,
    ) |real, per_thread| {
        fill(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddNode = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const NodeParams,
    ) |real, per_thread| {
        let result = real();
        any(result, graph(of, node), params)
    }

    cuGraphAddNode_v2 = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, edges: *const u8, count: usize,
        params: *const NodeParams,
    ) |real, per_thread| {
        let result = real();
        any(result, graph(of, node), params)
    }

    cuGraphNodeSetParams = fn(node: Handle, params: *const NodeParams) |real, per_thread| {
        any(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecNodeSetParams = fn(executable: Handle, node: Handle, params: *const NodeParams) |real, per_thread| {
        any(real(), Target::Executable { executable, node }, params)
    }

    cuGraphInstantiate = fn(
        executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize,
    ) |real, per_thread| {
        let result = real();
        makes(result, Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiate_v2 = fn(
        executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize,
    ) |real, per_thread| {
        let result = real();
        makes(result, Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiateWithFlags = fn(executable: *mut Handle, graph: Handle, flags: u64) |real, per_thread| {
        let result = real();
        makes(result, Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz = fn(
        executable: *mut Handle, graph: Handle, params: *mut u8,
    ) |real, per_thread| {
        let result = real();
        makes(result, Kind::GraphInstantiated, graph, executable)
    }

    cuGraphExecUpdate = fn(executable: Handle, graph: Handle, node: *mut Handle, update: *mut u32) |real, per_thread| {
        changes(real(), Kind::GraphInstantiated, [0, graph, executable])
    }

    cuGraphExecUpdate_v2 = fn(executable: Handle, graph: Handle, update: *mut u8) |real, per_thread| {
        changes(real(), Kind::GraphInstantiated, [0, graph, executable])
    }

    cuGraphLaunch / cuGraphLaunch_ptsz = fn(executable: Handle, stream: Handle) |real, per_thread| {
        let launch = || Some((Signature::of_graph(executable), stream));
        let Some(recorder) = recording() else { return real() };
        let prepared = recorder.before_launch(per_thread, launch);
        after(real(), |recorder| {
            let words = [named_stream(stream, per_thread), executable, prepared.number().into(), 0, 0];
            recorder.record(Kind::GraphLaunch, 0, words);
            prepared.after(None);
        })
    }

    cuGraphClone = fn(clone: *mut Handle, graph: Handle) |real, per_thread| {
        let result = real();
        makes(result, Kind::GraphCloned, graph, clone)
    }

    cuGraphDestroy = fn(graph: Handle) |real, per_thread| {
        changes(real(), Kind::GraphDestroyed, [0, graph, 0])
    }

    cuGraphExecDestroy = fn(executable: Handle) |real, per_thread| {
        changes(real(), Kind::ExecutableDestroyed, [0, executable, 0])
    }
}
