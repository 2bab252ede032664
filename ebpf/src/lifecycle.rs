//! Creation and end of VA spaces, and their processes.
//!
//! Attaches to: kprobe `uvm_va_space_mm_register(uvm_va_space_t *)`, called once for each new VA
//! space by the process that opens it; kprobe and kretprobe
//! `uvm_va_space_destroy(uvm_va_space_t *)`.
//! Produces: `SPACES`, and a record in `LIFECYCLES` for each VA space created or destroyed. User
//! space is woken at once, so that it reads /proc before the process exits.
//! Cost: some microseconds per VA space; none for faults.
//!
//! The driver reuses addresses, so counts are keyed by a generation. A VA space leaves `SPACES`
//! only when its destruction returns, because the driver services earlier faults meanwhile. If a
//! process exceeds [`Rate`](abi::quota::Rate), its further VA spaces are counted under one shared
//! generation, of which there is one record.

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
    context::{Invocation, argument},
    maps::{BPF_NOEXIST, NO_LOSSES, SPACES, Sequence, count_drop, layout, next_generation, write_lifecycle},
    memory::{self, Unreadable},
    quotas::{self, Caller, Pace},
};

/// VA space being destroyed.
#[derive(Clone, Copy)]
#[repr(C)]
struct Teardown {
    va_space: u64,
    serial: u64,
    caller: Caller,
}

/// Current teardown of each thread: the return probe does not see the argument.
#[map]
static TEARDOWNS: HashMap<u64, Teardown> = HashMap::with_max_entries(CALLS_CAPACITY, 0);

#[kprobe]
fn uvm_register(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Register);
    let Ok(va_space) = argument::<u64>(&ctx, 0) else {
        count_drop(DropReason::Unreadable);
        return 0;
    };
    // An earlier VA space at this address, if its creation failed later on, or its destruction was
    // missed or has not returned.
    if let Some(serial) = serial_at(va_space) {
        unregister(va_space, serial);
    }
    let creator = Creator {
        owner: quotas::current(),
        tid: bpf_get_current_pid_tgid() as u32,
        sequence: Sequence::Registered,
        start_boottime_ns: process_start().unwrap_or(0),
        comm: bpf_get_current_comm().unwrap_or_default(),
    };
    register(va_space, &creator);
    0
}

#[kprobe]
fn uvm_destroy(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::DestroyEntry);
    let Ok(va_space) = argument::<u64>(&ctx, 0) else {
        count_drop(DropReason::Unreadable);
        return 0;
    };
    let thread = bpf_get_current_pid_tgid();
    // An earlier teardown of this thread whose return was missed must not be taken for this one.
    // That is rare.
    if let Some(missed) = TEARDOWNS.get_ptr(thread) {
        // SAFETY: a value of the map; only this thread inserts and removes its own entry.
        let caller = unsafe { (*missed).caller };
        let _ = TEARDOWNS.remove(thread);
        quotas::leave_call(caller);
    }
    let Some(serial) = serial_at(va_space) else { return 0 };
    if let Some(caller) = quotas::enter_call() {
        if TEARDOWNS.insert(thread, Teardown { va_space, serial, caller }, 0).is_ok() {
            return 0;
        }
        quotas::leave_call(caller);
    }
    // No room to wait for the return. Further events are dropped, as those of an unknown VA space.
    unregister(va_space, serial);
    0
}

#[kretprobe]
fn uvm_destroyed(_ctx: RetProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::DestroyReturn);
    let thread = bpf_get_current_pid_tgid();
    if let Some(teardown) = TEARDOWNS.get_ptr(thread) {
        // SAFETY: a value of the map; only this thread inserts and removes its own entry.
        let Teardown { va_space, serial, caller } = unsafe { *teardown };
        // The entry was just found, and only this thread removes it.
        let _ = TEARDOWNS.remove(thread);
        quotas::leave_call(caller);
        unregister(va_space, serial);
    }
    0
}

/// Creator of a VA space.
pub struct Creator {
    pub owner: Owner,
    pub tid: u32,
    pub sequence: Sequence,
    pub start_boottime_ns: u64,
    pub comm: [u8; 16],
}

/// Registers a VA space that is new, or was found by the iterator.
#[inline(always)]
pub fn register(va_space: u64, creator: &Creator) {
    if try_register(va_space, creator).is_none() {
        count_drop(DropReason::SpacesFull);
    }
}

