//! Which process a VA space belongs to, and when it is gone.
//!
//! Attaches to: kprobe `uvm_va_space_mm_register(uvm_va_space_t *)`, called once for each new VA space by the process that opens it;
//! kprobe and kretprobe `uvm_va_space_destroy(uvm_va_space_t *)`.
//! Produces: `SPACES`, and a record in `LIFECYCLES` for each VA space made or gone. User space is woken at once, so that it reads
//! what /proc has on a process before that process is gone.
//! Cost: some microseconds for each VA space; nothing for faults.
//!
//! The driver reuses addresses, so everything is keyed by a generation. A VA space leaves `SPACES` only when its destruction
//! returns, because faults raised earlier are still served during it. A process that makes VA spaces faster than [`Rate`](abi::quota::Rate)
//! allows has the further ones counted under one generation, of which there is one record.

use abi::{
    DropReason, Lifecycle, LifecycleKind, Owner, Probe, Resource, Tenant, TenantKind, Usage,
    count::{RecordLosses, Space},
    quota::CALLS_CAPACITY,
};
use aya_ebpf::{
    helpers::{
        bpf_get_current_comm, bpf_get_current_pid_tgid,
        generated::{self, bpf_ktime_get_boot_ns},
    },
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    maps::{BPF_NOEXIST, NO_LOSSES, SPACES, Sequence, count_drop, hit, layout, next_generation, tell},
    memory::{self, Unreadable},
    quotas::{self, Caller, Pace},
};

/// A VA space that is being destroyed.
#[derive(Clone, Copy)]
#[repr(C)]
struct Teardown {
    va_space: u64,
    serial: u64,
    caller: Caller,
}

/// Thread to the VA space that it is destroying: the return probe does not see the argument.
#[map]
static TEARDOWNS: HashMap<u64, Teardown> = HashMap::with_max_entries(CALLS_CAPACITY, 0);

#[kprobe]
fn uvm_register(ctx: ProbeContext) -> u32 {
    hit(Probe::Register);
    let Some(va_space) = ctx.arg::<u64>(0) else {
        count_drop(DropReason::Unreadable);
        return 0;
    };
    // Still there if creating it failed later on, or if its destruction was missed or has not returned yet.
    if let Some(serial) = living(va_space) {
        gone(va_space, serial);
    }
    let maker = Maker {
        owner: quotas::current(),
        tid: bpf_get_current_pid_tgid() as u32,
        sequence: Sequence::Registered,
        start_boottime_ns: process_start().unwrap_or(0),
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    made(va_space, &maker);
    0
}

#[kprobe]
fn uvm_destroy(ctx: ProbeContext) -> u32 {
    hit(Probe::DestroyEntry);
    let Some(va_space) = ctx.arg::<u64>(0) else {
        count_drop(DropReason::Unreadable);
        return 0;
    };
    let thread = bpf_get_current_pid_tgid();
    // What an earlier teardown of this thread left, if its return was missed, must not be taken for this one's. There is rarely any.
    if let Some(missed) = TEARDOWNS.get_ptr(thread) {
        // SAFETY: a value of the map; only this thread inserts and removes its own entry.
        let caller = unsafe { (*missed).caller };
        let _ = TEARDOWNS.remove(thread);
        quotas::leave_call(caller);
    }
    let Some(serial) = living(va_space) else { return 0 };
    if let Some(caller) = quotas::enter_call() {
        if TEARDOWNS.insert(thread, Teardown { va_space, serial, caller }, 0).is_ok() {
            return 0;
        }
        quotas::leave_call(caller);
    }
    // No room to wait for the return. Its further events are dropped as of an unknown VA space.
    gone(va_space, serial);
    0
}

#[kretprobe]
fn uvm_destroyed(_ctx: RetProbeContext) -> u32 {
    hit(Probe::DestroyReturn);
    let thread = bpf_get_current_pid_tgid();
    if let Some(teardown) = TEARDOWNS.get_ptr(thread) {
        // SAFETY: a value of the map; only this thread inserts and removes its own entry.
        let Teardown { va_space, serial, caller } = unsafe { *teardown };
        // It was found just now, and nobody else removes it.
        let _ = TEARDOWNS.remove(thread);
        quotas::leave_call(caller);
        gone(va_space, serial);
    }
    0
}

/// Who made a VA space.
pub struct Maker {
    pub owner: Owner,
    pub tid: u32,
    pub sequence: Sequence,
    pub start_boottime_ns: u64,
    pub comm: [u8; 16],
}

/// Takes note of a VA space that is new, or was found.
#[inline(always)]
pub fn made(va_space: u64, maker: &Maker) {
    if try_made(va_space, maker).is_none() {
        count_drop(DropReason::SpacesFull);
    }
}

/// `None` if there is no room.
#[inline(always)]
fn try_made(va_space: u64, maker: &Maker) -> Option<()> {
    let tgid = maker.owner.tgid;
    let owner = Owner { tgid, uid: quotas::enter(tgid, maker.owner.uid)? };
    let process = quotas::usage(Tenant::process(tgid))?;
    let user = quotas::usage(Tenant::user(owner.uid))?;
    identify(process, maker);
    if !quotas::admit(owner, Resource::Spaces) {
        return None;
    }
    let serial = next_generation(maker.sequence);
    // SAFETY: a helper without arguments.
    let now_ns = unsafe { bpf_ktime_get_boot_ns() };
    let (generation, shared_by) = match quotas::pace(process, user, Tenant::user(owner.uid), now_ns) {
        Pace::Allowed => (serial, TenantKind::Node),
        Pace::OverProcess => (share(process, LifecycleKind::SharedByProcess, maker), TenantKind::Process),
        Pace::OverUser => (share(user, LifecycleKind::SharedByUser, maker), TenantKind::User),
    };
    let space = Space {
        generation,
        serial,
        dropped_events: 0,
        records: NO_LOSSES,
        owner,
        window_records: 0,
        window_began_ns: 0,
        shared_by: shared_by as u32,
        padding: 0,
    };
    // One that a probe has just made is not found.
    let flags = if matches!(maker.sequence, Sequence::Adopted) { BPF_NOEXIST } else { 0 };
    if SPACES.insert(va_space, space, flags).is_err() {
        quotas::give_back(tgid, owner.uid, Resource::Spaces as u32);
        return SPACES.get_ptr(va_space).map(|_| ());
    }
    // SAFETY: a field of a value of the map, as all of these.
    unsafe { (*process).latest_generation = generation };
    if generation == serial {
        let kind = if flags == 0 { LifecycleKind::Registered } else { LifecycleKind::Adopted };
        tell_made(generation, kind, maker);
        return Some(());
    }
    let sharer = if matches!(shared_by, TenantKind::User) { user } else { process };
    // SAFETY: as above.
    let shared_spaces = unsafe { &raw mut (*sharer).shared_spaces };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(shared_spaces, 1) };
    Some(())
}

