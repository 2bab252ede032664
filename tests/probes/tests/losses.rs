//! Dropped events are counted with the reason.

use abi::{DropReason, Kind, LifecycleKind, quota::SPACES_CAPACITY};
use probes_test::{
    bench::{Bench, GpuFault, Migration},
    driver,
};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;

#[test]
fn events_of_an_earlier_va_space_are_dropped() {
    let Some(bench) = Bench::new(FAMILY) else { return };
    let space = bench.space(SPACE);
    bench.cpu_fault(&space, 0);
    bench.gpu_fault(&space, &GpuFault::default(), |entry| entry);
    bench.migration(&space, &Migration::default());
    assert_eq!(bench.lost(), [(DropReason::UnknownVaSpace, 3)]);
    assert_eq!(bench.keys(), 0);
}

#[test]
fn events_dropped_from_full_counts_are_also_reported_at_their_va_space() {
    let Some(mut bench) = Bench::with_capacity(FAMILY, 4) else { return };
    let (space, record) = bench.register(SPACE);
    let (other, other_record) = bench.register(SPACE + 4096);
    for access in 0..=3 {
        bench.gpu_fault(&space, &GpuFault { access, ..GpuFault::default() }, |entry| entry);
    }
    // Full: new keys are dropped, existing ones are counted.
    bench.cpu_fault(&space, 0);
    bench.cpu_fault(&space, 0);
    bench.cpu_fault(&other, 1);
    bench.gpu_fault(&space, &GpuFault { access: 3, ..GpuFault::default() }, |entry| entry);
    assert_eq!(bench.lost(), [(DropReason::CountsFull, 3)]);
    assert_eq!(bench.counts(record.generation)[&(1, Kind::GpuFault, 3)], (2, 2));

    let lost: std::collections::HashMap<_, _> =
        bench.probes().spaces().unwrap().iter().map(|space| (space.generation, space.dropped_events)).collect();
    assert_eq!(lost, [(record.generation, 2), (other_record.generation, 1)].into());
    driver::destroy(SPACE, || {});
    assert_eq!(bench.probes().lifecycles()[0].dropped_events, 2);
}

#[test]
fn released_entries_can_be_reused() {
    let Some(mut bench) = Bench::with_capacity(FAMILY, 4) else { return };
    let (space, _) = bench.register(SPACE);
    for access in 0..=3 {
        bench.gpu_fault(&space, &GpuFault { access, ..GpuFault::default() }, |entry| entry);
    }
    for (key, _) in bench.probes().counts().unwrap() {
        bench.probes().forget(&key).unwrap();
    }
    let (space, record) = bench.register(SPACE + 4096);
    bench.cpu_fault(&space, 1);
    // A key's place is reused clean.
    assert_eq!(bench.counts(record.generation), [((0, Kind::CpuFault, 1), (1, 0))].into());
    assert_eq!(bench.lost(), []);
}

#[test]
fn events_with_unreadable_memory_are_dropped() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    let nowhere = 8;
    let fault = bench.family().event("FAULT");
    driver::event_notify(space.events.as_ptr() as u64, fault, nowhere);
    driver::event_notify(nowhere, fault, nowhere);
    // The entry that a fault points to.
    let data = bench.family().image("evd.size").with("fault.proc_id", 1u32.to_ne_bytes());
    bench.notify(&space, "FAULT", &data);
    assert_eq!(bench.lost(), [(DropReason::Unreadable, 3)]);
    assert_eq!(bench.keys(), 0);
}

#[test]
fn va_spaces_beyond_the_capacity_are_dropped() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    for number in 0..u64::from(SPACES_CAPACITY) {
        bench.register(SPACE + number * 4096);
    }
    driver::mm_register(SPACE - 4096);
    assert_eq!(bench.probes().lifecycles(), []);
    bench.cpu_fault(&bench.space(SPACE - 4096), 0);
    assert_eq!(bench.lost(), [(DropReason::UnknownVaSpace, 1), (DropReason::SpacesFull, 1)]);
}

#[test]
fn lifecycle_records_beyond_the_ring_are_dropped() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let spaces = 12_000;
    for _ in 0..spaces {
        driver::mm_register(SPACE);
        driver::destroy(SPACE, || {});
    }
    let records = bench.probes().lifecycles();
    let lost = bench.lost();
    let [(DropReason::RingFull, lost)] = lost[..] else { panic!("{lost:?}") };
    assert!(lost > 0 && records.len() > 11_900, "{lost} {}", records.len());
    assert_eq!(u64::try_from(records.len()).unwrap() + lost, 2 * spaces);
    // It works again once there is room.
    assert_eq!(bench.register(SPACE).1.kind(), Some(LifecycleKind::Registered));
}
