use abi::{BlockRecord, Kind, RecordKind};
use model::{Access, Blocks, Cause, Counters, GpuUuid, Owner, Process};

use super::{bounds::share, memory::busiest_max, *};
use crate::managed::Managed;

const PROCESS: ProcessId = ProcessId { pid: 100, start_ticks: 7 };
const OTHER: ProcessId = ProcessId { pid: 200, start_ticks: 8 };
const CARD: GpuUuid = GpuUuid([3; 16]);
const OTHER_CARD: GpuUuid = GpuUuid([5; 16]);
const RETENTION: Duration = Duration::from_mins(5);
const BLOCKS: BlockLimits = BlockLimits { of_process: 1000, of_all: 3000, ranges_of_all: 3000 };

fn ledger() -> Ledger {
    Ledger::new(Limits { retention: RETENTION, ended_max: 3, blocks: BLOCKS, owners: OwnerLimits::default() })
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn named(name: &str) -> Identity {
    Identity { name: name.to_owned(), uid: 1000, cgroup: None, owner: Owner::default(), started: None }
}

fn lost(events: u64) -> Losses {
    Losses { events, ..Losses::default() }
}

fn count(ledger: &mut Ledger, generation: Generation, gpu: u32, kind: Kind, detail: u16, events: u64, amount: u64) {
    ledger.count(CountKey { generation, gpu, kind: kind as u16, detail }, Tally { events, amount });
}

fn processes(ledger: &Ledger) -> Vec<Process> {
    ledger.totals(|_| None, |_| SystemTime::UNIX_EPOCH).0
}

fn totals(ledger: &Ledger) -> Counts {
    ledger.totals(|_| None, |_| SystemTime::UNIX_EPOCH).1
}

/// A process with a VA space that has seen so many CPU faults.
fn with_cpu_faults(ledger: &mut Ledger, process: ProcessId, generation: Generation, faults: u64) {
    ledger.registered(generation, process, named("app"));
    count(ledger, generation, 0, Kind::CpuFault, 0, faults, 0);
}

#[test]
fn each_kind_of_count_becomes_the_counter_that_it_is() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 9, Kind::GpuFault, 2, 10, 30);
    count(&mut ledger, 1, 9, Kind::GpuFaultDuplicate, 2, 1, 4);
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 5, 0);
    count(&mut ledger, 1, 0, Kind::CpuFault, 1, 6, 0);
    count(&mut ledger, 1, 9, Kind::CopyHtod, 0, 1, 4096);
    count(&mut ledger, 1, 9, Kind::CopyDtoh, 4, 1, 8192);
    count(&mut ledger, 1, 9, Kind::CopyDtod, 6, 1, 65536);

    let [process] = &processes(&ledger)[..] else { panic!() };
    let gpu = &process.gpus[&GpuKey::Pending(9)];
    // A fault on a page served already is a fault as any other.
    assert_eq!((gpu.fault_entries[Access::Write], gpu.fault_instances[Access::Write]), (11, 34));
    assert_eq!((gpu.fault_entries.total(), gpu.fault_instances.total()), (11, 34));
    assert_eq!((process.host.cpu_read_faults, process.host.cpu_write_faults), (5, 6));
    assert_eq!((gpu.bytes_htod[Cause::Fault], gpu.bytes_htod.total()), (4096, 4096));
    assert_eq!((gpu.bytes_dtoh[Cause::Eviction], gpu.bytes_dtoh.total()), (8192, 8192));
    assert_eq!((gpu.bytes_dtod[Cause::Api], gpu.bytes_dtod.total()), (65536, 65536));
    assert_eq!(process.gpus.len(), 1);
}

#[test]
fn the_drivers_nine_causes_fall_into_ours() {
    let causes: Vec<_> = (0..=9).map(cause).collect();
    let api = Cause::Api;
    assert_eq!(
        causes,
        [
            Cause::Fault,
            Cause::Fault,
            Cause::AccessCounter,
            Cause::TreePrefetch,
            Cause::Eviction,
            api,
            api,
            api,
            api,
            Cause::Other
        ]
    );
}

#[test]
fn counts_are_absolute_so_reading_twice_counts_once() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 5, 0);
    assert_eq!(processes(&ledger)[0].host.cpu_faults(), 5);
}

