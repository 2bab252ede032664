use gpu::swgpu::HardwareCounters;

use super::*;
use crate::{
    figures::EVICTIONS,
    residency::Residency,
    sys::ledger::{Ledger, Taken, Taker},
    truth::procfs::{GpuStats, Thrashing},
};

const COUNTERS: ProcessCounters = ProcessCounters {
    fault_entries: 10,
    cpu_faults: 2,
    bytes_htod: 65536,
    bytes_dtoh: 8192,
    thrashing_pages: 1,
    throttles: 3,
};

fn counted() -> Counted {
    let driver = GpuStats {
        replayable_faults: 30,
        duplicates: 12,
        replays: 9,
        pages_in: 32,
        pages_out: 4,
        fault_pages_in: 32,
        fault_pages_out: 1,
        ..GpuStats::default()
    };
    let access =
        AccessCounters { remote_htod_millibytes: 64_000, remote_dtoh_millibytes: 499, ..AccessCounters::default() };
    let hardware = HardwareCounters {
        fault_packets: 33,
        copied_htod_bytes: 131_072,
        copied_dtoh_bytes: 16384,
        access,
        ..HardwareCounters::default()
    };
    Counted { driver, hardware, thrashing: Thrashing { pages: 2, throttles: 5 }, ledger: Ledger::new() }
}

fn process() -> ProcessFacts {
    let access = AccessCounters { remote_htod_millibytes: 32_000, ..AccessCounters::default() };
    let residency = Residency { gpu_bytes: vec![98_304, 0], cpu_bytes: 4096, ..Residency::default() };
    ProcessFacts {
        pid: Some(7),
        ended: false,
        residency: Some(vec![residency]),
        counters: Some(COUNTERS),
        accesses: Some(vec![access]),
        calls: Some([(0, 0); Call::KINDS]),
    }
}

fn known(truth: &Truth, fields: &[&Field]) -> Vec<Option<u64>> {
    fields.iter().map(|field| truth.figures.get(field)).collect()
}

#[test]
fn the_total_is_what_the_driver_counted_for_all() {
    let truth = total_truth(&[counted()], &[process(), process()]);
    let fields =
        [&FAULT_ENTRIES, &FAULT_INSTANCES, &CPU_FAULTS, &BYTES_HTOD, &BYTES_DTOH, &EVICTED_BYTES, &FAULT_BYTES_OUT];
    assert_eq!(known(&truth, &fields), [20, 30, 4, 131_072, 16384, 3 * 4096, 4096].map(Some));
    let links = [&REMOTE_BYTES, &LINK_BYTES_HTOD, &LINK_BYTES_DTOH, &LINK_BYTES_DTOD];
    assert_eq!(known(&truth, &links), [64, 131_072 + 64, 16384, 0].map(Some));
    let others = [&REPLAYS, &POPULATED_BYTES];
    assert_eq!(known(&truth, &others), [9, 2 * 98_304 + 16384 - 131_072].map(Some));
    assert!(truth.bounds.is_empty());
    assert_eq!(truth.waived.keys().collect::<Vec<_>>(), [&"evictions"], "a fault took a page back");
}

/// Counts in which process 7 lost 3 pages to itself and 2 to process 8, and nothing else left the
/// GPU.
fn evicting() -> Counted {
    let mut gpu = counted();
    (gpu.driver.pages_out, gpu.driver.fault_pages_out) = (5, 0);
    let taken = |frames, pages: u64| Taken { frames, copied_out_bytes: pages * 4096 };
    gpu.ledger =
        Ledger::from([((7, Taker::Managed { pid: 7 }), taken(1, 3)), ((7, Taker::Unmanaged { pid: 8 }), taken(2, 2))]);
    gpu
}

