//! Graphs that can be launched.

use std::sync::Mutex;

use super::{Content, Graph, Node, change_node, locked};
use crate::{
    Error, Result,
    handle::{self, Handle},
};

/// Graph that can be launched. Its nodes have the handles of the graph's.
#[derive(Debug)]
pub(crate) struct Executable {
    /// Handle.
    pub(crate) handle: Handle,
    /// Flags of its making.
    pub(crate) flags: u64,
    nodes: Mutex<Vec<Node>>,
}

impl Executable {
    /// Executable of a graph as it is now.
    ///
    /// # Errors
    /// The graph has a cycle.
    pub(super) fn new(graph: &Graph, flags: u64) -> Result<Self> {
        let mut nodes = Vec::new();
        flatten(graph, &mut nodes)?;
        Ok(Self { handle: handle::fresh(), flags, nodes: Mutex::new(nodes) })
    }

    /// Nodes in an order in which they run, without nodes of graphs.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        locked(&self.nodes).clone()
    }

    /// Changes a node.
    ///
    /// # Errors
    /// It is not of the graph, or refuses.
    pub(crate) fn change(&self, handle: Handle, change: impl FnOnce(&mut Node) -> Result<()>) -> Result<()> {
        change_node(&mut locked(&self.nodes), handle, change)
    }

    /// Takes over the parameters of a graph of the same shape.
    ///
    /// # Errors
    /// The shapes differ.
    pub(crate) fn update(&self, graph: &Graph) -> Result<()> {
        let mut nodes = Vec::new();
        flatten(graph, &mut nodes)?;
        let mut own = locked(&self.nodes);
        let same = |(a, b): (&Node, &Node)| std::mem::discriminant(&a.content) == std::mem::discriminant(&b.content);
        if own.len() != nodes.len() || !own.iter().zip(&nodes).all(same) {
            return Err(Error::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        for (own, new) in own.iter_mut().zip(nodes) {
            own.content = new.content;
        }
        Ok(())
    }
}

fn flatten(graph: &Graph, into: &mut Vec<Node>) -> Result<()> {
    for node in graph.sorted()? {
        match &node.content {
            Content::Child(child) => flatten(child, into)?,
            _ => into.push(node),
        }
    }
    Ok(())
}
