//! Kinds of records. The first record of a call has the kind of the call, and the count of records that
//! follow it, of kinds [`Kind::Pointers`], [`Kind::Name`] or [`Kind::Node`].
//!
//! | kind | words |
//! | --- | --- |
//! | `Malloc` | stream, address, bytes, [`MemoryKind`], device |
//! | `Free` | stream, address |
//! | `NotFreed` | –, address: the preceding free failed |
//! | `Function` | –, handle, bytes of its name; the name follows |
//! | `Launch` | [`Target`], function, grid, block, shared bytes with the number of the launch (32 bits each); its pointers follow, and its node |
//! | `Copy` | [`Target`], to, from, bytes, rows |
//! | `Fill` | [`Target`], address, bytes, rows |
//! | `Prefetch` | stream, address, bytes, device, host node |
//! | `Advise` | host node, address, bytes, advice, device |
//! | `Discard` | stream, address, bytes |
//! | `Sync` | stream or event, [`SyncKind`] |
//! | `GraphCaptured` | –, capture id, graph |
//! | `GraphInstantiated` | –, graph, executable |
//! | `GraphLaunch` | stream, executable, number of the launch |
//! | `GraphCloned` | –, graph, its clone |
//! | `GraphDestroyed`, `ExecutableDestroyed` | –, graph or executable |
//! | `Pointers` | four 16-bit offsets in the arguments, four addresses; the record's count is the pointers in it |
//! | `Name` | 40 bytes of a name |
//! | `Node` | –, node |
//!
//! A device of -1 is the host, and -2 neither the host nor a device. A host node is its number plus 1, or 0.

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the table above describes each kind")]
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
    Discard,
    Pointers = 64,
    Name,
    Node,
}

impl Kind {
    const ALL: [Self; 20] = [
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
        Self::Discard,
        Self::Pointers,
        Self::Name,
        Self::Node,
    ];

    /// Kind by its number; `None` for kinds of later versions.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Flag: the call returns before its work is done.
pub const ASYNCHRONOUS: u8 = 1;
/// Flag: pointers or bytes of the name exceeded their limit and were cut.
pub const CUT: u8 = 2;
/// Flag: the arguments of the launch are unknown.
pub const ARGUMENTS_UNKNOWN: u8 = 4;
/// Position of the [`Target`]'s two bits in the flags.
pub const TARGET_SHIFT: u8 = 6;

/// Stream bit: the legacy default stream of the context whose handle is in the other bits.
pub const LEGACY: u64 = 1;
/// Stream bit: the calling thread's default stream in the context whose handle is in the other bits.
pub const PER_THREAD: u64 = 2;

/// Target of a call's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Stream, for immediate execution.
    Stream(u64),
    /// Stream capture, by its id.
    Captured(u64),
    /// Node of a graph.
    Graph {
        /// Graph, or 0 if only the node is known.
        graph: u64,
        /// Handle of the node.
        node: u64,
    },
    /// Node of an instantiated graph, whose parameters are replaced.
    Executable {
        /// Instantiated graph.
        executable: u64,
        /// Node of the graph that was instantiated.
        node: u64,
    },
}

impl Target {
    /// The two bits of the flags, and the first word.
    #[must_use]
    pub const fn to_parts(self) -> (u8, u64) {
        match self {
            Self::Stream(stream) => (0, stream),
            Self::Captured(capture) => (1, capture),
            Self::Graph { graph, .. } => (2, graph),
            Self::Executable { executable, .. } => (3, executable),
        }
    }

    /// Node, which has a record of its own.
    #[must_use]
    pub const fn node(self) -> Option<u64> {
        match self {
            Self::Stream(_) | Self::Captured(_) => None,
            Self::Graph { node, .. } | Self::Executable { node, .. } => Some(node),
        }
    }

    /// Target from the two bits of the flags, the first word and the node.
    #[must_use]
    pub const fn from_parts(bits: u8, word: u64, node: u64) -> Self {
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
    /// Device memory: `cuMemAlloc` and its variants.
    Device,
    /// Device memory of a pool, allocated in stream order.
    Pool,
    /// Pinned host memory.
    Host,
    /// Host memory of the program itself, pinned by registration.
    Registered,
}

impl MemoryKind {
    /// Kind by its number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Managed, Self::Device, Self::Pool, Self::Host, Self::Registered]
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }
}

/// Scope of a wait.
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
    /// Kind by its number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Context, Self::Stream, Self::Event].into_iter().find(|kind| *kind as u64 == number)
    }
}

/// Dimensions of a grid or of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dim3 {
    /// Thread blocks, or threads, in x.
    pub x: u32,
    /// Thread blocks, or threads, in y: at most 65,535.
    pub y: u16,
    /// Thread blocks, or threads, in z: at most 65,535.
    pub z: u16,
}

impl Dim3 {
    /// Size from the arguments of a launch. Values that the driver rejects are clamped.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the maximum")]
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        const MAX: u32 = u16::MAX as u32;
        Self { x, y: if y > MAX { MAX } else { y } as u16, z: if z > MAX { MAX } else { z } as u16 }
    }

    /// Word of the size.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        self.x as u64 | (self.y as u64) << 32 | (self.z as u64) << 48
    }

    /// Size from a word.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub const fn from_word(word: u64) -> Self {
        Self { x: word as u32, y: (word >> 32) as u16, z: (word >> 48) as u16 }
    }
}
