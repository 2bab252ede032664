//! Decoding of every family's events.

use std::collections::HashMap;

use abi::{Kind, LifecycleKind};
use probes_test::{
    bench::{Bench, GpuFault, Migration, Space},
    image,
};

const PROGRAMS: &[&str] = &["uvm_register", "uvm_destroy", "uvm_destroyed", "uvm_notify"];
const ADDRESS: u64 = 0xffff_8881_2345_6780;

/// GPU, kind and detail; events and amount.
type Count = ((u32, Kind, u16), (u64, u64));

/// Runs `test` for each family, with a registered VA space; then checks that it counted exactly
/// `expected`, and that nothing was dropped.
fn in_each_family(test: impl Fn(&Bench, &Space), expected: &[Count]) {
    let families = image::families();
    assert_eq!(families.len(), 6);
    for family in families {
        let Some(mut bench) = Bench::only(PROGRAMS, &family) else { return };
        let (space, record) = bench.register(ADDRESS);
        assert_eq!(record.kind(), Some(LifecycleKind::Registered));
        test(&bench, &space);
        assert_eq!(bench.counts(record.generation), expected.iter().copied().collect::<HashMap<_, _>>(), "{family}");
        assert_eq!((bench.lost(), bench.failed()), (vec![], vec![]), "{family}");
    }
}

#[test]
fn gpu_faults_are_counted_by_gpu_and_access_type_with_their_instances() {
    in_each_family(
        |bench, space| {
            for access in 0..=4 {
                bench.gpu_fault(space, &GpuFault { access, instances: 3, ..GpuFault::default() }, |entry| entry);
            }
            bench.gpu_fault(space, &GpuFault { access: 2, instances: 256, ..GpuFault::default() }, |entry| entry);
            bench.gpu_fault(space, &GpuFault { gpu: 9, access: 4, ..GpuFault::default() }, |entry| entry);
        },
        &[
            ((1, Kind::GpuFault, 0), (1, 3)),
            ((1, Kind::GpuFault, 1), (1, 3)),
            ((1, Kind::GpuFault, 2), (2, 259)),
            ((1, Kind::GpuFault, 3), (1, 3)),
            ((1, Kind::GpuFault, 4), (1, 3)),
            ((9, Kind::GpuFault, 4), (1, 1)),
        ],
    );
}

#[test]
fn duplicate_faults_are_distinguished() {
    in_each_family(
        |bench, space| {
            bench.gpu_fault(space, &GpuFault { is_duplicate: 1, instances: 2, ..GpuFault::default() }, |entry| entry);
            bench.gpu_fault(space, &GpuFault::default(), |entry| entry);
        },
        &[((1, Kind::GpuFaultDuplicate, 1), (1, 2)), ((1, Kind::GpuFault, 1), (1, 1))],
    );
}

#[test]
fn cpu_faults_are_counted_at_the_host_by_read_and_write() {
    in_each_family(
        |bench, space| {
            for is_write in [0, 1, 1] {
                bench.cpu_fault(space, is_write);
            }
        },
        &[((0, Kind::CpuFault, 0), (1, 0)), ((0, Kind::CpuFault, 1), (2, 0))],
    );
}

#[test]
fn migrations_are_counted_at_the_gpu_by_direction_and_cause() {
    in_each_family(
        |bench, space| {
            for cause in [0, 3, 8] {
                bench.migration(space, &Migration { cause, ..Migration::default() });
            }
            bench.migration(space, &Migration { from: 1, to: 0, bytes: 2 << 20, cause: 4, ..Migration::default() });
            bench.migration(space, &Migration { from: 1, to: 9, bytes: 4096, cause: 6, ..Migration::default() });
            // Between nodes of host memory: over no bus to a GPU.
            bench.migration(space, &Migration { from: 0, to: 0, bytes: 4096, cause: 6, ..Migration::default() });
        },
        &[
            ((1, Kind::CopyHtod, 0), (1, 65536)),
            ((1, Kind::CopyHtod, 3), (1, 65536)),
            ((1, Kind::CopyHtod, 8), (1, 65536)),
            ((1, Kind::CopyDtoh, 4), (1, 2 << 20)),
            // Evicted for this process, which has no other VA space.
            ((1, Kind::InducedEviction, 0), (0, 2 << 20)),
            // Between GPUs: counts for the receiver.
            ((9, Kind::CopyDtod, 6), (1, 4096)),
        ],
    );
}

#[test]
fn other_events_are_ignored() {
    in_each_family(
        |bench, space| {
            let garbage = bench.family().image("evd.size").at(0, [0xff; 56]);
            for event in ["RANGE_DESTROY", "REVOCATION"] {
                bench.notify(space, event, &garbage);
            }
        },
        &[],
    );
}
