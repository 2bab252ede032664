//! Sums by owner, which outlive processes and are monotonic as long as the owner is listed.
//!
//! A process counts for its current owner; its counts under an earlier owner stay there. Its counts
//! are split when the owner changes: `before` is the settled part. The owner changes once the GPUs
//! of the counts are known, as settled counts do not move any more.
//!
//! The number of owners is bounded. One is listed while there is room, and then stays until it is
//! idle. Counts without room or without a known owner go to [`OwnerKey::Other`]. Users may name
//! units and containers freely, and submit any number of jobs. Each user therefore has a quota,
//! except root, and except for pods, which the kubelet names. Owners that are no longer listed are
//! summed separately: added to `Other`, they would look like traffic.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::SystemTime,
};

use abi::{CountKey, Tally};
use model::{GpuKey, OwnerKey, OwnerTotals, Reuse};

use super::{Counts, Entry, Generation, Ledger, NO_SPACE, Presence, Space, gpu, owner};
use crate::OwnerLimits;

/// Owners of a node.
#[derive(Debug)]
pub(super) struct Owners {
    listed: BTreeMap<OwnerKey, Account>,
    /// Sums of the owners that are no longer listed.
    retired: Sums,
    limits: OwnerLimits,
    /// Users that were denied a listing since the last [`Ledger::settle_owners`].
    refused: BTreeSet<u32>,
    /// Users that were denied one before it.
    at_quota: BTreeSet<u32>,
}

#[derive(Debug)]
struct Account {
    /// User charged for its place in the list; none for owners that only the node's managers name.
    uid: Option<u32>,
    /// Final counts.
    settled: Sums,
    /// Whether there were counts since [`Ledger::settle_owners`].
    is_active: bool,
    /// Time of its last activity, by [`Ledger::settle_owners`].
    last_active_at: SystemTime,
    /// Time of its last count or its last process.
    last_needed: SystemTime,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sums {
    counts: Counts,
    reuse: BTreeMap<GpuKey, Reuse>,
}

/// Owner of a VA space's counts.
#[derive(Debug)]
pub(super) struct SpaceShare {
    pub(super) account: OwnerKey,
    /// Settled part of its tallies, and of its dropped events.
    before: HashMap<CountKey, Tally>,
    lost_before: u64,
    /// Whether there were counts since [`Ledger::settle_owners`].
    pub(super) is_active: bool,
}

/// Owner of a process's counts.
#[derive(Debug)]
pub(super) struct ProcessShare {
    /// Current owner, listed or not.
    pub(super) wanted: OwnerKey,
    /// Owner for which its VA spaces are to count: the current one, if it is listed.
    account: OwnerKey,
    /// Owner of its reuse, and the settled part.
    of_reuse: OwnerKey,
    reuse_before: BTreeMap<GpuKey, Reuse>,
}

impl Owners {
    pub(super) const fn new(limits: OwnerLimits) -> Self {
        let retired = Sums { counts: Counts::NONE, reuse: BTreeMap::new() };
        Self { listed: BTreeMap::new(), retired, limits, refused: BTreeSet::new(), at_quota: BTreeSet::new() }
    }

    /// Sets the limits. Listed owners stay until they are idle.
    pub(super) const fn retain(&mut self, limits: OwnerLimits) {
        self.limits = limits;
    }

    /// Lists an owner of a process of this user if there is room; returns the owner under which it
    /// counts.
    pub(super) fn admit(&mut self, wanted: &OwnerKey, uid: u32) -> OwnerKey {
        if !self.listed.contains_key(wanted) && !self.may_list(wanted, uid) {
            self.account(&OwnerKey::Other);
            return OwnerKey::Other;
        }
        self.account_of(wanted, charged(wanted, uid));
        wanted.clone()
    }

    fn may_list(&mut self, wanted: &OwnerKey, uid: u32) -> bool {
        let others = self.listed.len() - usize::from(self.listed.contains_key(&OwnerKey::Other));
        if others >= self.limits.max {
            return false;
        }
        let Some(uid) = charged(wanted, uid) else { return true };
        let of_user = self.listed.values().filter(|account| account.uid == Some(uid)).count();
        let may = of_user < self.limits.user_max();
        if !may {
            self.refused.insert(uid);
        }
        may
    }

    /// User that is charged for an owner.
    pub(super) fn user(&self, key: &OwnerKey) -> Option<u32> {
        self.listed.get(key)?.uid
    }

    fn account(&mut self, key: &OwnerKey) -> &mut Account {
        self.account_of(key, None)
    }

    fn account_of(&mut self, key: &OwnerKey, uid: Option<u32>) -> &mut Account {
        self.listed.entry(key.clone()).or_insert_with(|| Account {
            uid,
            settled: Sums::default(),
            is_active: true,
            last_active_at: SystemTime::UNIX_EPOCH,
            last_needed: SystemTime::UNIX_EPOCH,
        })
    }