#[test]
fn several_va_spaces_of_a_process_sum_up() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    with_cpu_faults(&mut ledger, OTHER, 3, 5);
    let faults: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.host.cpu_faults())).collect();
    assert_eq!(faults, [(PROCESS, 7), (OTHER, 5)]);
    assert_eq!(totals(&ledger).host.cpu_faults(), 12);
}

#[test]
fn a_process_ends_with_its_last_va_space_and_keeps_its_counts() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    ledger.destroyed(1, Losses::default(), at(10));
    assert_eq!(processes(&ledger)[0].ended, None);
    ledger.destroyed(2, Losses::default(), at(20));
    assert_eq!(ledger.closing().len(), 2);
    // The last reading, and what follows it.
    count(&mut ledger, 2, 0, Kind::CpuFault, 0, 6, 0);
    ledger.close(1);
    ledger.close(2);
    assert!(ledger.closing().is_empty());
    let [process] = &processes(&ledger)[..] else { panic!() };
    assert_eq!((process.ended, process.host.cpu_faults()), (Some(at(20)), 9));
}

#[test]
fn a_process_that_opens_the_driver_again_has_not_ended() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    let [process] = &processes(&ledger)[..] else { panic!() };
    assert_eq!((process.ended, process.host.cpu_faults()), (None, 7));
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.destroyed(1, Losses::default(), at(10));
    let successor = ProcessId { start_ticks: 99, ..PROCESS };
    with_cpu_faults(&mut ledger, successor, 2, 4);
    let faults: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.host.cpu_faults())).collect();
    assert_eq!(faults, [(PROCESS, 3), (successor, 4)]);
}

#[test]
fn sums_never_go_back_when_a_process_is_forgotten() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    ledger.destroyed(1, lost(2), at(10));
    ledger.close(1);
    let before = totals(&ledger);
    assert_eq!(
        (before.host.cpu_faults(), before.gpus[&GpuKey::Unknown(1)].bytes_htod.total(), before.host.dropped_events),
        (3, 4096, 2)
    );

    ledger.forget(at(10) + RETENTION - Duration::from_secs(1));
    assert_eq!(processes(&ledger).len(), 1);
    ledger.forget(at(10) + RETENTION);
    assert_eq!(processes(&ledger), []);
    assert_eq!(totals(&ledger), before);
}

#[test]
fn of_too_many_ended_processes_the_oldest_are_forgotten() {
    let mut ledger = ledger();
    for number in 0..5 {
        let process = ProcessId { pid: 100 - number, start_ticks: 1 };
        with_cpu_faults(&mut ledger, process, number.into(), 1);
        ledger.destroyed(number.into(), Losses::default(), at(10 + u64::from(number)));
        ledger.close(number.into());
    }
    with_cpu_faults(&mut ledger, OTHER, 9, 1);
    ledger.forget(at(20));
    let pids: Vec<_> = processes(&ledger).iter().map(|process| process.id.pid).collect();
    assert_eq!(pids, [96, 97, 98, 200]);
    assert_eq!(totals(&ledger).host.cpu_faults(), 6);
}

#[test]
fn a_process_that_is_gone_has_ended_though_its_va_space_lives_on_in_other_hands() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    assert_eq!(ledger.present(), [PROCESS]);
    ledger.seen(PROCESS, Sighting::Gone, at(10));
    assert_eq!(ledger.present(), []);
    assert_eq!(processes(&ledger)[0].ended, Some(at(10)));
    // It is forgotten; what its VA space goes on to count is in the sums.
    ledger.forget(at(10) + RETENTION);
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 8, 0);
    assert_eq!(processes(&ledger), []);
    assert_eq!(totals(&ledger).host.cpu_faults(), 8);
    ledger.destroyed(1, Losses::default(), at(1000));
    ledger.close(1);
    assert_eq!(totals(&ledger).host.cpu_faults(), 8);
}

#[test]
fn what_proc_says_later_replaces_what_it_said_first() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("sh"));
    ledger.seen(PROCESS, Sighting::Here(named("python")), at(10));
    assert_eq!(processes(&ledger)[0].name, "python");
    assert_eq!(processes(&ledger)[0].ended, None);
}

#[test]
fn counts_that_come_before_the_record_of_their_va_space_find_their_process() {
    let mut ledger = ledger();
    count(&mut ledger, 1, 0, Kind::CpuFault, 1, 2, 0);
    assert_eq!(totals(&ledger).host.cpu_faults(), 2);
    ledger.registered(1, PROCESS, named("app"));
    assert_eq!(processes(&ledger)[0].host.cpu_faults(), 2);
    assert_eq!(totals(&ledger).host.cpu_faults(), 2);
}