#[test]
fn the_ledger_gives_victims_and_takers_if_only_evictions_took_memory_from_a_gpu() {
    let processes = [process(), ProcessFacts { pid: Some(8), ..process() }];
    let fields = [&EVICTED_BYTES, &EVICTED_BYTES_CAUSED, &EVICTIONS];
    let of = |gpu: &Counted, at: usize| process_truth(std::slice::from_ref(gpu), &processes, &processes[at]);
    assert_eq!(known(&of(&evicting(), 0), &fields), [5 * 4096, 3 * 4096, 3].map(Some));
    assert_eq!(known(&of(&evicting(), 1), &fields), [0, 2 * 4096, 0].map(Some));
    assert_eq!(known(&total_truth(&[evicting()], &processes), &fields), [5 * 4096, 5 * 4096, 3].map(Some));
    let mut incomplete = evicting();
    incomplete.driver.pages_out = 6;
    let mut with_fault_migration = evicting();
    with_fault_migration.driver.fault_pages_out = 1;
    for gpu in [incomplete, with_fault_migration] {
        let truth = of(&gpu, 0);
        assert_eq!(known(&truth, &fields), [None; 3]);
        assert!(fields.iter().all(|field| truth.waived.contains_key(field.name)));
    }
}

#[test]
fn frames_taken_for_page_tables_have_no_evictor() {
    let mut gpu = evicting();
    let pages = gpu.ledger.remove(&(7, Taker::Managed { pid: 7 })).unwrap();
    gpu.ledger.insert((7, Taker::Driver), pages);
    let truth = process_truth(&[gpu], &[process()], &process());
    assert_eq!(known(&truth, &[&EVICTED_BYTES, &EVICTED_BYTES_CAUSED]), [Some(5 * 4096), None]);
}

#[test]
fn after_the_end_of_a_process_replays_are_a_bound_and_its_residency_is_unknown() {
    let ended = ProcessFacts { ended: true, residency: None, ..process() };
    let truth = total_truth(&[counted()], &[process(), ended]);
    assert_eq!(truth.bounds.get("replays").map(|(relation, _)| *relation), Some(Relation::AtMost));
    assert!(truth.waived.contains_key("populated_bytes"));
}

#[test]
fn population_is_residency_less_the_balance_of_copies() {
    let truth = process_truth(&[counted()], &[process()], &process());
    assert_eq!(known(&truth, &[&POPULATED_BYTES]), [Some(98_304 + 8192 - 65536)]);
    let mut duplicating = process();
    duplicating.calls = Some([(1, 4096); Call::KINDS]);
    let truth = process_truth(&[counted()], &[], &duplicating);
    assert!(truth.waived.contains_key("populated_bytes"));
}

#[test]
fn copies_between_gpus_are_neither_to_nor_from_the_host() {
    let (mut one, mut other) = (counted(), counted());
    // One page went from the first GPU to the second, by the first's engine, and two came back, by
    // the first's too.
    one.hardware.copied_to_peer_bytes = 4096;
    one.hardware.copied_from_peer_bytes = 8192;
    (one.driver.pages_in, one.driver.pages_out) = (32 + 2, 4 + 1);
    (other.driver.pages_in, other.driver.pages_out) = (32 + 1, 4 + 2);
    let gpus = [one, other];
    let processes: Vec<ProcessFacts> = (0..4).map(|_| process()).collect();
    let total = total_truth(&gpus, &processes);
    assert_eq!(known(&total, &[&BYTES_HTOD, &BYTES_DTOH, &BYTES_DTOD]), [2 * 131_072, 2 * 16384, 12288].map(Some));
    let second = gpu_truth(&gpus, 1, &processes);
    assert_eq!(known(&second, &[&BYTES_HTOD, &BYTES_DTOH, &BYTES_DTOD]), [131_072, 16384, 4096].map(Some));
    assert!(inconsistencies(&gpus, &processes).is_empty());
}

#[test]
fn evictions_are_unknown_if_an_application_moved_memory() {
    let mut mover = process();
    mover.calls = Some([(1, 4096); Call::KINDS]);
    let truth = total_truth(&[counted()], &[process(), mover]);
    assert_eq!(known(&truth, &[&EVICTED_BYTES, &CALLS[0], &CALL_BYTES[0]]), [None, Some(1), Some(4096)]);
    assert!(truth.waived.contains_key("evicted_bytes") && truth.waived.contains_key("induced_eviction_bytes"));
}

