//! Batches of GPU faults: entries, duration and replays.
//!
//! Attaches to: kprobe and kretprobe `uvm_gpu_service_replayable_faults(uvm_gpu_t
//! *)`, from 560 on `uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *)`, the driver's
//! fault handler, which services several batches per run; and kprobe
//! `uvm_tools_broadcast_replay(uvm_gpu_t *, uvm_push_t *, u32 batch_id, u32 client_type)`, called
//! for each replay except those of a teardown, which have no batch (`uvm_gpu_fault_buffer_flush`:
//! the driver's own count of replays includes them).
//! Produces: `DISTRIBUTIONS`, replays in `COUNTS`, and records of faulted blocks.
//! Cost: one array look-up and a few additions for each fault entry; one or two microseconds for
//! each batch.
//!
//! A GPU has one handler thread, which sorts its faults by VA space. A batch is therefore a few
//! runs of entries, one for each VA space. It ends when the handler returns, or at the first fault
//! of the next batch.

use abi::{
    CountKey, DropReason, Kind, Probe, RecordKind, Tally,
    block::{BLOCK_BYTES, slots},
};
use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{kprobe, kretprobe, map},
    maps::{Array, HashMap},
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    blocks::{self, BlockEvent},
    context::{Invocation, argument},
    counting::{self, Account, Dropped, Full, Known, observe},
    maps::{count_drop, layout},
    memory,
};

/// Maximum of physical GPUs that the driver supports.
const GPUS: u32 = 32;
/// Maximum of VA spaces distinguished in one batch. The counts of further ones are added at once,
/// before the replay.
const RUNS: usize = 8;

/// Fault entries of one VA space on one GPU in a batch.
#[derive(Clone, Copy)]
#[repr(C)]
struct Run {
    account: Account,
    va_space: u64,
    entries: u64,
    gpu: u64,
}

/// Current or last batch of a GPU.
#[derive(Clone, Copy)]
#[repr(C)]
struct Batch {
    began_ns: u64,
    /// Time of its last replay; 0 before the first.
    replayed_ns: u64,
    replays: u64,
    entries: u64,
    /// Consecutive entries of one block that are in no record yet.
    block: u64,
    block_entries: u64,
    /// Slots of the block with these entries.
    block_slots: u64,
    id: u32,
    /// 1 from the first fault entry to the end of the batch.
    open: u32,
    /// Number of completed runs.
    complete: u64,
    /// Current run.
    run: Run,
    earlier: [Run; RUNS],
}

/// Batches by physical GPU. Only the GPU's handler thread accesses its batch.
#[map]
static BATCHES: Array<Batch> = Array::with_max_entries(GPUS, 0);

/// Execution of the fault handler.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Handler {
    began_ns: u64,
    /// VA space being serviced.
    pub account: Account,
    /// GPU; 0 before the first fault entry or replay.
    gpu: u64,
}

/// Handler executions by thread.
#[map]
static HANDLERS: HashMap<u64, Handler> = HashMap::with_max_entries(256, 0);

/// Handler execution of the current thread.
#[inline(always)]
pub fn handler() -> Option<*mut Handler> {
    HANDLERS.get_ptr_mut(bpf_get_current_pid_tgid())
}

#[kprobe]
fn uvm_handler(_ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Handler);
    // SAFETY: a helper without arguments.
    let began_ns = unsafe { bpf_ktime_get_ns() };
    if HANDLERS.insert(bpf_get_current_pid_tgid(), Handler { began_ns, account: Account::UNKNOWN, gpu: 0 }, 0).is_err()
    {
        count_drop(DropReason::CountsFull);
    }
    0
}

#[kretprobe]
fn uvm_handled(_ctx: RetProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::HandlerReturn);
    let thread = bpf_get_current_pid_tgid();
    let Some(handler) = HANDLERS.get_ptr(thread) else { return 0 };
    // SAFETY: a value of the map; only this thread inserts and removes its own entry.
    let Handler { began_ns, gpu, .. } = unsafe { *handler };
    let _ = HANDLERS.remove(thread);
    // SAFETY: a helper without arguments.
    let ns = unsafe { bpf_ktime_get_ns() }.wrapping_sub(began_ns);
    let gpu = gpu as u32;
    if let Some(batch) = batch_of(gpu) {
        finish(batch);
        // SAFETY: a value of the map, of this thread alone.
        let run = unsafe { &(*batch).run };
        observe(&last_serviced(run), gpu, Kind::HandlerNs as u32, ns);
    }
    0
}

#[kprobe]
fn uvm_replay(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Replay);
    counting::count_error(replay(&ctx));
    0
}

#[inline(always)]
fn replay(ctx: &ProbeContext) -> Result<(), Dropped> {
    let address = argument::<u64>(ctx, 0)?;
    let id = argument::<u32>(ctx, 2)?;
    let gpu = memory::driver::<u32>(address.wrapping_add(u64::from(layout!(gpu_id))))?;
    let Some(batch) = batch_of(gpu) else { return Err(Dropped(DropReason::Unreadable)) };
    // SAFETY: a value of the map, of this thread alone.
    let state = unsafe { &mut *batch };
    let is_of_batch = state.open == 1 && state.id == id;
    match handler() {
        // SAFETY: a value of the map, of this thread alone.
        Some(handler) => unsafe { (*handler).gpu = u64::from(gpu) },
        // Non-replayable fault: the channel is cleared and nothing is replayed.
        None if !is_of_batch => return Ok(()),
        None => {}
    }
    if is_of_batch {
        state.replays += 1;
        // SAFETY: a helper without arguments.
        state.replayed_ns = unsafe { bpf_ktime_get_ns() };
    }
    let last_serviced = last_serviced(&state.run);
    let key = CountKey { generation: last_serviced.generation, gpu, kind: Kind::GpuReplay as u16, detail: 0 };
    counting::add(&last_serviced, &key, Tally { events: 1, amount: 0 }).map_err(|Full| Dropped(DropReason::CountsFull))
}

