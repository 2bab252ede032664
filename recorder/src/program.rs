//! What a program has, by the calls that it has made: memory, functions and graphs.

mod advised;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use advised::Advised;
use call_ring::{
    MemoryKind, Size, SyncKind, Target,
    call::{Action, Call, Pointer},
};
use trace::ops;

/// Work of a call, or of a node of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Name of the function, or kind of copy.
    pub(crate) name: Arc<str>,
    /// Thread blocks; zeros for copies and fills.
    pub(crate) grid: Size,
    /// Threads of a block; zeros for copies and fills.
    pub(crate) block: Size,
    /// Addresses that the work names.
    pub(crate) addresses: Arc<[u64]>,
    /// Bytes from each address that the work accesses; unknown of kernels, and of rows with gaps.
    pub(crate) bytes: Option<u64>,
}

/// Effect of a call.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Memory is allocated: never an address that is live.
    Malloc { address: u64, bytes: u64 },
    /// Memory is freed: always one that is live.
    Free { address: u64 },
    /// Work is submitted to a stream.
    Launch { stream: u64, work: Work },
}

/// Most bytes of what is known of a program: some 60,000 blocks, functions and nodes of graphs.
pub(crate) const BYTES_MAX: usize = 8 << 20;
/// Bytes of a block, of a function beside its name, or of a graph without nodes.
const ENTRY_BYTES: usize = 128;
/// Frees that a failure may take back: more than threads free at once.
const FREED_MAX: usize = 16;

impl Work {
    /// Bytes of a node with this work.
    fn bytes(&self) -> usize {
        ENTRY_BYTES + size_of_val(&*self.addresses)
    }
}

/// Graphs by handle, with the works of their nodes in the order in which they were added.
#[derive(Clone, Debug, Default)]
struct Graphs {
    nodes: HashMap<u64, Vec<(u64, Work)>>,
    bytes: usize,
}

/// Bytes of a graph with these nodes.
fn bytes_of(nodes: &[(u64, Work)]) -> usize {
    ENTRY_BYTES + nodes.iter().map(|(_, work)| work.bytes()).sum::<usize>()
}

impl Graphs {
    fn insert(&mut self, graph: u64, nodes: Vec<(u64, Work)>) {
        self.remove(graph);
        self.bytes += bytes_of(&nodes);
        self.nodes.insert(graph, nodes);
    }

    fn remove(&mut self, graph: u64) -> Vec<(u64, Work)> {
        let Some(nodes) = self.nodes.remove(&graph) else { return Vec::new() };
        self.bytes -= bytes_of(&nodes);
        nodes
    }

    fn get(&self, graph: u64) -> &[(u64, Work)] {
        self.nodes.get(&graph).map_or(&[], Vec::as_slice)
    }

    /// Graph that has a node.
    fn with_node(&self, node: u64) -> Option<u64> {
        self.nodes.iter().find(|(_, nodes)| nodes.iter().any(|(there, _)| *there == node)).map(|(graph, _)| *graph)
    }

    /// Adds a node, or changes its work.
    fn set(&mut self, graph: u64, node: u64, work: Work) {
        let Self { nodes, bytes } = self;
        let nodes = nodes.entry(graph).or_insert_with(|| {
            *bytes += ENTRY_BYTES;
            Vec::new()
        });
        *bytes += work.bytes();
        if let Some((_, there)) = nodes.iter_mut().find(|(there, _)| *there == node) {
            *bytes -= there.bytes();
            *there = work;
        } else {
            nodes.push((node, work));
        }
    }
}

/// A block.
#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    kind: MemoryKind,
}

/// Live block of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// First address.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Kind of its memory.
    pub kind: MemoryKind,
}

impl LiveBlock {
    fn new(address: u64, Memory { bytes, kind }: Memory) -> Self {
        Self { address, bytes, kind }
    }

    /// Whether kernels find it on a GPU.
    #[must_use]
    pub const fn is_on_gpu(&self) -> bool {
        !matches!(self.kind, MemoryKind::Host | MemoryKind::Registered)
    }
}

