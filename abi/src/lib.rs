//! Records and driver layouts shared by the probes and the collector.
//!
//! * [`layout`]: where the driver keeps what the probes read, one family of driver versions a table
//! * [`count`]: keys and values of the counts, and the reasons for which an event is not counted
//! * [`lifecycle`]: the record for each VA space made or destroyed
//!
//! Both sides are built from this one text, so that a change to a record cannot reach only one of them.
#![no_std]

pub mod count;
pub mod layout;
pub mod lifecycle;

pub use count::{CountKey, Kind, LostReason, Probe, SelfTest, Tally};
pub use layout::Layout;
pub use lifecycle::{Lifecycle, LifecycleKind};

/// Names of the maps and of the one global, as both sides know them.
pub mod names {
    /// Global of type [`Layout`](crate::Layout).
    pub const LAYOUT: &str = "LAYOUT";
    /// Per-CPU hash from [`CountKey`](crate::CountKey) to [`Tally`](crate::Tally).
    pub const COUNTS: &str = "COUNTS";
    /// Hash from the address of a VA space to [`Space`](crate::count::Space).
    pub const SPACES: &str = "SPACES";
    /// Per-CPU array of lost events, by [`LostReason`](crate::LostReason).
    pub const LOST: &str = "LOST";
    /// Per-CPU array of failed self-tests, by [`SelfTest`](crate::SelfTest).
    pub const SELF_TESTS: &str = "SELF_TESTS";
    /// Per-CPU array of probe hits, by [`Probe`](crate::Probe).
    pub const HITS: &str = "HITS";
    /// Ring of [`Lifecycle`](crate::Lifecycle) records.
    pub const LIFECYCLES: &str = "LIFECYCLES";
}
