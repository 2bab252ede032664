//! Processes and users that hold entries of the probes' maps: releases of their charges, denials,
//! and removal of idle tenants.
//!
//! The probes charge, and count denials; only user space removes keys. After each reading a
//! tenant's charges are therefore compared with its keys, and the difference is released: no
//! counter has to be kept in step, and nothing leaks.
//!
//! * `limits`: tenants at a limit

mod limits;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use abi::{
    CountKey, Kind, Owner, Quotas, Released, Resource, Tenant, TenantKind, Usage,
    count::{EvictionKey, SiteKey, Space},
    quota::ByResource,
};
pub(crate) use limits::Limits;

use crate::ledger::{Generation, Losses};

/// Tenants of the node.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    pub(crate) limits: Limits,
    /// Usage as last read.
    usage: BTreeMap<Tenant, Usage>,
    released: BTreeMap<Tenant, Released>,
    /// Tenant of each generation with keys or VA spaces.
    owners: HashMap<Generation, Owner>,
}

/// Generation that VA spaces of a process or user share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) tenant: Tenant,
    pub(crate) generation: Generation,
    pub(crate) usage: Usage,
    /// Whether no VA space has it, and the next one would have its own generation.
    pub(crate) is_idle: bool,
}

/// Entries of each tenant, by [`Resource`].
type Held = BTreeMap<Tenant, ByResource<u64>>;

impl Tenants {
    /// Tenants of new probes with these quotas. Denials of earlier ones stay counted.
    pub(crate) fn renewed(&mut self, quotas: &Quotas) -> Self {
        Self { limits: self.limits.renewed(quotas), ..Self::default() }
    }

    /// Sets the charges and denials of the probes, read before the keys, at this time in ns since
    /// boot.
    pub(crate) fn observe(&mut self, usage: Vec<(Tenant, Usage)>, now_ns: u64) {
        let usage = usage.into_iter().collect();
        let held = |tenant, usage: &Usage| held(&self.released, tenant, usage);
        let shares = |tenant| self.released.get(&tenant).is_some_and(|released| released.shares_until_ns > now_ns);
        self.limits.observe(&self.usage, &usage, held, shares, now_ns);
        self.usage = usage;
    }

    /// Sets the tenant of a generation, by its record.
    pub(crate) fn owns(&mut self, generation: Generation, owner: Owner) {
        self.owners.insert(generation, owner);
    }