#[test]
fn without_one_processs_counters_their_sums_are_unknown() {
    let silent = ProcessFacts { counters: None, ..process() };
    let truth = total_truth(&[counted()], &[process(), silent]);
    assert_eq!(known(&truth, &[&FAULT_ENTRIES, &CPU_FAULTS, &FAULT_INSTANCES]), [None, None, Some(30)]);
    assert!(truth.waived.contains_key("fault_entries"));
}

#[test]
fn a_killed_process_has_the_drivers_figures_and_not_its_own() {
    let killed = ProcessFacts { accesses: None, calls: None, ..process() };
    let truth = process_truth(&[counted()], &[], &killed);
    assert_eq!(known(&truth, &[&FAULT_ENTRIES, &BYTES_DTOH, &REMOTE_BYTES]), [Some(10), Some(8192), None]);
    assert!(truth.waived.contains_key("api_calls.prefetch"));
}

#[test]
fn truth_from_two_sources_must_agree() {
    let processes = [process(), process()];
    assert_eq!(inconsistencies(&[counted()], &processes), [""; 0]);
    let wrong = |change: fn(&mut Counted)| {
        let mut counted = counted();
        change(&mut counted);
        inconsistencies(&[counted], &processes).join("\n")
    };
    assert!(wrong(|gpu| gpu.driver.pages_in = 31).contains("processes' sum is 131072"));
    assert!(wrong(|gpu| gpu.driver.pages_out = 5).contains("processes' sum is 16384"));
    assert!(wrong(|gpu| gpu.hardware.copied_htod_bytes = 4096).contains("copy engines moved 4096"));
    assert!(wrong(|gpu| gpu.hardware.copied_dtoh_bytes = 4096).contains("copy engines moved 4096"));
    assert!(wrong(|gpu| gpu.hardware.fault_packets = 29).contains("the GPUs raised 29"));
    assert!(wrong(|gpu| gpu.driver.duplicates = 9).contains("20 fault entries, but from 21 to 30"));
    assert!(wrong(|gpu| gpu.hardware.unknown_methods = 1).contains("methods it does not know"));
    assert!(wrong(|gpu| gpu.hardware.errors = 2).contains("met 2 errors"));
}

/// Counts of [`counted`] by a driver from 580 on.
fn without_prefetched() -> Counted {
    let mut gpu = counted();
    (gpu.driver.fault_pages_in, gpu.driver.omits_prefetched) = (2, true);
    gpu
}

#[test]
fn without_prefetched_pages_in_the_statistics_all_that_came_came_by_faults() {
    let truth = total_truth(&[without_prefetched()], &[process()]);
    assert_eq!(known(&truth, &[&FAULT_BYTES_IN]), [Some(32 * 4096)]);
    assert_eq!(
        truth.bounds.keys().collect::<Vec<_>>(),
        [&"evicted_bytes", &"fault_bytes_out", &"induced_eviction_bytes"]
    );
}

#[test]
fn without_prefetched_pages_in_the_statistics_evictions_are_exact_if_no_fault_took_memory_from_a_gpu() {
    let mut gpu = without_prefetched();
    gpu.driver.fault_pages_out = 0;
    let truth = total_truth(std::slice::from_ref(&gpu), &[process()]);
    assert_eq!(known(&truth, &[&FAULT_BYTES_OUT, &EVICTED_BYTES]), [Some(0), Some(4 * 4096)]);
    assert!(truth.bounds.is_empty());
}

#[test]
fn without_prefetched_pages_in_the_statistics_calls_leave_a_lower_bound() {
    let mut calls = [(0, 0); Call::KINDS];
    calls[0] = (1, 4096);
    let truth = total_truth(&[without_prefetched()], &[ProcessFacts { calls: Some(calls), ..process() }]);
    assert_eq!(known(&truth, &[&FAULT_BYTES_IN]), [Some(2 * 4096)]);
    assert_eq!(truth.bounds.get(FAULT_BYTES_IN.name).map(|bound| bound.0), Some(Relation::AtLeast));
}