/// Registers a VA space; `None` if there is no room.
#[inline(always)]
fn try_register(va_space: u64, creator: &Creator) -> Option<()> {
    let tgid = creator.owner.tgid;
    let owner = Owner { tgid, uid: quotas::enter(tgid, creator.owner.uid)? };
    let process = quotas::usage(Tenant::process(tgid))?;
    let user = quotas::usage(Tenant::user(owner.uid))?;
    identify(process, creator);
    if !quotas::admit(owner, Resource::Spaces) {
        return None;
    }
    let serial = next_generation(creator.sequence);
    // SAFETY: a helper without arguments.
    let now_ns = unsafe { bpf_ktime_get_boot_ns() };
    let (generation, shared_by) = match quotas::pace(process, user, Tenant::user(owner.uid), now_ns) {
        Pace::Allowed => (serial, TenantKind::Node),
        Pace::OverProcess => (share(process, LifecycleKind::SharedByProcess, creator), TenantKind::Process),
        Pace::OverUser => (share(user, LifecycleKind::SharedByUser, creator), TenantKind::User),
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
    // `BPF_NOEXIST`: the iterator does not replace a VA space that a probe has just registered.
    let flags = if matches!(creator.sequence, Sequence::Adopted) { BPF_NOEXIST } else { 0 };
    if SPACES.insert(va_space, space, flags).is_err() {
        quotas::refund(tgid, owner.uid, Resource::Spaces as u32);
        return SPACES.get_ptr(va_space).map(|_| ());
    }
    // SAFETY: `process` points to a value of `USAGE`. Entries are preallocated: one that is removed
    // meanwhile is still memory.
    unsafe { (*process).latest_generation = generation };
    if generation == serial {
        let kind = if flags == 0 { LifecycleKind::Registered } else { LifecycleKind::Adopted };
        write_created(generation, kind, creator);
        return Some(());
    }
    let sharer = if matches!(shared_by, TenantKind::User) { user } else { process };
    // SAFETY: `sharer` is `process` or `user`, each a value of `USAGE`, which stays memory.
    let shared_spaces = unsafe { &raw mut (*sharer).shared_spaces };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(shared_spaces, 1) };
    Some(())
}

/// Resets the usage of a process id that an earlier process had. Not inlined: the stack has 512
/// bytes in all.
#[inline(never)]
fn identify(process: *mut Usage, creator: &Creator) -> u32 {
    macro_rules! set {
        ($($field:ident = $value:expr;)*) => {$(
            // SAFETY: `process` points to a value of `USAGE`, which is memory even after its removal.
            // No reference to it exists. Other CPUs add to its charges, which are other fields.
            unsafe { (*process).$field = $value };
        )*};
    }
    // SAFETY: `process` points to a value of `USAGE`. Entries are preallocated: one that is removed
    // meanwhile is still memory.
    if unsafe { (*process).start_boottime_ns } == creator.start_boottime_ns {
        return 0;
    }
    // Entries that the earlier process still holds, as by descriptors passed to others, stay
    // charged to its user.
    quotas::reset_charges(process, Tenant::process(creator.owner.tgid));
    set! {
        start_boottime_ns = creator.start_boottime_ns;
        latest_generation = 0;
        shared_generation = 0;
        paced_until_ns = 0;
        comm = creator.comm;
        uid = creator.owner.uid;
    }
    1
}

/// Shared generation of a process or user, with a record if it is new.
#[inline(always)]
fn share(sharer: *mut Usage, kind: LifecycleKind, creator: &Creator) -> u64 {
    // SAFETY: `sharer` points to a value of `USAGE`, which is memory even after its removal.
    let generation = unsafe { (*sharer).shared_generation };
    if generation != 0 {
        return generation;
    }
    // Two CPUs at once get a generation each. The overwritten one has one VA space, and ends like
    // one whose destruction was missed.
    let generation = next_generation(creator.sequence);
    // SAFETY: `sharer` points to a value of `USAGE`, which is memory even after its removal. No
    // reference to it exists.
    unsafe { (*sharer).shared_generation = generation };
    write_created(generation, kind, creator);
    generation
}

#[inline(always)]
fn write_created(generation: u64, kind: LifecycleKind, creator: &Creator) {
    write_lifecycle(&Lifecycle {
        generation,
        start_boottime_ns: creator.start_boottime_ns,
        dropped_events: 0,
        records: NO_LOSSES,
        kind: kind as u32,
        tgid: creator.owner.tgid,
        tid: creator.tid,
        uid: creator.owner.uid,
        comm: creator.comm,
    });
}

