//! Graphs: creation and changes of their nodes, and launches.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target, token::Signature};

use super::{copy::Copy, fill::Fill, launch};
use crate::{
    cuda::{Copy3d, CuResult, FillNode, Handle, KernelNode, KernelNodeV2, Node, NodeParams},
    program::read,
    real::hooks,
    recorder::{Recorder, record_success, recording, unique_stream},
};

/// New node of a graph, whose handle the driver writes if the call succeeds.
#[derive(Clone, Copy)]
struct NewNode {
    graph: Handle,
    node: *const Handle,
}

/// Location of a node, read after the call has succeeded.
trait NodeLocation {
    fn target(self) -> Target;
}

impl NodeLocation for NewNode {
    fn target(self) -> Target {
        Target::Graph { graph: self.graph, node: read(self.node).unwrap_or(0) }
    }
}

impl NodeLocation for Target {
    fn target(self) -> Target {
        self
    }
}

fn record_kernel(recorder: &'static Recorder, location: impl NodeLocation, node: Option<KernelNode>) {
    if let Some(node) = node {
        launch::record(recorder, location.target(), &node);
    }
}

fn record_copy(recorder: &Recorder, location: impl NodeLocation, copy: *const Copy3d) {
    if let Some(copy) = Copy::from_3d(copy) {
        copy.record(recorder, location.target(), 0);
    }
}

fn record_fill(recorder: &Recorder, location: impl NodeLocation, fill: *const FillNode) {
    if let Some(FillNode { address, unit_bytes, width, rows, .. }) = read(fill) {
        Fill::new(address, width, rows, unit_bytes as usize).record(recorder, location.target(), 0);
    }
}

fn read_kernel_v2(node: *const KernelNodeV2) -> Option<KernelNode> {
    let KernelNodeV2 { v1, kernel, .. } = read(node)?;
    Some(if v1.function == 0 { KernelNode { function: kernel, ..v1 } } else { v1 })
}

fn kernel(result: CuResult, location: impl NodeLocation, node: *const KernelNode) -> CuResult {
    record_success(result, |recorder| record_kernel(recorder, location, read(node)))
}

fn kernel_v2(result: CuResult, location: impl NodeLocation, node: *const KernelNodeV2) -> CuResult {
    record_success(result, |recorder| record_kernel(recorder, location, read_kernel_v2(node)))
}

fn copy(result: CuResult, location: impl NodeLocation, copy: *const Copy3d) -> CuResult {
    record_success(result, |recorder| record_copy(recorder, location, copy))
}

fn fill(result: CuResult, location: impl NodeLocation, fill: *const FillNode) -> CuResult {
    record_success(result, |recorder| record_fill(recorder, location, fill))
}

/// Records a node of any kind.
fn record_node(result: CuResult, location: impl NodeLocation, params: *const NodeParams) -> CuResult {
    record_success(result, |recorder| {
        let Some(params) = read(params) else { return };
        match params.node() {
            Node::Kernel(node) => record_kernel(recorder, location, read_kernel_v2(node)),
            Node::Copy(node) => record_copy(recorder, location, node),
            Node::Fill(node) => record_fill(recorder, location, node),
            Node::CopyBatch => recorder.count_unrecorded(),
            Node::Other => {}
        }
    })
}

fn record_change(result: CuResult, kind: Kind, [stream, first, second]: [u64; 3]) -> CuResult {
    record_success(result, |recorder| recorder.record(kind, 0, [stream, first, second, 0, 0]))
}

/// Records an object that was created from a graph, with the handle that the driver has written.
fn record_created(result: CuResult, kind: Kind, graph: Handle, created: *const Handle) -> CuResult {
    record_success(result, |recorder| recorder.record(kind, 0, [0, graph, read(created).unwrap_or(0), 0, 0]))
}

