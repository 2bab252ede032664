//! What uvmd knows about managed memory: identifiers, counters, snapshots, and the JSON form of them. Pure data, no I/O.
//!
//! * [`counters`]: what is counted, per process and GPU
//! * [`snapshot`]: everything known at one moment, as the collector publishes it
//! * [`api`]: the JSON bodies of the HTTP API, shared by the server and its clients

pub mod api;
pub mod counters;
pub mod snapshot;

pub use counters::{Access, Cause, Counters, Direction};
pub use snapshot::{DriverInfo, Gpu, GpuUuid, ProbeStatus, Process, ProcessId, Snapshot, SourceState, SourceStatus};
