//! Who holds how much of the maps, and whether it may hold more: see [`abi::quota`].
//!
//! Produces: `USAGE`.
//! Cost: six hash look-ups for each new key of a map, nine where it is refused; two on entry to and two on return from each call that is followed;
//! none for a key that exists.
//!
//! Two CPUs may look at once, and both find room for one more: a quota is exceeded by the number of CPUs at most.

use abi::{
    Owner, Quotas, Released, Resource, Tenant, TenantKind, Usage,
    quota::{Quota, RESOURCES, TENANTS_CAPACITY},
};
use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_get_current_uid_gid},
    macros::map,
    maps::{HashMap, PerCpuArray},
};

use crate::{maps::BPF_NOEXIST, memory};

/// Filled in by the loader.
// SAFETY: integers only, for which zero is a value.
#[unsafe(no_mangle)]
static QUOTAS: Quotas = unsafe { core::mem::zeroed() };

macro_rules! rate {
    ($field:ident) => {{
        let rate = &raw const QUOTAS.$field;
        // SAFETY: a field of a static that nothing writes while programs run. Volatile, as the loader fills it in.
        unsafe { rate.read_volatile() }
    }};
}

/// By tenant. The loader makes the node's, user space removes those that hold nothing any more.
#[map]
static USAGE: HashMap<Tenant, Usage> = HashMap::with_max_entries(TENANTS_CAPACITY, 0);

/// What user space removed of each.
#[map]
static RELEASED: HashMap<Tenant, Released> = HashMap::with_max_entries(TENANTS_CAPACITY, 0);

/// Room to make a [`Usage`] in: the stack has 512 bytes for all. User space never writes to it.
#[map]
static NEW_USAGE: PerCpuArray<Usage> = PerCpuArray::with_max_entries(1, 0);

/// The usage of a tenant.
#[inline(always)]
pub fn usage(tenant: Tenant) -> Option<*mut Usage> {
    USAGE.get_ptr_mut(tenant)
}

/// The usage of a tenant, which is made if there is none.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "by value it would be copied to the stack")]
pub fn usage_or_new(tenant: Tenant) -> Option<*mut Usage> {
    if let Some(usage) = usage(tenant) {
        return Some(usage);
    }
    let new = NEW_USAGE.get_ptr_mut(0)?;
    // SAFETY: this CPU's value of the map, which stays zeroed.
    let _ = USAGE.insert(tenant, unsafe { &*new }, BPF_NOEXIST);
    usage(tenant)
}

/// Has the usage of a process and of its user at hand, from the process's first VA space on. The user's id, or that which stands for all users that are
/// too many; `None` if there is no room.
#[inline(always)]
pub fn enter(tgid: u32, uid: u32) -> Option<u32> {
    let charged = if has_or_gets_usage(uid) != 0 { uid } else { Tenant::OTHER_USERS.id };
    usage_or_new(Tenant::user(charged))?;
    if usage(Tenant::process(tgid)).is_none() {
        if !admit(Owner { tgid: 0, uid: charged }, Resource::Processes) {
            return None;
        }
        usage_or_new(Tenant::process(tgid))?;
    }
    Some(charged)
}

/// Whether a user has a usage of its own, or may have one. Not inlined: once for each VA space.
#[inline(never)]
fn has_or_gets_usage(uid: u32) -> u64 {
    if usage(Tenant::user(uid)).is_some() {
        return 1;
    }
    let is_over = take(TenantKind::Node as u32, 0, Resource::Users as u32) & OVER;
    // What is refused is not held.
    if let Some(node) = usage(Tenant::NODE) {
        change(node, Resource::Users as u32, 0_u64.wrapping_sub(is_over));
    }
    is_over ^ OVER
}

/// Charges one entry to a process, its user and the node, unless one of them is over its quota. Of what is charged and then not made user space finds out,
/// as it compares charges with keys; where it does not, [`give_back`] is for that.
#[inline(always)]
pub fn admit(owner: Owner, resource: Resource) -> bool {
    admit_for(owner.tgid, owner.uid, resource as u32) != 0
}

/// Takes a charge back.
#[inline(never)]
pub fn give_back(tgid: u32, uid: u32, resource: u32) -> u32 {
    for tenant in [Tenant::NODE, Tenant::user(uid), Tenant::process(tgid)] {
        if let Some(usage) = usage(tenant) {
            change(usage, resource, u64::MAX);
        }
    }
    0
}