#[test]
fn events_that_were_lost_for_want_of_room_show_at_their_process() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.lost(1, lost(2));
    assert_eq!(processes(&ledger)[0].total().dropped_events, 2);
    ledger.destroyed(1, lost(5), at(10));
    ledger.close(1);
    assert_eq!(processes(&ledger)[0].total().dropped_events, 5);
}

#[test]
fn when_the_driver_goes_every_process_ends_and_generations_may_come_again() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.close_all(Some(at(10)));
    assert_eq!(processes(&ledger)[0].ended, Some(at(10)));
    with_cpu_faults(&mut ledger, OTHER, 1, 4);
    let faults: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.host.cpu_faults())).collect();
    assert_eq!(faults, [(PROCESS, 3), (OTHER, 4)]);
}

#[test]
fn when_only_the_probes_go_processes_go_on() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.close_all(None);
    let [process] = &processes(&ledger)[..] else { panic!() };
    assert_eq!((process.ended, process.host.cpu_faults()), (None, 3));
}

/// The driver shows this GPU as processor 1, and the probes have been read before.
fn shown(ledger: &mut Ledger, uuid: GpuUuid) {
    ledger.shown(&Arc::new([(1, uuid)].into()));
}

/// Bytes copied to each GPU.
fn bytes(counts: &BTreeMap<GpuKey, Counters>) -> Vec<(GpuKey, u64)> {
    counts.iter().map(|(key, counters)| (*key, counters.bytes_htod.total())).collect()
}

#[test]
fn what_a_gpu_counted_stays_with_it_when_the_driver_gives_its_id_to_another() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("first"));
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    shown(&mut ledger, CARD);
    ledger.destroyed(1, Losses::default(), at(10));
    // The last reading may come after the id has changed hands.
    shown(&mut ledger, OTHER_CARD);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 2, 8192);
    ledger.close(1);
    ledger.registered(2, OTHER, named("second"));
    count(&mut ledger, 2, 1, Kind::CopyHtod, 0, 1, 65536);
    shown(&mut ledger, OTHER_CARD);

    let [first, second] = &processes(&ledger)[..] else { panic!() };
    assert_eq!(bytes(&first.gpus), [(GpuKey::Known(CARD), 8192)]);
    assert_eq!(bytes(&second.gpus), [(GpuKey::Known(OTHER_CARD), 65536)]);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Known(CARD), 8192), (GpuKey::Known(OTHER_CARD), 65536)]);
}

#[test]
fn a_short_life_is_not_counted_on_a_gpu_that_took_the_id_after_it() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("short"));
    ledger.destroyed(1, Losses::default(), at(10));
    shown(&mut ledger, OTHER_CARD);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    ledger.close(1);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Unknown(1), 4096)]);
}

#[test]
fn counts_under_a_bare_id_move_to_their_gpu_once_it_is_known() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Pending(1), 4096)]);
    shown(&mut ledger, CARD);
    assert_eq!(bytes(&totals(&ledger).gpus), [(GpuKey::Known(CARD), 4096)]);
    assert_eq!(bytes(&processes(&ledger)[0].gpus), [(GpuKey::Known(CARD), 4096)]);
}

#[test]
fn several_va_spaces_on_one_gpu_sum_up_though_it_had_another_id_for_each() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    shown(&mut ledger, CARD);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    count(&mut ledger, 2, 2, Kind::CopyHtod, 0, 1, 8192);
    ledger.shown(&Arc::new([(1, OTHER_CARD), (2, CARD)].into()));
    assert_eq!(bytes(&processes(&ledger)[0].gpus), [(GpuKey::Known(CARD), 12288)]);
}

#[test]
fn a_process_that_cannot_be_looked_at_has_not_ended() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.seen(PROCESS, Sighting::Unknown, at(10));
    assert_eq!(processes(&ledger)[0].ended, None);
    assert_eq!(ledger.present(), [PROCESS]);
}