/// The process's id may have been another's, of whom something is left. Not inlined: the stack has 512 bytes for all.
#[inline(never)]
fn identify(process: *mut Usage, maker: &Maker) -> u32 {
    // SAFETY: a field of a value of the map. Entries are preallocated: one that is removed meanwhile is still memory.
    if unsafe { (*process).start_boottime_ns } == maker.start_boottime_ns {
        return 0;
    }
    // What the earlier process still holds, as by descriptors that others have, stays its user's.
    quotas::start_anew(process, Tenant::process(maker.owner.tgid));
    // SAFETY: as above, for each. Other CPUs may add to its charges meanwhile, which are not touched here.
    unsafe { (*process).start_boottime_ns = maker.start_boottime_ns };
    // SAFETY: as above.
    unsafe { (*process).latest_generation = 0 };
    // SAFETY: as above.
    unsafe { (*process).shared_generation = 0 };
    // SAFETY: as above.
    unsafe { (*process).paced_until_ns = 0 };
    // SAFETY: as above.
    unsafe { (*process).comm = maker.comm };
    // SAFETY: as above.
    unsafe { (*process).uid = maker.owner.uid };
    1
}

/// The shared generation of a process or a user, which is told of when it is new.
#[inline(always)]
fn share(sharer: *mut Usage, kind: LifecycleKind, maker: &Maker) -> u64 {
    // SAFETY: a field of a value of the map.
    let generation = unsafe { (*sharer).shared_generation };
    if generation != 0 {
        return generation;
    }
    // Where two CPUs come at once each has its own: the one that is not kept has one VA space, and ends as one whose end was missed.
    let generation = next_generation(maker.sequence);
    // SAFETY: as above.
    unsafe { (*sharer).shared_generation = generation };
    tell_made(generation, kind, maker);
    generation
}

#[inline(always)]
fn tell_made(generation: u64, kind: LifecycleKind, maker: &Maker) {
    tell(&Lifecycle {
        generation,
        start_boottime_ns: maker.start_boottime_ns,
        dropped_events: 0,
        records: NO_LOSSES,
        kind: kind as u32,
        tgid: maker.owner.tgid,
        tid: maker.tid,
        uid: maker.owner.uid,
        comm: maker.comm,
    });
}

