//! Sources of traces, for the command line and for tests. docs/traces.md describes them.
//!
//! * [`import`]: importers of other programs' traces
//! * [`zoo`]: generated traces of networks

pub mod import;
pub mod zoo;
