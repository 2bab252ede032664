//! Quotas: limits of entries of the probes' maps per process and user.
//!
//! Anyone who may open the driver can fill a map: with VA spaces, with counts, with threads inside
//! a call. Each entry is therefore charged to its process and to its user, neither of which may
//! exceed its quota. The last part of a map is a reserve for tenants that hold few entries. A
//! refused entry counts in the [`Usage`] of both, and its events are dropped as at a full map.
//!
//! VA spaces have a rate as well: user space is informed of each new one, and reads /proc about its
//! process. If a process or user exceeds the rate, its further VA spaces are counted together,
//! under one shared generation.

use core::ops::{Index, IndexMut};

use crate::count::RecordLosses;

indexed! {
    /// Resource that is charged to tenants.
    Resource {
        /// Living VA spaces.
        Spaces => "va_spaces",
        /// Processes that have a [`Usage`].
        Processes => "processes",
        /// Keys of the counts.
        Counts => "counts",
        /// Keys of the distributions.
        Distributions => "distributions",
        /// Pairs of victim and evictor; charged to the victim.
        EvictorPairs => "evictor_pairs",
        /// Evictions from a victim by an unknown evictor, or by evictors beyond the quota of pairs.
        /// Stored in one map with the pairs.
        Evictions => "evictions",
        /// Threads inside a call of the driver that is tracked to its return.
        Calls => "calls",
        /// Users that have their own [`Usage`]; the others share one.
        Users => "users",
        /// Sites of CPU faults.
        Sites => "cpu_fault_sites",
    }
}

/// Elements of a [`ByResource`]: a power of two, so that an index can be masked for the verifier.
pub const RESOURCES: usize = 16;

/// Value per [`Resource`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct ByResource<T>(pub [T; RESOURCES]);

impl<T> Index<Resource> for ByResource<T> {
    type Output = T;

    #[expect(clippy::indexing_slicing, reason = "there are fewer resources than elements")]
    fn index(&self, resource: Resource) -> &T {
        &self.0[resource as usize]
    }
}

impl<T> IndexMut<Resource> for ByResource<T> {
    #[expect(clippy::indexing_slicing, reason = "there are fewer resources than elements")]
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        &mut self.0[resource as usize]
    }
}

indexed! {
    /// Kind of a tenant.
    TenantKind {
        /// The node.
        Node => "node",
        /// A user, by real user id in the initial user namespace.
        User => "user",
        /// A process, by its id in the initial pid namespace.
        Process => "process",
    }
}

/// Process, user or node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Tenant {
    /// A [`TenantKind`].
    pub kind: u32,
    /// Process id or user id; 0 for the node.
    pub id: u32,
}

impl Tenant {
    /// The node, with all users.
    pub const NODE: Self = Self { kind: TenantKind::Node as u32, id: 0 };
    /// Users without their own [`Usage`]. No user has this id: it means none (`(uid_t)-1`).
    pub const OTHER_USERS: Self = Self::user(u32::MAX);

    /// A user.
    #[must_use]
    pub const fn user(uid: u32) -> Self {
        Self { kind: TenantKind::User as u32, id: uid }
    }

    /// A process.
    #[must_use]
    pub const fn process(tgid: u32) -> Self {
        Self { kind: TenantKind::Process as u32, id: tgid }
    }
}

/// Usage of a tenant. Written by the probes, except that user space removes entries and inserts the
/// node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Usage {
    /// Entries by [`Resource`]. For keys, all that were ever inserted: user space removes them, and
    /// records that in [`Released`].
    pub charged: ByResource<u64>,
    /// Entries denied, by [`Resource`].
    pub refused: ByResource<u64>,
    /// Generation of the process's latest VA space; 0 after its destruction.
    pub latest_generation: u64,
    /// Generation shared by VA spaces that were created too fast; 0 if there are none.
    pub shared_generation: u64,
    /// VA spaces that got the shared generation.
    pub shared_spaces: u64,
    /// Dropped events of destroyed VA spaces of the shared generation, for which there was no room.
    pub dropped_events: u64,
    /// Losses of their block records.
    pub records: RecordLosses,
    /// Time, in ns since boot, at which the allowed rate would have produced as many VA spaces: see
    /// [`Rate`].
    pub paced_until_ns: u64,
    /// Start time of a process, ns since boot.
    pub start_boottime_ns: u64,
    /// Name of a process when it created its first VA space, padded with 0.
    pub comm: [u8; 16],
    /// User of a process.
    pub uid: u32,
    /// 0.
    pub padding: u32,
}

/// Releases of a tenant's entries by user space. Only user space writes them, so that neither side
/// overwrites the other's additions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Released {
    /// Entries that user space removed, by [`Resource`].
    pub entries: ByResource<u64>,
    /// Time, in ns since boot, until which new VA spaces of a user share its generation: the ones
    /// before cost too much.
    pub shares_until_ns: u64,
}

