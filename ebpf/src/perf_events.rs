//! Faults and migrations.
//!
//! Attaches to: kprobe `uvm_perf_event_notify(uvm_perf_va_space_events_t *, uvm_perf_event_t,
//! uvm_perf_event_data_t *)`, which the driver calls for each GPU fault entry, each CPU fault on
//! managed memory, each contiguous copy and each destroyed block, with or without listeners.
//! Produces: `COUNTS`, and where an event cannot be counted, `DROPPED` and `SELF_TESTS`; beside the
//! counts, entries of the current batch and block records.
//! Cost: at most three reads of kernel memory and two hash look-ups per event, four for a copy, and
//! those of [`sites`]; more for new entries, and no locks but the kernel's for these. Other events of
//! the driver end after one comparison.
//!
//! An event counts for the process of its VA space. The current process is no evidence: a kernel
//! thread services GPU faults, and an eviction runs in the process that needs the memory.

use abi::{
    DropReason, Kind, Probe, RecordKind, SelfTest, Tally,
    block::slots,
    count::REQUESTED_BY_TOOL,
    layout::{EVENT_DATA_MAX, FAULT_ENTRY_MAX},
};
use aya_ebpf::{
    macros::{kprobe, map},
    programs::ProbeContext,
};

use crate::{
    batch,
    blocks::{self, BlockEvent},
    calls::is_own,
    context::{Invocation, argument},
    counting::{Dropped, Known, observe},
    eviction, make_resident,
    maps::{count_drop, fail, layout},
    memory::{self, Copied, Scratch, Unreadable},
    residency, sites,
    va_block::{CAUSE_API, CAUSE_EVICTION, CAUSE_FAULT_MAX, CAUSE_MAX},
};

/// `UVM_PERF_EVENT_BLOCK_DESTROY`, in all versions. Its data begin with the pointer to the block.
const EVENT_BLOCK_DESTROY: u32 = 0;
/// Granularity of fault addresses and migrations on every machine; some have larger pages.
const PAGE_BYTES: u64 = 4096;
/// `UVM_FAULT_ACCESS_TYPE_ATOMIC_STRONG`, the last.
const ACCESS_TYPE_MAX: u32 = 4;
/// `UVM_ID_CPU`.
const CPU: u32 = 0;

#[kprobe]
fn uvm_notify(ctx: ProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::Notify);
    match count(&ctx) {
        Ok(()) => {}
        Err(NotCounted::Dropped(reason)) => count_drop(reason),
        Err(NotCounted::Contradicts(test)) => fail(test),
    }
    0
}

enum NotCounted {
    Dropped(DropReason),
    Contradicts(SelfTest),
}

impl From<Unreadable> for NotCounted {
    #[inline(always)]
    fn from(Unreadable: Unreadable) -> Self {
        Self::Dropped(DropReason::Unreadable)
    }
}

impl From<Dropped> for NotCounted {
    #[inline(always)]
    fn from(Dropped(reason): Dropped) -> Self {
        Self::Dropped(reason)
    }
}

/// Contribution of an event to counts, without its VA space.
struct Counted {
    gpu: u32,
    kind: Kind,
    detail: u32,
    amount: u64,
    address: u64,
    /// Program counter of a CPU fault; 0 for other events.
    pc: u64,
    sink: Sink,
}

/// Second use of an event, beside the count.
#[derive(Clone, Copy)]
enum Sink {
    /// One entry more in the batch of this number.
    Batch(u32),
    Block(RecordKind),
}

const EVENT_WORDS: usize = EVENT_DATA_MAX / 8;
const ENTRY_WORDS: usize = FAULT_ENTRY_MAX / 8;
type EventData = Copied<EVENT_WORDS>;

#[map]
static EVENT: Scratch<EVENT_WORDS> = Scratch::with_max_entries(1, 0);
#[map]
static ENTRY: Scratch<ENTRY_WORDS> = Scratch::with_max_entries(1, 0);

#[inline(always)]
fn count(ctx: &ProbeContext) -> Result<(), NotCounted> {
    let event = argument::<u32>(ctx, 1)?;
    let is_fault = event == layout!(event_fault);
    let is_destruction = event == EVENT_BLOCK_DESTROY;
    if !is_fault && !is_destruction && event != layout!(event_migration) {
        return Ok(());
    }
    let events = argument::<u64>(ctx, 0)?;
    let va_space = memory::driver::<u64>(events.wrapping_add(u64::from(layout!(events_va_space))))?;
    let data = argument::<u64>(ctx, 2)?;
    if is_destruction {
        return Ok(residency::block_destroyed(va_space, data)?);
    }
    let data = EventData::from(&EVENT, data, layout!(event_size))?;
    let counted = if is_fault { Some(fault(&data, va_space)?) } else { migration(&data)? };
    match counted {
        Some(counted) => Ok(add(va_space, &counted)?),
        None => Ok(()),
    }
}

#[inline(always)]
fn fault(data: &EventData, va_space: u64) -> Result<Counted, NotCounted> {
    match data.field::<u32>(layout!(fault_processor))? {
        CPU => cpu_fault(data),
        gpu => gpu_fault(data, va_space, gpu),
    }
}

#[inline(always)]
fn cpu_fault(data: &EventData) -> Result<Counted, NotCounted> {
    let is_write = u32::from(data.field::<u8>(layout!(fault_is_write))?);
    check(is_write <= 1, SelfTest::Flag)?;
    Ok(Counted {
        gpu: CPU,
        kind: Kind::CpuFault,
        detail: is_write,
        amount: 0,
        address: data.field(layout!(fault_cpu_address))?,
        pc: data.field(layout!(fault_cpu_pc))?,
        sink: Sink::Block(RecordKind::CpuFault),
    })
}