/// What a program has.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Live blocks by their first address.
    live: BTreeMap<u64, Memory>,
    functions: HashMap<u64, Arc<str>>,
    /// Captures that have not ended; nodes are numbers.
    captures: Graphs,
    graphs: Graphs,
    executables: Graphs,
    /// The last frees, with their addresses.
    freed: VecDeque<(u64, Memory)>,
    advised: Advised,
    /// Bytes of the functions.
    function_bytes: usize,
    is_full: bool,
}

/// Bytes that lie together.
fn known(bytes: u64, rows: u64) -> Option<u64> {
    (rows <= 1).then_some(bytes)
}

const NO_SIZE: Size = Size { x: 0, y: 0, z: 0 };

impl Program {
    /// Live blocks by address.
    pub fn live(&self) -> impl Iterator<Item = LiveBlock> {
        self.live.iter().map(|(address, memory)| LiveBlock::new(*address, *memory))
    }

    /// Live block that an address is in.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<LiveBlock> {
        let (begin, memory) = self.live.range(..=address).next_back()?;
        (address - begin < memory.bytes).then_some(LiveBlock::new(*begin, *memory))
    }

    /// Live block that begins at an address; one without bytes, too.
    #[must_use]
    pub fn block_from(&self, address: u64) -> Option<LiveBlock> {
        self.live.get(&address).map(|memory| LiveBlock::new(address, *memory))
    }

    /// Whether the program has given advice on where memory in a range lies: a preferred location, or read
    /// duplication. Of advice before the first call, nothing is known.
    #[must_use]
    pub fn has_advised(&self, range: &Range<u64>) -> bool {
        self.advised.has(range)
    }

    /// Whether the program has ever given advice that a GPU accesses memory where it is: then it may do so
    /// without a fault.
    #[must_use]
    pub const fn has_advised_access(&self) -> bool {
        self.advised.has_access()
    }

    /// What a call waits for, if it does. A copy from a GPU's memory to other memory returns when it
    /// is done.
    #[must_use]
    pub fn sync(&self, call: &Call) -> Option<ops::SyncKind> {
        match call.action {
            Action::Sync { kind, .. } => Some(match kind {
                SyncKind::Context => ops::SyncKind::Context,
                SyncKind::Stream => ops::SyncKind::Stream,
                SyncKind::Event => ops::SyncKind::Event,
            }),
            Action::Copy { target: Target::Stream(_), to, from, .. } => {
                let is_on_gpu = |address| self.block(address).is_some_and(|block| block.is_on_gpu());
                let waits = !call.is_asynchronous && is_on_gpu(from) && !is_on_gpu(to);
                waits.then_some(ops::SyncKind::Copy)
            }
            _ => None,
        }
    }

    /// Name of a function, if the program has told it.
    pub(crate) fn function(&self, function: u64) -> Option<&Arc<str>> {
        self.functions.get(&function)
    }

    /// Whether it had more than 8 MiB of blocks, functions and nodes. What came after is not
    /// known.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Bytes of what is known.
    fn bytes(&self) -> usize {
        let graphs = [&self.captures, &self.graphs, &self.executables].map(|graphs| graphs.bytes);
        self.live.len() * ENTRY_BYTES + self.function_bytes + graphs.iter().sum::<usize>()
    }

    /// Whether there is room for so many bytes.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.bytes() + bytes <= BYTES_MAX;
        self.is_full |= !has_room;
        has_room
    }

    /// Makes a call whose effects nobody asks for.
    pub fn advance(&mut self, action: &Action) {
        match action {
            Action::GraphLaunch { .. }
            | Action::Launch { target: Target::Stream(_), .. }
            | Action::Copy { target: Target::Stream(_), .. }
            | Action::Fill { target: Target::Stream(_), .. } => {}
            action => drop(self.make(action)),
        }
    }

    /// Makes a call, and returns its effects in order.
    pub(crate) fn make(&mut self, action: &Action) -> Vec<Step> {
        match action {
            Action::Malloc { address, bytes, kind, .. } => self.malloc(*address, Memory { bytes: *bytes, kind: *kind }),
            Action::Free { address, .. } => self.free(*address).into_iter().collect(),
            Action::Function { function, name } => {
                let bytes = ENTRY_BYTES + name.len();
                if self.has_room(bytes) {
                    let before = self.functions.insert(*function, name.as_str().into());
                    self.function_bytes += bytes;
                    self.function_bytes -= before.map_or(0, |name| ENTRY_BYTES + name.len());
                }
                Vec::new()
            }
            Action::Launch { target, function, grid, block, pointers, .. } => {
                let name = self.functions.get(function).cloned().unwrap_or_else(|| format!("{function:#x}").into());
                let pointers = pointers.as_deref().unwrap_or_default();
                let addresses = pointers.iter().map(|Pointer { address, .. }| *address).collect();
                self.work(*target, Work { name, grid: *grid, block: *block, addresses, bytes: None })
            }
            Action::Copy { target, to, from, bytes, rows } => {
                self.copy_or_fill(*target, "copy", &[*to, *from], known(*bytes, *rows))
            }
            Action::Fill { target, address, bytes, rows } => {
                self.copy_or_fill(*target, "fill", &[*address], known(*bytes, *rows))
            }
            Action::GraphLaunch { stream, executable } => {
                let nodes = self.executables.get(*executable).iter();
                nodes.map(|(_, work)| Step::Launch { stream: *stream, work: work.clone() }).collect()
            }
            Action::GraphCaptured { .. }
            | Action::GraphCloned { .. }
            | Action::GraphInstantiated { .. }
            | Action::GraphDestroyed { .. }
            | Action::ExecutableDestroyed { .. } => {
                self.make_graph(action);
                Vec::new()
            }
            // A free that failed: its block is another one from now on.
            Action::NotFreed { address } => {
                let freed = self.freed.iter().rposition(|(there, _)| there == address);
                let freed = freed.and_then(|at| self.freed.remove(at));
                if let Some((address, memory)) = &freed {
                    self.advised.forget(*address..address.saturating_add(memory.bytes));
                }
                freed.map_or_else(Vec::new, |(address, memory)| self.malloc(address, memory))
            }
            Action::Advise { address, bytes, advice, .. } => {
                self.advised.advise(*advice, *address, *bytes);
                Vec::new()
            }
            Action::Prefetch { .. } | Action::Sync { .. } => Vec::new(),
        }
    }

    /// Makes a call that makes or destroys a graph.
    fn make_graph(&mut self, action: &Action) {
        match action {
            Action::GraphCaptured { capture, graph } => {
                let nodes = self.captures.remove(*capture);
                if self.has_room(bytes_of(&nodes)) {
                    self.graphs.insert(*graph, nodes);
                }
            }
            Action::GraphCloned { graph, clone } if self.has_room(bytes_of(self.graphs.get(*graph))) => {
                // The nodes of a clone have handles of their own, which nobody tells.
                let nodes = self.graphs.get(*graph).iter().map(|(_, work)| (0, work.clone())).collect();
                self.graphs.insert(*clone, nodes);
            }
            Action::GraphInstantiated { graph, executable } if self.has_room(bytes_of(self.graphs.get(*graph))) => {
                self.executables.insert(*executable, self.graphs.get(*graph).to_vec());
            }
            Action::GraphDestroyed { graph } => drop(self.graphs.remove(*graph)),
            Action::ExecutableDestroyed { executable } => drop(self.executables.remove(*executable)),
            _ => {}
        }
    }

    fn malloc(&mut self, address: u64, memory: Memory) -> Vec<Step> {
        if memory.bytes == 0 {
            return Vec::new();
        }
        // If it is live, its free was of a call that is missing.
        let mut steps: Vec<Step> = self.free(address).into_iter().collect();
        if !self.has_room(ENTRY_BYTES) {
            return steps;
        }
        self.live.insert(address, memory);
        steps.push(Step::Malloc { address, bytes: memory.bytes });
        steps
    }

    fn free(&mut self, address: u64) -> Option<Step> {
        let memory = self.live.remove(&address)?;
        self.advised.free(&(address..address.saturating_add(memory.bytes)));
        if self.freed.len() >= FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back((address, memory));
        Some(Step::Free { address })
    }

    fn copy_or_fill(&mut self, target: Target, name: &str, addresses: &[u64], bytes: Option<u64>) -> Vec<Step> {
        self.work(target, Work { name: name.into(), grid: NO_SIZE, block: NO_SIZE, addresses: addresses.into(), bytes })
    }

    fn work(&mut self, target: Target, work: Work) -> Vec<Step> {
        match target {
            Target::Stream(stream) => return vec![Step::Launch { stream, work }],
            // A new node of a new graph, at most.
            _ if !self.has_room(ENTRY_BYTES + work.bytes()) => {}
            Target::Captured(capture) => {
                self.captures.set(capture, self.captures.get(capture).len() as u64, work);
            }
            // A node that is changed without its graph: a node's handle is the node's alone.
            Target::Graph { graph: 0, node } => {
                if let Some(graph) = self.graphs.with_node(node) {
                    self.graphs.set(graph, node, work);
                }
            }
            Target::Graph { graph, node } => self.graphs.set(graph, node, work),
            Target::Executable { executable, node } => self.executables.set(executable, node, work),
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(target: Target) -> Action {
        Action::Fill { target, address: 1, bytes: 1, rows: 1 }
    }

    #[test]
    fn program_that_multiplies_its_graphs_takes_bounded_memory() {
        let mut program = Program::default();
        for node in 0..1000 {
            program.make(&fill(Target::Graph { graph: 1, node }));
        }
        for executable in 0..1000 {
            program.make(&Action::GraphInstantiated { graph: 1, executable });
            program.make(&fill(Target::Executable { executable, node: 7 }));
        }
        assert!(program.is_full() && program.bytes() <= BYTES_MAX);
        for executable in 0..1000 {
            program.make(&Action::ExecutableDestroyed { executable });
        }
        program.make(&Action::GraphDestroyed { graph: 1 });
        assert_eq!(program.bytes(), 0);
    }

    #[test]
    fn handles_that_are_always_new_take_bounded_memory() {
        let actions: [fn(u64) -> Action; 9] = [
            |handle| Action::Malloc {
                stream: 0,
                address: handle << 12,
                bytes: 1,
                kind: MemoryKind::Managed,
                device: 0,
            },
            |function| Action::Function { function, name: "x".repeat(1000) },
            |graph| Action::GraphCaptured { capture: 0, graph },
            |clone| Action::GraphCloned { graph: 0, clone },
            |executable| Action::GraphInstantiated { graph: 0, executable },
            |capture| fill(Target::Captured(capture)),
            |graph| fill(Target::Graph { graph, node: 1 }),
            |executable| fill(Target::Executable { executable, node: 1 }),
            |node| fill(Target::Graph { graph: 1, node: node % 2000 }),
        ];
        for (at, action) in actions.iter().enumerate() {
            let mut program = Program::default();
            for handle in 1..200_000 {
                program.advance(&action(handle));
            }
            assert!(program.bytes() <= BYTES_MAX, "action {at}");
            assert_eq!(program.is_full(), at < 8, "action {at}");
        }
    }

    #[test]
    fn free_that_failed_is_taken_back() {
        let mut program = Program::default();
        let kind = MemoryKind::Managed;
        program.make(&Action::Malloc { stream: 0, address: 0x1000, bytes: 64, kind, device: 0 });
        program.make(&Action::Free { stream: 0, address: 0x1000 });
        assert_eq!(program.block(0x1000), None);
        let steps = program.make(&Action::NotFreed { address: 0x1000 });
        assert!(matches!(steps[..], [Step::Malloc { address: 0x1000, bytes: 64 }]), "{steps:?}");
        assert_eq!(program.block(0x103f).map(|block| block.address), Some(0x1000));
        assert!(program.has_advised(&(0x1000..0x1001)), "its advice is not known");
    }

    #[test]
    fn capture_is_a_graph_with_its_works_in_order() {
        let mut program = Program::default();
        program.make(&fill(Target::Captured(3)));
        program.make(&Action::Copy { target: Target::Captured(3), to: 1, from: 2, bytes: 1, rows: 1 });
        program.make(&Action::GraphCaptured { capture: 3, graph: 4 });
        program.make(&Action::GraphInstantiated { graph: 4, executable: 5 });
        let steps = program.make(&Action::GraphLaunch { stream: 9, executable: 5 });
        let names: Vec<&str> = steps
            .iter()
            .map(|step| match step {
                Step::Launch { stream: 9, work } => &*work.name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["fill", "copy"]);
        assert_eq!(program.captures.bytes, 0);
    }
}
