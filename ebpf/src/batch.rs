//! Batches of GPU faults: how many entries, how long, how many replays.
//!
//! Attaches to: kprobe and kretprobe `uvm_gpu_service_replayable_faults(uvm_gpu_t *)`, from 560 on
//! `uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *)`: the driver's fault handler, which serves several batches a run; and kprobe
//! `uvm_tools_broadcast_replay(uvm_gpu_t *, uvm_push_t *, u32 batch_id, u32 client_type)`, called for each replay but those of a
//! teardown, which have no batch (`uvm_gpu_fault_buffer_flush`: the driver's own count of replays includes them).
//! Produces: `DISTRIBUTIONS`, replays in `COUNTS`, and records of faulted blocks.
//! Cost: one array look-up and a few additions for each fault entry; a microsecond or two for each batch.
//!
//! A GPU has one handler thread, and its faults come sorted by VA space. So a batch is a few runs of entries, one for each VA space. It is
//! over when the handler returns, or when a fault of the next one comes.

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
    counting::{self, Account, Dropped, Full, Known, observe},
    maps::{count_drop, hit, layout},
    memory,
};

/// Physical GPUs that the driver can have.
const GPUS: u32 = 32;
/// VA spaces that are told apart in one batch; what further ones have is told at once, without waiting for the replay.
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

/// The batch that a GPU is at, or was at last.
#[derive(Clone, Copy)]
#[repr(C)]
struct Batch {
    began_ns: u64,
    /// When it was last replayed; 0 before.
    replayed_ns: u64,
    replays: u64,
    entries: u64,
    /// Entries of one block one after the other, of which there is no record yet.
    block: u64,
    block_entries: u64,
    /// In which of its slots they are.
    block_slots: u64,
    id: u32,
    /// 1 from the first fault entry until it is over.
    open: u32,
    /// Runs that are complete.
    complete: u64,
    /// The one under way.
    run: Run,
    earlier: [Run; RUNS],
}

/// By physical GPU. Only its handler thread is ever at one.
#[map]
static BATCHES: Array<Batch> = Array::with_max_entries(GPUS, 0);

/// A run of the fault handler.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Handler {
    began_ns: u64,
    /// The VA space that is being served.
    pub account: Account,
    /// 0 before the first fault entry or replay.
    gpu: u64,
}

/// By thread.
#[map]
static HANDLERS: HashMap<u64, Handler> = HashMap::with_max_entries(256, 0);

/// The run of the fault handler that the current thread is in.
#[inline(always)]
pub fn handler() -> Option<*mut Handler> {
    HANDLERS.get_ptr_mut(bpf_get_current_pid_tgid())
}

#[kprobe]
fn uvm_handler(_ctx: ProbeContext) -> u32 {
    hit(Probe::Handler);
    // SAFETY: a helper without arguments.
    let began_ns = unsafe { bpf_ktime_get_ns() };
    if HANDLERS.insert(bpf_get_current_pid_tgid(), Handler { began_ns, account: Account::NOBODY, gpu: 0 }, 0).is_err() {
        count_drop(DropReason::CountsFull);
    }
    0
}

#[kretprobe]
fn uvm_handled(_ctx: RetProbeContext) -> u32 {
    hit(Probe::HandlerReturn);
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
        observe(&witness(batch), gpu, Kind::HandlerNs as u32, ns);
    }
    0
}

#[kprobe]
fn uvm_replay(ctx: ProbeContext) -> u32 {
    hit(Probe::Replay);
    counting::note(replay(&ctx));
    0
}

#[inline(always)]
fn replay(ctx: &ProbeContext) -> Result<(), Dropped> {
    let unreadable = Dropped(DropReason::Unreadable);
    let Some(address) = ctx.arg::<u64>(0) else { return Err(unreadable) };
    let Some(id) = ctx.arg::<u32>(2) else { return Err(unreadable) };
    let gpu = memory::driver::<u32>(address.wrapping_add(u64::from(layout!(gpu_id))))?;
    let Some(batch) = batch_of(gpu) else { return Err(unreadable) };
    // SAFETY: a value of the map, of this thread alone.
    let state = unsafe { &mut *batch };
    let is_of_batch = state.open == 1 && state.id == id;
    match handler() {
        // SAFETY: a value of the map, of this thread alone.
        Some(handler) => unsafe { (*handler).gpu = u64::from(gpu) },
        // Of a fault that is not replayable: the channel is cleared, nothing is replayed.
        None if !is_of_batch => return Ok(()),
        None => {}
    }
    if is_of_batch {
        state.replays += 1;
        // SAFETY: a helper without arguments.
        state.replayed_ns = unsafe { bpf_ktime_get_ns() };
    }
    let witness = witness(batch);
    let key = CountKey { generation: witness.generation, gpu, kind: Kind::GpuReplay as u16, detail: 0 };
    counting::add(&witness, &key, Tally { events: 1, amount: 0 }).map_err(|Full| Dropped(DropReason::CountsFull))
}

/// A replayable fault entry.
pub struct Entry {
    /// Processor that faulted.
    pub gpu: u32,
    /// Its batch's number.
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
            finish(batch);
            begin(state, entry.batch);
        } else {
            end_run(batch);
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
    if blocks::are_wanted() {
        let block = entry.address & !(BLOCK_BYTES - 1);
        if block != state.block {
            tell_block(state, space);
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

/// Writes the record of the block that was faulted on last.
#[inline(always)]
fn tell_block(state: &mut Batch, space: &Known) {
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

/// The run under way is complete. Not inlined: once for each VA space in a batch.
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
        tell_block(state, &space);
    }
    forget_block(state);
    let run = state.run;
    match state.earlier.get_mut(state.complete as usize) {
        Some(place) => {
            *place = run;
            state.complete += 1;
        }
        None => tell(&run, state.began_ns, now(), state.replays),
    }
}

/// The batch is over. Not inlined: once for each.
#[inline(never)]
fn finish(batch: *mut Batch) -> u32 {
    if batch.is_null() {
        return 1;
    }
    // SAFETY: a value of the map, of this thread alone.
    if unsafe { (*batch).open } != 1 {
        return 0;
    }
    // SAFETY: as above.
    let state = unsafe { &mut *batch };
    complete_run(state);
    state.open = 0;
    let ended_ns = if state.replayed_ns == 0 { now() } else { state.replayed_ns };
    for at in 0..RUNS {
        if at as u64 >= state.complete {
            break;
        }
        let Some(run) = state.earlier.get(at) else { break };
        tell(run, state.began_ns, ended_ns, state.replays);
    }
    let (witness, gpu) = (witness(batch), state.run.gpu as u32);
    observe(&witness, gpu, Kind::GpuBatchEntries as u32, state.entries);
    observe(&witness, gpu, Kind::GpuBatchNs as u32, ended_ns.wrapping_sub(state.began_ns));
    0
}

#[inline(always)]
fn tell(run: &Run, began_ns: u64, ended_ns: u64, replays: u64) {
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

/// The VA space that a GPU served last, if it still lives: its processor id is still that GPU's. Nobody otherwise.
#[inline(always)]
fn witness(batch: *mut Batch) -> Account {
    // SAFETY: a value of the map, of this thread alone.
    let run = unsafe { (*batch).run };
    match Known::at(run.va_space) {
        Ok(space) if space.generation == run.account.generation => run.account,
        _ => Account::NOBODY,
    }
}

#[inline(always)]
fn batch_of(gpu: u32) -> Option<*mut Batch> {
    BATCHES.get_ptr_mut(gpu.wrapping_sub(1) / layout!(gpu_ids).max(1))
}
