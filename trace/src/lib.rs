//! Traces of a GPU program's memory: one iteration, or a whole run. docs/traces.md describes the
//! forms and the sources of traces.
//!
//! recorded calls, or the `trace-sources` crate -> [`Iteration`] or [`OpStream`] -> planners, the simulator
//!
//! * [`id`]: ids of tensors, kernels, blocks and ops, and tables by id
//! * [`draft`]: construction of an iteration
//! * [`iteration`]: tensors, and kernels in order that read and write them
//! * [`lifetime`]: births, uses, gaps and deaths of tensors, and live bytes at each kernel
//! * `ops::recorder`: construction of a stream
//! * [`ops`]: mallocs, frees, reads, writes and launches of a run, with times
//! * [`circle`]: blocks of an iteration on a circle of one period, the input of placement planners
//! * [`footprints`]: memory that launches access, inferred from their arguments
//! * [`from_ops`]: conversion of a part of a stream to an iteration
//! * [`detect`]: detection of a run's iterations
//!
//! Constructors, importers and serde validate every trace. Each type documents its invariants,
//! which are not checked again.

pub mod circle;
pub mod detect;
pub mod footprints;
pub mod from_ops;
pub mod id;
pub mod iteration;
pub mod lifetime;
pub mod ops;

pub use circle::{Alignment, Circle, Span};
pub use detect::Detector;
pub use footprints::Footprints;
pub use from_ops::{IterationWindow, Lives, RecordedIteration};
pub use id::{BlockId, KernelId, LaunchId, OpId, SignatureId, Table, TensorId};
pub use iteration::{Access, Iteration, Kernel, Location, Operand, Role, Tensor, Use};
pub use iteration::{Draft, draft};
pub use ops::Recorder;
pub use ops::{Op, OpKind, OpStream};
