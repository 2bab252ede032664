use std::sync::atomic::{AtomicU64, Ordering};

use abi::count::first_of_bucket;
use sys::uvm::{
    queue::{CONTROL_WORDS, FullQueue},
    records::Replay,
};

use super::*;

const GENERATION: u64 = 1 << 63 | 7;
const PAGE: u64 = 0x7f12_3456_7000;
/// Processor ids of a physical GPU from driver 550 on.
const IDS_PER_GPU: u32 = 8;
const GPU: ProcessorIndex = ProcessorIndex(1);
const OTHER_GPU: ProcessorIndex = ProcessorIndex(2);
const CPU: ProcessorIndex = ProcessorIndex::CPU;

fn tally(requested: &[EventKind]) -> SpaceTally {
    SpaceTally::new(GENERATION, IDS_PER_GPU, requested)
}

/// Tally that all records of the kinds were added to.
fn counted(records: &[Record]) -> SpaceTally {
    let mut tally = tally(EventKind::ALL);
    for record in records {
        tally.add(record);
    }
    tally
}

/// Events and amounts of a kind, by processor id and detail.
fn of(tally: &SpaceTally, kind: Kind) -> Vec<(u32, u16, u64, u64)> {
    let of_kind = tally.counts().filter(|(key, _)| Kind::from_index(key.kind.into()) == Some(kind));
    let mut counts: Vec<_> = of_kind
        .map(|(key, tally)| {
            assert_eq!(key.generation, GENERATION);
            (key.gpu, key.detail, tally.events, tally.amount)
        })
        .collect();
    counts.sort_unstable();
    counts
}

fn gpu_fault(address: u64, time_ns: u64, batch: u32) -> GpuFault {
    GpuFault { access: Access::Read, gpu: GPU, client: Client::Gpc, address, time_ns, batch }
}

fn copy(cause: MigrationCause, source: ProcessorIndex, destination: ProcessorIndex, bytes: u64) -> Record {
    Record::Migration(Migration { cause, source, destination, address: PAGE, bytes, begin_ns: 5, end_ns: 9 })
}

/// Counts of a full queue, or of dropped records.
fn kinds(counts: &[(EventKind, u64)]) -> KindCounts {
    let control: Vec<_> = (0..CONTROL_WORDS).map(|_| AtomicU64::new(0)).collect();
    let mut queue = FullQueue::new(&control).unwrap();
    for (kind, count) in counts {
        control[2 + usize::from(kind.number())].store(*count, Ordering::Relaxed);
    }
    queue.read(&control).unwrap()
}

/// Totals of a VA space with one GPU, or with several of which none is known.
fn totals(only_gpu: Option<u32>, all: Counters) -> Totals {
    let gpus = only_gpu.map(|gpu| (gpu, all)).into_iter().collect();
    Totals { all, gpus, kinds: KindCounts::default() }
}

fn htod(bytes_htod: u64) -> Counters {
    Counters { bytes_htod, ..Counters::default() }
}

#[test]
fn instances_of_an_entry_are_merged_into_it() {
    let first = gpu_fault(PAGE, 10, 1);
    // The driver merges accesses of several kinds into the strongest one, which comes first.
    let write = GpuFault { access: Access::Write, ..first };
    let tally = counted(&[write, first, first].map(Record::GpuFault));
    assert_eq!(of(&tally, Kind::GpuFault), [(1, 2, 1, 3)]);
    assert_eq!(of(&tally, Kind::GpuFaultDuplicate), []);
}

#[test]
fn entry_at_the_page_of_the_entry_before_it_in_the_batch_is_a_duplicate() {
    let at = |address, time_ns, batch| Record::GpuFault(gpu_fault(address, time_ns, batch));
    let tally = counted(&[
        at(PAGE, 10, 1),
        at(PAGE, 11, 1),
        at(PAGE, 11, 1),
        at(PAGE + 4096, 12, 1),
        // Another page in between, and another batch: serviced again.
        at(PAGE, 13, 1),
        at(PAGE, 14, 2),
    ]);
    assert_eq!(of(&tally, Kind::GpuFault), [(1, 1, 4, 4)]);
    assert_eq!(of(&tally, Kind::GpuFaultDuplicate), [(1, 1, 1, 2)]);
}

