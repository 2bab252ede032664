//! Calls of a process to the CUDA driver, as the helper in it records them.

use serde::{Deserialize, Serialize};

/// Body of `GET /api/v1/processes/{pid}/ops`. Needs read permission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ops {
    /// `recording`; `throttled`: its user's reader time is used up, and calls are read again in a while;
    /// `ended`: the process has exited; `unreadable`; or `quota_reached`: its user or the node has as many
    /// recordings as it may have.
    pub state: String,
    /// Reason why its calls cannot be read; null where they can.
    pub unreadable_reason: Option<String>,
    /// Who has the recordings that the quota allows, in state `quota_reached`; null in others.
    pub quota_holder: Option<QuotaHolder>,
    /// Calls read since uvmd found the process.
    pub calls: u64,
    /// The last ones of these, which are retained.
    pub calls_retained: u64,
    /// Calls that were not recorded, as there was no room for them.
    pub calls_dropped: u64,
    /// Calls that arrived after later ones, and so are not among the calls retained.
    pub calls_late: u64,
    /// Calls that were not recorded, or not whole, for another reason.
    pub calls_unrecorded: u64,
    /// Records of a later version of the helper, which are skipped.
    pub records_unknown: u64,
    /// Records that no helper writes.
    pub records_invalid: u64,
    /// Whether the program has more blocks, functions and graphs than are known of it: a trace lacks
    /// some.
    pub is_incomplete: bool,
    /// The last calls, in their order.
    pub ops: Vec<Op>,
}

/// Who has the recordings that a quota allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuotaHolder {
    /// User: that of the process, or the one with the most recordings of the node.
    pub uid: u32,
    /// Recordings of this user.
    pub recordings: u64,
    /// Most recordings that the quota allows: of a user, or of the node.
    pub max_recordings: u64,
}

/// Call of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Op {
    /// Number among all calls of the process. Numbers are missing where calls were dropped.
    pub sequence: u64,
    /// Time of the call in nanoseconds, by the monotonic clock.
    pub time_ns: u64,
    /// Thread.
    pub tid: u32,
    /// Whether it returned before its work was done.
    pub is_asynchronous: bool,
    /// Whether it has more pointers, or its name more bytes, than are recorded.
    pub is_cut: bool,
    /// What it does.
    pub action: OpAction,
}

/// What a call does. Addresses and handles are in hexadecimal, with `0x`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OpAction {
    /// Allocates memory.
    Malloc {
        /// First address.
        address: String,
        /// Size.
        bytes: u64,
        /// `managed`, `device`, `pool`, `host` or `registered`.
        kind: String,
        /// CUDA device, as the program numbers them.
        device: u32,
    },
    /// Frees memory.
    Free {
        /// First address.
        address: String,
    },
    /// Reports that the preceding free failed.
    NotFreed {
        /// First address.
        address: String,
    },
    /// Names a function, before its first launch.
    Function {
        /// Handle.
        function: String,
        /// Name.
        name: String,
    },
    /// Launches a kernel.
    Launch {
        /// Stream, capture or graph that it is enqueued to.
        target: OpTarget,
        /// Name of the function; its handle if it is unknown.
        function: String,
        /// Thread blocks.
        grid: [u32; 3],
        /// Threads of a block.
        block: [u32; 3],
        /// Dynamic shared memory.
        shared_bytes: u32,
        /// Addresses of the program's memory among the arguments; null where these are not known.
        pointers: Option<Vec<OpPointer>>,
    },
    /// Copies memory.
    Copy {
        /// Stream, capture or graph that it is enqueued to.
        target: OpTarget,
        /// Address written.
        destination: String,
        /// Address read.
        source: String,
        /// Bytes copied.
        bytes: u64,
        /// Rows of a two-dimensional operation; else 1.
        rows: u64,
    },
    /// Fills memory.
    Fill {
        /// Stream, capture or graph that it is enqueued to.
        target: OpTarget,
        /// First address.
        address: String,
        /// Bytes written.
        bytes: u64,
        /// Rows of a two-dimensional operation; else 1.
        rows: u64,
    },
    /// Prefetches managed memory.
    Prefetch {
        /// Stream.
        stream: String,
        /// First address.
        address: String,
        /// Size.
        bytes: u64,
        /// CUDA device; -1 for the host, and for advice without a location; -2 for another location.
        device: i32,
        /// NUMA node of the host; null where the call names none.
        host_node: Option<u32>,
    },
    /// Discards the content of managed memory.
    Discard {
        /// Stream.
        stream: String,
        /// First address.
        address: String,
        /// Size.
        bytes: u64,
    },
    /// Gives advice on managed memory, or takes it back.
    Advise {
        /// First address.
        address: String,
        /// Size.
        bytes: u64,
        /// `CUmem_advise`.
        advice: u32,
        /// CUDA device; -1 for the host, and for advice without a location; -2 for another location.
        device: i32,
        /// NUMA node of the host; null where the call names none.
        host_node: Option<u32>,
    },
    /// Waits.
    Sync {
        /// `context`, `stream` or `event`: what it waits for.
        kind: String,
        /// Its handle.
        handle: String,
    },
    /// Ends a capture of streams, which is a graph then.
    GraphCapture {
        /// Id of the capture.
        capture: u64,
        /// Graph.
        graph: String,
    },
    /// Instantiates a graph.
    GraphInstantiate {
        /// Graph.
        graph: String,
        /// Instantiated graph.
        executable: String,
    },
    /// Launches a graph.
    GraphLaunch {
        /// Stream.
        stream: String,
        /// Instantiated graph.
        executable: String,
    },
    /// Clones a graph.
    GraphClone {
        /// Graph.
        graph: String,
        /// Its clone.
        clone: String,
    },
    /// Destroys a graph.
    GraphDestroy {
        /// Graph.
        graph: String,
    },
    /// Destroys an instantiated graph.
    ExecutableDestroy {
        /// Instantiated graph.
        executable: String,
    },
}

/// Stream, capture or graph that an operation is enqueued to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OpTarget {
    /// Stream that executes it.
    Stream(String),
    /// Capture of streams, by its id.
    Capture(u64),
    /// Node of a graph.
    GraphNode(String),
    /// Node of an instantiated graph.
    ExecutableNode(String),
}

/// Pointer among the arguments of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OpPointer {
    /// Place among the arguments.
    pub offset_bytes: u16,
    /// Address.
    pub address: String,
}
