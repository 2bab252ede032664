//! State of a program, from its calls: memory, functions and graphs.

mod graphs;

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use call_ring::{
    Dim3, MemoryKind, SyncKind, Target,
    advice::Subject,
    call::{Action, Call, Pointer},
};
use graphs::{Graph, Graphs};
use trace::ops;

use crate::map::{Map, entry_bytes};

/// Function of a unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// Kernel, by the handle of its function.
    Kernel(u64),
    Copy,
    Fill,
}

/// Work of a call, or of a graph node.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) function: Function,
    /// Thread blocks; zeros for copies and fills.
    pub(crate) grid: Dim3,
    /// Threads of a block; zeros for copies and fills.
    pub(crate) block: Dim3,
    /// Addresses named by the work.
    pub(crate) addresses: Arc<[u64]>,
    /// Bytes that the work accesses from each address; `None` for kernels, and for several rows.
    pub(crate) bytes: Option<u64>,
}

/// Effect of a call.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Memory is allocated, at an address that is not live.
    Malloc { address: u64, bytes: u64 },
    /// Live memory is freed.
    Free { address: u64 },
    /// Work is submitted to a stream.
    Launch { stream: u64, work: Work },
}

/// Maximum bytes of the state of a program: some 30,000 graph nodes, or 60,000 blocks or functions.
pub const BYTES_MAX: usize = 8 << 20;
/// Bytes of a block.
const BLOCK_BYTES: usize = entry_bytes::<u64, Memory>();
/// Bytes of a function without its name.
const FUNCTION_BYTES: usize = entry_bytes::<u64, Arc<str>>() + 32;
/// Number of last frees that may be reverted: more than threads free at a time.
const FREED_MAX: usize = 16;

/// Properties of a block.
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
    /// Kind of memory.
    pub kind: MemoryKind,
}

impl LiveBlock {
    fn new(address: u64, Memory { bytes, kind }: Memory) -> Self {
        Self { address, bytes, kind }
    }

    /// Whether kernels find the memory on a GPU.
    #[must_use]
    pub const fn is_on_gpu(&self) -> bool {
        !matches!(self.kind, MemoryKind::Host | MemoryKind::Registered)
    }
}

/// State of a program. Cloning takes constant time.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Live blocks, by first address.
    live: Map<u64, Memory>,
    functions: Map<u64, Arc<str>>,
    /// Captures in progress, whose nodes have numbers instead of handles.
    captures: Graphs,
    graphs: Graphs,
    /// Graph of each node with a handle.
    graph_of: Map<u64, u64>,
    executables: Graphs,
    /// Last frees, with their addresses.
    freed: VecDeque<(u64, Memory)>,
    /// Whether the program has ever advised remote access by a GPU.
    has_advised_access: bool,
    /// Heap bytes of the functions.
    function_bytes: usize,
    is_full: bool,
}

/// Bytes that a copy or fill accesses from each address; `None` for several rows.
fn access_bytes(bytes: u64, rows: u64) -> Option<u64> {
    (rows <= 1).then_some(bytes)
}

const NO_SIZE: Dim3 = Dim3 { x: 0, y: 0, z: 0 };

impl Program {
    /// Live blocks, by address.
    pub fn live(&self) -> impl Iterator<Item = LiveBlock> {
        self.live.iter().map(|(address, memory)| LiveBlock::new(address, *memory))
    }

