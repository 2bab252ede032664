//! Compiled kernels.

use std::fmt;

use super::access::{Machine, Progress};
use super::barrier::BarrierKind;
use super::state::State;
use crate::KernelError;

/// Work of an instruction on registers alone, for the lanes of a mask.
pub(crate) type Compute = Box<dyn Fn(&mut State, u32) + Send + Sync>;
/// The same on the registers that are handed over: the destination comes first.
pub(crate) type LaneWork = fn(&mut State, &Registers, u32);
/// Registers of an instruction; those that it does not need are 0.
pub(crate) type Registers = [u32; 5];
/// Work of an instruction on memory, for the lanes of a mask.
pub(crate) type Work = Box<dyn Fn(&mut Machine<'_, '_>, u32) -> Result<Progress, KernelError> + Send + Sync>;

/// Index of an instruction.
pub(crate) type Pc = u32;

/// Work of an instruction.
pub(crate) enum Action {
    /// What most instructions do. A function, for which no closure is looked up.
    Lanes {
        work: LaneWork,
        registers: Registers,
    },
    Compute(Compute),
    Memory(Work),
    /// Waits for the member lanes, whose mask is in a register, and works on them.
    ///
    /// A `rendezvous` has no work: lanes meet at it from different instructions, too.
    Sync {
        members: usize,
        work: Compute,
        rendezvous: bool,
    },
    Branch(Pc),
    /// `brx.idx`: index in a register, of these targets.
    BranchIndexed {
        index: usize,
        targets: Vec<Pc>,
    },
    Call {
        target: Target,
        arguments: Vec<Copied>,
        results: Vec<Copied>,
    },
    Return,
    Exit,
    Barrier(Barrier),
    /// Gives way to other warps.
    Yield,
    Trap,
}

impl fmt::Debug for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Lanes { .. } => "Lanes",
            Self::Compute(_) => "Compute",
            Self::Memory(_) => "Memory",
            Self::Sync { .. } => "Sync",
            Self::Branch(_) => "Branch",
            Self::BranchIndexed { .. } => "BranchIndexed",
            Self::Call { .. } => "Call",
            Self::Return => "Return",
            Self::Exit => "Exit",
            Self::Barrier(_) => "Barrier",
            Self::Yield => "Yield",
            Self::Trap => "Trap",
        })
    }
}

/// Function to call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Index in [`Program::functions`].
    Direct(usize),
    /// Register with an address of a function.
    Indirect(usize),
}

/// Bytes that a call copies between two frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// Offset in the caller's frame.
    pub(crate) offset_bytes: u32,
    /// Size.
    pub(crate) bytes: u32,
}

/// Barrier instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub(crate) kind: BarrierKind,
    /// Register with the barrier's number.
    pub(crate) number: usize,
    /// Register with the number of threads, if it is not all of the block.
    pub(crate) threads: Option<usize>,
    /// Predicate of a reduction, and whether it is negated.
    pub(crate) predicate: (usize, bool),
    /// Register or predicate of a reduction's result.
    pub(crate) result: usize,
}

/// Instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// Predicate.
    pub(crate) guard: usize,
    /// All bits where the predicate is negated, else 0.
    pub(crate) guard_flip: u32,
    pub(crate) line: u32,
    pub(crate) action: Action,
}

/// Function in a kernel's program.
#[derive(Clone, Debug, Default)]
pub(crate) struct FunctionCode {
    /// First instruction.
    pub(crate) entry: Pc,
    /// Offsets in its frame, and sizes, of its parameters and results.
    pub(crate) parameters: Vec<Copied>,
    pub(crate) results: Vec<Copied>,
    /// Bytes of its frame in local memory, a multiple of 16.
    pub(crate) frame_bytes: u32,
    /// Registers of its own, which a recursive call saves.
    pub(crate) words: std::ops::Range<usize>,
    pub(crate) longs: std::ops::Range<usize>,
    pub(crate) predicates: std::ops::Range<usize>,
    /// Address in a function pointer, less [`super::FUNCTION_WINDOW`].
    pub(crate) number: u64,
}

/// Value of a thread that the hardware gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(usize),
    BlockSize(usize),
    BlockIndex(usize),
    GridSize(usize),
    Lane,
    Warp,
    Warps,
    LaneEqual,
    LaneLess,
    LaneLessOrEqual,
    LaneGreater,
    LaneGreaterOrEqual,
    DynamicSharedBytes,
    TotalSharedBytes,
    One,
    Zero,
    /// Lower and upper half of the address of a cooperative launch's workspace.
    WorkspaceLow,
    WorkspaceHigh,
}

/// Code of a kernel with all functions that it may call.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) instructions: Vec<Instruction>,
    /// The kernel itself comes first.
    pub(crate) functions: Vec<FunctionCode>,
    pub(crate) words: usize,
    pub(crate) longs: usize,
    pub(crate) predicates: usize,
    pub(crate) word_constants: Vec<(usize, u32)>,
    pub(crate) long_constants: Vec<(usize, u64)>,
    pub(crate) specials: Vec<(usize, Special)>,
    /// Local memory of a lane.
    pub(crate) local_bytes: u32,
    /// Shared memory of a block, without the dynamic part.
    pub(crate) shared_bytes: u32,
    pub(crate) argument_bytes: u32,
    pub(crate) max_threads: u32,
    /// It calls `malloc`.
    pub(crate) uses_heap: bool,
}