#[test]
fn entries_of_two_gpus_that_write_at_the_same_time_are_apart() {
    let one = gpu_fault(PAGE, 10, 1);
    let other = GpuFault { gpu: OTHER_GPU, time_ns: 11, ..one };
    let tally = counted(&[one, other, one, other, one].map(Record::GpuFault));
    assert_eq!(of(&tally, Kind::GpuFault), [(1, 1, 1, 3), (9, 1, 1, 2)]);
}

#[test]
fn fault_that_is_not_replayable_is_apart_from_a_batch_of_that_number() {
    let of_batch = gpu_fault(PAGE, 10, 1);
    let other = GpuFault { client: Client::Hub, time_ns: 11, ..of_batch };
    let tally = counted(&[of_batch, other, of_batch].map(Record::GpuFault));
    assert_eq!(of(&tally, Kind::GpuFault), [(1, 1, 2, 3)]);
    assert_eq!(of(&tally, Kind::GpuFaultDuplicate), []);
}

#[test]
fn accesses_have_the_numbers_of_the_probes_and_atomics_are_strong() {
    let accesses = [Access::Prefetch, Access::Read, Access::Write, Access::Atomic, Access::Unknown];
    let faults = (0..).zip(accesses).map(|(time_ns, access)| {
        Record::GpuFault(GpuFault { access, ..gpu_fault(PAGE + time_ns * PAGE_BYTES, time_ns, 1) })
    });
    let tally = counted(&faults.collect::<Vec<_>>());
    let details: Vec<_> =
        of(&tally, Kind::GpuFault).into_iter().map(|(_, detail, events, _)| (detail, events)).collect();
    assert_eq!(details, [(0, 1), (1, 1), (2, 1), (4, 1), (UNKNOWN_ACCESS, 1)]);
}

#[test]
fn cpu_faults_are_of_the_host_and_writes_have_detail_1() {
    let fault = |access| Record::CpuFault(CpuFault { access, address: PAGE + 3, time_ns: 0, pid: 1, thread: 1, pc: 0 });
    let tally = counted(&[Access::Read, Access::Write, Access::Write].map(fault));
    assert_eq!(of(&tally, Kind::CpuFault), [(0, 0, 1, 0), (0, 1, 2, 0)]);
}

#[test]
fn copies_count_by_direction_and_cause_for_the_gpu_and_between_gpus_for_the_receiver() {
    let tally = counted(&[
        copy(MigrationCause::Coherence, CPU, GPU, 65536),
        copy(MigrationCause::Coherence, CPU, GPU, 4096),
        copy(MigrationCause::Prefetch, CPU, OTHER_GPU, 8192),
        copy(MigrationCause::User, GPU, CPU, 12288),
        copy(MigrationCause::AccessCounters, GPU, OTHER_GPU, 16384),
        // Between nodes of the host: no bus is crossed.
        copy(MigrationCause::Unknown, CPU, CPU, 20480),
    ]);
    assert_eq!(of(&tally, Kind::CopyHtod), [(1, 0, 2, 69632), (9, 3, 1, 8192)]);
    assert_eq!(of(&tally, Kind::CopyDtoh), [(1, 6, 1, 12288)]);
    assert_eq!(of(&tally, Kind::CopyDtod), [(9, 2, 1, 16384)]);
    assert_eq!(tally.contradictions(), &BTreeMap::new());
}

#[test]
fn sizes_of_copies_are_observed_in_both_directions_and_not_between_gpus() {
    let tally = counted(&[
        copy(MigrationCause::Coherence, CPU, GPU, 65536),
        copy(MigrationCause::Prefetch, CPU, GPU, 65536 + 4096),
        copy(MigrationCause::Eviction, GPU, CPU, 2 << 20),
        copy(MigrationCause::User, GPU, OTHER_GPU, 4096),
    ]);
    let sizes = |kind| {
        let first = |(gpu, detail, events, amount)| (gpu, first_of_bucket(detail), events, amount);
        of(&tally, kind).into_iter().map(first).collect::<Vec<_>>()
    };
    assert_eq!(sizes(Kind::HtodMigrationBytes), [(1, 65536, 2, 2 * 65536 + 4096)]);
    assert_eq!(sizes(Kind::DtohMigrationBytes), [(1, 2 << 20, 1, 2 << 20)]);
}