#[test]
fn a_process_that_lives_on_without_a_va_space_is_kept_until_it_is_gone() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    ledger.seen(PROCESS, Sighting::Here(named("app")), at(11));
    // Not being able to look once does not unsay it.
    ledger.seen(PROCESS, Sighting::Unknown, at(12));
    ledger.forget(at(10) + 2 * RETENTION);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    assert_eq!(processes(&ledger)[0].host.cpu_faults(), 7);

    ledger.destroyed(2, Losses::default(), at(2000));
    ledger.close(2);
    ledger.seen(PROCESS, Sighting::Gone, at(2001));
    ledger.forget(at(2000) + RETENTION);
    assert_eq!(processes(&ledger), []);
}

#[test]
fn the_start_of_a_process_does_not_move_when_the_clock_is_set() {
    let mut ledger = ledger();
    let started = |seconds| Identity { started: Some(at(seconds)), ..named("app") };
    ledger.registered(1, PROCESS, started(5));
    ledger.registered(2, PROCESS, started(3600));
    ledger.seen(PROCESS, Sighting::Here(named("renamed")), at(10));
    assert_eq!(processes(&ledger)[0].started, Some(at(5)));
}

#[test]
fn counts_that_turn_out_to_be_wrong_are_dropped_and_earlier_ones_kept() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 5, 0);
    ledger.destroyed(1, Losses::default(), SystemTime::UNIX_EPOCH);
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    count(&mut ledger, 2, 0, Kind::CpuFault, 0, 1000, 0);
    assert_eq!(ledger.open(), [2]);
    ledger.discard();
    assert_eq!(processes(&ledger)[0].host.cpu_read_faults, 5);
    ledger.close_all(None);
    assert_eq!(processes(&ledger)[0].host.cpu_read_faults, 5);
}

#[test]
fn a_batch_of_two_processes_is_one_of_each_and_one_of_the_gpu() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    ledger.registered(2, OTHER, named("other"));
    for generation in [1, 2] {
        count(&mut ledger, generation, 1, Kind::BatchEntries, 10, 1, 10);
        count(&mut ledger, generation, 1, Kind::Replay, 0, 1, 0);
    }
    // What the GPU did is kept under one of those that it served.
    count(&mut ledger, 2, 1, Kind::GpuBatchEntries, 20, 1, 20);
    count(&mut ledger, 2, 1, Kind::GpuReplay, 0, 3, 0);
    count(&mut ledger, 2, 1, Kind::HandlerNs, 30, 1, 5000);
    let expect = |ledger: &Ledger| {
        for process in processes(ledger) {
            let total = process.total();
            assert_eq!((total.batches.entries.count(), total.batches.entries.sum(), total.replays), (1, 10, 1));
            assert_eq!(total.handler_ns.count(), 0);
        }
        let gpu: Counters = totals(ledger).gpus.values().sum();
        assert_eq!((gpu.batches.entries.count(), gpu.batches.entries.sum(), gpu.replays), (1, 20, 3));
        assert_eq!(gpu.handler_ns.sum(), 5000);
    };
    expect(&ledger);
    ledger.destroyed(2, Losses::default(), at(10));
    ledger.close(2);
    expect(&ledger);
}

#[test]
fn what_no_va_space_was_there_for_is_the_gpus_and_never_ends() {
    let mut ledger = ledger();
    count(&mut ledger, NOBODYS, 1, Kind::GpuReplay, 0, 2, 0);
    assert_eq!(ledger.open(), [0; 0]);
    let gpu: Counters = totals(&ledger).gpus.values().sum();
    assert_eq!(gpu.replays, 2);
}

#[test]
fn what_a_tool_asked_for_and_what_the_application_did_are_two_things() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 0, Kind::ApiCall, 0, 2, 8192);
    count(&mut ledger, 1, 0, Kind::ToolCall, 0, 1, 4096);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 6, 2, 8192);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 6 | abi::count::ASKED_BY_TOOL, 1, 4096);
    let total = processes(&ledger)[0].total();
    assert_eq!((total.api_calls.total(), total.api_bytes.total()), (2, 8192));
    assert_eq!((total.tool_calls.total(), total.tool_bytes.total()), (1, 4096));
    assert_eq!((total.bytes_htod[Cause::Api], total.bytes_htod[Cause::Tool]), (8192, 4096));
}