#[inline(always)]
fn gpu_fault(data: &EventData, va_space: u64, gpu: u32) -> Result<Counted, NotCounted> {
    check(gpu <= layout!(gpu_max), SelfTest::Processor)?;
    let is_duplicate = data.field::<u8>(layout!(fault_is_duplicate))?;
    check(is_duplicate <= 1, SelfTest::Flag)?;

    let entry = Copied::from(&ENTRY, data.field(layout!(fault_entry))?, layout!(entry_size))?;
    check(entry.field::<u64>(layout!(entry_va_space))? == va_space, SelfTest::VaSpace)?;
    let address = entry.field::<u64>(layout!(entry_address))?;
    check(address % PAGE_BYTES == 0, SelfTest::FaultAddress)?;
    let access_word = entry.field::<u32>(layout!(entry_access))?;
    let access = (access_word >> (layout!(entry_access_shift) & 31)) & !(u32::MAX << (layout!(entry_access_bits) & 31));
    check(access <= ACCESS_TYPE_MAX, SelfTest::AccessType)?;
    let access_mask = entry.field::<u32>(layout!(entry_access_mask))?;
    check((access_mask >> access) & 1 == 1, SelfTest::AccessType)?;
    let instances = entry.field::<u16>(layout!(entry_instances))?;
    check(instances >= 1, SelfTest::Instances)?;

    let flags = entry.field::<u8>(layout!(entry_replayable))?;
    let is_replayable = (flags >> (layout!(entry_replayable_bit) & 7)) & 1 == 1;
    Ok(Counted {
        gpu,
        kind: if is_duplicate == 0 { Kind::GpuFault } else { Kind::GpuFaultDuplicate },
        detail: access,
        amount: u64::from(instances),
        address,
        pc: 0,
        // The driver services the others one by one.
        sink: if is_replayable {
            Sink::Batch(data.field(layout!(fault_batch))?)
        } else {
            Sink::Block(RecordKind::GpuFaults)
        },
    })
}

/// Counts of a copy; `None` for one between nodes of host memory, which crosses no bus to a GPU.
#[inline(always)]
fn migration(data: &EventData) -> Result<Option<Counted>, NotCounted> {
    let dst = data.field::<u32>(layout!(migration_dst))?;
    let src = data.field::<u32>(layout!(migration_src))?;
    check(dst <= layout!(gpu_max) && src <= layout!(gpu_max), SelfTest::Processor)?;
    let address = data.field::<u64>(layout!(migration_address))?;
    let bytes = data.field::<u64>(layout!(migration_bytes))?;
    check((address | bytes) % PAGE_BYTES == 0, SelfTest::MigrationBytes)?;
    check(bytes != 0 && bytes <= u64::from(layout!(migration_max_bytes)), SelfTest::MigrationBytes)?;
    let cause = data.field::<u32>(layout!(migration_cause))?;
    check(cause <= CAUSE_MAX, SelfTest::MigrationCause)?;

    // Copies between GPUs count for the receiver.
    let (gpu, kind, record) = match (src, dst) {
        (CPU, CPU) => return Ok(None),
        (CPU, gpu) => (gpu, Kind::CopyHtod, RecordKind::CopyHtod),
        (gpu, CPU) => (gpu, Kind::CopyDtoh, RecordKind::CopyDtoh),
        (_, gpu) => (gpu, Kind::CopyDtod, RecordKind::CopyDtod),
    };
    check(src != dst, SelfTest::MigrationProcessors)?;
    Ok(Some(Counted { gpu, kind, detail: cause, amount: bytes, address, pc: 0, sink: Sink::Block(record) }))
}

#[inline(always)]
fn add(va_space: u64, counted: &Counted) -> Result<(), Dropped> {
    let Counted { gpu, kind, detail, amount, address, pc, sink } = *counted;
    let space = Known::at(va_space)?;
    let is_copy = !matches!(kind, Kind::GpuFault | Kind::GpuFaultDuplicate | Kind::CpuFault);
    let is_of_tool = is_copy && detail >= CAUSE_API && !is_own(&space);
    let detail = if is_of_tool { detail | u32::from(REQUESTED_BY_TOOL) } else { detail };
    match kind {
        Kind::CopyHtod => _ = observe(&space.account(), gpu, Kind::HtodMigrationBytes as u32, amount),
        Kind::CopyDtoh => {
            observe(&space.account(), gpu, Kind::DtohMigrationBytes as u32, amount);
            if detail == CAUSE_EVICTION {
                eviction::evicted(&space.account(), gpu, 0, amount);
            }
            if detail <= CAUSE_FAULT_MAX {
                sites::copied(&space.account(), amount);
            }
        }
        Kind::CpuFault => _ = sites::faulted(&space.account(), pc),
        _ => {}
    }
    match sink {
        Sink::Batch(batch) => batch::fault(&space, va_space, &batch::Entry { gpu, batch, address }),
        Sink::Block(kind) => {
            let (cause, bytes) = if is_copy { (detail, amount) } else { (0, 0) };
            let slots = slots(address, bytes);
            let event = BlockEvent { cause, bytes, slots, ..BlockEvent::of(address, gpu, kind) };
            if !is_copy || !make_resident::copied(&space, va_space, &event) {
                blocks::record(&space, &event);
            }
        }
    }
    // Last: the verifier would follow all of the above once per result.
    space.add(gpu, kind, detail, Tally { events: 1, amount })
}

#[inline(always)]
const fn check(holds: bool, test: SelfTest) -> Result<(), NotCounted> {
    if holds { Ok(()) } else { Err(NotCounted::Contradicts(test)) }
}
