//! Graphs as a whole, and their launches.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};
use serde_json::{Value, json};

use super::{
    args::{Any, In, Out, set_handles},
    functions,
    launch::describe,
    stream::{launch_nodes, resolve},
};
use crate::{
    Error, Result,
    driver::Driver,
    graph::{Content, Executable, Graph, Node},
    handle::Handle,
    operation::Operation,
};

/// Graph of a handle.
pub(super) fn of_handle(driver: &Driver, graph: CUgraph) -> Result<Arc<Graph>> {
    driver.graphs.graph(graph.addr())
}

/// Executable graph of a handle.
pub(super) fn executable(driver: &Driver, executable: CUgraphExec) -> Result<Arc<Executable>> {
    driver.graphs.executable(executable.addr())
}

/// Graph that a node belongs to, with the node.
pub(super) fn node(driver: &Driver, node: CUgraphNode) -> Result<(Arc<Graph>, Node)> {
    driver.graphs.node(node.addr())
}

fn describe_node(driver: &Driver, node: &Node) -> Value {
    let named = |name: &str| json!({ "op": name });
    match &node.content {
        Content::Operation(Operation::Kernel(kernel)) => describe(driver, kernel),
        Content::Operation(Operation::Copy(copy)) => json!({
            "op": "memcpy", "to": copy.to.place.address(), "from": copy.from.place.address(), "bytes": copy.extent.bytes(),
        }),
        Content::Operation(Operation::Fill(fill)) => json!({
            "op": "memset", "address": fill.to.place.address(), "bytes": fill.unit.len() as u64 * fill.width * fill.rows,
        }),
        Content::Operation(Operation::Host(_)) => named("host"),
        Content::Record(_) => named("record_event"),
        Content::Wait(_) => named("wait_event"),
        Content::Operation(_) | Content::Child(_) => named("empty"),
    }
}

fn instantiate(driver: &Driver, to: Out<CUgraphExec>, graph: CUgraph, flags: u64) -> Result<()> {
    if to.is_null() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let created = driver.graphs.instantiate(of_handle(driver, graph)?.as_ref(), flags)?;
    driver.machine.log.write("graph_instantiate", 0, || {
        let nodes: Vec<Value> = created.nodes().iter().map(|node| describe_node(driver, node)).collect();
        json!({ "graph": created.handle, "nodes": nodes })
    });
    to.set_handle(created.handle)
}

fn edges(graph: &Graph) -> (Vec<Handle>, Vec<Handle>) {
    let nodes = graph.nodes();
    let edges = nodes.iter().flat_map(|node| node.dependencies.iter().map(|from| (*from, node.handle)));
    edges.unzip()
}

fn handles(nodes: &[Node]) -> Vec<Handle> {
    nodes.iter().map(|node| node.handle).collect()
}

