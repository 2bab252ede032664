//! Traces: what a GPU program did to memory in one iteration, or in a whole run. docs/traces.md describes the forms and where traces come from.
//!
//! files -> importers -> [`Iteration`] or [`OpStream`] -> planners, the simulator
//!
//! * [`id`]: numbers of tensors, kernels, blocks, ops, and tables by them
//! * [`draft`]: how an iteration is made
//! * [`iteration`]: tensors, and kernels in order that read and write them
//! * [`lifetime`]: when a tensor of an iteration is born, used, idle and dead, and how many bytes live at each kernel
//! * `ops::recorder`: how a stream is made
//! * [`ops`]: mallocs, frees, reads, writes and launches of a run, with times
//! * [`import`]: traces of other programs
//! * [`circle`]: the blocks of one iteration on a circle of one period: what a planner of placements places
//! * [`from_ops`]: an iteration out of a stream
//! * [`zoo`]: traces of our own making
//! * [`detect`]: where a run's iterations are
//!
//! Everything is checked when it is made, by a constructor, an importer or serde; what holds then is said at each type and is not checked again.

pub mod circle;
pub mod detect;
pub mod from_ops;
pub mod id;
pub mod import;
pub mod iteration;
pub mod lifetime;
pub mod ops;
pub mod zoo;

pub use circle::{Alignment, Circle, Span};
pub use detect::Detector;
pub use from_ops::Lives;
pub use id::{BlockId, KernelId, LaunchId, OpId, SignatureId, Table, TensorId};
pub use iteration::{Access, Iteration, Kernel, Operand, Role, Tensor, Use};
pub use iteration::{Draft, draft};
pub use ops::Recorder;
pub use ops::{Op, OpKind, OpStream};