    /// Settles the rest of a destroyed VA space.
    pub(super) fn close(&mut self, space: &Space) {
        if space.has_counted() {
            let account = self.account(&space.share.account);
            account.is_active |= space.share.is_active;
            account.settled.add_space(space);
        }
    }

    /// Settles the rest of a forgotten process. Its VA spaces, if any, continue separately.
    pub(super) fn forget(&mut self, entry: &Entry, key: impl Fn(Generation, u32) -> GpuKey) {
        let rest = entry.share.reuse_since(&entry.blocks.reuse(key));
        if !rest.is_empty() {
            self.account(&entry.share.of_reuse).settled.add_reuse(&rest);
        }
    }
}

/// User that the place of an owner in the list is charged to.
const fn charged(owner: &OwnerKey, uid: u32) -> Option<u32> {
    match owner {
        OwnerKey::Other | OwnerKey::Pod(_) => None,
        OwnerKey::Job(_) | OwnerKey::Container(_) | OwnerKey::Unit(_) if uid == 0 => None,
        OwnerKey::Job(_) | OwnerKey::Container(_) | OwnerKey::Unit(_) => Some(uid),
    }
}

impl Space {
    fn has_counted(&self) -> bool {
        !self.tallies.is_empty() || self.dropped_events > 0
    }
}

impl SpaceShare {
    /// Share of a VA space whose process is not known yet.
    pub(super) fn new() -> Self {
        Self { account: OwnerKey::Other, before: HashMap::new(), lost_before: 0, is_active: false }
    }

    /// Whether another owner's part is settled already.
    fn is_split(&self) -> bool {
        !self.before.is_empty() || self.lost_before > 0
    }

    /// Drops the counts.
    pub(super) fn discard(&mut self) {
        self.before.clear();
    }
}

impl Default for SpaceShare {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessShare {
    pub(super) fn new(wanted: OwnerKey, account: &OwnerKey) -> Self {
        Self { wanted, account: account.clone(), of_reuse: account.clone(), reuse_before: BTreeMap::new() }
    }

    /// Share of a new VA space, with the same owner.
    pub(super) fn share(&self) -> SpaceShare {
        SpaceShare { account: self.account.clone(), ..SpaceShare::new() }
    }

    fn reuse_since(&self, reuse: &BTreeMap<GpuKey, Reuse>) -> BTreeMap<GpuKey, Reuse> {
        let before = |gpu| self.reuse_before.get(gpu).copied().unwrap_or_default();
        reuse.iter().map(|(gpu, reuse)| (*gpu, difference(reuse, &before(gpu)))).collect()
    }
}

impl Sums {
    /// Adds the counts of a VA space since its last settlement, without those of the GPUs' fault
    /// handlers, which have no owner.
    fn add_space(&mut self, space: &Space) {
        let SpaceShare { before, lost_before, .. } = &space.share;
        if space.share.is_split() {
            let lost = &mut self.counts.host.dropped_events;
            *lost = lost.saturating_add(space.dropped_events.saturating_sub(*lost_before));
            for (key, tally) in &space.tallies {
                let before = before.get(key).copied().unwrap_or_default();
                let since = Tally {
                    events: tally.events.saturating_sub(before.events),
                    amount: tally.amount.saturating_sub(before.amount),
                };
                if since != Tally::default() {
                    self.counts.add_tally(key, space.gpu_ids.key(key.gpu), since);
                }
            }
        } else {
            self.counts.add_space(space);
        }
        self.counts.handlers.clear();
    }

    fn add_reuse(&mut self, reuse: &BTreeMap<GpuKey, Reuse>) {
        for (gpu, reuse) in reuse {
            *self.reuse.entry(*gpu).or_default() += reuse;
        }
    }

    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.add_reuse(&other.reuse);
    }
}

const fn difference(reuse: &Reuse, before: &Reuse) -> Reuse {
    Reuse {
        fetched_bytes: reuse.fetched_bytes.saturating_sub(before.fetched_bytes),
        refetched_bytes: reuse.refetched_bytes.saturating_sub(before.refetched_bytes),
        cpu_reclaimed_bytes: reuse.cpu_reclaimed_bytes.saturating_sub(before.cpu_reclaimed_bytes),
        bounces: reuse.bounces.saturating_sub(before.bounces),
    }
}

impl Ledger {
    /// Assigns counts to the current owners of processes, as soon as they may be split, and removes
    /// idle owners from the list. To be called after each reading.
    pub(crate) fn settle_owners(&mut self, now: SystemTime) {
        for entry in self.processes.values_mut().filter(|entry| entry.presence != Presence::Gone) {
            entry.share.account = self.owners.admit(&entry.share.wanted, entry.identity.uid);
        }
        self.owners.at_quota = std::mem::take(&mut self.owners.refused);
        // Counts of this reading belong to the former owner.
        let (spaces, owners) = (&self.spaces, &self.owners);
        self.evictions.settle_owners(
            owners.limits.max_eviction_pairs,
            |owner| owners.user(owner),
            |of| owner(spaces.get(&of)),
            |of, id| gpu(spaces, of, id),
        );
        self.change_hands_of_spaces();
        self.change_hands_of_reuse();
        self.retire_idle_owners(now);
        self.evictions.retain_owners(|owner| self.owners.listed.contains_key(owner));
    }