#[test]
fn eviction_is_a_copy_to_the_host_and_part_of_the_gpus_history() {
    let mut tally = counted(&[]);
    let event = tally.add(&copy(MigrationCause::Eviction, OTHER_GPU, CPU, 4096));
    assert_eq!(event, Some(SharedEvent::Eviction { gpu: OTHER_GPU, bytes: 4096, time_ns: 5 }));
    assert_eq!(of(&tally, Kind::CopyDtoh), [(9, 4, 1, 4096)]);
    // Chunks are not in the records.
    assert_eq!(of(&tally, Kind::Evicted), []);
}

#[test]
fn entries_are_part_of_the_gpus_history_and_instances_are_not() {
    let mut tally = counted(&[]);
    let fault = Record::GpuFault(gpu_fault(PAGE, 10, 3));
    let event = SharedEvent::Fault { gpu: GPU, client: Client::Gpc, batch: 3, time_ns: 10 };
    assert_eq!([tally.add(&fault), tally.add(&fault)], [Some(event), None]);
}

#[test]
fn thrashing_page_counts_for_the_first_of_its_gpus() {
    let region = |processors| Record::Thrashing(Region { processors, address: PAGE, bytes: 4096, time_ns: 0 });
    let tally = counted(&[region(0b11), region(0b110), region(0b101)]);
    assert_eq!(of(&tally, Kind::Thrashing), [(1, 0, 2, 0), (9, 0, 1, 0)]);
}

#[test]
fn throttles_have_the_time_from_start_to_end_by_page_and_processor() {
    let at = |processor, address, time_ns| Throttle { processor, address, time_ns };
    let tally = counted(&[
        Record::ThrottleStart(at(GPU, PAGE, 100)),
        Record::ThrottleStart(at(CPU, PAGE, 150)),
        // A second thread, and another page.
        Record::ThrottleStart(at(CPU, PAGE, 160)),
        Record::ThrottleStart(at(GPU, PAGE + 4096, 170)),
        Record::ThrottleEnd(at(CPU, PAGE, 250)),
        Record::ThrottleEnd(at(GPU, PAGE, 400)),
        Record::ThrottleEnd(at(CPU, PAGE, 270)),
        // Its start was before the attachment.
        Record::ThrottleEnd(at(OTHER_GPU, PAGE, 500)),
    ]);
    assert_eq!(of(&tally, Kind::Throttle), [(0, 0, 2, 100 + 110), (1, 0, 2, 300)]);
}

#[test]
fn second_start_of_a_gpu_at_a_page_replaces_one_without_end() {
    let at = |time_ns| Throttle { processor: GPU, address: PAGE, time_ns };
    let tally = counted(&[
        Record::ThrottleStart(at(100)),
        Record::ThrottleStart(at(900)),
        Record::ThrottleEnd(at(1000)),
        Record::ThrottleEnd(at(1100)),
    ]);
    assert_eq!(of(&tally, Kind::Throttle), [(1, 0, 2, 100)]);
}

#[test]
fn throttles_without_end_take_bounded_memory() {
    let mut tally = counted(&[]);
    for number in 0..10_000 {
        let start = Throttle { processor: CPU, address: PAGE + number * 4096, time_ns: number };
        tally.add(&Record::ThrottleStart(start));
    }
    assert_eq!(tally.throttles.len(), THROTTLES_MAX);
    assert_eq!(of(&tally, Kind::Throttle), [(0, 0, 10_000, 0)]);
}

#[test]
fn remote_mappings_count_for_the_processor_that_maps_by_cause() {
    let map = |processor, cause| {
        Record::MapRemote(MapRemote { cause, processor, residency: CPU, address: PAGE, bytes: 65536, time_ns: 0 })
    };
    let tally = counted(&[map(GPU, 2), map(GPU, 2), map(CPU, 3), map(OTHER_GPU, 5), map(GPU, 200)]);
    assert_eq!(of(&tally, Kind::MapRemote), [(0, 3, 1, 65536), (1, 2, 2, 131_072), (1, 6, 1, 65536), (9, 5, 1, 65536)]);
}

#[test]
fn processor_ids_are_those_of_the_driver() {
    // Up to driver 545, a GPU has one id.
    let mut tally = SpaceTally::new(GENERATION, 1, EventKind::ALL);
    tally.add(&copy(MigrationCause::Coherence, CPU, OTHER_GPU, 4096));
    assert_eq!(of(&tally, Kind::CopyHtod), [(2, 0, 1, 4096)]);
}

