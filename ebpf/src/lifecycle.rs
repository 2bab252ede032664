//! Which process a VA space belongs to, and when it is gone.
//!
//! Attaches to: kprobe `uvm_va_space_mm_register(uvm_va_space_t *)`, called once for each new VA space by the process that opens it;
//! kprobe and kretprobe `uvm_va_space_destroy(uvm_va_space_t *)`.
//! Produces: `SPACES`, `PROCESSES`, and a record in `LIFECYCLES` for each VA space made or gone. User space is woken at once, so that it reads
//! what /proc has on a process before that process is gone.
//! Cost: a microsecond or two for each VA space; nothing for faults.
//!
//! The driver reuses addresses, so everything is keyed by a generation. A VA space leaves `SPACES` only when its destruction
//! returns, because faults raised earlier are still served during it.

use abi::{Lifecycle, LifecycleKind, LostReason, Probe, count::Space};
use aya_ebpf::{
    helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid, bpf_get_current_uid_gid, generated},
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    maps::{
        NO_LOSSES, PROCESSES, SPACES, Sequence, TEARDOWNS, Teardown, hit, layout, lose, next_generation, space, tell,
    },
    memory::{self, Unreadable},
};

#[kprobe]
fn uvm_register(ctx: ProbeContext) -> u32 {
    hit(Probe::Register);
    let Some(va_space) = ctx.arg::<u64>(0) else {
        lose(LostReason::Unreadable);
        return 0;
    };
    // Still there if creating it failed later on, or if its destruction was missed or has not returned yet.
    if let Some(generation) = living(va_space) {
        gone(va_space, generation);
    }

    let generation = next_generation(Sequence::Registered);
    let ids = bpf_get_current_pid_tgid();
    let tgid = (ids >> 32) as u32;
    if SPACES.insert(va_space, space(generation, tgid), 0).is_err() {
        lose(LostReason::SpacesFull);
        return 0;
    }
    // As many as VA spaces at most: there is room.
    let _ = PROCESSES.insert(tgid, generation, 0);
    tell(&Lifecycle {
        generation,
        start_boottime_ns: process_start().unwrap_or(0),
        lost_events: 0,
        records: NO_LOSSES,
        kind: LifecycleKind::Registered as u32,
        tgid,
        tid: ids as u32,
        uid: bpf_get_current_uid_gid() as u32,
        comm: bpf_get_current_comm().unwrap_or_default(),
    });
    0
}

#[kprobe]
fn uvm_destroy(ctx: ProbeContext) -> u32 {
    hit(Probe::DestroyEntry);
    let Some(va_space) = ctx.arg::<u64>(0) else {
        lose(LostReason::Unreadable);
        return 0;
    };
    let thread = bpf_get_current_pid_tgid();
    let Some(generation) = living(va_space) else {
        // What an earlier teardown of this thread left, if its return was missed, must not be taken for this one's. There is rarely any.
        let _ = TEARDOWNS.remove(thread);
        return 0;
    };
    if TEARDOWNS.insert(thread, Teardown { va_space, generation }, 0).is_err() {
        // No room to wait for the return. What is still served of it is lost as of an unknown VA space.
        gone(va_space, generation);
    }
    0
}

#[kretprobe]
fn uvm_destroyed(_ctx: RetProbeContext) -> u32 {
    hit(Probe::DestroyReturn);
    let thread = bpf_get_current_pid_tgid();
    if let Some(teardown) = TEARDOWNS.get_ptr(thread) {
        // SAFETY: a value of the map; only this thread inserts and removes its own entry.
        let Teardown { va_space, generation } = unsafe { *teardown };
        // It was found just now, and nobody else removes it.
        let _ = TEARDOWNS.remove(thread);
        gone(va_space, generation);
    }
    0
}

/// The generation of the VA space at an address.
#[inline(always)]
fn living(va_space: u64) -> Option<u64> {
    // SAFETY: a value of the map. Entries are preallocated: one that is removed meanwhile is still memory, and its generation another one's.
    SPACES.get_ptr(va_space).map(|space| unsafe { (*space).generation })
}

/// Forgets a VA space and says so; does nothing if it is not known, or no longer at this address.
///
/// The driver frees a VA space before the function that destroys it returns. So another CPU may have made a new one there, which
/// has said of the old one that it is gone.
#[inline(always)]
fn gone(va_space: u64, generation: u64) {
    let Some(space) = SPACES.get_ptr(va_space) else { return };
    // SAFETY: a value of the map, preallocated as said above.
    let Space { generation: found, lost_events, records, tgid, .. } = unsafe { *space };
    if found != generation {
        return;
    }
    // If another CPU makes a VA space at this address within these few instructions, it is the new one that is removed. Then its events
    // are unknown until user space looks for VA spaces again, which those events make it do.
    let _ = SPACES.remove(va_space);
    // SAFETY: as above.
    if PROCESSES.get_ptr(tgid).is_some_and(|latest| unsafe { *latest } == generation) {
        let _ = PROCESSES.remove(tgid);
    }
    tell(&Lifecycle { generation, lost_events, records, kind: LifecycleKind::Destroyed as u32, ..NOBODY });
}

const NOBODY: Lifecycle = Lifecycle {
    generation: 0,
    start_boottime_ns: 0,
    lost_events: 0,
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