hooks! {
    cuGraphAddKernelNode = fn(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode,
    ) |real, per_thread| {
        kernel(real(), NewNode { graph, node }, params)
    }

    cuGraphAddKernelNode_v2 = fn(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, params: *const KernelNodeV2,
    ) |real, per_thread| {
        kernel_v2(real(), NewNode { graph, node }, params)
    }

    // Graph 0: a node's handle identifies the node by itself.
    cuGraphKernelNodeSetParams = fn(node: Handle, params: *const KernelNode) |real, per_thread| {
        kernel(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphKernelNodeSetParams_v2 = fn(node: Handle, params: *const KernelNodeV2) |real, per_thread| {
        kernel_v2(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecKernelNodeSetParams = fn(
        executable: Handle, node: Handle, params: *const KernelNode,
    ) |real, per_thread| {
        kernel(real(), Target::Executable { executable, node }, params)
    }

    cuGraphExecKernelNodeSetParams_v2 = fn(
        executable: Handle, node: Handle, params: *const KernelNodeV2,
    ) |real, per_thread| {
        kernel_v2(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddMemcpyNode = fn(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, params: *const Copy3d,
        context: Handle,
    ) |real, per_thread| {
        copy(real(), NewNode { graph, node }, params)
    }

    cuGraphMemcpyNodeSetParams = fn(node: Handle, params: *const Copy3d) |real, per_thread| {
        copy(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecMemcpyNodeSetParams = fn(
        executable: Handle, node: Handle, params: *const Copy3d, context: Handle,
    ) |real, per_thread| {
        copy(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddMemsetNode = fn(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, params: *const FillNode,
        context: Handle,
    ) |real, per_thread| {
        fill(real(), NewNode { graph, node }, params)
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
        node: *mut Handle, graph: Handle, dependencies: *const Handle, count: usize, params: *const NodeParams,
    ) |real, per_thread| {
        record_node(real(), NewNode { graph, node }, params)
    }

    cuGraphAddNode_v2 = fn(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, edges: *const u8, count: usize,
        params: *const NodeParams,
    ) |real, per_thread| {
        record_node(real(), NewNode { graph, node }, params)
    }

    cuGraphAddNode_v3 = fn(
        node: *mut Handle, graph: Handle, dependencies: *const Handle, edges: *const u8, count: usize,
        params: *const NodeParams,
    ) |real, per_thread| {
        record_node(real(), NewNode { graph, node }, params)
    }

    cuGraphNodeSetParams_v2 = fn(node: Handle, params: *const NodeParams) |real, per_thread| {
        record_node(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphNodeSetParams = fn(node: Handle, params: *const NodeParams) |real, per_thread| {
        record_node(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecNodeSetParams = fn(executable: Handle, node: Handle, params: *const NodeParams) |real, per_thread| {
        record_node(real(), Target::Executable { executable, node }, params)
    }

    cuGraphInstantiate = fn(
        executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize,
    ) |real, per_thread| {
        record_created(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiate_v2 = fn(
        executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize,
    ) |real, per_thread| {
        record_created(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiateWithFlags = fn(executable: *mut Handle, graph: Handle, flags: u64) |real, per_thread| {
        record_created(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz = fn(
        executable: *mut Handle, graph: Handle, params: *mut u8,
    ) |real, per_thread| {
        record_created(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphExecUpdate = fn(executable: Handle, graph: Handle, node: *mut Handle, update: *mut u32) |real, per_thread| {
        record_change(real(), Kind::GraphInstantiated, [0, graph, executable])
    }

    cuGraphExecUpdate_v2 = fn(executable: Handle, graph: Handle, update: *mut u8) |real, per_thread| {
        record_change(real(), Kind::GraphInstantiated, [0, graph, executable])
    }

    cuGraphLaunch / cuGraphLaunch_ptsz = fn(executable: Handle, stream: Handle) |real, per_thread| {
        let launch = || Some((Signature::of_graph(executable), stream));
        let Some(recorder) = recording() else { return real() };
        let prepared = recorder.prepare_launch(per_thread, launch);
        record_success(real(), |recorder| {
            let words = [unique_stream(stream, per_thread), executable, prepared.number().into(), 0, 0];
            recorder.record(Kind::GraphLaunch, 0, words);
            prepared.complete(None);
        })
    }

    cuGraphClone = fn(clone: *mut Handle, graph: Handle) |real, per_thread| {
        record_created(real(), Kind::GraphCloned, graph, clone)
    }

    cuGraphDestroy = fn(graph: Handle) |real, per_thread| {
        record_change(real(), Kind::GraphDestroyed, [0, graph, 0])
    }

    cuGraphExecDestroy = fn(executable: Handle) |real, per_thread| {
        record_change(real(), Kind::ExecutableDestroyed, [0, executable, 0])
    }
}
