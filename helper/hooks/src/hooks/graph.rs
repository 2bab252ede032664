//! Graphs: creation and changes of their nodes, and launches.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, Target, token::Signature};

use super::{copy::Copy, fill::Fill, launch};
use crate::{
    cuda::{Copy3, CuResult, FillNode, Handle, KernelNode, KernelNode2, Node, NodeParams},
    program::read,
    real::hooks,
    recorder::{Recorder, after, named_stream, recording},
};

/// New node of a graph, whose handle the driver writes if the call succeeds.
#[derive(Clone, Copy)]
struct Added {
    graph: Handle,
    node: *const Handle,
}

/// Location of a node, read after the call has succeeded.
trait Place {
    fn target(self) -> Target;
}

impl Place for Added {
    fn target(self) -> Target {
        Target::Graph { graph: self.graph, node: read(self.node).unwrap_or(0) }
    }
}

impl Place for Target {
    fn target(self) -> Target {
        self
    }
}

fn record_kernel(recorder: &'static Recorder, place: impl Place, node: Option<KernelNode>) {
    if let Some(node) = node {
        launch::record(recorder, place.target(), &node);
    }
}

fn record_copy(recorder: &Recorder, place: impl Place, copy: *const Copy3) {
    if let Some(copy) = Copy::of_3(copy) {
        copy.record(recorder, place.target(), 0);
    }
}

fn record_fill(recorder: &Recorder, place: impl Place, fill: *const FillNode) {
    if let Some(FillNode { address, unit_bytes, width, rows, .. }) = read(fill) {
        Fill::new(address, width, rows, unit_bytes as usize).record(recorder, place.target(), 0);
    }
}

fn read_kernel_2(node: *const KernelNode2) -> Option<KernelNode> {
    let KernelNode2 { first, kernel, .. } = read(node)?;
    Some(if first.function == 0 { KernelNode { function: kernel, ..first } } else { first })
}

fn kernel(result: CuResult, place: impl Place, node: *const KernelNode) -> CuResult {
    after(result, |recorder| record_kernel(recorder, place, read(node)))
}

fn kernel_2(result: CuResult, place: impl Place, node: *const KernelNode2) -> CuResult {
    after(result, |recorder| record_kernel(recorder, place, read_kernel_2(node)))
}

fn copy(result: CuResult, place: impl Place, copy: *const Copy3) -> CuResult {
    after(result, |recorder| record_copy(recorder, place, copy))
}

fn fill(result: CuResult, place: impl Place, fill: *const FillNode) -> CuResult {
    after(result, |recorder| record_fill(recorder, place, fill))
}

/// Records a node of any kind.
fn any(result: CuResult, place: impl Place, params: *const NodeParams) -> CuResult {
    after(result, |recorder| {
        let Some(params) = read(params) else { return };
        match params.node() {
            Node::Kernel(node) => record_kernel(recorder, place, read_kernel_2(node)),
            Node::Copy(node) => record_copy(recorder, place, node),
            Node::Fill(node) => record_fill(recorder, place, node),
            Node::Other => {}
        }
    })
}

fn changes(result: CuResult, kind: Kind, [stream, first, second]: [u64; 3]) -> CuResult {
    after(result, |recorder| recorder.record(kind, 0, [stream, first, second, 0, 0]))
}

/// Records an object that was created from a graph, with the handle that the driver has written.
fn makes(result: CuResult, kind: Kind, graph: Handle, made: *const Handle) -> CuResult {
    after(result, |recorder| recorder.record(kind, 0, [0, graph, read(made).unwrap_or(0), 0, 0]))
}

hooks! {
    cuGraphAddKernelNode = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode,
    ) |real, per_thread| {
        kernel(real(), Added { graph: of, node }, params)
    }

    cuGraphAddKernelNode_v2 = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const KernelNode2,
    ) |real, per_thread| {
        kernel_2(real(), Added { graph: of, node }, params)
    }

    // Graph 0: a node's handle identifies the node by itself.
    cuGraphKernelNodeSetParams = fn(node: Handle, params: *const KernelNode) |real, per_thread| {
        kernel(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphKernelNodeSetParams_v2 = fn(node: Handle, params: *const KernelNode2) |real, per_thread| {
        kernel_2(real(), Target::Graph { graph: 0, node }, params)
    }

    cuGraphExecKernelNodeSetParams = fn(
        executable: Handle, node: Handle, params: *const KernelNode,
    ) |real, per_thread| {
        kernel(real(), Target::Executable { executable, node }, params)
    }

    cuGraphExecKernelNodeSetParams_v2 = fn(
        executable: Handle, node: Handle, params: *const KernelNode2,
    ) |real, per_thread| {
        kernel_2(real(), Target::Executable { executable, node }, params)
    }

    cuGraphAddMemcpyNode = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, count: usize, params: *const Copy3,
        context: Handle,
    ) |real, per_thread| {
        copy(real(), Added { graph: of, node }, params)
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
        fill(real(), Added { graph: of, node }, params)
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
        any(real(), Added { graph: of, node }, params)
    }

    cuGraphAddNode_v2 = fn(
        node: *mut Handle, of: Handle, dependencies: *const Handle, edges: *const u8, count: usize,
        params: *const NodeParams,
    ) |real, per_thread| {
        any(real(), Added { graph: of, node }, params)
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
        makes(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiate_v2 = fn(
        executable: *mut Handle, graph: Handle, node: *mut Handle, text: *mut u8, bytes: usize,
    ) |real, per_thread| {
        makes(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiateWithFlags = fn(executable: *mut Handle, graph: Handle, flags: u64) |real, per_thread| {
        makes(real(), Kind::GraphInstantiated, graph, executable)
    }

    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz = fn(
        executable: *mut Handle, graph: Handle, params: *mut u8,
    ) |real, per_thread| {
        makes(real(), Kind::GraphInstantiated, graph, executable)
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
        makes(real(), Kind::GraphCloned, graph, clone)
    }

    cuGraphDestroy = fn(graph: Handle) |real, per_thread| {
        changes(real(), Kind::GraphDestroyed, [0, graph, 0])
    }

    cuGraphExecDestroy = fn(executable: Handle) |real, per_thread| {
        changes(real(), Kind::ExecutableDestroyed, [0, executable, 0])
    }
}
