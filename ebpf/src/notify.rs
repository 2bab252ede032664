//! Faults and migrations.
//!
//! Attaches to: kprobe `uvm_perf_event_notify(uvm_perf_va_space_events_t *, uvm_perf_event_t, uvm_perf_event_data_t *)`, which the
//! driver calls for each GPU fault entry, each CPU fault on managed memory and each contiguous copy, whether or not anyone listens.
//! Produces: `COUNTS`, and where an event cannot be counted, `LOST` and `SELF_TESTS`.
//! Cost: at most three reads of kernel memory and two hash look-ups an event, no locks; other events of the driver end after one comparison.
//!
//! An event belongs to the owner of its VA space. The current process is no help: GPU faults are served by a kernel thread, and
//! an eviction runs in whatever process needed the memory.

use abi::{
    CountKey, Kind, LostReason, Probe, SelfTest, Tally,
    layout::{EVENT_DATA_MAX, FAULT_ENTRY_MAX},
};
use aya_ebpf::{macros::kprobe, programs::ProbeContext};

use crate::{
    maps::{COUNTS, SPACES, fail, hit, layout, lose},
    memory::{self, Copied, Unreadable},
};

/// Granularity of fault addresses and migrations on every machine; some have larger pages.
const PAGE_BYTES: u64 = 4096;
/// `UVM_FAULT_ACCESS_TYPE_ATOMIC_STRONG`, the last.
const ACCESS_TYPE_MAX: u32 = 4;
/// `UVM_MAKE_RESIDENT_CAUSE_API_HINT`, the last.
const CAUSE_MAX: u32 = 8;
/// `UVM_ID_CPU`.
const CPU: u32 = 0;

const BPF_NOEXIST: u64 = 1;

#[kprobe]
fn uvm_notify(ctx: ProbeContext) -> u32 {
    hit(Probe::Notify);
    match count(&ctx) {
        Ok(()) => {}
        Err(NotCounted::Lost(reason)) => lose(reason),
        Err(NotCounted::Contradicts(test)) => fail(test),
    }
    0
}

enum NotCounted {
    Lost(LostReason),
    Contradicts(SelfTest),
}

impl From<Unreadable> for NotCounted {
    #[inline(always)]
    fn from(Unreadable: Unreadable) -> Self {
        Self::Lost(LostReason::Unreadable)
    }
}

/// What an event adds to, but for whose it is.
struct Counted {
    gpu: u32,
    kind: Kind,
    detail: u32,
    amount: u64,
}

type EventData = Copied<{ EVENT_DATA_MAX / 8 }>;
type FaultEntry = Copied<{ FAULT_ENTRY_MAX / 8 }>;

#[inline(always)]
fn count(ctx: &ProbeContext) -> Result<(), NotCounted> {
    let event = ctx.arg::<u32>(1).ok_or(Unreadable)?;
    let is_fault = event == layout!(event_fault);
    if !is_fault && event != layout!(event_migration) {
        return Ok(());
    }
    let events = ctx.arg::<u64>(0).ok_or(Unreadable)?;
    let va_space = memory::driver::<u64>(events.wrapping_add(u64::from(layout!(events_va_space))))?;
    let data = EventData::from(ctx.arg::<u64>(2).ok_or(Unreadable)?, layout!(event_size))?;
    let counted = if is_fault { Some(fault(&data, va_space)?) } else { migration(&data)? };
    match counted {
        Some(counted) => add(va_space, &counted),
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
    Ok(Counted { gpu: CPU, kind: Kind::CpuFault, detail: is_write, amount: 0 })
}

#[inline(always)]
fn gpu_fault(data: &EventData, va_space: u64, gpu: u32) -> Result<Counted, NotCounted> {
    check(gpu <= layout!(gpu_max), SelfTest::Processor)?;
    let is_duplicate = data.field::<u8>(layout!(fault_is_duplicate))?;
    check(is_duplicate <= 1, SelfTest::Flag)?;

    let entry = FaultEntry::from(data.field(layout!(fault_entry))?, layout!(entry_size))?;
    check(entry.field::<u64>(layout!(entry_va_space))? == va_space, SelfTest::VaSpace)?;
    check(entry.field::<u64>(layout!(entry_address))? % PAGE_BYTES == 0, SelfTest::FaultAddress)?;
    let access_word = entry.field::<u32>(layout!(entry_access))?;
    let access = (access_word >> (layout!(entry_access_shift) & 31)) & !(u32::MAX << (layout!(entry_access_bits) & 31));
    check(access <= ACCESS_TYPE_MAX, SelfTest::AccessType)?;
    let access_mask = entry.field::<u32>(layout!(entry_access_mask))?;
    check((access_mask >> access) & 1 == 1, SelfTest::AccessType)?;
    let instances = entry.field::<u16>(layout!(entry_instances))?;
    check(instances >= 1, SelfTest::Instances)?;

    let kind = if is_duplicate == 0 { Kind::GpuFault } else { Kind::GpuFaultDuplicate };
    Ok(Counted { gpu, kind, detail: access, amount: u64::from(instances) })
}

/// `None` for a copy between nodes of the host's memory, which crosses no bus to a GPU.
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

    // Copies from one GPU to another belong to the one that receives.
    let (gpu, kind) = match (src, dst) {
        (CPU, CPU) => return Ok(None),
        (CPU, gpu) => (gpu, Kind::CopyHtod),
        (gpu, CPU) => (gpu, Kind::CopyDtoh),
        (_, gpu) => (gpu, Kind::CopyDtod),
    };
    check(src != dst, SelfTest::MigrationProcessors)?;
    Ok(Some(Counted { gpu, kind, detail: cause, amount: bytes }))
}

#[inline(always)]
const fn check(holds: bool, test: SelfTest) -> Result<(), NotCounted> {
    if holds { Ok(()) } else { Err(NotCounted::Contradicts(test)) }
}

#[inline(always)]
fn add(va_space: u64, counted: &Counted) -> Result<(), NotCounted> {
    let space = SPACES.get_ptr_mut(va_space).ok_or(NotCounted::Lost(LostReason::UnknownVaSpace))?;
    // SAFETY: a value of the map. The driver frees a VA space only after its last event, so the entry is not another one's meanwhile.
    let generation = unsafe { (*space).generation };
    let key = CountKey { generation, gpu: counted.gpu, kind: counted.kind as u16, detail: counted.detail as u16 };

    let tally = COUNTS.get_ptr_mut(key).or_else(|| {
        // The key's first event, unless another CPU's has just come between; where there is no room, the key stays missing.
        let _ = COUNTS.insert(key, Tally { events: 0, amount: 0 }, BPF_NOEXIST);
        COUNTS.get_ptr_mut(key)
    });
    let Some(tally) = tally else {
        // SAFETY: a field of a value of the map.
        let lost_events = unsafe { &raw mut (*space).lost_events };
        // SAFETY: 8-byte aligned, and only ever changed atomically.
        unsafe { memory::add_one_atomically(lost_events) };
        return Err(NotCounted::Lost(LostReason::CountsFull));
    };
    // SAFETY: this CPU's own value, and probes do not interrupt each other on one CPU.
    let tally = unsafe { &mut *tally };
    tally.events += 1;
    tally.amount += counted.amount;
    Ok(())
}
