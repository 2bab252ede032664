//! Tenants at a limit: a quota, or the rate of VA spaces. A tenant is named for a while after its
//! last denial.

use std::collections::{BTreeMap, BTreeSet};

use abi::{Quotas, Resource, Tenant, TenantKind, Usage, quota::ByResource};
use model::{Degradation, DegradedReason, QuotaRefusals};

use super::positive;

/// Time after the last denial in which a tenant is named.
const NAMED_NS: u64 = 60_000_000_000;
/// Maximum of users whose denials are counted separately.
const USERS_MAX: usize = 16;
/// Maximum of named users with the largest holdings of the node.
const LARGEST: usize = 3;
/// Maximum of tenants at limits that have a sentence each.
const NAMED_MAX: usize = 16;

/// Limits reached by tenants.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    quotas: Quotas,
    /// Tenants with a denial, or with a shared generation instead of their own.
    reached: BTreeMap<(Tenant, Limit), Reached>,
    /// Denials since uvmd started, by user; `None` for those that are not distinguished.
    refusals: BTreeMap<(Option<u32>, Resource), u64>,
    /// Users with the largest holdings when the node was last at its quota, with the amounts.
    largest: BTreeMap<Resource, Vec<(Option<u32>, u64)>>,
}

/// Limit that a tenant is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    /// Quota of a resource.
    Quota(Resource),
    /// Rate of VA spaces.
    Rate,
}

/// Tenant at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    /// Time of the last occurrence, ns since boot.
    at_ns: u64,
    uid: Option<u32>,
    /// Holdings at that time.
    held: u64,
}

impl Limits {
    /// Processes the denials of the probes between two readings. `shares`: whether the VA spaces of
    /// a user are to share a generation, as they cost too much.
    pub(super) fn observe(
        &mut self,
        before: &BTreeMap<Tenant, Usage>,
        now: &BTreeMap<Tenant, Usage>,
        held: impl Fn(Tenant, &Usage) -> ByResource<u64>,
        shares: impl Fn(Tenant) -> bool,
        now_ns: u64,
    ) {
        for (tenant, usage) in now {
            let reached = |held| Reached { at_ns: now_ns, uid: uid(*tenant, usage), held };
            for resource in Resource::ALL {
                // A tenant that was forgotten meanwhile restarts.
                let known = before.get(tenant).map_or(0, |before| before.refused[*resource]);
                let refused = usage.refused[*resource].checked_sub(known).unwrap_or(usage.refused[*resource]);
                if refused == 0 {
                    continue;
                }
                if *tenant != Tenant::NODE {
                    let uid = uid(*tenant, usage).filter(|uid| self.is_distinguished(*uid));
                    *self.refusals.entry((uid, *resource)).or_default() += refused;
                }
                self.reached.insert((*tenant, Limit::Quota(*resource)), reached(held(*tenant, usage)[*resource]));
            }
            if shares(*tenant) || self.is_over_rate(*tenant, usage, now_ns) {
                self.reached.insert((*tenant, Limit::Rate), reached(positive(usage.shared_spaces)));
            }
        }
        self.reached.retain(|_, reached| now_ns.saturating_sub(reached.at_ns) < NAMED_NS);
        for ((tenant, limit), reached) in &self.reached {
            if let (Tenant::NODE, Limit::Quota(resource)) = (*tenant, limit)
                && reached.at_ns == now_ns
            {
                let users = now.iter().filter(|(tenant, _)| tenant.kind == TenantKind::User as u32);
                let mut users: Vec<_> =
                    users.map(|(tenant, usage)| (uid(*tenant, usage), held(*tenant, usage)[*resource])).collect();
                users.sort_unstable_by_key(|(_, held)| std::cmp::Reverse(*held));
                users.truncate(LARGEST);
                self.largest.insert(*resource, users);
            }
        }
    }

    /// Whether a user is counted separately. Users denied first stay so: no sum decreases.
    fn is_distinguished(&self, uid: u32) -> bool {
        let users: BTreeSet<u32> = self.refusals.keys().filter_map(|(uid, _)| *uid).collect();
        users.contains(&uid) || users.len() < USERS_MAX
    }

