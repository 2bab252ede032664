//! Kinds of records. The first record of a call has the kind of the call; those that follow it have
//! [`Kind::Pointers`], [`Kind::Name`] or [`Kind::Node`], and their number is in the first.
//!
//! | kind | words |
//! | --- | --- |
//! | `Malloc` | stream, address, bytes, [`MemoryKind`], device |
//! | `Free` | stream, address |
//! | `NotFreed` | –, address: the free before it failed |
//! | `Function` | –, handle, bytes of its name; the name follows |
//! | `Launch` | [`Target`], function, grid, block, shared bytes with the number of the launch (32 bits each); its pointers follow, and its node |
//! | `Copy` | [`Target`], to, from, bytes, rows |
//! | `Fill` | [`Target`], address, bytes, rows |
//! | `Prefetch` | stream, address, bytes, device or -1 |
//! | `Advise` | –, address, bytes, advice, device or -1 |
//! | `Sync` | stream or event, [`SyncKind`] |
//! | `GraphCaptured` | –, id of the capture, graph |
//! | `GraphInstantiated` | –, graph, executable |
//! | `GraphLaunch` | stream, executable, number of the launch |
//! | `GraphCloned` | –, graph, its clone |
//! | `GraphDestroyed`, `ExecutableDestroyed` | –, graph or executable |
//! | `Pointers` | four offsets of 16 bits among the arguments, four addresses; the count of them |
//! | `Name` | 40 bytes of a name |
//! | `Node` | –, node |

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the table above says what each is")]
pub enum Kind {
    Malloc = 1,
    Free,
    NotFreed,
    Function,
    Launch,
    Copy,
    Fill,
    Prefetch,
    Advise,
    Sync,
    GraphCaptured,
    GraphInstantiated,
    GraphLaunch,
    GraphCloned,
    GraphDestroyed,
    ExecutableDestroyed,
    Pointers = 64,
    Name,
    Node,
}

impl Kind {
    const ALL: [Self; 19] = [
        Self::Malloc,
        Self::Free,
        Self::NotFreed,
        Self::Function,
        Self::Launch,
        Self::Copy,
        Self::Fill,
        Self::Prefetch,
        Self::Advise,
        Self::Sync,
        Self::GraphCaptured,
        Self::GraphInstantiated,
        Self::GraphLaunch,
        Self::GraphCloned,
        Self::GraphDestroyed,
        Self::ExecutableDestroyed,
        Self::Pointers,
        Self::Name,
        Self::Node,
    ];

    /// Kind of a number; `None` for those of later versions.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// The call returns before the work is done.
pub const ASYNCHRONOUS: u8 = 1;
/// The call had more pointers, or its name more bytes, than are recorded.
pub const CUT: u8 = 2;
/// The arguments of the launch could not be read: their number is not known to this driver.
pub const NO_ARGUMENTS: u8 = 4;
/// Two bits with the [`Target`].
pub const TARGET_SHIFT: u8 = 6;

/// In the name of a stream, whose other bits are then a context: the context's legacy default stream.
pub const LEGACY: u64 = 1;
/// In the name of a stream: the calling thread's own default stream in the context.
pub const PER_THREAD: u64 = 2;

/// Where the work of a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a stream, at once.
    Stream(u64),
    /// To the graph that a capture of streams makes, by the capture's id.
    Captured(u64),
    /// To a node of a graph.
    Graph {
        /// Graph.
        graph: u64,
        /// Node, as the program knows it.
        node: u64,
    },
    /// To a node of an instantiated graph, in place of what it did.
    Executable {
        /// Instantiated graph.
        executable: u64,
        /// Node of the graph of which it was instantiated.
        node: u64,
    },
}

impl Target {
    /// Two bits for the flags, and the first word.
    #[must_use]
    pub const fn parts(self) -> (u8, u64) {
        match self {
            Self::Stream(stream) => (0, stream),
            Self::Captured(capture) => (1, capture),
            Self::Graph { graph, .. } => (2, graph),
            Self::Executable { executable, .. } => (3, executable),
        }
    }

    /// Node, which a record of its own holds.
    #[must_use]
    pub const fn node(self) -> Option<u64> {
        match self {
            Self::Stream(_) | Self::Captured(_) => None,
            Self::Graph { node, .. } | Self::Executable { node, .. } => Some(node),
        }
    }

    /// Of two bits, the first word and the node.
    #[must_use]
    pub const fn of(bits: u8, word: u64, node: u64) -> Self {
        match bits & 3 {
            0 => Self::Stream(word),
            1 => Self::Captured(word),
            2 => Self::Graph { graph: word, node },
            _ => Self::Executable { executable: word, node },
        }
    }
}

/// Kind of allocated memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryKind {
    /// Managed: `cuMemAllocManaged`, and pools of managed memory.
    Managed = 1,
    /// Of a GPU: `cuMemAlloc` and its kin.
    Device,
    /// Of a GPU, from a pool, in the order of a stream.
    Pool,
    /// Pinned host memory.
    Host,
    /// The program's own memory, pinned.
    Registered,
}

impl MemoryKind {
    /// Kind of a number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        [Self::Managed, Self::Device, Self::Pool, Self::Host, Self::Registered]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncKind {
    /// All work of the context.
    Context = 1,
    /// A stream.
    Stream,
    /// An event.
    Event,
}

impl SyncKind {
    /// Kind of a number.
    #[must_use]
    pub fn of(number: u64) -> Option<Self> {
        [Self::Context, Self::Stream, Self::Event].into_iter().find(|kind| *kind as u64 == number)
    }
}

/// Three dimensions of a grid or of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Thread blocks, or threads, in x.
    pub x: u32,
    /// In y: at most 65,535.
    pub y: u16,
    /// In z: at most 65,535.
    pub z: u16,
}

impl Size {
    /// Of the arguments of a launch; what the driver would refuse is cut.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "cut to its maximum")]
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        const MAX: u32 = u16::MAX as u32;
        Self { x, y: if y > MAX { MAX } else { y } as u16, z: if z > MAX { MAX } else { z } as u16 }
    }

    /// As a word.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.x as u64 | (self.y as u64) << 32 | (self.z as u64) << 48
    }

    /// Of a word.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub const fn of_word(word: u64) -> Self {
        Self { x: word as u32, y: (word >> 32) as u16, z: (word >> 48) as u16 }
    }
}