#[test]
fn block_records_are_the_processs_and_their_losses_are_not_lost_events() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    let record = BlockRecord {
        generation: 1,
        address: 6 << 20,
        events: 4,
        gpu: 1,
        kind: RecordKind::GpuFaults as u16,
        ..BlockRecord::default()
    };
    ledger.happened(&record);
    ledger.happened(&BlockRecord { generation: 9, ..record });
    let records =
        |sampled_out, dropped| Losses { records: RecordLosses { sampled_out, dropped, untold: 0 }, events: 0 };
    ledger.lost(1, records(5, 0));
    ledger.destroyed(1, records(7, 2), at(10));
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    ledger.lost(2, records(1, 1));
    let process = &processes(&ledger)[0];
    assert_eq!(process.total().dropped_events, 0);
    let Blocks { busiest, sampled_out_records, dropped_records, .. } = &process.blocks;
    assert_eq!((busiest.len(), busiest[0].fault_entries), (1, 4));
    assert_eq!((*sampled_out_records, *dropped_records), (8, 3));
}

#[test]
fn what_is_resident_is_in_doubt_only_where_no_record_tells_of_its_changes() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    let record = BlockRecord {
        boottime_ns: 5,
        generation: 1,
        address: 6 << 20,
        gpu: 1,
        kind: RecordKind::Residency as u16,
        resident_pages: 512,
        ..BlockRecord::default()
    };
    ledger.happened(&record);
    let bounds = |ledger: &Ledger| {
        let residency = &processes(ledger)[0].residency;
        residency.values().map(|told| (told.bytes, told.min_bytes, told.max_bytes)).collect::<Vec<_>>()
    };
    let losses = |untold| Losses { records: RecordLosses { sampled_out: 9, dropped: 4, untold }, events: 0 };
    ledger.lost_by(1, losses(0), 10);
    assert_eq!(bounds(&ledger), [(2 << 20, 2 << 20, 2 << 20)]);
    ledger.lost_by(1, losses(1), 10);
    assert_eq!(bounds(&ledger), [(2 << 20, 0, u64::MAX)]);
    // What is told later is certain again.
    ledger.lost_by(1, losses(1), 20);
    ledger.happened(&BlockRecord { boottime_ns: 11, resident_pages: 256, ..record });
    assert_eq!(bounds(&ledger), [(1 << 20, 1 << 20, u64::MAX)]);
    // Nor is anything certain where the kernel skipped a probe.
    ledger.lost_by_all(30);
    assert_eq!(bounds(&ledger), [(1 << 20, 0, u64::MAX)]);
}

#[test]
fn all_blocks_together_are_bounded_and_who_has_most_makes_room() {
    let mut ledger = ledger();
    for (generation, blocks) in [(1, 900), (2, 1500), (3, 1000), (4, 200)] {
        let id = ProcessId { pid: u32::try_from(generation).unwrap(), start_ticks: 1 };
        ledger.registered(generation, id, named("app"));
        for block in 0..blocks {
            let record = BlockRecord { generation, address: block << 21, events: 1, ..BlockRecord::default() };
            ledger.happened(&record);
        }
    }
    ledger.bound_blocks();
    let blocks: Vec<_> =
        processes(&ledger).iter().map(|process| (process.blocks.known, process.blocks.forgotten)).collect();
    // 2625 are left: of 200 and 808 each.
    assert_eq!(blocks, [(808, 92), (808, 692), (808, 192), (200, 0)]);
}

#[test]
fn of_very_many_processes_a_snapshot_holds_fewer_blocks_each() {
    assert_eq!([0, 1, 128, 512, 2000, 1_000_000].map(busiest_max), [64, 64, 64, 16, 8, 8]);
}

#[test]
fn who_has_more_ranges_than_its_share_has_neighbours_taken_together_and_gets_them_back_when_there_is_room() {
    let mut ledger = ledger();
    let managed = |mappings: u64| Managed {
        bytes: 0,
        ranges: (0..mappings).map(|at| at << 22..(at << 22) + 1).collect(),
        mappings: usize::try_from(mappings).unwrap(),
        read_ns: 1,
    };
    let processes_with = [(1, 2500), (2, 100), (3, 5000)];
    for (pid, mappings) in processes_with {
        let process = ProcessId { pid, start_ticks: 1 };
        ledger.registered(pid.into(), process, named("app"));
        assert!(ledger.manages(process, &managed(mappings)));
        assert!(!ledger.manages(process, &managed(mappings)));
    }
    let known = |ledger: &Ledger| processes(ledger).iter().map(|process| process.ranges.known).collect::<Vec<_>>();
    assert_eq!(ledger.bound_ranges(), 1450);
    assert_eq!(known(&ledger), [1250, 100, 1250]);
    assert_eq!(processes(&ledger)[2].ranges.mappings, 5000);
    // Whoever reads them takes together what is not kept in any case.
    ledger.manages(ProcessId { pid: 3, start_ticks: 1 }, &managed(10));
    assert_eq!(ledger.bound_ranges(), RANGES_MAX);
    ledger.manages(ProcessId { pid: 1, start_ticks: 1 }, &managed(2500));
    assert_eq!(known(&ledger), [2500, 100, 10]);
}