    fn is_over_rate(&self, tenant: Tenant, usage: &Usage, now_ns: u64) -> bool {
        let rate = match tenant.kind {
            kind if kind == TenantKind::Process as u32 => self.quotas.process_rate,
            kind if kind == TenantKind::User as u32 => self.quotas.user_rate,
            _ => return false,
        };
        positive(usage.shared_spaces) > 0 || rate.next(usage.paced_until_ns, now_ns).is_none()
    }

    /// Sentence for each tenant at a limit. `name`: name of a user.
    pub(crate) fn degradations(&self, name: impl Fn(u32) -> Option<String>) -> Vec<Degradation> {
        let named = self.reached.iter().take(NAMED_MAX);
        named.map(|((tenant, limit), reached)| self.degradation(*tenant, *limit, reached, &name)).collect()
    }

    fn degradation(
        &self,
        tenant: Tenant,
        limit: Limit,
        reached: &Reached,
        name: impl Fn(u32) -> Option<String>,
    ) -> Degradation {
        let user = reached.uid.and_then(&name);
        let pid = (tenant.kind == TenantKind::Process as u32).then_some(tenant.id);
        let of_user = called(reached.uid, &name);
        let who = pid.map_or_else(|| of_user.clone(), |pid| format!("process {pid} of {of_user}"));
        let (reason, description) = match limit {
            Limit::Rate => (
                DegradedReason::RegistrationRate,
                format!("{who}: VA spaces are created too fast to be distinguished, and are counted together"),
            ),
            Limit::Quota(resource) if tenant == Tenant::NODE => {
                let largest = self.largest.get(&resource).into_iter().flatten();
                let largest: Vec<_> = largest.map(|(uid, held)| format!("{}: {held}", called(*uid, &name))).collect();
                let (what, held) = (noun(resource), reached.held);
                let description = format!(
                    "{held} {what} are in use, and the rest is reserved for processes with few; further events of others are dropped; the largest share is of {}",
                    largest.join(", ")
                );
                (DegradedReason::QuotaReached, description)
            }
            Limit::Quota(resource) => {
                let quota = &self.quotas.quotas[resource];
                let max = if pid.is_some() { quota.process_max } else { quota.user_max };
                let (what, held) = (noun(resource), reached.held);
                let description =
                    format!("{who}: {held} of at most {max} {what} are in use; further events are dropped");
                (DegradedReason::QuotaReached, description)
            }
        };
        Degradation { reason, uid: reached.uid, user, pid, description }
    }

    /// Denials since uvmd started, by user.
    pub(crate) fn refusals(&self, name: impl Fn(u32) -> Option<String>) -> Vec<QuotaRefusals> {
        let refusals = self.refusals.iter().map(|((uid, resource), refusals)| QuotaRefusals {
            uid: *uid,
            user: uid.and_then(&name),
            resource: resource.name(),
            refusals: *refusals,
        });
        refusals.collect()
    }

    /// Limits of other probes with these quotas.
    pub(super) fn renewed(&mut self, quotas: &Quotas) -> Self {
        Self { quotas: *quotas, refusals: std::mem::take(&mut self.refusals), ..Self::default() }
    }
}

/// User in words.
fn called(uid: Option<u32>, name: impl Fn(u32) -> Option<String>) -> String {
    match (uid, uid.and_then(name)) {
        (None, _) => "users beyond the limit".to_owned(),
        (Some(uid), None) => format!("uid {uid}"),
        (Some(uid), Some(user)) => format!("user {user} (uid {uid})"),
    }
}

fn uid(tenant: Tenant, usage: &Usage) -> Option<u32> {
    match tenant {
        tenant if tenant.kind == TenantKind::Process as u32 => Some(usage.uid),
        Tenant::NODE | Tenant::OTHER_USERS => None,
        user => Some(user.id),
    }
}

const fn noun(resource: Resource) -> &'static str {
    match resource {
        Resource::Spaces => "VA spaces",
        Resource::Processes => "processes with VA spaces",
        Resource::Counts => "counts",
        Resource::Distributions => "parts of distributions",
        Resource::EvictorPairs => "pairs of evictor and victim",
        Resource::Evictions => "victims of unknown evictors",
        Resource::Calls => "threads inside calls",
        Resource::Users => "users",
        Resource::Sites => "sites of CPU faults",
    }
}
