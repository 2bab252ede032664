//! Which process a VA space belongs to, and when it is gone.
//!
//! Attaches to: kprobe `uvm_va_space_mm_register(uvm_va_space_t *)`, called once for each new VA space by the process that opens it;
//! kprobe and kretprobe `uvm_va_space_destroy(uvm_va_space_t *)`.
//! Produces: `SPACES`, and a record in `LIFECYCLES` for each VA space made or gone. User space is woken at once, so that it reads
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
    maps::{GENERATIONS, SPACES, TEARDOWNS, hit, increment, layout, lose, tell},
    memory::{self, Unreadable},
};

#[kprobe]
fn uvm_register(ctx: ProbeContext) -> u32 {
    hit(Probe::Register);
    let Some(va_space) = ctx.arg::<u64>(0) else {
        lose(LostReason::Unreadable);
        return 0;
    };
    // Still there if creating it failed later on, or if its destruction was missed.
    gone(va_space);

    let generation = next_generation();
    if SPACES.insert(va_space, Space { generation, lost_events: 0 }, 0).is_err() {
        lose(LostReason::SpacesFull);
        return 0;
    }
    let ids = bpf_get_current_pid_tgid();
    tell(&Lifecycle {
        generation,
        start_boottime_ns: process_start().unwrap_or(0),
        lost_events: 0,
        kind: LifecycleKind::Registered as u32,
        tgid: (ids >> 32) as u32,
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
    if SPACES.get_ptr(va_space).is_some() && TEARDOWNS.insert(bpf_get_current_pid_tgid(), va_space, 0).is_err() {
        // No room to wait for the return. What is still served of it is lost as of an unknown VA space.
        gone(va_space);
    }
    0
}

#[kretprobe]
fn uvm_destroyed(_ctx: RetProbeContext) -> u32 {
    hit(Probe::DestroyReturn);
    let thread = bpf_get_current_pid_tgid();
    if let Some(va_space) = TEARDOWNS.get_ptr(thread) {
        // SAFETY: only this thread inserts and removes its own entry.
        let va_space = unsafe { *va_space };
        // Nothing to do about a failure: the entry is overwritten by the thread's next teardown.
        let _ = TEARDOWNS.remove(thread);
        gone(va_space);
    }
    0
}

/// Forgets a VA space and says so; does nothing for an unknown one.
#[inline(always)]
fn gone(va_space: u64) {
    let Some(space) = SPACES.get_ptr(va_space) else { return };
    // SAFETY: a value of the map; only the thread that makes or destroys this VA space removes it.
    let Space { generation, lost_events } = unsafe { *space };
    // It was found just now, and nobody else removes it.
    let _ = SPACES.remove(va_space);
    tell(&Lifecycle {
        generation,
        start_boottime_ns: 0,
        lost_events,
        kind: LifecycleKind::Destroyed as u32,
        tgid: 0,
        tid: 0,
        uid: 0,
        comm: [0; 16],
    });
}

/// Never 0, never the same twice while these maps live: the CPU's number and its own sequence.
#[inline(always)]
fn next_generation() -> u64 {
    // SAFETY: a helper without arguments.
    let cpu = unsafe { generated::bpf_get_smp_processor_id() };
    (u64::from(cpu) << 48) | increment(&GENERATIONS, 0)
}

/// When the current process started, ns since boot. With the pid it names the process, as field 22 of /proc/PID/stat does.
#[inline(always)]
fn process_start() -> Result<u64, Unreadable> {
    // SAFETY: a helper without arguments.
    let task = unsafe { generated::bpf_get_current_task() };
    let leader = memory::kernel::<u64>(task + u64::from(layout!(task_group_leader)))?;
    memory::kernel(leader + u64::from(layout!(task_start_boottime)))
}