/// Replayable fault entry.
pub struct Entry {
    /// Processor that faulted.
    pub gpu: u32,
    /// Number of its batch.
    pub batch: u32,
    /// Address of the page.
    pub address: u64,
}

/// Adds a fault entry to its batch.
#[inline(always)]
pub fn fault(space: &Known, va_space: u64, entry: &Entry) {
    let Some(batch) = batch_of(entry.gpu) else { return };
    // SAFETY: a value of the map, of this thread alone.
    let state = unsafe { &mut *batch };
    let gpu = u64::from(entry.gpu);
    let is_next = state.open != 1 || state.id != entry.batch;
    if is_next || state.run.account.generation != space.generation || state.run.gpu != gpu {
        if is_next {
            finish(state);
            begin(state, entry.batch);
        } else {
            end_run(state);
        }
        state.run = Run { account: space.account(), va_space, entries: 0, gpu };
        if let Some(handler) = handler() {
            // SAFETY: a value of the map, of this thread alone.
            let handler = unsafe { &mut *handler };
            handler.account = space.account();
            handler.gpu = gpu;
        }
    }
    state.run.entries += 1;
    state.entries += 1;
    if blocks::are_enabled() {
        let block = entry.address & !(BLOCK_BYTES - 1);
        if block != state.block {
            write_block_record(state, space);
            state.block = block;
        }
        state.block_entries += 1;
        state.block_slots |= u64::from(slots(entry.address, 0));
    }
}

#[inline(always)]
fn begin(state: &mut Batch, id: u32) {
    // SAFETY: a helper without arguments.
    state.began_ns = unsafe { bpf_ktime_get_ns() };
    state.replayed_ns = 0;
    state.replays = 0;
    state.entries = 0;
    state.complete = 0;
    state.id = id;
    state.open = 1;
}

/// Writes the record of the last block with faults.
#[inline(always)]
fn write_block_record(state: &mut Batch, space: &Known) {
    if state.block_entries > 0 {
        let event = BlockEvent {
            cause: state.id & 0xffff,
            events: state.block_entries,
            slots: state.block_slots as u32,
            ..BlockEvent::of(state.block, state.run.gpu as u32, RecordKind::GpuFaults)
        };
        blocks::record(space, &event);
    }
    forget_block(state);
}

#[inline(always)]
fn forget_block(state: &mut Batch) {
    state.block = 0;
    state.block_entries = 0;
    state.block_slots = 0;
}

/// Completes the current run. Not inlined: called once for each VA space in a batch.
#[inline(never)]
fn end_run(batch: *mut Batch) -> u32 {
    if batch.is_null() {
        return 1;
    }
    // SAFETY: a value of the map, of this thread alone.
    complete_run(unsafe { &mut *batch });
    0
}

#[inline(always)]
fn complete_run(state: &mut Batch) {
    if let Ok(space) = Known::at(state.run.va_space)
        && space.generation == state.run.account.generation
    {
        write_block_record(state, &space);
    }
    forget_block(state);
    let run = state.run;
    match state.earlier.get_mut(state.complete as usize) {
        Some(place) => {
            *place = run;
            state.complete += 1;
        }
        None => count_run(&run, state.began_ns, now(), state.replays),
    }
}

/// Ends a batch. Not inlined: called once per batch.
#[inline(never)]
fn finish(batch: *mut Batch) -> u32 {
    if batch.is_null() {
        return 1;
    }
    // SAFETY: a value of the map, of this thread alone, so that no other reference to it exists.
    let state = unsafe { &mut *batch };
    if state.open != 1 {
        return 0;
    }
    complete_run(state);
    state.open = 0;
    let ended_ns = if state.replayed_ns == 0 { now() } else { state.replayed_ns };
    for at in 0..RUNS {
        if at as u64 >= state.complete {
            break;
        }
        let Some(run) = state.earlier.get(at) else { break };
        count_run(run, state.began_ns, ended_ns, state.replays);
    }
    let (last_serviced, gpu) = (last_serviced(&state.run), state.run.gpu as u32);
    observe(&last_serviced, gpu, Kind::GpuBatchEntries as u32, state.entries);
    observe(&last_serviced, gpu, Kind::GpuBatchNs as u32, ended_ns.wrapping_sub(state.began_ns));
    0
}

#[inline(always)]
fn count_run(run: &Run, began_ns: u64, ended_ns: u64, replays: u64) {
    let gpu = run.gpu as u32;
    observe(&run.account, gpu, Kind::BatchEntries as u32, run.entries);
    observe(&run.account, gpu, Kind::BatchNs as u32, ended_ns.wrapping_sub(began_ns));
    if replays > 0 {
        let key = CountKey { generation: run.account.generation, gpu, kind: Kind::Replay as u16, detail: 0 };
        if counting::add(&run.account, &key, Tally { events: replays, amount: 0 }).is_err() {
            count_drop(DropReason::CountsFull);
        }
    }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: a helper without arguments.
    unsafe { bpf_ktime_get_ns() }
}

/// VA space that a GPU serviced last, if it still exists: its processor id still belongs to the
/// GPU. `UNKNOWN` otherwise.
#[inline(always)]
fn last_serviced(&run: &Run) -> Account {
    match Known::at(run.va_space) {
        Ok(space) if space.generation == run.account.generation => run.account,
        _ => Account::UNKNOWN,
    }
}

#[inline(always)]
fn batch_of(gpu: u32) -> Option<*mut Batch> {
    BATCHES.get_ptr_mut(gpu.wrapping_sub(1) / layout!(gpu_ids).max(1))
}