/// A process's id is another's now, which holds nothing yet. Not inlined: rare.
#[inline(never)]
pub fn start_anew(process: *mut Usage, tenant: Tenant) {
    for resource in 0..RESOURCES as u32 {
        let held = used(process, tenant, resource);
        change(process, resource, 0_u64.wrapping_sub(held));
    }
}

/// Who is charged for a call that is followed to its return. It is kept with the call: a thread may become another user's, and its process's usage may come
/// or go, before the call returns.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Caller(Owner);

/// Stands for the node's usage, where a user has none.
const OF_NODE: u32 = u32::MAX;
/// Stands for no process: of one without a VA space, as the kernel's threads and children that inherited one, the user alone is charged.
const NO_PROCESS: u32 = 0;
const CALLS: u32 = Resource::Calls as u32;

/// Charges a thread that enters a call to its process and user, unless one of them is over its quota.
#[inline(always)]
pub fn enter_call() -> Option<Caller> {
    let Owner { tgid, uid } = current();
    let process = usage(Tenant::process(tgid));
    let mut charged_uid = uid;
    let mut user = usage(Tenant::user(uid));
    if user.is_none() {
        charged_uid = OF_NODE;
        user = usage(Tenant::NODE);
    }
    let user = user?;
    let quota = quota(CALLS);
    let user_max = if charged_uid == OF_NODE { quota.node_max } else { quota.user_max };
    if charged(user, CALLS) >= u64::from(user_max) {
        refuse(user, CALLS, 1);
        return None;
    }
    let mut charged_tgid = NO_PROCESS;
    if let Some(process) = process {
        if charged(process, CALLS) >= u64::from(quota.process_max) {
            refuse(process, CALLS, 1);
            refuse(user, CALLS, 1);
            return None;
        }
        charged_tgid = tgid;
        change(process, CALLS, 1);
    }
    change(user, CALLS, 1);
    Some(Caller(Owner { tgid: charged_tgid, uid: charged_uid }))
}

/// Takes that charge back.
#[inline(always)]
pub fn leave_call(Caller(Owner { tgid, uid }): Caller) {
    let user = if uid == OF_NODE { Tenant::NODE } else { Tenant::user(uid) };
    if let Some(user) = usage(user) {
        change(user, CALLS, u64::MAX);
    }
    if let Some(process) = usage(Tenant::process(tgid)) {
        change(process, CALLS, u64::MAX);
    }
}

/// Forgets a process that holds nothing and has made few VA spaces lately: otherwise user space does. 1 if it did: its user is to be given it back. Not
/// inlined: once for each VA space.
#[inline(never)]
pub fn leave(tgid: u32, now_ns: u64) -> u32 {
    let Some(process) = usage(Tenant::process(tgid)) else { return 0 };
    // SAFETY: a value of the map, read at once.
    let charged = unsafe { (*process).charged.0 };
    let held = charged[0] | charged[1] | charged[2] | charged[3] | charged[4] | charged[5] | charged[6] | charged[7];
    // SAFETY: as above.
    let paced_until_ns = unsafe { (*process).paced_until_ns };
    // SAFETY: as above.
    let shared = unsafe { (*process).shared_generation };
    u32::from(held == 0 && shared == 0 && paced_until_ns <= now_ns && USAGE.remove(Tenant::process(tgid)).is_ok())
}

/// The process and the user of the current thread.
#[inline(always)]
pub fn current() -> Owner {
    Owner { tgid: (bpf_get_current_pid_tgid() >> 32) as u32, uid: bpf_get_current_uid_gid() as u32 }
}

/// It has its quota.
const OVER: u64 = 1;
/// It has more than few.
const MANY: u64 = 2;

/// Whether it may. Not inlined, and without branches where that can be: of what is found, a number is left, so that the verifier has few cases.
#[inline(never)]
fn admit_for(tgid: u32, uid: u32, resource: u32) -> u64 {
    let node = take(TenantKind::Node as u32, 0, resource);
    let tenants = take(TenantKind::User as u32, uid, resource) | take(TenantKind::Process as u32, tgid, resource);
    // Over its own quota; or over the node's, unless it has few.
    let admitted = (tenants | (node & (tenants >> 1))) & OVER ^ OVER;
    if admitted == 0 {
        // What is refused is held by nobody: else one that is refused again and again would use up the node's.
        give_back(tgid, uid, resource);
    }
    admitted
}

