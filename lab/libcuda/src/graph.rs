//! Graphs of operations.
//!
//! * `executable`: graphs that can be launched
//! * `registry`: all graphs of the process

mod executable;
mod registry;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) use self::{executable::Executable, registry::Graphs};
use crate::{
    Error, Result,
    event::Event,
    handle::{self, Handle, Table},
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

/// Graph.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Handle.
    pub(crate) handle: Handle,
    nodes: Mutex<Vec<Node>>,
    owners: Arc<Owners>,
}

/// Graphs by the handles of their nodes.
type Owners = Table<Handle>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Graph {
    /// Empty graph, whose nodes are known to these owners.
    fn new(owners: &Arc<Owners>) -> Self {
        Self { handle: handle::fresh(), nodes: Mutex::default(), owners: Arc::clone(owners) }
    }

    /// Adds a node behind others.
    ///
    /// # Errors
    /// One of these is not of the graph, or is named twice.
    pub(crate) fn add(&self, content: Content, dependencies: Vec<Handle>) -> Result<Handle> {
        let mut nodes = locked(&self.nodes);
        let mut seen = HashSet::new();
        let known = |handle: &Handle| nodes.iter().any(|node| node.handle == *handle);
        if !dependencies.iter().all(|handle| known(handle) && seen.insert(*handle)) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let handle = handle::fresh();
        nodes.push(Node { handle, original: handle, content, dependencies, enabled: true });
        self.owners.add(handle, Arc::new(self.handle));
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
    pub(crate) fn remove(&self, handle: Handle) {
        let mut nodes = locked(&self.nodes);
        nodes.retain(|node| node.handle != handle);
        for node in nodes.iter_mut() {
            node.dependencies.retain(|dependency| *dependency != handle);
        }
        self.owners.remove(handle);
    }

    /// Graph with the same nodes, which have handles of their own.
    fn copy(&self) -> Self {
        let copy = Self::new(&self.owners);
        let nodes = self.nodes();
        let handles: HashMap<Handle, Handle> = nodes.iter().map(|node| (node.handle, handle::fresh())).collect();
        let renamed = |handle: &Handle| handles.get(handle).copied();
        let copied = nodes.iter().filter_map(|node| {
            let dependencies = node.dependencies.iter().filter_map(renamed).collect();
            let handle = renamed(&node.handle)?;
            self.owners.add(handle, Arc::new(copy.handle));
            Some(Node { handle, original: node.handle, dependencies, ..node.clone() })
        });
        *locked(&copy.nodes) = copied.collect();
        copy
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
