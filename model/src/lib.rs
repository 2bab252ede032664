//! What uvmd knows about managed memory: identifiers, counters, snapshots, and the JSON form of them. Pure data, no I/O.
//!
//! * [`counters`]: what is counted, per process and GPU
//! * [`dropped`]: why something was not counted
//! * [`snapshot`]: everything known at one moment, as the collector publishes it
//! * [`api`]: the JSON bodies of the HTTP API, shared by the server and its clients

pub mod api;
pub mod counters;
pub mod dropped;
pub mod snapshot;

pub use counters::{Access, Cause, Counters, Direction};
pub use dropped::DropReason;
pub use snapshot::{
    DriverInfo, Gpu, GpuKey, GpuUuid, ProbeStatus, Process, ProcessId, Snapshot, SourceState, SourceStatus,
};