/// Charges a tenant with one more, and tells how much it held before, against its quota.
#[inline(never)]
fn take(kind: u32, id: u32, resource: u32) -> u64 {
    let tenant = Tenant { kind, id };
    let Some(usage) = usage(tenant) else { return 0 };
    let held = used(usage, tenant, resource);
    let quota = quota(resource);
    let (max, few) = match kind {
        0 => (quota.node_max, u32::MAX),
        1 => (quota.user_max, quota.user_few),
        _ => (quota.process_max, quota.process_few),
    };
    // 1 where the subtraction does not borrow.
    let is_at = |bound: u32| held.wrapping_sub(u64::from(bound)) >> 63 ^ 1;
    change(usage, resource, 1);
    refuse(usage, resource, is_at(max));
    is_at(max) * OVER + is_at(few) * MANY
}

/// How many entries a tenant holds.
#[inline(always)]
fn used(usage: *mut Usage, tenant: Tenant, resource: u32) -> u64 {
    let at = resource as usize & (RESOURCES - 1);
    // SAFETY: a value of the map, read at once.
    let released = RELEASED.get_ptr(tenant).map_or(0, |released| unsafe { (*released).entries.0[at] });
    // SAFETY: as above.
    positive(unsafe { (*usage).charged.0[at] }.wrapping_sub(released))
}

#[inline(always)]
fn charged(usage: *mut Usage, resource: u32) -> u64 {
    let at = resource as usize & (RESOURCES - 1);
    // SAFETY: a value of the map, read at once.
    positive(unsafe { (*usage).charged.0[at] })
}

/// One side of a difference may have been reset before the other. Without a branch, which would double what the verifier looks at.
#[inline(always)]
const fn positive(difference: u64) -> u64 {
    difference & !((difference.cast_signed() >> 63).cast_unsigned())
}

#[inline(always)]
fn change(usage: *mut Usage, resource: u32, by: u64) {
    let at = resource as usize & (RESOURCES - 1);
    // SAFETY: a field of a value of the map.
    let charged = unsafe { &raw mut (*usage).charged.0[at] };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(charged, by) };
}

#[inline(always)]
fn refuse(usage: *mut Usage, resource: u32, by: u64) {
    let at = resource as usize & (RESOURCES - 1);
    // SAFETY: a field of a value of the map.
    let refused = unsafe { &raw mut (*usage).refused.0[at] };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(refused, by) };
}

#[inline(always)]
fn quota(resource: u32) -> Quota {
    let at = resource as usize & (RESOURCES - 1);
    let quota = &raw const QUOTAS.quotas.0[at];
    // SAFETY: a field of a static that nothing writes while programs run. Volatile, as the loader fills it in.
    unsafe { quota.read_volatile() }
}

/// Whose rate a new VA space is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nobody's.
    Allowed,
    OverProcess,
    OverUser,
}

/// Whether one more VA space of a process is within its rate and its user's, which is then used up by one.
#[inline(always)]
pub fn pace(process: *mut Usage, user: *mut Usage, of_user: Tenant, now_ns: u64) -> Pace {
    let Some(node) = usage(Tenant::NODE) else { return Pace::OverUser };
    // SAFETY: values of the map, read at once.
    let [process_paced, user_paced, node_paced] = [process, user, node].map(|usage| unsafe { (*usage).paced_until_ns });
    // SAFETY: a value of the map, read at once.
    if RELEASED.get_ptr(of_user).is_some_and(|released| unsafe { (*released).shares_until_ns } > now_ns) {
        return Pace::OverUser;
    }
    let Some(process_until) = rate!(process_rate).next(process_paced, now_ns) else { return Pace::OverProcess };
    let user_rate = rate!(user_rate);
    let Some(user_until) = user_rate.next(user_paced, now_ns) else { return Pace::OverUser };
    let node_until = match rate!(node_rate).next(node_paced, now_ns) {
        Some(until) => until,
        // For those that make few there is room in the ring all the same.
        None if user_rate.is_low(user_paced, now_ns, QUIET_PART) => node_paced,
        None => return Pace::OverUser,
    };
    // SAFETY: a field of a value of the map. Another CPU's may be lost: the rate is exceeded by one.
    unsafe { (*process).paced_until_ns = process_until };
    // SAFETY: as above.
    unsafe { (*user).paced_until_ns = user_until };
    // SAFETY: as above.
    unsafe { (*node).paced_until_ns = node_until };
    Pace::Allowed
}

/// Whoever has used up less than this part of its burst is quiet.
const QUIET_PART: u64 = 8;