#[test]
fn who_has_less_than_a_share_leaves_the_rest_to_the_others() {
    assert_eq!(share(vec![10, 1, 10], 15), 7);
    assert_eq!(share(vec![4, 4, 4], 2), 0);
    assert_eq!(share(vec![1, 2, 3], 100), usize::MAX);
    assert_eq!(share(Vec::new(), 0), usize::MAX);
}

#[test]
fn what_comes_back_is_summed_up_for_each_gpu_and_outlives_the_blocks() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    let mut copy = |kind: RecordKind, block: u64, cause| {
        let record = BlockRecord {
            boottime_ns: block,
            generation: 1,
            address: block << 21,
            bytes: 65536,
            events: 1,
            gpu: 1,
            kind: kind as u16,
            cause,
            ..BlockRecord::default()
        };
        ledger.happened(&record);
    };
    for block in 0..5000 {
        copy(RecordKind::CopyHtod, block, 0);
        copy(RecordKind::CopyDtoh, block, 4);
        copy(RecordKind::CopyHtod, block, 0);
    }
    let process = &processes(&ledger)[0];
    assert!(process.blocks.forgotten >= 4000);
    let reuse = &process.reuse[&GpuKey::Pending(1)];
    assert_eq!((reuse.fetched_bytes, reuse.refetched_bytes), (10_000 * 65536, 5000 * 65536));
}

fn pushed_out(ledger: &mut Ledger, victim: Generation, evictor: Generation, events: u64, amount: u64) {
    ledger.pushed_out(EvictionKey { victim, evictor, gpu: 1, cause: 0 }, Tally { events, amount });
}

/// The parties and the GPU of each pair, and what was pushed out.
fn pairs(ledger: &Ledger) -> Vec<(Party, Party, GpuKey, u64, u64)> {
    let pairs = ledger.evictions().into_iter();
    pairs.map(|pair| (pair.victim, pair.evictor, pair.gpu, pair.evictions, pair.bytes)).collect()
}

#[test]
fn who_pushed_whose_memory_out_stays_when_either_ends_and_when_either_is_forgotten() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("victim"));
    ledger.registered(2, OTHER, named("evictor"));
    shown(&mut ledger, CARD);
    pushed_out(&mut ledger, 1, 2, 3, 4096);
    pushed_out(&mut ledger, 1, 0, 1, 0);
    let (victim, evictor, card) = (Party::Process(PROCESS), Party::Process(OTHER), GpuKey::Known(CARD));
    assert_eq!(
        pairs(&ledger),
        [(victim, evictor, GpuKey::Pending(1), 3, 4096), (victim, Party::Unknown, GpuKey::Pending(1), 1, 0)]
    );
    // The victim knows the GPU by now.
    shown(&mut ledger, CARD);
    ledger.destroyed(2, Losses::default(), at(10));
    ledger.close(2);
    let known = [(victim, evictor, card, 3, 4096), (victim, Party::Unknown, card, 1, 0)];
    assert_eq!(pairs(&ledger), known);
    ledger.destroyed(1, Losses::default(), at(20));
    ledger.close(1);
    assert_eq!(pairs(&ledger), known);
    ledger.seen(OTHER, Sighting::Gone, at(20));
    ledger.forget(at(10) + RETENTION);
    assert_eq!(pairs(&ledger), [(victim, Party::Forgotten, card, 3, 4096), (victim, Party::Unknown, card, 1, 0)]);
}

#[test]
fn pairs_that_turn_out_to_be_wrong_are_dropped_with_the_counts() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    pushed_out(&mut ledger, 1, 1, 3, 4096);
    ledger.discard();
    ledger.close_all(None);
    assert_eq!(pairs(&ledger), []);
}
