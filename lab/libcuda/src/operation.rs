//! Operations of streams and graphs.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use crate::{
    backend::{Location, Origin, Range},
    copy::{Copy, Fill},
    host::{Callback, HostCall},
    memory::Block,
    module::Function,
    value::Wait,
};

/// Time at which a point of a stream was reached.
pub(crate) type Time = Arc<OnceLock<Instant>>;

/// Kernel with grid and arguments.
#[derive(Clone, Debug)]
pub(crate) struct KernelLaunch {
    /// Kernel.
    pub(crate) function: Arc<Function>,
    /// Grid and arguments.
    pub(crate) launch: ptx::Launch,
    /// Arguments for programs that read a node's; made when the first does.
    read_back: Arc<OnceLock<ReadBack>>,
    /// Its blocks wait for each other.
    pub(crate) cooperative: bool,
    /// Call of which it is.
    pub(crate) origin: Origin,
}

/// Arguments, each aligned to a word, and pointers to them.
#[derive(Debug)]
struct ReadBack {
    #[expect(dead_code, reason = "memory behind the pointers")]
    arguments: Vec<Box<[u64]>>,
    pointers: Box<[usize]>,
}

impl ReadBack {
    fn new(kernel: &ptx::Kernel, bytes: &[u8]) -> Self {
        let argument = |parameter: &ptx::Parameter| {
            let begin = usize::try_from(parameter.offset_bytes).unwrap_or(usize::MAX);
            let end = begin.saturating_add(usize::try_from(parameter.bytes).unwrap_or(0));
            let words = bytes.get(begin..end).unwrap_or_default().chunks(8);
            let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            words.map(word).collect::<Box<[u64]>>()
        };
        let arguments: Vec<_> = kernel.parameters().iter().map(argument).collect();
        let pointers = arguments.iter().map(|words| words.as_ptr().expose_provenance()).collect();
        Self { arguments, pointers }
    }
}

impl KernelLaunch {
    /// Launch of a kernel.
    pub(crate) fn new(function: Arc<Function>, launch: ptx::Launch) -> Self {
        Self { function, launch, read_back: Arc::default(), cooperative: false, origin: Origin::NONE }
    }

    /// Address of a list of pointers to the arguments, which lives as long as the launch and its
    /// clones.
    pub(crate) fn argument_pointers(&self) -> usize {
        let made = self.read_back.get_or_init(|| ReadBack::new(&self.function.kernel, &self.launch.arguments));
        made.pointers.as_ptr().expose_provenance()
    }
}

/// Operation of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Nothing but its place in the order.
    Nothing,
    /// A kernel.
    Kernel(KernelLaunch),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// A wait for a value in memory.
    Wait(Wait),
    /// A prefetch of managed memory.
    Migrate(Range, Location),
    /// The end of an allocation.
    Free(Arc<Block>),
    /// A function of the program, not called after an error.
    Host(HostCall),
    /// A function of the program that is told the state.
    Callback(Callback),
    /// The time of an event.
    Record(Time),
}

impl Operation {
    /// Operation of a call, whose line of the log names its accesses.
    pub(crate) fn of(mut self, call: Origin) -> Self {
        match &mut self {
            Self::Kernel(KernelLaunch { origin, .. })
            | Self::Copy(Copy { origin, .. })
            | Self::Fill(Fill { origin, .. }) => *origin = call,
            _ => {}
        }
        self
    }

    /// Whether it takes no time and calls nothing of the program.
    pub(crate) const fn is_instant(&self) -> bool {
        matches!(self, Self::Nothing | Self::Record(_))
    }

    /// Whether it can be a node of a graph.
    pub(crate) const fn can_be_captured(&self) -> bool {
        !matches!(self, Self::Migrate(..) | Self::Wait(_) | Self::Free(_) | Self::Callback(_))
    }
}