functions! {
    driver(driver) fn cuGraphCreate(graph: Out<CUgraph>, flags: u32) {
        if graph.is_null() || flags != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        graph.set_handle(driver.graphs.create().handle)
    }

    driver(driver) fn cuGraphDestroy(graph: CUgraph) {
        driver.graphs.destroy(of_handle(driver, graph)?.as_ref());
        Ok(())
    }

    driver(driver) fn cuGraphClone(clone: Out<CUgraph>, graph: CUgraph) {
        clone.set_handle(driver.graphs.copy(of_handle(driver, graph)?.as_ref()).handle)
    }

    driver(driver) fn cuGraphGetNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) {
        set_handles(nodes, count, &handles(&of_handle(driver, graph)?.nodes()))
    }

    driver(driver) fn cuGraphGetRootNodes(graph: CUgraph, nodes: Out<CUgraphNode>, count: Out<usize>) {
        let mut all = of_handle(driver, graph)?.nodes();
        all.retain(|node| node.dependencies.is_empty());
        set_handles(nodes, count, &handles(&all))
    }

    driver(driver) fn cuGraphGetEdges
        (graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: Out<usize>)
    {
        let (begins, ends) = edges(of_handle(driver, graph)?.as_ref());
        let places = if from.is_null() { 0 } else { count.read()? };
        set_handles(from, count, &begins)?;
        if from.is_null() {
            return Ok(());
        }
        count.set(places)?;
        set_handles(to, count, &ends)
    }

    driver(driver) fn cuGraphInstantiateWithFlags [cuGraphInstantiate]
        (executable: Out<CUgraphExec>, graph: CUgraph, flags: u64)
    {
        instantiate(driver, executable, graph, flags)
    }

    driver(driver) fn cuGraphInstantiate_v2
        (executable: Out<CUgraphExec>, graph: CUgraph, node: Out<CUgraphNode>, log: Out<u8>, bytes: usize)
    {
        node.set_if_any(std::ptr::null_mut());
        if bytes > 0 {
            log.set_if_any(0);
        }
        instantiate(driver, executable, graph, 0)
    }

    driver(driver) fn cuGraphInstantiateWithParams <cuGraphInstantiateWithParams_ptsz>
        (executable: Out<CUgraphExec>, graph: CUgraph, parameters: Any)
    {
        // Fields: flags, stream, node of an error, and the result, which is 0 for success.
        let flags = parameters.input::<u64>().read()?;
        parameters.out::<u64>().set_at(2, 0)?;
        parameters.out::<u32>().set_at(6, 0)?;
        instantiate(driver, executable, graph, flags)
    }

    driver(driver) fn cuGraphExecDestroy(executable: CUgraphExec) {
        driver.graphs.destroy_executable(executable.addr())
    }

    driver(driver) fn cuGraphExecGetFlags(executable: CUgraphExec, flags: Out<u64>) {
        flags.set(self::executable(driver, executable)?.flags)
    }

    driver(driver) fn cuGraphExecUpdate_v2(executable: CUgraphExec, graph: CUgraph, result: Any) {
        let updated = self::executable(driver, executable)?.update(of_handle(driver, graph)?.as_ref());
        // Fields: the result, of which 0 is success and 1 a failure, and two nodes of an error.
        result.out::<u32>().set_at(0, u32::from(updated.is_err()))?;
        result.out::<u64>().set_at(1, 0)?;
        result.out::<u64>().set_at(2, 0)?;
        updated
    }

    driver(driver) fn cuGraphExecUpdate(executable: CUgraphExec, graph: CUgraph, node: Out<CUgraphNode>, result: Out<u32>) {
        let updated = self::executable(driver, executable)?.update(of_handle(driver, graph)?.as_ref());
        node.set_if_any(std::ptr::null_mut());
        result.set_if_any(u32::from(updated.is_err()));
        updated
    }

    context(driver, context) fn cuGraphLaunch <cuGraphLaunch_ptsz>(executable: CUgraphExec, stream: CUstream) {
        let (context, stream) = resolve(driver, &context, stream)?;
        let executable = self::executable(driver, executable)?;
        let nodes = executable.nodes();
        let line = driver.machine.log.write("graph_launch", stream.id, || {
            let enabled = nodes.iter().filter(|node| node.enabled);
            let described: Vec<Value> = enabled.map(|node| describe_node(driver, node)).collect();
            json!({ "graph": executable.handle, "nodes": described })
        });
        launch_nodes(&context, &stream, nodes, line)
    }

    context(driver, context) fn cuGraphUpload <cuGraphUpload_ptsz>(executable: CUgraphExec, stream: CUstream) {
        resolve(driver, &context, stream)?;
        self::executable(driver, executable).map(|_| ())
    }

    driver(driver) fn cuGraphAddDependencies
        (graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize)
    {
        let graph = of_handle(driver, graph)?;
        for (from, to) in from.list(count)?.into_iter().zip(to.list(count)?) {
            graph.node(from.addr())?;
            graph.change(to.addr(), |node| {
                if from == to || node.dependencies.contains(&from.addr()) {
                    return Err(Error::CUDA_ERROR_INVALID_VALUE);
                }
                node.dependencies.push(from.addr());
                Ok(())
            })?;
        }
        Ok(())
    }

    driver(driver) fn cuGraphRemoveDependencies
        (graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize)
    {
        let graph = of_handle(driver, graph)?;
        for (from, to) in from.list(count)?.into_iter().zip(to.list(count)?) {
            graph.change(to.addr(), |node| {
                node.dependencies.retain(|dependency| *dependency != from.addr());
                Ok(())
            })?;
        }
        Ok(())
    }
}
