//! Graphs of a program, with the work of their nodes.
//!
//! Instances and clones of a graph share its nodes until they are changed. Each is charged for all
//! of its nodes.

use crate::{
    map::{Map, entry_bytes},
    program::Work,
};

/// Key of a node: the program's handle, and the generation of handles.
type NodeKey = (u64, u64);

/// Bytes of a graph without nodes.
const GRAPH_BYTES: usize = entry_bytes::<u64, Graph>();
/// Bytes of a node in the index.
pub(super) const INDEX_BYTES: usize = entry_bytes::<u64, u64>();

/// Bytes of a node with this work.
fn bytes_of(work: &Work) -> usize {
    /// Reference counts of the addresses, and overhead of the allocator.
    const ADDRESSES: usize = 16 + 16;
    entry_bytes::<NodeKey, Node>() + ADDRESSES + size_of_val(&*work.addresses)
}

/// Bytes of a graph with this work as its only node.
pub(super) fn first_node_bytes(work: &Work) -> usize {
    GRAPH_BYTES + INDEX_BYTES + bytes_of(work)
}

#[derive(Clone, Debug)]
struct Node {
    /// Number of nodes that were added before.
    position: usize,
    work: Work,
}

/// Graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    nodes: Map<NodeKey, Node>,
    /// Current generation of node handles.
    generation: u64,
    node_bytes: usize,
}

impl Graph {
    pub(super) const fn bytes(&self) -> usize {
        GRAPH_BYTES + self.node_bytes
    }

    /// Graph with the same nodes under unknown handles.
    pub(super) fn with_unknown_handles(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }

    /// Work of the nodes in the order of their addition.
    pub(super) fn work_in_order(&self) -> Vec<&Work> {
        let mut nodes: Vec<&Node> = self.nodes.iter().map(|(_, node)| node).collect();
        nodes.sort_unstable_by_key(|node| node.position);
        nodes.into_iter().map(|node| &node.work).collect()
    }

    /// Known handles of the nodes of this graph.
    pub(super) fn handles(&self) -> impl Iterator<Item = u64> {
        self.nodes.range((self.generation, 0)..).map(|((_, handle), _)| handle)
    }

    /// Adds a node or changes its work. Returns whether it is new.
    fn set(&mut self, handle: u64, work: Work) -> bool {
        let key = (self.generation, handle);
        let before = self.nodes.get(key).map(|node| (node.position, bytes_of(&node.work)));
        let (position, bytes) = before.unwrap_or((self.nodes.len(), 0));
        self.node_bytes += bytes_of(&work);
        self.node_bytes -= bytes;
        self.nodes.insert(key, Node { position, work });
        before.is_none()
    }
}

/// Graphs by handle.
#[derive(Clone, Debug, Default)]
pub(super) struct Graphs {
    graphs: Map<u64, Graph>,
    bytes: usize,
}

impl Graphs {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, handle: u64) -> Option<&Graph> {
        self.graphs.get(handle)
    }

    pub(super) fn insert(&mut self, handle: u64, graph: Graph) {
        self.remove(handle);
        self.bytes += graph.bytes();
        self.graphs.insert(handle, graph);
    }

    pub(super) fn remove(&mut self, handle: u64) -> Option<Graph> {
        let graph = self.graphs.remove(handle)?;
        self.bytes -= graph.bytes();
        Some(graph)
    }

    /// Adds a node or changes its work. Returns whether it is new.
    pub(super) fn set(&mut self, handle: u64, node: u64, work: Work) -> bool {
        self.change(handle, |graph| graph.set(node, work))
    }

    /// Adds a node without a handle.
    pub(super) fn push(&mut self, handle: u64, work: Work) {
        self.change(handle, |graph| graph.set(graph.nodes.len() as u64, work));
    }

    fn change(&mut self, handle: u64, change: impl FnOnce(&mut Graph) -> bool) -> bool {
        if self.graphs.get(handle).is_none() {
            self.insert(handle, Graph::default());
        }
        let Some(graph) = self.graphs.get_mut(handle) else { return false };
        self.bytes -= graph.bytes();
        let is_new = change(graph);
        self.bytes += graph.bytes();
        is_new
    }
}
