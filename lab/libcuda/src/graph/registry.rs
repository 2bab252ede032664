//! All graphs of the process.

use std::sync::Arc;

use super::{Content, Executable, Graph, Node, Owners};
use crate::{
    Error, Result,
    handle::{Handle, Table},
};

/// Graphs, their nodes and executable graphs by handle.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    all: Table<Graph>,
    owners: Arc<Owners>,
    executables: Table<Executable>,
}

impl Graphs {
    /// New graph without nodes.
    pub(crate) fn create(&self) -> Arc<Graph> {
        self.add(Graph::new(&self.owners))
    }

    /// New graph with the nodes of another.
    pub(crate) fn copy(&self, graph: &Graph) -> Arc<Graph> {
        self.add(graph.copy())
    }

    fn add(&self, graph: Graph) -> Arc<Graph> {
        let graph = Arc::new(graph);
        self.all.add(graph.handle, Arc::clone(&graph));
        graph
    }

    /// New executable of a graph as it is now.
    ///
    /// # Errors
    /// The graph has a cycle.
    pub(crate) fn instantiate(&self, graph: &Graph, flags: u64) -> Result<Arc<Executable>> {
        let executable = Arc::new(Executable::new(graph, flags)?);
        self.executables.add(executable.handle, Arc::clone(&executable));
        Ok(executable)
    }

    /// Graph of a handle.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn graph(&self, handle: Handle) -> Result<Arc<Graph>> {
        self.all.get(handle).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }

    /// Node of a handle, with its graph.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn node(&self, handle: Handle) -> Result<(Arc<Graph>, Node)> {
        let owner = self.owners.get(handle).ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        let graph = self.graph(*owner)?;
        let node = graph.node(handle)?;
        Ok((graph, node))
    }

    /// Executable graph of a handle.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn executable(&self, handle: Handle) -> Result<Arc<Executable>> {
        self.executables.get(handle).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }

    /// Forgets a graph with its nodes.
    pub(crate) fn destroy(&self, graph: &Graph) {
        for node in graph.nodes() {
            self.owners.remove(node.handle);
            if let Content::Child(child) = &node.content {
                self.destroy(child);
            }
        }
        self.all.remove(graph.handle);
    }

    /// Forgets an executable graph.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn destroy_executable(&self, handle: Handle) -> Result<()> {
        self.executables.remove(handle).map(|_| ()).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
    }
}
