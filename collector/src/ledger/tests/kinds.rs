//! Counters of each kind of count.

use super::*;

#[test]
fn each_kind_of_count_has_its_counter() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 9, Kind::GpuFault, 2, 10, 30);
    count(&mut ledger, 1, 9, Kind::GpuFaultDuplicate, 2, 1, 4);
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 5, 0);
    count(&mut ledger, 1, 0, Kind::CpuFault, 1, 6, 0);
    count(&mut ledger, 1, 0, Kind::FreedBlock, 0, 7, 0);
    count(&mut ledger, 1, 0, Kind::SitelessCpuFault, 0, 8, 4096);
    count(&mut ledger, 1, 9, Kind::CopyHtod, 0, 1, 4096);
    count(&mut ledger, 1, 9, Kind::CopyDtoh, 4, 1, 8192);
    count(&mut ledger, 1, 9, Kind::CopyDtod, 6, 1, 65536);

    let [process] = &processes(&ledger)[..] else { panic!() };
    let gpu = &process.gpus[&GpuKey::Pending(9)];
    // A duplicate fault counts like any other.
    assert_eq!((gpu.fault_entries[Access::Write], gpu.fault_instances[Access::Write]), (11, 34));
    assert_eq!((gpu.fault_entries.total(), gpu.fault_instances.total()), (11, 34));
    assert_eq!((process.host.cpu_read_faults, process.host.cpu_write_faults), (5, 6));
    assert_eq!(process.host.freed_blocks, 7);
    assert_eq!((process.host.siteless_cpu_faults, process.host.siteless_bytes_dtoh), (8, 4096));
    assert_eq!((gpu.bytes_htod[Cause::Fault], gpu.bytes_htod.total()), (4096, 4096));
    assert_eq!((gpu.bytes_dtoh[Cause::Eviction], gpu.bytes_dtoh.total()), (8192, 8192));
    assert_eq!((gpu.bytes_dtod[Cause::Api], gpu.bytes_dtod.total()), (65536, 65536));
    assert_eq!(process.gpus.len(), 1);
}

#[test]
fn causes_of_the_driver_map_to_those_of_the_model() {
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
fn batch_of_two_processes_counts_once_for_each_and_once_for_the_gpu() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    ledger.registered(2, OTHER, named("other"));
    for generation in [1, 2] {
        count(&mut ledger, generation, 1, Kind::BatchEntries, 10, 1, 10);
        count(&mut ledger, generation, 1, Kind::Replay, 0, 1, 0);
    }
    // Counts of the GPU are stored under one of the VA spaces that it serviced.
    count(&mut ledger, 2, 1, Kind::GpuBatchEntries, 20, 1, 20);
    count(&mut ledger, 2, 1, Kind::GpuReplay, 0, 3, 0);
    count(&mut ledger, 2, 1, Kind::HandlerNs, 30, 1, 5000);
    let expect = |ledger: &Ledger| {
        for process in processes(ledger) {
            let total = process.total();
            assert_eq!((total.batches.entries.count(), total.batches.entries.sum(), total.replays), (1, 10, 1));
            assert_eq!(total.fault_handler_duration_ns.count(), 0);
        }
        let gpu: Counters = totals(ledger).gpus.values().sum();
        assert_eq!((gpu.batches.entries.count(), gpu.batches.entries.sum(), gpu.replays), (1, 20, 3));
        assert_eq!(gpu.fault_handler_duration_ns.sum(), 5000);
    };
    expect(&ledger);
    ledger.destroyed(2, Losses::default(), at(10));
    ledger.close(2);
    expect(&ledger);
}

#[test]
fn counts_without_a_va_space_belong_to_the_gpu() {
    let mut ledger = ledger();
    count(&mut ledger, NO_SPACE, 1, Kind::GpuReplay, 0, 2, 0);
    assert_eq!(ledger.open(), [0; 0]);
    let gpu: Counters = totals(&ledger).gpus.values().sum();
    assert_eq!(gpu.replays, 2);
}

#[test]
fn moves_of_ordinary_memory_count_at_their_destination_and_for_no_process() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, NO_SPACE, 9, Kind::HmmMove, 0, 3, 0);
    count(&mut ledger, NO_SPACE, 0, Kind::HmmMove, 0, 2, 0);
    let totals = totals(&ledger);
    assert_eq!(totals.gpus.values().sum::<Counters>().hmm_moves, 3);
    assert_eq!(totals.host.hmm_moves, 2);
    assert_eq!(processes(&ledger)[0].total().hmm_moves, 0);
}

#[test]
fn calls_of_tools_and_of_the_application_are_separate() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 0, Kind::ApiCall, 0, 2, 8192);
    count(&mut ledger, 1, 0, Kind::ToolCall, 0, 1, 4096);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 6, 2, 8192);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 6 | abi::count::REQUESTED_BY_TOOL, 1, 4096);
    let total = processes(&ledger)[0].total();
    assert_eq!((total.api_calls.total(), total.api_bytes.total()), (2, 8192));
    assert_eq!((total.tool_calls.total(), total.tool_bytes.total()), (1, 4096));
    assert_eq!((total.bytes_htod[Cause::Api], total.bytes_htod[Cause::Tool]), (8192, 4096));
}