    /// Live block that contains an address.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<LiveBlock> {
        let (begin, memory) = self.live.last_up_to(address)?;
        (address - begin < memory.bytes).then_some(LiveBlock::new(begin, *memory))
    }

    /// Live block that begins at an address, including one without bytes.
    #[must_use]
    pub fn block_starting_at(&self, address: u64) -> Option<LiveBlock> {
        self.live.get(address).map(|memory| LiveBlock::new(address, *memory))
    }

    /// Whether the program has ever advised remote access by a GPU, which then may access memory
    /// without a fault.
    #[must_use]
    pub const fn has_advised_access(&self) -> bool {
        self.has_advised_access
    }

    /// Wait of a call for the GPU, if any. A synchronous copy from a GPU to other memory waits for
    /// it, too.
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

    /// Name of a function, if recorded.
    #[must_use]
    pub fn function(&self, function: u64) -> Option<&str> {
        self.functions.get(function).map(|name| &**name)
    }

    /// Name of the function of a unit of work.
    pub(crate) fn name(&self, function: Function) -> Cow<'_, str> {
        match function {
            Function::Copy => "copy".into(),
            Function::Fill => "fill".into(),
            Function::Kernel(function) => {
                self.function(function).map_or_else(|| format!("{function:#x}").into(), Cow::Borrowed)
            }
        }
    }

    /// Whether the program has exceeded 8 MiB of blocks, functions and nodes. Later ones are
    /// unknown.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Heap bytes held, estimated from counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let graphs = [&self.captures, &self.graphs, &self.executables].map(Graphs::bytes);
        let index = self.graph_of.len() * graphs::INDEX_BYTES;
        self.live.len() * BLOCK_BYTES + self.function_bytes + graphs.iter().sum::<usize>() + index
    }

    /// Checks for room for `bytes` more. If there is none, marks the state as full for good.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.bytes() + bytes <= BYTES_MAX;
        self.is_full |= !has_room;
        has_room
    }

    /// Applies a call without returning its effects.
    pub fn advance(&mut self, action: &Action) {
        match action {
            Action::GraphLaunch { .. }
            | Action::Launch { target: Target::Stream(_), .. }
            | Action::Copy { target: Target::Stream(_), .. }
            | Action::Fill { target: Target::Stream(_), .. } => {}
            action => drop(self.apply(action)),
        }
    }

    /// Applies a call, and returns its effects in order.
    pub(crate) fn apply(&mut self, action: &Action) -> Vec<Effect> {
        match action {
            Action::Malloc { address, bytes, kind, .. } => self.malloc(*address, Memory { bytes: *bytes, kind: *kind }),
            Action::Free { address, .. } => self.free(*address).into_iter().collect(),
            Action::Function { function, name } => {
                let bytes = FUNCTION_BYTES + name.len();
                if self.has_room(bytes) {
                    let before = self.function(*function).map_or(0, |name| FUNCTION_BYTES + name.len());
                    self.functions.insert(*function, name.as_str().into());
                    self.function_bytes += bytes;
                    self.function_bytes -= before;
                }
                Vec::new()
            }
            Action::Launch { target, function, grid, block, pointers, .. } => {
                let pointers = pointers.as_deref().unwrap_or_default();
                let addresses = pointers.iter().map(|Pointer { address, .. }| *address).collect();
                let function = Function::Kernel(*function);
                self.submit(*target, Work { function, grid: *grid, block: *block, addresses, bytes: None })
            }
            Action::Copy { target, to, from, bytes, rows } => {
                self.submit_copy_or_fill(*target, Function::Copy, &[*to, *from], access_bytes(*bytes, *rows))
            }
            Action::Fill { target, address, bytes, rows } => {
                self.submit_copy_or_fill(*target, Function::Fill, &[*address], access_bytes(*bytes, *rows))
            }
            Action::GraphLaunch { stream, executable } => {
                let work_in_order = self.executables.get(*executable).map(Graph::work_in_order).unwrap_or_default();
                work_in_order.into_iter().map(|work| Effect::Launch { stream: *stream, work: work.clone() }).collect()
            }
            Action::GraphCaptured { .. }
            | Action::GraphCloned { .. }
            | Action::GraphInstantiated { .. }
            | Action::GraphDestroyed { .. }
            | Action::ExecutableDestroyed { .. } => {
                self.apply_to_graphs(action);
                Vec::new()
            }
            // The free failed: the block counts as a new allocation.
            Action::NotFreed { address } => {
                let freed = self.freed.iter().rposition(|(freed, _)| freed == address);
                let freed = freed.and_then(|at| self.freed.remove(at));
                freed.map_or_else(Vec::new, |(address, memory)| self.malloc(address, memory))
            }
            Action::Advise { advice, .. } => {
                self.has_advised_access |= Subject::from_advice(*advice) == (Subject::Access, true);
                Vec::new()
            }
            Action::Prefetch { .. } | Action::Discard { .. } | Action::Sync { .. } => Vec::new(),
        }
    }

    /// Applies a call that creates or destroys a graph.
    fn apply_to_graphs(&mut self, action: &Action) {
        match action {
            // The nodes of these graphs have handles that are not recorded.
            Action::GraphCaptured { capture, graph } => {
                let nodes = self.captures.remove(*capture).unwrap_or_default();
                if self.has_room(nodes.bytes()) {
                    self.set_graph(*graph, nodes.with_unknown_handles());
                }
            }
            Action::GraphCloned { graph, clone } => {
                let nodes = self.graphs.get(*graph).cloned().unwrap_or_default();
                if self.has_room(nodes.bytes()) {
                    self.set_graph(*clone, nodes.with_unknown_handles());
                }
            }
            Action::GraphInstantiated { graph, executable } => {
                let nodes = self.graphs.get(*graph).cloned().unwrap_or_default();
                if self.has_room(nodes.bytes()) {
                    self.executables.insert(*executable, nodes);
                }
            }
            Action::GraphDestroyed { graph } => self.remove_graph(*graph),
            Action::ExecutableDestroyed { executable } => drop(self.executables.remove(*executable)),
            _ => {}
        }
    }

    /// Sets a graph whose nodes have unknown handles.
    fn set_graph(&mut self, handle: u64, graph: Graph) {
        self.remove_graph(handle);
        self.graphs.insert(handle, graph);
    }

    fn remove_graph(&mut self, handle: u64) {
        let Some(graph) = self.graphs.remove(handle) else { return };
        for node in graph.handles() {
            if self.graph_of.get(node) == Some(&handle) {
                self.graph_of.remove(node);
            }
        }
    }

    /// Adds a node to a graph, or changes its work.
    fn set_node(&mut self, graph: u64, node: u64, work: Work) {
        if self.graphs.set(graph, node, work) {
            self.graph_of.insert(node, graph);
        }
    }

    fn malloc(&mut self, address: u64, memory: Memory) -> Vec<Effect> {
        if memory.bytes == 0 {
            return Vec::new();
        }
        // If the address is live, the record of its free was dropped.
        let mut effects: Vec<Effect> = self.free(address).into_iter().collect();
        if !self.has_room(BLOCK_BYTES) {
            return effects;
        }
        self.live.insert(address, memory);
        effects.push(Effect::Malloc { address, bytes: memory.bytes });
        effects
    }

    fn free(&mut self, address: u64) -> Option<Effect> {
        let memory = self.live.remove(address)?;
        if self.freed.len() >= FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back((address, memory));
        Some(Effect::Free { address })
    }

    fn submit_copy_or_fill(
        &mut self,
        target: Target,
        function: Function,
        addresses: &[u64],
        bytes: Option<u64>,
    ) -> Vec<Effect> {
        self.submit(target, Work { function, grid: NO_SIZE, block: NO_SIZE, addresses: addresses.into(), bytes })
    }

    fn submit(&mut self, target: Target, work: Work) -> Vec<Effect> {
        match target {
            Target::Stream(stream) => return vec![Effect::Launch { stream, work }],
            // The largest addition: a new node of a new graph.
            _ if !self.has_room(graphs::first_node_bytes(&work)) => {}
            Target::Captured(capture) => self.captures.push(capture, work),
            // A node changed without its graph: the handle belongs to this node alone.
            Target::Graph { graph: 0, node } => {
                if let Some(graph) = self.graph_of.get(node).copied() {
                    self.set_node(graph, node, work);
                }
            }
            Target::Graph { graph, node } => self.set_node(graph, node, work),
            Target::Executable { executable, node } => drop(self.executables.set(executable, node, work)),
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::visits;

    fn fill(target: Target) -> Action {
        Action::Fill { target, address: 1, bytes: 1, rows: 1 }
    }

    #[test]
    fn program_that_multiplies_its_graphs_takes_bounded_memory() {
        let mut program = Program::default();
        for node in 0..1000 {
            program.apply(&fill(Target::Graph { graph: 1, node }));
        }
        for executable in 0..1000 {
            program.apply(&Action::GraphInstantiated { graph: 1, executable });
            program.apply(&fill(Target::Executable { executable, node: 7 }));
        }
        assert!(program.is_full() && program.bytes() <= BYTES_MAX);
        for executable in 0..1000 {
            program.apply(&Action::ExecutableDestroyed { executable });
        }
        program.apply(&Action::GraphDestroyed { graph: 1 });
        assert_eq!(program.bytes(), 0);
    }

    #[test]
    fn ever_new_handles_take_bounded_memory() {
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
    fn failed_free_is_reverted() {
        let mut program = Program::default();
        let kind = MemoryKind::Managed;
        program.apply(&Action::Malloc { stream: 0, address: 0x1000, bytes: 64, kind, device: 0 });
        program.apply(&Action::Free { stream: 0, address: 0x1000 });
        assert_eq!(program.block(0x1000), None);
        let effects = program.apply(&Action::NotFreed { address: 0x1000 });
        assert!(matches!(effects[..], [Effect::Malloc { address: 0x1000, bytes: 64 }]), "{effects:?}");
        assert_eq!(program.block(0x103f).map(|block| block.address), Some(0x1000));
    }

    #[test]
    fn advice_on_access_is_permanent() {
        let mut program = Program::default();
        let has_advised_access = [1, 2, 3, 4, 6, 5, 6].map(|advice| {
            program.apply(&Action::Advise { address: 0x1000, bytes: 64, advice, to: 0, host_node: None });
            program.has_advised_access()
        });
        assert_eq!(has_advised_access, [false, false, false, false, false, true, true]);
    }

    #[test]
    fn capture_becomes_a_graph_with_its_work_in_order() {
        let mut program = Program::default();
        program.apply(&fill(Target::Captured(3)));
        program.apply(&Action::Copy { target: Target::Captured(3), to: 1, from: 2, bytes: 1, rows: 1 });
        program.apply(&Action::GraphCaptured { capture: 3, graph: 4 });
        program.apply(&Action::GraphInstantiated { graph: 4, executable: 5 });
        let effects = program.apply(&Action::GraphLaunch { stream: 9, executable: 5 });
        let functions: Vec<Function> = effects
            .iter()
            .map(|effect| match effect {
                Effect::Launch { stream: 9, work } => work.function,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(functions, [Function::Fill, Function::Copy]);
        assert_eq!(program.captures.bytes(), 0);
    }

    /// Maximum number of entries that a call visits: some paths from the root, in maps of at most
    /// 15,000 entries.
    const VISITS_MAX: u64 = 600;

    fn visits_of(program: &mut Program, action: &Action) -> u64 {
        let before = visits::count();
        program.apply(action);
        visits::count() - before
    }

    #[test]
    fn call_visits_few_entries_of_large_graphs() {
        let mut program = Program::default();
        for node in 1..12_000 {
            assert!(visits_of(&mut program, &fill(Target::Graph { graph: 1, node })) < VISITS_MAX);
        }
        for call in 0..2000 {
            let (executable, node) = (call % 2 + 1, 1 + call * 5);
            for action in [
                Action::GraphInstantiated { graph: 1, executable },
                fill(Target::Executable { executable, node }),
                fill(Target::Graph { graph: 1, node }),
                fill(Target::Graph { graph: 0, node }),
                Action::ExecutableDestroyed { executable },
                Action::GraphCloned { graph: 1, clone: 2 },
                fill(Target::Graph { graph: 2, node }),
                Action::GraphDestroyed { graph: 2 },
            ] {
                let visits = visits_of(&mut program, &action);
                assert!(visits < VISITS_MAX, "{visits} entries of {action:?}");
            }
        }
        assert!(!program.is_full());
    }

    fn any_action() -> impl Strategy<Value = Action> {
        // Few handles, so that calls collide, and a range of handles for large graphs.
        let handle = || prop_oneof![0..4_u64, 0..3000_u64];
        let target = (0..3, handle(), handle()).prop_map(|(kind, graph, node)| match kind {
            0 => Target::Captured(graph),
            1 => Target::Graph { graph, node },
            _ => Target::Executable { executable: graph, node },
        });
        let memory = || (handle(), 0..9000_u64);
        prop_oneof![
            4 => target.prop_map(fill),
            1 => (handle(), handle()).prop_map(|(graph, executable)| Action::GraphInstantiated { graph, executable }),
            1 => (handle(), handle()).prop_map(|(graph, clone)| Action::GraphCloned { graph, clone }),
            1 => (handle(), handle()).prop_map(|(capture, graph)| Action::GraphCaptured { capture, graph }),
            1 => handle().prop_map(|graph| Action::GraphDestroyed { graph }),
            1 => handle().prop_map(|executable| Action::ExecutableDestroyed { executable }),
            1 => memory().prop_map(|(address, bytes)| {
                Action::Malloc { stream: 0, address, bytes, kind: MemoryKind::Managed, device: 0 }
            }),
            1 => handle().prop_map(|address| Action::Free { stream: 0, address }),
            1 => handle().prop_map(|address| Action::NotFreed { address }),
            1 => (memory(), 1..7_u32).prop_map(|((address, bytes), advice)| {
                Action::Advise { address, bytes, advice, to: 0, host_node: None }
            }),
            1 => handle().prop_map(|function| Action::Function { function, name: "f".repeat(50) }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// The cost of a destruction is amortised over the calls that added the entries.
        #[test]
        fn calls_visit_few_entries_each_on_average(actions in prop::collection::vec(any_action(), 1..1500)) {
            let (mut program, before) = (Program::default(), visits::count());
            let mut snapshots = Vec::new();
            for (call, action) in (1..).zip(&actions) {
                program.apply(action);
                if call % 100 == 0 {
                    snapshots.push(program.clone());
                }
                prop_assert!(visits::count() - before <= VISITS_MAX * call);
            }
            for graph in 0..3000 {
                program.apply(&Action::GraphDestroyed { graph });
                program.apply(&Action::ExecutableDestroyed { executable: graph });
                program.apply(&Action::GraphCaptured { capture: graph, graph: 0 });
            }
            program.apply(&Action::GraphDestroyed { graph: 0 });
            let others = program.live.len() * BLOCK_BYTES + program.function_bytes;
            prop_assert_eq!(program.bytes(), others, "nothing is charged for graphs that are gone");
        }
    }
}
