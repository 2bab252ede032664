//! Graphs of operations, and captures of streams into them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Error, Result,
    driver::Driver,
    event::Event,
    handle::{self, Handle},
    operation::Operation,
};

/// What a node does.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// An operation: none, kernel, copy, fill or function of the program.
    Operation(Operation),
    /// Another graph.
    Child(Arc<Graph>),
    /// A record of an event.
    Record(Arc<Event>),
    /// A wait for an event.
    Wait(Arc<Event>),
}

/// Node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Handle.
    pub(crate) handle: Handle,
    /// Node of which it was cloned.
    pub(crate) original: Handle,
    /// What it does.
    pub(crate) content: Content,
    /// Nodes that come before.
    pub(crate) dependencies: Vec<Handle>,
    /// Skipped if not.
    pub(crate) enabled: bool,
}

/// Graph that a node belongs to.
#[derive(Debug)]
pub(crate) struct NodeOwner(pub(crate) Handle);

/// Graph.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Handle.
    pub(crate) handle: Handle,
    nodes: Mutex<Vec<Node>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Graph {
    /// Empty graph, known to the driver.
    pub(crate) fn create(driver: &Driver) -> Arc<Self> {
        let graph = Arc::new(Self { handle: handle::fresh(), nodes: Mutex::default() });
        driver.graphs.add(graph.handle, Arc::clone(&graph));
        graph
    }

    /// Adds a node behind others.
    ///
    /// # Errors
    /// One of these is not of the graph, or is named twice.
    pub(crate) fn add(&self, driver: &Driver, content: Content, dependencies: Vec<Handle>) -> Result<Handle> {
        let mut nodes = locked(&self.nodes);
        let mut seen = HashSet::new();
        let known = |handle: &Handle| nodes.iter().any(|node| node.handle == *handle);
        if !dependencies.iter().all(|handle| known(handle) && seen.insert(*handle)) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = handle::fresh();
        nodes.push(Node { handle, original: handle, content, dependencies, enabled: true });
        driver.nodes.add(handle, Arc::new(NodeOwner(self.handle)));
        Ok(handle)
    }

    /// Nodes in the order in which they were added.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        locked(&self.nodes).clone()
    }

    /// Node by handle.
    ///
    /// # Errors
    /// It is not of the graph.
    pub(crate) fn node(&self, handle: Handle) -> Result<Node> {
        let nodes = locked(&self.nodes);
        nodes.iter().find(|node| node.handle == handle).cloned().ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }

    /// Changes a node.
    ///
    /// # Errors
    /// It is not of the graph, or refuses.
    pub(crate) fn change(&self, handle: Handle, change: impl FnOnce(&mut Node) -> Result<()>) -> Result<()> {
        change_node(&mut locked(&self.nodes), handle, change)
    }

    /// Removes a node with its edges.
    pub(crate) fn remove(&self, driver: &Driver, handle: Handle) {
        let mut nodes = locked(&self.nodes);
        nodes.retain(|node| node.handle != handle);
        for node in nodes.iter_mut() {
            node.dependencies.retain(|dependency| *dependency != handle);
        }
        driver.nodes.remove(handle);
    }

    /// Graph with the same nodes, which have handles of their own.
    pub(crate) fn copy(&self, driver: &Driver) -> Arc<Self> {
        let copy = Self::create(driver);
        let nodes = self.nodes();
        let handles: HashMap<Handle, Handle> = nodes.iter().map(|node| (node.handle, handle::fresh())).collect();
        let renamed = |handle: &Handle| handles.get(handle).copied();
        let copied = nodes.iter().filter_map(|node| {
            let dependencies = node.dependencies.iter().filter_map(renamed).collect();
            let handle = renamed(&node.handle)?;
            driver.nodes.add(handle, Arc::new(NodeOwner(copy.handle)));
            Some(Node { handle, original: node.handle, dependencies, ..node.clone() })
        });
        let copied = copied.collect();
        *locked(&copy.nodes) = copied;
        copy
    }

    /// Forgets it with its nodes.
    pub(crate) fn destroy(&self, driver: &Driver) {
        for node in self.nodes() {
            driver.nodes.remove(node.handle);
            if let Content::Child(child) = &node.content {
                child.destroy(driver);
            }
        }
        driver.graphs.remove(self.handle);
    }

    /// Nodes in an order in which they can run.
    ///
    /// # Errors
    /// There is a cycle.
    fn sorted(&self) -> Result<Vec<Node>> {
        let mut left = self.nodes();
        let mut done = HashSet::new();
        let mut sorted = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let is_ready = |node: &Node| node.dependencies.iter().all(|handle| done.contains(handle));
            let (ready, waiting): (Vec<Node>, Vec<Node>) = left.into_iter().partition(is_ready);
            if ready.is_empty() {
                return Err(Error::CUDA_ERROR_INVALID_VALUE);
            }
            done.extend(ready.iter().map(|node| node.handle));
            sorted.extend(ready);
            left = waiting;
        }
        Ok(sorted)
    }
}

fn change_node(nodes: &mut [Node], handle: Handle, change: impl FnOnce(&mut Node) -> Result<()>) -> Result<()> {
    let node = nodes.iter_mut().find(|node| node.handle == handle);
    change(node.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?)
}

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
    /// Executable of a graph as it is now, known to the driver.
    ///
    /// # Errors
    /// The graph has a cycle.
    pub(crate) fn create(driver: &Driver, graph: &Graph, flags: u64) -> Result<Arc<Self>> {
        let mut nodes = Vec::new();
        flatten(graph, &mut nodes)?;
        let executable = Arc::new(Self { handle: handle::fresh(), flags, nodes: Mutex::new(nodes) });
        driver.executables.add(executable.handle, Arc::clone(&executable));
        Ok(executable)
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

/// Capture of a stream.
#[derive(Clone, Debug)]
pub(crate) struct Capture {
    /// Graph that it makes.
    pub(crate) graph: Arc<Graph>,
    /// Nodes that the next one comes behind.
    pub(crate) last: Vec<Handle>,
    /// Whether it began in this stream.
    pub(crate) origin: bool,
}