#[test]
fn records_that_cannot_be_true_are_named_and_not_counted() {
    let far = ProcessorIndex(33);
    let tally = counted(&[
        Record::GpuFault(GpuFault { gpu: CPU, ..gpu_fault(PAGE, 0, 1) }),
        Record::GpuFault(GpuFault { gpu: far, ..gpu_fault(PAGE, 0, 1) }),
        Record::GpuFault(gpu_fault(PAGE + 1, 0, 1)),
        copy(MigrationCause::User, CPU, far, 4096),
        copy(MigrationCause::User, CPU, GPU, 0),
        copy(MigrationCause::User, CPU, GPU, 4097),
        copy(MigrationCause::User, CPU, GPU, BLOCK_BYTES + 4096),
        copy(MigrationCause::User, GPU, GPU, 4096),
        Record::ThrottleStart(Throttle { processor: far, address: PAGE, time_ns: 0 }),
        Record::Thrashing(Region { processors: 1 << 40, address: PAGE, bytes: 4096, time_ns: 0 }),
    ]);
    assert_eq!(tally.counts().count(), 0);
    assert_eq!(tally.block_record(&copy(MigrationCause::User, CPU, GPU, BLOCK_BYTES + 4096)), None);
    let named = [
        (SelfTest::Processor, 5),
        (SelfTest::FaultAddress, 1),
        (SelfTest::MigrationBytes, 3),
        (SelfTest::MigrationProcessors, 1),
    ];
    assert_eq!(tally.contradictions(), &named.into());
}

#[test]
fn records_of_other_kinds_have_no_key() {
    let region = Region { processors: 3, address: PAGE, bytes: 4096, time_ns: 0 };
    let replay = Replay { gpu: GPU, client: Client::Gpc, batch: 1, time_ns: 0 };
    let records = [
        Record::ReadDuplicate(region),
        Record::ReadDuplicateInvalidate(region),
        Record::Replay(replay),
        Record::Unknown { number: 14 },
    ];
    assert_eq!(counted(&records).counts().count(), 0);
}

#[test]
fn totals_without_records_are_counted_at_once_without_details() {
    let mut tally = tally(&[]);
    let first = Counters { fault_entries: 10, cpu_faults: 3, bytes_htod: 4096, bytes_dtoh: 0 };
    tally.complete(&totals(None, first), &KindCounts::default());
    assert_eq!(of(&tally, Kind::GpuFault), [(UNKNOWN_PROCESSOR, UNKNOWN_ACCESS, 10, 0)]);
    assert_eq!(of(&tally, Kind::CpuFault), [(0, UNKNOWN_ACCESS, 3, 0)]);
    assert_eq!(of(&tally, Kind::CopyHtod), [(UNKNOWN_PROCESSOR, UNKNOWN_CAUSE, 0, 4096)]);
    // What neither totals nor records have is absent, and so is what has not happened.
    for kind in [Kind::CopyDtoh, Kind::CopyDtod, Kind::Thrashing, Kind::Throttle, Kind::HtodMigrationBytes] {
        assert_eq!(of(&tally, kind), []);
    }
    let later = totals(Some(1), Counters { fault_entries: 12, ..first });
    let kinds = kinds(&[(EventKind::GpuFault, 30), (EventKind::Thrashing, 2), (EventKind::ThrottleStart, 5)]);
    tally.complete(&Totals { kinds, ..later }, &KindCounts::default());
    assert_eq!(of(&tally, Kind::Thrashing), [(1, 0, 2, 0)]);
    // The host may be the one that is throttled.
    assert_eq!(of(&tally, Kind::Throttle), [(UNKNOWN_PROCESSOR, 0, 5, 0)]);
}

#[test]
fn counters_of_several_gpus_are_counted_for_each_and_the_rest_for_none() {
    let mut tally = tally(&[]);
    let entries = |fault_entries| Counters { fault_entries, ..Counters::default() };
    let totals = Totals { gpus: vec![(1, entries(4)), (9, entries(3))], ..totals(None, entries(10)) };
    for _ in 0..2 {
        tally.complete(&totals, &KindCounts::default());
        let unknown = |gpu, events| (gpu, UNKNOWN_ACCESS, events, 0);
        assert_eq!(of(&tally, Kind::GpuFault), [unknown(1, 4), unknown(9, 3), unknown(UNKNOWN_PROCESSOR, 3)]);
    }
}