/// Limit on the entries of one resource that a tenant holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Quota {
    /// Limit of one process.
    pub process_max: u32,
    /// Limit of one user.
    pub user_max: u32,
    /// Limit of the node, except for tenants that hold few: the rest of the map is the reserve.
    pub node_max: u32,
    /// Upper bound of the entries of a process that holds few.
    pub process_few: u32,
    /// Upper bound of the entries of a user that holds few; both bounds apply.
    pub user_few: u32,
    /// 0.
    pub padding: u32,
}

/// All quotas and rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Quotas {
    /// Quotas by [`Resource`].
    pub quotas: ByResource<Quota>,
    /// Rate limit of one process.
    pub process_rate: Rate,
    /// Rate limit of one user: all ranks of a job may start at once.
    pub user_rate: Rate,
    /// Rate limit of the node: fewer at once than the ring of their records holds.
    pub node_rate: Rate,
}

/// Capacity in VA spaces. A node has one per CUDA process, and few nodes have a thousand.
pub const SPACES_CAPACITY: u32 = 8192;
/// Capacity in processes and users.
pub const TENANTS_CAPACITY: u32 = 8192;
/// Users charged separately.
const USERS_MAX: u32 = 1024;
/// Capacity in sites of CPU faults. A program that works on managed memory has some ten.
pub const SITES_CAPACITY: u32 = 16384;
/// Capacity in threads of each map of tracked calls.
pub const CALLS_CAPACITY: u32 = 8192;

impl Quotas {
    /// Quotas for maps of these capacities.
    ///
    /// A process with faults and copies in both directions uses some ten counts and one to three
    /// hundred buckets of distributions on each GPU.
    #[must_use]
    pub fn new(counts_capacity: u32, distributions_capacity: u32, evictions_capacity: u32) -> Self {
        let mut quotas = ByResource([Quota::UNLIMITED; RESOURCES]);
        quotas[Resource::Spaces] = quota(SPACES_CAPACITY, SPACES_CAPACITY / 32, 8, 64);
        quotas[Resource::Processes] = quota(TENANTS_CAPACITY - USERS_MAX - 1, u32::MAX, u32::MAX, 64);
        quotas[Resource::Counts] = quota(counts_capacity, (counts_capacity / 16).max(1024), 256, 1024);
        quotas[Resource::Distributions] =
            quota(distributions_capacity, (distributions_capacity / 8).max(1024), 1024, 4096);
        let (others, pairs) = (evictions_capacity / 4, evictions_capacity - evictions_capacity / 4);
        quotas[Resource::EvictorPairs] = quota(pairs, (pairs / 8).max(256), 64, 512);
        quotas[Resource::Evictions] = quota(others, (others / 8).max(256), 64, 512);
        // The node's sum is not counted: each call of every CPU would write to one cache line. It
        // therefore takes four users to fill a map.
        quotas[Resource::Calls] =
            Quota { user_max: CALLS_CAPACITY / 4, ..quota(CALLS_CAPACITY, CALLS_CAPACITY / 8, 64, 512) };
        quotas[Resource::Users] = Quota { node_max: USERS_MAX, process_few: 0, user_few: 0, ..Quota::UNLIMITED };
        quotas[Resource::Sites] = quota(SITES_CAPACITY, SITES_CAPACITY / 64, 32, 512);
        Self { quotas, process_rate: Rate::PROCESS, user_rate: Rate::USER, node_rate: Rate::NODE }
    }

    /// Quotas without limits except the maps' capacities.
    pub const UNLIMITED: Self = Self {
        quotas: ByResource([Quota::UNLIMITED; RESOURCES]),
        process_rate: Rate::UNLIMITED,
        user_rate: Rate::UNLIMITED,
        node_rate: Rate::UNLIMITED,
    };
}

impl Quota {
    /// Quota without limits except the maps' capacities.
    pub const UNLIMITED: Self = Self {
        process_max: u32::MAX,
        user_max: u32::MAX,
        node_max: u32::MAX,
        process_few: u32::MAX,
        user_few: u32::MAX,
        padding: 0,
    };
}

/// Quota of a resource: half of the capacity for one user, and a quarter in reserve.
const fn quota(capacity: u32, process_max: u32, process_few: u32, user_few: u32) -> Quota {
    Quota { process_max, user_max: capacity / 2, node_max: capacity - capacity / 4, process_few, user_few, padding: 0 }
}

/// Rate limit on VA spaces that have their own generation, and so a record: one per period, and a
/// burst after a rest.
///
/// Stored as the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371, A.1):
/// each VA space adds `every_ns` to it, and one that would exceed now by more than `burst` times
/// that is over the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Rate {
    /// Period in ns per VA space.
    pub every_ns: u64,
    /// VA spaces allowed at once.
    pub burst: u64,
}

impl Rate {
    const PROCESS: Self = Self { every_ns: 125_000_000, burst: 32 };
    const USER: Self = Self { every_ns: 15_625_000, burst: 1024 };
    const NODE: Self = Self { every_ns: 3_906_250, burst: 2048 };
    /// No rate limit.
    pub const UNLIMITED: Self = Self { every_ns: 0, burst: 0 };