/// Serial number of the VA space at an address.
#[inline(always)]
fn serial_at(va_space: u64) -> Option<u64> {
    // SAFETY: a value of the map. Entries are preallocated: a removed one stays valid memory, and may
    // then have the serial number of another VA space.
    SPACES.get_ptr(va_space).map(|space| unsafe { (*space).serial })
}

/// Removes a VA space and writes its record. Does nothing if it is unknown, or no longer at this
/// address. Not inlined: the stack has 512 bytes in all.
///
/// The driver frees a VA space before the function that destroys it returns. Another CPU may
/// therefore have created a new one at the address, and removed the old one.
#[inline(never)]
fn unregister(va_space: u64, serial: u64) -> u32 {
    let Some(space) = SPACES.get_ptr(va_space) else { return 0 };
    // SAFETY: a value of `SPACES`. Entries are preallocated: a removed one stays valid memory, and may
    // then have the serial number of another VA space.
    let Space { generation, serial: found, dropped_events, records, owner, shared_by, .. } = unsafe { *space };
    if found != serial {
        return 0;
    }
    // If another CPU creates a VA space at this address within these few instructions, the new one
    // is removed. Its events are then unknown until user space looks for VA spaces again, which
    // those events trigger.
    if SPACES.remove(va_space).is_err() {
        // Another CPU was first, and has done the rest.
        return 0;
    }
    quotas::refund(owner.tgid, owner.uid, Resource::Spaces as u32);
    if let Some(process) = quotas::usage(Tenant::process(owner.tgid)) {
        // SAFETY: `process` points to a value of `USAGE`, which is memory even after its removal.
        let latest = unsafe { &raw mut (*process).latest_generation };
        // SAFETY: a field of that value: memory, aligned, and a number whatever other CPUs write.
        if unsafe { *latest } == generation {
            // SAFETY: a field of that value, to which no reference exists.
            unsafe { *latest = 0 };
        }
    }
    if generation == serial {
        let Owner { tgid, uid } = owner;
        let kind = LifecycleKind::Destroyed as u32;
        write_lifecycle(&Lifecycle { generation, dropped_events, records, kind, tgid, uid, ..NO_OWNER });
        return 0;
    }
    let sharer =
        if shared_by == TenantKind::User as u32 { Tenant::user(owner.uid) } else { Tenant::process(owner.tgid) };
    if let Some(sharer) = quotas::usage(sharer) {
        fold(sharer, dropped_events, &records);
    }
    // SAFETY: a helper without arguments.
    if quotas::leave(owner.tgid, unsafe { bpf_ktime_get_boot_ns() }) != 0 {
        // Not within `leave`: each nested call costs 32 bytes of the stack on Linux 6.1.
        quotas::refund(0, owner.uid, Resource::Processes as u32);
    }
    0
}

/// Adds the dropped events of a VA space with a shared generation to the sums of its sharer.
#[inline(always)]
fn fold(sharer: *mut Usage, dropped_events: u64, records: &RecordLosses) {
    macro_rules! sum {
        ($($field:ident).+) => {
            // SAFETY: `sharer` points to a value of `USAGE`, which is memory even after its removal. Only
            // the field's address is taken.
            unsafe { &raw mut (*sharer).$($field).+ }
        };
    }
    for (sum, added) in [
        (sum!(shared_spaces), u64::MAX),
        (sum!(dropped_events), dropped_events),
        (sum!(records.sampled_out), records.sampled_out),
        (sum!(records.dropped), records.dropped),
        (sum!(records.stale), records.stale),
    ] {
        // SAFETY: 8-byte aligned, and only ever changed atomically.
        unsafe { memory::add_atomically(sum, added) };
    }
}

const NO_OWNER: Lifecycle = Lifecycle {
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

/// Start time of the current process, in ns since boot. With the pid it identifies the process, as
/// field 22 of /proc/PID/stat does.
#[inline(always)]
fn process_start() -> Result<u64, Unreadable> {
    // SAFETY: a helper without arguments.
    let task = unsafe { generated::bpf_get_current_task() };
    let leader = memory::kernel::<u64>(task + u64::from(layout!(task_group_leader)))?;
    memory::kernel(leader + u64::from(layout!(task_start_boottime)))
}