/// The serial number of the VA space at an address.
#[inline(always)]
fn living(va_space: u64) -> Option<u64> {
    // SAFETY: a value of the map. Entries are preallocated: one that is removed meanwhile is still memory, and its number another one's.
    SPACES.get_ptr(va_space).map(|space| unsafe { (*space).serial })
}

/// Forgets a VA space and says so; does nothing if it is not known, or no longer at this address. Not inlined: the stack has 512 bytes for all.
///
/// The driver frees a VA space before the function that destroys it returns. So another CPU may have made a new one there, which
/// has said of the old one that it is gone.
#[inline(never)]
fn gone(va_space: u64, serial: u64) -> u32 {
    let Some(space) = SPACES.get_ptr(va_space) else { return 0 };
    // SAFETY: a value of the map, preallocated as said above.
    let Space { generation, serial: found, dropped_events, records, owner, shared_by, .. } = unsafe { *space };
    if found != serial {
        return 0;
    }
    // If another CPU makes a VA space at this address within these few instructions, it is the new one that is removed. Then its events
    // are unknown until user space looks for VA spaces again, which those events make it do.
    if SPACES.remove(va_space).is_err() {
        // Another CPU was first, and has done the rest.
        return 0;
    }
    quotas::give_back(owner.tgid, owner.uid, Resource::Spaces as u32);
    if let Some(process) = quotas::usage(Tenant::process(owner.tgid)) {
        // SAFETY: a field of a value of the map.
        let latest = unsafe { &raw mut (*process).latest_generation };
        // SAFETY: as above.
        if unsafe { *latest } == generation {
            // SAFETY: as above.
            unsafe { *latest = 0 };
        }
    }
    if generation == serial {
        let Owner { tgid, uid } = owner;
        let kind = LifecycleKind::Destroyed as u32;
        tell(&Lifecycle { generation, dropped_events, records, kind, tgid, uid, ..NOBODY });
        return 0;
    }
    let sharer =
        if shared_by == TenantKind::User as u32 { Tenant::user(owner.uid) } else { Tenant::process(owner.tgid) };
    if let Some(sharer) = quotas::usage(sharer) {
        fold(sharer, dropped_events, &records);
    }
    // SAFETY: a helper without arguments.
    if quotas::leave(owner.tgid, unsafe { bpf_ktime_get_boot_ns() }) != 0 {
        // Not from within that: each call deeper costs 32 bytes of the stack on Linux 6.1.
        quotas::give_back(0, owner.uid, Resource::Processes as u32);
    }
    0
}

/// What of a VA space of a shared generation could not be counted stays with those that share it.
#[inline(always)]
fn fold(sharer: *mut Usage, dropped_events: u64, records: &RecordLosses) {
    // SAFETY: a field of a value of the map, of which only the address is taken.
    let shared_spaces = unsafe { &raw mut (*sharer).shared_spaces };
    // SAFETY: as above.
    let events = unsafe { &raw mut (*sharer).dropped_events };
    // SAFETY: as above.
    let sampled_out = unsafe { &raw mut (*sharer).records.sampled_out };
    // SAFETY: as above.
    let dropped = unsafe { &raw mut (*sharer).records.dropped };
    // SAFETY: as above.
    let stale = unsafe { &raw mut (*sharer).records.stale };
    for (sum, added) in [
        (shared_spaces, u64::MAX),
        (events, dropped_events),
        (sampled_out, records.sampled_out),
        (dropped, records.dropped),
        (stale, records.stale),
    ] {
        // SAFETY: 8-byte aligned, and only ever changed atomically.
        unsafe { memory::add_atomically(sum, added) };
    }
}

const NOBODY: Lifecycle = Lifecycle {
    generation: 0,
    start_boottime_ns: 0,
    dropped_events: 0,
    records: NO_LOSSES,
    kind: 0,
    tgid: 0,
    tid: 0,
    uid: 0,
    comm: [0; 16],
};

/// When the current process started, ns since boot. With the pid it names the process, as field 22 of /proc/PID/stat does.
#[inline(always)]
fn process_start() -> Result<u64, Unreadable> {
    // SAFETY: a helper without arguments.
    let task = unsafe { generated::bpf_get_current_task() };
    let leader = memory::kernel::<u64>(task + u64::from(layout!(task_group_leader)))?;
    memory::kernel(leader + u64::from(layout!(task_start_boottime)))
}