    /// Theoretical arrival time after another VA space at `now_ns`; `None` if that is over the
    /// rate.
    #[must_use]
    #[inline]
    pub const fn next(self, paced_until_ns: u64, now_ns: u64) -> Option<u64> {
        let from = if paced_until_ns > now_ns { paced_until_ns } else { now_ns };
        let next = from + self.every_ns;
        if next - now_ns > self.every_ns * self.burst { None } else { Some(next) }
    }

    /// Whether less than one `part`-th of the burst is used up.
    #[must_use]
    #[inline]
    pub const fn is_low(self, paced_until_ns: u64, now_ns: u64, part: u64) -> bool {
        paced_until_ns <= now_ns || paced_until_ns - now_ns < self.every_ns * self.burst / part
    }
}

const _: () = assert!(Resource::COUNT as usize <= RESOURCES && RESOURCES.is_power_of_two());
const _: () = assert!(size_of::<Tenant>() == 8);
const _: () = assert!(size_of::<Usage>() == 352);
const _: () = assert!(size_of::<Quota>() == 24);

#[cfg(feature = "user")]
#[expect(unsafe_code, reason = "aya's marker for plain memory is an unsafe trait")]
mod pod {
    // SAFETY: integers only, no padding.
    unsafe impl aya::Pod for super::Tenant {}
    // SAFETY: integers only; padding is a named field.
    unsafe impl aya::Pod for super::Usage {}
    // SAFETY: integers only.
    unsafe impl aya::Pod for super::Released {}
    // SAFETY: integers only; padding is a named field.
    unsafe impl aya::Pod for super::Quotas {}
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::*;

    #[test]
    fn two_users_at_their_quotas_leave_the_reserve_to_others() {
        let Quotas { quotas, .. } = Quotas::new(65536, 65536, 16384);
        let shared = [
            Resource::Spaces,
            Resource::Counts,
            Resource::Distributions,
            Resource::EvictorPairs,
            Resource::Evictions,
            Resource::Sites,
        ];
        for resource in shared {
            let Quota { process_max, user_max, node_max, process_few, user_few, .. } = quotas[resource];
            assert!(process_few < process_max && process_max < user_max, "{resource:?}");
            assert!(user_few < user_max && user_max < node_max, "{resource:?}");
            assert!(node_max < 2 * user_max, "{resource:?}");
        }
    }

    #[test]
    fn three_users_at_their_quotas_leave_room_for_calls_of_others() {
        let Quota { process_max, user_max, .. } = Quotas::new(65536, 65536, 16384).quotas[Resource::Calls];
        assert!(process_max < user_max && 3 * user_max < CALLS_CAPACITY);
    }

    #[test]
    fn security_document_lists_the_quotas() {
        const DOCUMENT: &str = include_str!("../../SECURITY.md");
        let Quotas { quotas, .. } = Quotas::new(65536, 65536, 16384);
        let Quota { process_max, user_max, node_max, user_few, .. } = quotas[Resource::Spaces];
        let rows = [
            format!("| VA spaces that are counted | {process_max} | {user_max} |"),
            format!("| {} | {}, of all maps", quotas[Resource::Calls].process_max, quotas[Resource::Calls].user_max),
            format!("| processes with VA spaces | | {} |", quotas[Resource::Processes].user_max),
            format!(
                "| sites of CPU faults | {} | {} |",
                quotas[Resource::Sites].process_max,
                quotas[Resource::Sites].user_max
            ),
            format!("The reserve takes {} ids more for VA spaces", (SPACES_CAPACITY - node_max) / user_few),
        ];
        for row in rows {
            assert!(DOCUMENT.contains(&row), "{row}");
        }
    }

    #[test]
    fn rate_limit_allows_a_burst_and_then_a_steady_rate() {
        let rate = Rate { every_ns: 10, burst: 3 };
        let mut until = 0;
        let mut comes = |now| rate.next(until, now).is_some_and(|next| core::mem::replace(&mut until, next) <= next);
        assert_eq!(
            [1000, 1000, 1000, 1000, 1009, 1010, 1011].map(&mut comes),
            [true, true, true, false, false, true, false]
        );
        assert!(Rate::UNLIMITED.next(0, 7).is_some_and(|next| Rate::UNLIMITED.next(next, 7).is_some()));
        // The full burst again after a rest.
        assert_eq!([5000, 5000, 5000, 5000].map(comes), [true, true, true, false]);
    }

    #[test]
    fn remaining_burst_distinguishes_idle_from_busy_tenants() {
        let rate = Rate { every_ns: 10, burst: 8 };
        assert!(rate.is_low(0, 1000, 4) && rate.is_low(1019, 1000, 4));
        assert!(!rate.is_low(1020, 1000, 4));
    }

    #[test]
    fn ring_holds_a_burst_of_the_node_and_the_end_of_all_va_spaces() {
        let record_bytes = size_of::<crate::Lifecycle>() as u64 + 8;
        let records = Rate::NODE.burst + u64::from(SPACES_CAPACITY);
        assert!(records * record_bytes <= crate::lifecycle::RING_BYTES.into());
    }
}