    /// Changed releases for the probes: the released part of each tenant's charges, by the
    /// remaining keys, and the time until which a user's processes share a generation.
    pub(crate) fn release<'a>(
        &mut self,
        counts: impl Iterator<Item = &'a CountKey>,
        evictions: impl Iterator<Item = &'a EvictionKey>,
        sites: impl Iterator<Item = &'a SiteKey>,
        spaces: &[Space],
        shares_until_ns: impl Fn(Tenant) -> u64,
    ) -> Vec<(Tenant, Released)> {
        self.owners.extend(spaces.iter().map(|space| (space.generation, space.owner)));
        let mut in_use: HashMap<Generation, Owner> =
            spaces.iter().map(|space| (space.generation, space.owner)).collect();
        // There are many keys, and few generations.
        let mut keys: HashMap<Generation, ByResource<u64>> = HashMap::new();
        let mut count = |generation, resource| keys.entry(generation).or_default()[resource] += 1;
        for key in counts {
            let is_of_distribution = Kind::from_index(key.kind.into()).is_some_and(Kind::is_of_distribution);
            count(key.generation, if is_of_distribution { Resource::Distributions } else { Resource::Counts });
        }
        for key in evictions {
            count(key.victim, if key.evictor == 0 { Resource::Evictions } else { Resource::EvictorPairs });
        }
        for key in sites {
            count(key.generation, Resource::Sites);
        }
        let mut held = Held::new();
        for (generation, keys) in keys {
            // The owner of a generation whose record was dropped is unknown, and not charged.
            let Some(owner) = self.owners.get(&generation) else { continue };
            in_use.insert(generation, *owner);
            for tenant in [Tenant::NODE, self.user(owner.uid), Tenant::process(owner.tgid)] {
                let held = held.entry(tenant).or_default();
                held.0.iter_mut().zip(keys.0).for_each(|(held, keys)| *held += keys);
            }
        }
        self.owners = in_use;
        for usage in self.processes() {
            for tenant in [Tenant::NODE, self.user(usage.uid)] {
                held.entry(tenant).or_default()[Resource::Processes] += 1;
            }
        }
        held.entry(Tenant::NODE).or_default()[Resource::Users] = self.users() as u64;
        self.differences(&held, shares_until_ns)
    }

    fn differences(&mut self, held: &Held, shares_until_ns: impl Fn(Tenant) -> u64) -> Vec<(Tenant, Released)> {
        let mut changed = Vec::new();
        for (tenant, usage) in &self.usage {
            let held = held.get(tenant).copied().unwrap_or_default();
            let is_user = tenant.kind == TenantKind::User as u32;
            let mut released =
                Released { shares_until_ns: if is_user { shares_until_ns(*tenant) } else { 0 }, ..Released::default() };
            for resource in Resource::ALL.iter().filter(|resource| is_released(**resource)) {
                released.entries[*resource] = usage.charged[*resource].saturating_sub(held[*resource]);
            }
            if self.released.insert(*tenant, released).unwrap_or_default() != released {
                changed.push((*tenant, released));
            }
        }
        self.released.retain(|tenant, _| self.usage.contains_key(tenant));
        changed
    }

    /// User that is charged, by the probes' rule.
    fn user(&self, uid: u32) -> Tenant {
        if self.usage.contains_key(&Tenant::user(uid)) { Tenant::user(uid) } else { Tenant::OTHER_USERS }
    }

    fn processes(&self) -> impl Iterator<Item = &Usage> {
        self.usage.iter().filter(|(tenant, _)| tenant.kind == TenantKind::Process as u32).map(|(_, usage)| usage)
    }

    /// Number of tenants with a usage of their own.
    fn users(&self) -> usize {
        let users = self.usage.keys().filter(|tenant| tenant.kind == TenantKind::User as u32);
        users.filter(|tenant| **tenant != Tenant::OTHER_USERS).count()
    }

    /// Tenants that hold nothing, with the same allowance as an unknown one: the probes need no
    /// entry for them.
    pub(crate) fn forgettable(&self, now_ns: u64) -> Vec<(Tenant, Usage)> {
        let with_processes: BTreeSet<Tenant> = self.processes().map(|usage| self.user(usage.uid)).collect();
        let may_go = |(tenant, usage): &(&Tenant, &Usage)| {
            **tenant != Tenant::NODE
                && !with_processes.contains(tenant)
                && held(&self.released, **tenant, usage) == ByResource::default()
                && is_idle(usage, now_ns)
        };
        self.usage.iter().filter(may_go).map(|(tenant, usage)| (*tenant, *usage)).collect()
    }

    /// Removes a tenant that the probes no longer have.
    pub(crate) fn forgotten(&mut self, tenant: Tenant) {
        self.usage.remove(&tenant);
        self.released.remove(&tenant);
    }

    /// Generations that VA spaces share, or shared.
    pub(crate) fn shared(&self, now_ns: u64) -> Vec<Shared> {
        let shared = self.usage.iter().filter(|(_, usage)| usage.shared_generation != 0);
        let shared = shared.map(|(tenant, usage)| Shared {
            tenant: *tenant,
            generation: usage.shared_generation,
            usage: *usage,
            is_idle: is_idle(usage, now_ns),
        });
        shared.collect()
    }

    /// Dropped events and records of each generation.
    pub(crate) fn losses(&self, spaces: &[Space]) -> HashMap<Generation, Losses> {
        let mut losses: HashMap<Generation, Losses> = HashMap::new();
        let of_spaces = spaces.iter().map(|space| (space.generation, space.dropped_events, space.records));
        let of_shared = self.usage.values().filter(|usage| usage.shared_generation != 0);
        let of_shared = of_shared.map(|usage| (usage.shared_generation, usage.dropped_events, usage.records));
        for (generation, events, records) in of_spaces.chain(of_shared) {
            let sum = losses.entry(generation).or_default();
            *sum = sum.plus(Losses { events, records });
        }
        losses.retain(|_, losses| *losses != Losses::default());
        losses
    }
}

/// Holdings of a tenant by [`Resource`]: charged and not released.
fn held(released: &BTreeMap<Tenant, Released>, tenant: Tenant, usage: &Usage) -> ByResource<u64> {
    let released = released.get(&tenant).copied().unwrap_or_default();
    let mut held = usage.charged;
    for (held, released) in held.0.iter_mut().zip(released.entries.0) {
        *held = positive(held.wrapping_sub(released));
    }
    held
}

/// Whether no VA space has the shared generation, and the next one would have its own.
fn is_idle(usage: &Usage, now_ns: u64) -> bool {
    positive(usage.shared_spaces) == 0 && usage.paced_until_ns < now_ns
}

/// Whether user space releases the resource; the probes release the others.
const fn is_released(resource: Resource) -> bool {
    !matches!(resource, Resource::Spaces | Resource::Calls)
}

/// As in the probes: one side of a difference may have been reset before the other.
const fn positive(difference: u64) -> u64 {
    if difference > u64::MAX / 2 { 0 } else { difference }
}

#[cfg(test)]
mod tests;
