//! Recorded calls as a stream of operations, which planners and the simulator take.

use std::collections::{BTreeMap, HashMap};

use call_ring::{
    Size, Target,
    call::{Action, Call, Pointer},
};
use trace::{
    BlockId, Recorder,
    ops::{Argument, Block, Invalid, Launch, OpStream, Signature},
};

/// Work of a call, or of a node of a graph.
#[derive(Clone, Debug)]
struct Work {
    signature: Signature,
    addresses: Vec<u64>,
}

/// Builder of a stream from calls in their order. Memory that was allocated before the first call is
/// unknown: pointers into it are left out.
#[derive(Debug, Default)]
pub struct Ops {
    recorder: Recorder,
    /// Live blocks by their first address: size.
    live: BTreeMap<u64, u64>,
    functions: HashMap<u64, String>,
    streams: HashMap<u64, u32>,
    captured: HashMap<u64, Vec<Work>>,
    /// Nodes by graph, in the order in which they were added.
    graphs: HashMap<u64, Vec<(u64, Work)>>,
    executables: HashMap<u64, Vec<(u64, Work)>>,
    /// A time never less than that of the call before.
    time_ns: u64,
}

fn dimensions(Size { x, y, z }: Size) -> [u32; 3] {
    [x, y.into(), z.into()]
}

impl Ops {
    /// Adds a call.
    ///
    /// # Errors
    /// If there are too many of them, or too many bytes.
    pub fn add(&mut self, call: &Call) -> Result<(), Invalid> {
        // Threads take their time before their number.
        self.time_ns = self.time_ns.max(call.stamp.time_ns);
        match &call.action {
            Action::Malloc { address, bytes, .. } => self.malloc(*address, *bytes),
            Action::Free { address, .. } => self.free(*address),
            Action::Function { function, name } => {
                self.functions.insert(*function, name.clone());
                Ok(())
            }
            Action::Launch { target, function, grid, block, pointers, .. } => {
                let name = self.functions.get(function).cloned().unwrap_or_else(|| format!("{function:#x}"));
                let signature = Signature { name, grid: dimensions(*grid), block: dimensions(*block) };
                let pointers = pointers.as_deref().unwrap_or_default();
                let addresses = pointers.iter().map(|Pointer { address, .. }| *address).collect();
                self.work(*target, Work { signature, addresses })
            }
            Action::Copy { target, to, from, .. } => self.copy_or_fill(*target, "copy", vec![*to, *from]),
            Action::Fill { target, address, .. } => self.copy_or_fill(*target, "fill", vec![*address]),
            Action::GraphCaptured { capture, graph } => {
                let nodes = self.captured.remove(capture).unwrap_or_default();
                self.graphs.insert(*graph, (0..).zip(nodes).collect());
                Ok(())
            }
            Action::GraphCloned { graph, clone } => {
                // The nodes of a clone have handles of their own, which nobody tells.
                let nodes = self.graphs.get(graph).cloned().unwrap_or_default();
                self.graphs.insert(*clone, nodes.into_iter().map(|(_, work)| (0, work)).collect());
                Ok(())
            }
            Action::GraphInstantiated { graph, executable } => {
                self.executables.insert(*executable, self.graphs.get(graph).cloned().unwrap_or_default());
                Ok(())
            }
            Action::GraphLaunch { stream, executable } => {
                let nodes = self.executables.get(executable).cloned().unwrap_or_default();
                nodes.into_iter().try_for_each(|(_, work)| self.launch(*stream, work))
            }
            Action::GraphDestroyed { graph } => {
                self.graphs.remove(graph);
                Ok(())
            }
            Action::ExecutableDestroyed { executable } => {
                self.executables.remove(executable);
                Ok(())
            }
            // A free that failed was of memory that nobody else was given meanwhile; its block is one
            // that ended, and what names it later is left out.
            Action::NotFreed { .. } | Action::Prefetch { .. } | Action::Advise { .. } | Action::Sync { .. } => Ok(()),
        }
    }

    /// The stream.
    #[must_use]
    pub fn finish(self) -> OpStream {
        self.recorder.finish()
    }

    fn malloc(&mut self, address: u64, bytes: u64) -> Result<(), Invalid> {
        if bytes == 0 {
            return Ok(());
        }
        // Its free was of a call that is missing.
        if self.live.contains_key(&address) {
            self.free(address)?;
        }
        self.recorder.malloc(self.time_ns, address, Block { bytes, address: Some(address) })?;
        self.live.insert(address, bytes);
        Ok(())
    }

    fn free(&mut self, address: u64) -> Result<(), Invalid> {
        match self.live.remove(&address) {
            Some(_) => self.recorder.free(self.time_ns, address).map(drop),
            None => Ok(()),
        }
    }

    fn copy_or_fill(&mut self, target: Target, name: &str, addresses: Vec<u64>) -> Result<(), Invalid> {
        let signature = Signature { name: name.to_owned(), grid: [0; 3], block: [0; 3] };
        self.work(target, Work { signature, addresses })
    }

