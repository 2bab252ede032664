//! Records and driver layouts shared by the probes and the collector.
//!
//! * [`attachment`]: calls of the kernel by probes that are attached by fentry
//! * [`layout`]: offsets of the fields that the probes read, one table per family of driver
//!   versions
//! * [`count`]: keys and values of the counts, and the reasons of dropped events
//! * [`lifecycle`]: record of each VA space created or destroyed
//! * [`block`]: record of an event at one block of memory
//! * [`quota`]: limits of map entries per process and user
//!
//! Both sides are built from this source, so that a change of a record always reaches both.
#![no_std]

/// Declares a fieldless enum that indexes a map: `ALL` in index order, and a readable name.
macro_rules! indexed {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// All variants; the position is the index in the map.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Number of variants.
            #[expect(clippy::cast_possible_truncation, reason = "a handful")]
            pub const COUNT: u32 = Self::ALL.len() as u32;

            /// Name in labels and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Variant at an index of the map.
            #[must_use]
            pub fn from_index(index: u32) -> Option<Self> {
                Self::ALL.get(usize::try_from(index).ok()?).copied()
            }
        }
    };
}

/// Reads a struct of integers from a ring.
macro_rules! record {
    ($name:ident) => {
        impl $name {
            /// Reads a record from the ring; `None` if the length is wrong.
            #[must_use]
            #[expect(unsafe_code, reason = "the ring has bytes")]
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                if bytes.len() != size_of::<Self>() {
                    return None;
                }
                // SAFETY: the length was checked, an unaligned read needs no alignment, and any
                // bytes are a valid record of integers.
                Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
            }
        }
    };
}

pub mod attachment;
pub mod block;
pub mod count;
pub mod layout;
pub mod lifecycle;
mod owner;
pub mod quota;

pub use block::{BlockRecord, RecordFate, RecordKind, RecordLimit};
pub use count::{ApiCall, CountKey, DropReason, Kind, Probe, SelfTest, Tally};
pub use layout::Layout;
pub use lifecycle::{Lifecycle, LifecycleKind};
pub use owner::Owner;
pub use quota::{Quotas, Released, Resource, Tenant, TenantKind, Usage};

/// Names of the maps and global data, as both sides know them.
pub mod names {
    /// Global of type [`Layout`](crate::Layout).
    pub const LAYOUT: &str = "LAYOUT";
    /// Global of type `u32`: 1 if the probes are attached by fentry and fexit.
    pub const IS_FENTRY: &str = "IS_FENTRY";
    /// Per-CPU hash from [`CountKey`](crate::CountKey) to [`Tally`](crate::Tally).
    pub const COUNTS: &str = "COUNTS";
    /// Hash like `COUNTS` for distributions, shared by all CPUs: many keys, with few additions to
    /// each.
    pub const DISTRIBUTIONS: &str = "DISTRIBUTIONS";
    /// Hash from [`EvictionKey`](crate::count::EvictionKey) to [`Tally`](crate::Tally).
    pub const EVICTIONS: &str = "EVICTIONS";
    /// Hash from [`SiteKey`](crate::count::SiteKey) to [`Tally`](crate::Tally).
    pub const SITES: &str = "SITES";
    /// LRU hash from a thread to the program counter of its last CPU fault.
    pub const LAST_FAULTS: &str = "LAST_FAULTS";
    /// Hash from the address of a VA space to [`Space`](crate::count::Space).
    pub const SPACES: &str = "SPACES";
    /// Hash from [`Tenant`](crate::Tenant) to [`Usage`](crate::Usage).
    pub const USAGE: &str = "USAGE";
    /// Hash from [`Tenant`](crate::Tenant) to [`Released`](crate::Released).
    pub const RELEASED: &str = "RELEASED";
    /// Global of type [`Quotas`](crate::Quotas).
    pub const QUOTAS: &str = "QUOTAS";
    /// Per-CPU array of dropped events, by [`DropReason`](crate::DropReason).
    pub const DROPPED: &str = "DROPPED";
    /// Per-CPU array of failed self-tests, by [`SelfTest`](crate::SelfTest).
    pub const SELF_TESTS: &str = "SELF_TESTS";
    /// Per-CPU array of probe hits, by [`Probe`](crate::Probe).
    pub const HITS: &str = "HITS";
    /// Array with one element: the driver's first fatal error, 0 without any.
    pub const FATAL_ERROR: &str = "FATAL_ERROR";
    /// Ring of [`Lifecycle`](crate::Lifecycle) records.
    pub const LIFECYCLES: &str = "LIFECYCLES";
    /// Ring of [`BlockRecord`](crate::BlockRecord)s.
    pub const BLOCKS: &str = "BLOCKS";
    /// Per-CPU array of block records, by [`RecordFate`](crate::RecordFate).
    pub const RECORDS: &str = "RECORDS";
    /// Global of type [`RecordLimit`](crate::RecordLimit).
    pub const RECORD_LIMIT: &str = "RECORD_LIMIT";
}
