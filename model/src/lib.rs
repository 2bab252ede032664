//! What uvmd knows about managed memory: identifiers, counters, snapshots, and the JSON form of them. Pure data, no I/O.
//!
//! * [`counters`]: what is counted, per process and GPU
//! * [`distribution`]: how a quantity was distributed
//! * [`block`]: where in a process's memory it happened
//! * [`dropped`]: why something was not counted
//! * [`snapshot`]: everything known at one moment, as the collector publishes it
//! * [`api`]: the JSON bodies of the HTTP API, shared by the server and its clients

pub mod api;
pub mod block;
pub mod counters;
pub mod distribution;
pub mod dropped;
pub mod snapshot;

pub use block::{Block, Blocks};
pub use counters::{Access, ApiCall, Batches, Cause, Counters, Direction, RemoteCause};
pub use distribution::Distribution;
pub use dropped::DropReason;
pub use snapshot::{
    DriverInfo, Gpu, GpuKey, GpuUuid, ProbeStatus, Process, ProcessId, RecordFigures, Snapshot, SourceState,
    SourceStatus,
};
