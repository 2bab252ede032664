//! Map entries held by each tenant, and their limits: see [`abi::quota`].
//!
//! Produces: `USAGE`.
//! Cost: six hash look-ups for each new key of a map, nine if it is refused; two at entry to and
//! two at return from each tracked call; none for an existing key.
//!
//! Two CPUs may check at once, and both find room for one more. A quota is therefore exceeded by
//! the number of CPUs at most.

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

/// Quotas, filled in by the loader.
// SAFETY: integers only, for which zero is a value.
#[unsafe(no_mangle)]
static QUOTAS: Quotas = unsafe { core::mem::zeroed() };

macro_rules! rate {
    ($field:ident) => {{
        let rate = &raw const QUOTAS.$field;
        // SAFETY: a field of a static that nothing writes while programs run. Volatile, as the
        // loader fills it in.
        unsafe { rate.read_volatile() }
    }};
}

/// Usage by tenant. The loader creates the node's. User space removes tenants that hold nothing any
/// more.
#[map]
static USAGE: HashMap<Tenant, Usage> = HashMap::with_max_entries(TENANTS_CAPACITY, 0);

/// Entries that user space removed, by tenant.
#[map]
static RELEASED: HashMap<Tenant, Released> = HashMap::with_max_entries(TENANTS_CAPACITY, 0);

/// Initial value of a [`Usage`], as the stack has 512 bytes in all. User space never writes to it.
#[map]
static NEW_USAGE: PerCpuArray<Usage> = PerCpuArray::with_max_entries(1, 0);

/// Usage of a tenant.
#[inline(always)]
pub fn usage(tenant: Tenant) -> Option<*mut Usage> {
    USAGE.get_ptr_mut(tenant)
}

/// Usage of a tenant, created if there is none.
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

/// Ensures the usages of a process and its user, from the process's first VA space on. Returns the
/// user's id, or that of the other users if there are too many; `None` if there is no room.
#[inline(always)]
pub fn enter(tgid: u32, uid: u32) -> Option<u32> {
    let charged = if ensure_user_usage(uid) != 0 { uid } else { Tenant::OTHER_USERS.id };
    usage_or_new(Tenant::user(charged))?;
    if usage(Tenant::process(tgid)).is_none() {
        if !admit(Owner { tgid: 0, uid: charged }, Resource::Processes) {
            return None;
        }
        usage_or_new(Tenant::process(tgid))?;
    }
    Some(charged)
}

/// Whether a user has a usage, or got one. Not inlined: called once for each VA space.
#[inline(never)]
fn ensure_user_usage(uid: u32) -> u64 {
    if usage(Tenant::user(uid)).is_some() {
        return 1;
    }
    let is_over = charge(TenantKind::Node as u32, 0, Resource::Users as u32) & OVER;
    // A refused entry is not held.
    if let Some(node) = usage(Tenant::NODE) {
        change(node, Resource::Users as u32, 0_u64.wrapping_sub(is_over));
    }
    is_over ^ OVER
}

/// Charges one entry to a process, its user and the node, unless one of them is over its quota.
/// User space detects charges without an entry, as it compares charges with keys; [`refund`] is for
/// the resources where it does not.
#[inline(always)]
pub fn admit(owner: Owner, resource: Resource) -> bool {
    admit_for(owner.tgid, owner.uid, resource as u32) != 0
}

/// Refunds a charge.
#[inline(never)]
pub fn refund(tgid: u32, uid: u32, resource: u32) -> u32 {
    for tenant in [Tenant::NODE, Tenant::user(uid), Tenant::process(tgid)] {
        if let Some(usage) = usage(tenant) {
            change(usage, resource, u64::MAX);
        }
    }
    0
}

/// Resets the charges of a process id that another process has now. Not inlined: rare.
#[inline(never)]
pub fn reset_charges(process: *mut Usage, tenant: Tenant) {
    for resource in 0..RESOURCES as u32 {
        let held = used(process, tenant, resource);
        change(process, resource, 0_u64.wrapping_sub(held));
    }
}

/// Tenants charged for a tracked call. Stored with the call: before it returns, the thread may
/// change its user, and its process's usage may be created or removed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Caller(Owner);

/// User id that represents the node's usage, where a user has none.
const OF_NODE: u32 = u32::MAX;
/// Process id that represents no process. If a process has no VA space, as kernel threads and
/// children that inherited one, only its user is charged.
const NO_PROCESS: u32 = 0;
const CALLS: u32 = Resource::Calls as u32;