    fn work(&mut self, target: Target, work: Work) -> Result<(), Invalid> {
        let set = |nodes: &mut Vec<(u64, Work)>, node, work| match nodes.iter_mut().find(|(there, _)| *there == node) {
            Some((_, there)) => *there = work,
            None => nodes.push((node, work)),
        };
        match target {
            Target::Stream(stream) => return self.launch(stream, work),
            Target::Captured(capture) => self.captured.entry(capture).or_default().push(work),
            // A node that is changed without its graph: a node's handle is the node's alone.
            Target::Graph { graph: 0, node } => {
                let mut graphs = self.graphs.values_mut();
                if let Some(nodes) = graphs.find(|nodes| nodes.iter().any(|(there, _)| *there == node)) {
                    set(nodes, node, work);
                }
            }
            Target::Graph { graph, node } => set(self.graphs.entry(graph).or_default(), node, work),
            Target::Executable { executable, node } => {
                set(self.executables.entry(executable).or_default(), node, work);
            }
        }
        Ok(())
    }

    fn launch(&mut self, stream: u64, Work { signature, addresses }: Work) -> Result<(), Invalid> {
        let mut arguments: Vec<Argument> = Vec::new();
        for address in addresses {
            if let Some(block) = self.block(address)
                && !arguments.iter().any(|argument| argument.block == block)
            {
                arguments.push(Argument { block, access: None });
            }
        }
        let count = u32::try_from(self.streams.len()).map_err(|_| Invalid::TooMany)?;
        let stream = *self.streams.entry(stream).or_insert(count);
        let signature = self.recorder.signature(signature);
        let launch = Launch { signature, stream, start_ns: None, duration_ns: None, arguments };
        self.recorder.launch(self.time_ns, launch).map(drop)
    }

    /// Live block that an address is in.
    fn block(&self, address: u64) -> Option<BlockId> {
        let (begin, bytes) = self.live.range(..=address).next_back()?;
        (address - begin < *bytes).then(|| self.recorder.block(*begin).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use call_ring::{MemoryKind, Stamp, Target};
    use trace::ops::OpKind;

    use super::*;

    fn call(time_ns: u64, action: Action) -> Call {
        Call { stamp: Stamp { sequence: 0, time_ns, thread: 1 }, is_asynchronous: false, is_cut: false, action }
    }

    fn malloc(address: u64) -> Action {
        Action::Malloc { stream: 0, address, bytes: 4096, kind: MemoryKind::Managed, device: 0 }
    }

    fn launch(target: Target, addresses: &[u64]) -> Action {
        let pointers = addresses.iter().map(|address| Pointer { offset_bytes: 0, address: *address }).collect();
        let one = Size::new(1, 1, 1);
        Action::Launch { target, function: 5, grid: one, block: one, shared_bytes: 0, pointers: Some(pointers) }
    }

    fn stream(actions: Vec<Action>) -> OpStream {
        let mut ops = Ops::default();
        for (time_ns, action) in (0..).zip(actions) {
            ops.add(&call(time_ns, action)).unwrap();
        }
        ops.finish()
    }

    #[test]
    fn launch_names_each_live_block_that_its_pointers_are_in_once() {
        let stream = stream(vec![
            malloc(0x10000),
            malloc(0x20000),
            Action::Function { function: 5, name: "add".to_owned() },
            launch(Target::Stream(9), &[0x10000, 0x10ff8, 0x20008, 0x30000]),
            Action::Free { stream: 0, address: 0x10000 },
            launch(Target::Stream(9), &[0x10000, 0x20000]),
        ]);
        let blocks = |at: usize| {
            let launch = &stream.launches().values()[at];
            launch.arguments.iter().map(|argument| argument.block.0).collect::<Vec<_>>()
        };
        assert_eq!((blocks(0), blocks(1)), (vec![0, 1], vec![1]));
        assert_eq!(stream.signatures().values()[0].name, "add");
    }

    #[test]
    fn launch_of_a_graph_is_the_launches_of_its_nodes() {
        let node = |node| Target::Graph { graph: 7, node };
        let stream = stream(vec![
            malloc(0x10000),
            malloc(0x20000),
            launch(node(1), &[0x10000]),
            launch(node(2), &[0x20000]),
            Action::GraphInstantiated { graph: 7, executable: 8 },
            Action::GraphLaunch { stream: 1, executable: 8 },
            launch(Target::Executable { executable: 8, node: 1 }, &[0x20000]),
            Action::GraphLaunch { stream: 1, executable: 8 },
        ]);
        let blocks: Vec<u32> = stream.launches().values().iter().map(|launch| launch.arguments[0].block.0).collect();
        assert_eq!(blocks, [0, 1, 1, 1]);
    }

    #[test]
    fn address_that_is_allocated_again_without_a_free_is_another_block() {
        let stream = stream(vec![malloc(0x10000), malloc(0x10000)]);
        let kinds: Vec<OpKind> = stream.ops().values().iter().map(|op| op.kind).collect();
        assert_eq!(kinds, [OpKind::Malloc(BlockId(0)), OpKind::Free(BlockId(0)), OpKind::Malloc(BlockId(1))]);
    }
}