#[test]
fn faults_without_record_are_of_unknown_access_from_the_next_reading_on() {
    let fault = Record::GpuFault(gpu_fault(PAGE, 1, 1));
    let mut tally = counted(&[fault, fault]);
    let three = totals(Some(1), Counters { fault_entries: 3, ..Counters::default() });
    let three = Totals { kinds: kinds(&[(EventKind::GpuFault, 7)]), ..three };
    tally.complete(&three, &kinds(&[(EventKind::GpuFault, 5)]));
    assert_eq!(of(&tally, Kind::GpuFault), [(1, 1, 1, 2)]);
    for _ in 0..2 {
        tally.complete(&three, &kinds(&[(EventKind::GpuFault, 5)]));
        assert_eq!(of(&tally, Kind::GpuFault), [(1, 1, 1, 2), (1, UNKNOWN_ACCESS, 2, 5)]);
    }
}

#[test]
fn records_that_a_reading_left_are_not_counted_twice() {
    let mut tally = counted(&[]);
    let all = Totals { kinds: kinds(&[(EventKind::ThrottleStart, 1)]), ..totals(Some(1), Counters::default()) };
    tally.complete(&all, &KindCounts::default());
    tally.add(&Record::ThrottleStart(Throttle { processor: GPU, address: PAGE, time_ns: 1 }));
    tally.complete(&all, &KindCounts::default());
    assert_eq!(of(&tally, Kind::Throttle), [(1, 0, 1, 0)]);
}

#[test]
fn copies_under_way_are_not_yet_counted() {
    let mut tally = counted(&[]);
    tally.complete(&totals(Some(1), htod(65536)), &KindCounts::default());
    assert_eq!(of(&tally, Kind::CopyHtod), []);
    tally.add(&copy(MigrationCause::Coherence, CPU, GPU, 65536));
    tally.complete(&totals(Some(1), htod(65536)), &KindCounts::default());
    assert_eq!(of(&tally, Kind::CopyHtod), [(1, 0, 1, 65536)]);
}

#[test]
fn bytes_of_dropped_copies_are_of_unknown_cause_from_the_next_reading_on() {
    let mut tally = counted(&[]);
    let dropped = kinds(&[(EventKind::Migration, 1)]);
    tally.add(&copy(MigrationCause::Coherence, CPU, GPU, 4096));
    // One of 8192 bytes was dropped, one of 16384 is under way.
    let all = totals(Some(1), htod(4096 + 8192 + 16384));
    tally.complete(&all, &dropped);
    assert_eq!(of(&tally, Kind::CopyHtod), [(1, 0, 1, 4096)]);
    tally.add(&copy(MigrationCause::Coherence, CPU, GPU, 16384));
    tally.complete(&all, &dropped);
    assert_eq!(of(&tally, Kind::CopyHtod), [(1, 0, 2, 20480), (1, UNKNOWN_CAUSE, 0, 8192)]);
}

#[test]
fn last_reading_accounts_for_every_byte() {
    // A record that the driver had no memory for is not among the dropped ones.
    let mut tally = counted(&[copy(MigrationCause::Coherence, CPU, GPU, 4096)]);
    tally.finish(&totals(None, htod(12288)));
    assert_eq!(of(&tally, Kind::CopyHtod), [(1, 0, 1, 4096), (UNKNOWN_PROCESSOR, UNKNOWN_CAUSE, 0, 8192)]);
}

#[test]
fn no_sum_ever_decreases() {
    let mut tally = counted(&[copy(MigrationCause::Coherence, CPU, GPU, 4096)]);
    let dropped = kinds(&[(EventKind::Migration, 1)]);
    let mut before: HashMap<CountKey, Tally> = HashMap::new();
    // Totals that go back are not the driver's.
    for number in [40960, 40960, 0, u64::MAX, u64::MAX, 4096, 4096] {
        tally.add(&copy(MigrationCause::Prefetch, CPU, GPU, 4096));
        let all = Counters { bytes_htod: number, fault_entries: number, ..Counters::default() };
        tally.complete(&totals((number > 4096).then_some(1), all), &dropped);
        let now: HashMap<_, _> = tally.counts().collect();
        for (key, tally) in &before {
            let later = now.get(key).unwrap();
            assert!(later.events >= tally.events && later.amount >= tally.amount, "{key:?}");
        }
        before = now;
    }
}