/// Charges a thread that enters a call to its process and user, unless one of them is over its
/// quota.
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

/// Refunds the charge of a call.
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

/// Removes the usage of a process that holds nothing and has created few VA spaces lately; user
/// space removes the others. Returns 1 if it did: the caller then refunds the user. Not inlined:
/// called once for each VA space.
#[inline(never)]
pub fn leave(tgid: u32, now_ns: u64) -> u32 {
    let Some(process) = usage(Tenant::process(tgid)) else { return 0 };
    // SAFETY: a value of `USAGE`, which is memory even after its removal, and a number; `at` is below.
    let held = (0..RESOURCES).fold(0, |held, at| held | unsafe { (*process).charged.0[at] });
    // SAFETY: a value of `USAGE`, which is memory even after its removal, and a number.
    let paced_until_ns = unsafe { (*process).paced_until_ns };
    // SAFETY: a value of `USAGE`, which is memory even after its removal, and a number.
    let shared = unsafe { (*process).shared_generation };
    u32::from(held == 0 && shared == 0 && paced_until_ns <= now_ns && USAGE.remove(Tenant::process(tgid)).is_ok())
}

/// Process and user of the current thread.
#[inline(always)]
pub fn current() -> Owner {
    Owner { tgid: (bpf_get_current_pid_tgid() >> 32) as u32, uid: bpf_get_current_uid_gid() as u32 }
}

/// Flag: the quota is reached.
const OVER: u64 = 1;
/// Flag: more than a few entries are held.
const MANY: u64 = 2;

/// Charges an entry and returns whether it was admitted. Not inlined, and with as few branches as
/// possible: the result is one number, so that the verifier has few cases.
#[inline(never)]
fn admit_for(tgid: u32, uid: u32, resource: u32) -> u64 {
    let node = charge(TenantKind::Node as u32, 0, resource);
    let tenants = charge(TenantKind::User as u32, uid, resource) | charge(TenantKind::Process as u32, tgid, resource);
    // Over its own quota; or over the node's, unless it holds few.
    let admitted = (tenants | (node & (tenants >> 1))) & OVER ^ OVER;
    if admitted == 0 {
        // Nobody holds a refused entry. Otherwise repeated refusals would use up the node's quota.
        refund(tgid, uid, resource);
    }
    admitted
}

/// Charges a tenant with one entry, and returns what it held before as flags against its quota.
#[inline(never)]
fn charge(kind: u32, id: u32, resource: u32) -> u64 {
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

/// Number of entries that a tenant holds.
#[inline(always)]
fn used(usage: *mut Usage, tenant: Tenant, resource: u32) -> u64 {
    let at = resource as usize & (RESOURCES - 1);
    // SAFETY: a value of `RELEASED`, which is memory even after its removal; `at` is masked.
    let released = RELEASED.get_ptr(tenant).map_or(0, |released| unsafe { (*released).entries.0[at] });
    // SAFETY: a value of `USAGE`, which is memory even after its removal; `at` is masked.
    positive(unsafe { (*usage).charged.0[at] }.wrapping_sub(released))
}

#[inline(always)]
fn charged(usage: *mut Usage, resource: u32) -> u64 {
    let at = resource as usize & (RESOURCES - 1);
    // SAFETY: a value of the map, read at once.
    positive(unsafe { (*usage).charged.0[at] })
}

/// Positive part of a difference, one side of which may have been reset before the other. A branch
/// would double the paths of the verifier.
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
    // SAFETY: a field of a static that nothing writes while programs run. Volatile, as the loader
    // fills it in.
    unsafe { quota.read_volatile() }
}

/// Result of the rate check of a new VA space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Within all rates.
    Allowed,
    OverProcess,
    OverUser,
}

/// Checks whether a process's next VA space is within the rates of the process, its user and the
/// node; if so, uses up one of each.
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
        // The ring keeps room for those that create few.
        None if user_rate.is_low(user_paced, now_ns, QUIET_PART) => node_paced,
        None => return Pace::OverUser,
    };
    // Another CPU's write may be lost: the rate is exceeded by one.
    let set = |usage: *mut Usage, until| {
        // SAFETY: a value of `USAGE`, which is memory even after its removal. No reference to it exists.
        unsafe { (*usage).paced_until_ns = until };
    };
    set(process, process_until);
    set(user, user_until);
    set(node, node_until);
    Pace::Allowed
}

/// Part of a burst: a user that used up less than this is quiet.
const QUIET_PART: u64 = 8;