    fn change_hands_of_spaces(&mut self) {
        for space in self.spaces.iter_mut().filter_map(|(generation, space)| (*generation != NO_SPACE).then_some(space))
        {
            if std::mem::take(&mut space.share.is_active) {
                self.owners.account(&space.share.account).is_active = true;
            }
            let Some(entry) = space.process.and_then(|process| self.processes.get(&process)) else { continue };
            if entry.share.account != space.share.account && !space.gpu_ids.are_pending() {
                if space.has_counted() {
                    self.owners.account(&space.share.account).settled.add_space(space);
                }
                let (before, lost_before) = (space.tallies.clone(), space.dropped_events);
                space.share = SpaceShare { before, lost_before, ..entry.share.share() };
            }
        }
    }

    fn change_hands_of_reuse(&mut self) {
        let key = |generation, id| gpu(&self.spaces, generation, id);
        for entry in self.processes.values_mut().filter(|entry| entry.share.of_reuse != entry.share.account) {
            let reuse = entry.blocks.reuse(key);
            if reuse.keys().any(|gpu| matches!(gpu, GpuKey::Pending(_))) {
                continue;
            }
            let rest = entry.share.reuse_since(&reuse);
            if !rest.is_empty() {
                self.owners.account(&entry.share.of_reuse).settled.add_reuse(&rest);
            }
            entry.share.of_reuse = entry.share.account.clone();
            entry.share.reuse_before = reuse;
        }
    }

    /// Removes owners without processes, after some time without counts; at once without any counts
    /// ever: a process that moves from cgroup to cgroup must not displace all others.
    fn retire_idle_owners(&mut self, now: SystemTime) {
        let of_spaces = self.spaces.values().map(|space| &space.share.account);
        let of_processes = self.processes.values().flat_map(|entry| [&entry.share.account, &entry.share.of_reuse]);
        let in_use: HashSet<&OwnerKey> = of_spaces.chain(of_processes).chain([&OwnerKey::Other]).collect();
        let Owners { listed, retired, limits, .. } = &mut self.owners;
        listed.retain(|key, account| {
            let is_active = std::mem::take(&mut account.is_active);
            if is_active {
                account.last_active_at = now;
            }
            let is_needed = is_active || in_use.contains(key);
            if is_needed {
                account.last_needed = now;
            }
            let is_old = now.duration_since(account.last_needed).is_ok_and(|idle| idle >= limits.retention);
            let is_idle = is_old || !is_needed && account.settled == Sums::default();
            if is_idle {
                retired.add(&account.settled);
            }
            !is_idle
        });
    }

    /// Users at their quota of owners, with further ones.
    pub(crate) const fn users_at_quota(&self) -> &BTreeSet<u32> {
        &self.owners.at_quota
    }

    /// Sums of all listed owners.
    pub(crate) fn owners(&self) -> BTreeMap<OwnerKey, OwnerTotals> {
        let mut living: HashMap<&OwnerKey, u64> = HashMap::new();
        let mut sums: BTreeMap<&OwnerKey, Sums> =
            self.owners.listed.iter().map(|(key, account)| (key, account.settled.clone())).collect();
        for (generation, space) in &self.spaces {
            if let Some(sums) = sums.get_mut(&space.share.account).filter(|_| *generation != NO_SPACE) {
                sums.add_space(space);
            }
        }
        let key = |generation, id| gpu(&self.spaces, generation, id);
        for entry in self.processes.values() {
            if entry.ended.is_none() {
                *living.entry(&entry.share.account).or_default() += 1;
            }
            if let Some(sums) = sums.get_mut(&entry.share.of_reuse) {
                sums.add_reuse(&entry.share.reuse_since(&entry.blocks.reuse(key)));
            }
        }
        let totals = self.owners.listed.iter().map(|(key, account)| {
            let Sums { counts: Counts { host, gpus, .. }, reuse } = sums.remove(key).unwrap_or_default();
            let processes = living.get(key).copied().unwrap_or_default();
            (key.clone(), OwnerTotals { host, gpus, reuse, processes, last_active_at: account.last_active_at })
        });
        totals.collect()
    }

    /// Reuse of all owners ever listed, which covers all processes.
    pub(crate) fn reuse(&self) -> BTreeMap<GpuKey, Reuse> {
        let key = |generation, id| gpu(&self.spaces, generation, id);
        let mut sums = Sums { reuse: self.owners.retired.reuse.clone(), ..Sums::default() };
        for account in self.owners.listed.values() {
            sums.add_reuse(&account.settled.reuse);
        }
        for entry in self.processes.values() {
            sums.add_reuse(&entry.share.reuse_since(&entry.blocks.reuse(key)));
        }
        sums.reuse
    }
}

#[cfg(test)]
mod tests;
