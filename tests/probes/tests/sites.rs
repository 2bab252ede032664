//! Sites of CPU faults.

use abi::{Kind, Quotas, Resource, Tenant, quota::Quota};
use probes_test::{
    bench::{Bench, Migration},
    uprobe,
};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;

/// Copy to the host for a fault.
fn copy(bytes: u64) -> Migration {
    Migration { from: 1, to: 0, cause: 0, bytes, ..Migration::default() }
}

#[test]
fn faults_and_their_copies_count_for_the_instruction_in_each_family() {
    for family in ["L0_515_525", "L1_530_545", FAMILY, "L3_560", "L4_565_575", "L5_580_595"] {
        let Some(mut bench) = Bench::new(family) else { return };
        let (space, record) = bench.register(SPACE);
        for (pc, bytes) in [(0x1000, 4096), (0x2000, 65536), (0x1000, 8192)] {
            bench.cpu_fault_at(&space, 0, pc);
            bench.migration(&space, &copy(bytes));
        }
        // Without a copy, as a first touch.
        bench.cpu_fault_at(&space, 1, 0x3000);
        let expected = [(0x1000, (2, 12288)), (0x2000, (1, 65536)), (0x3000, (1, 0))];
        assert_eq!(bench.sites(record.generation), expected.into(), "{family}");
        assert!(!bench.counts(record.generation).contains_key(&(0, Kind::SitelessCpuFault, 0)), "{family}");
    }
}

#[test]
fn other_copies_count_for_no_instruction() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    bench.cpu_fault_at(&space, 0, 0x1000);
    // An eviction, a prefetch by the program, and a copy to the GPU.
    bench.migration(&space, &Migration { cause: 4, ..copy(4096) });
    bench.migration(&space, &Migration { cause: 6, ..copy(4096) });
    bench.migration(&space, &Migration { from: 0, to: 1, ..copy(4096) });
    assert_eq!(bench.sites(record.generation), [(0x1000, (1, 0))].into());
}

#[test]
fn accesses_of_another_process_have_no_site() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let fault_and_copies = || {
        bench.cpu_fault_at(&space, 0, 0x1000);
        bench.migration(&space, &copy(4096));
        bench.migration(&space, &copy(8192));
    };
    uprobe::in_another_process(fault_and_copies).unwrap();
    assert_eq!(bench.sites(record.generation), [].into());
    assert_eq!(bench.counts(record.generation)[&(0, Kind::SitelessCpuFault, 0)], (1, 12288));
    // Where GPU faults are serviced, there was no CPU fault.
    uprobe::in_another_process(|| bench.migration(&space, &copy(4096))).unwrap();
    assert_eq!(bench.counts(record.generation)[&(0, Kind::SitelessCpuFault, 0)], (1, 12288));
    assert_eq!(bench.counts(record.generation)[&(0, Kind::CpuFault, 0)], (1, 0));
}

#[test]
fn sites_beyond_the_quota_are_counted_together_and_refused_by_name() {
    let mut quotas = Quotas::UNLIMITED;
    quotas.quotas[Resource::Sites] = Quota { process_max: 2, ..Quota::UNLIMITED };
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &quotas) else { return };
    let (space, record) = bench.register(SPACE);
    for pc in [1, 2, 3, 4, 1] {
        bench.cpu_fault_at(&space, 0, pc);
        bench.migration(&space, &copy(4096));
    }
    assert_eq!(bench.sites(record.generation), [(1, (2, 8192)), (2, (1, 4096))].into());
    assert_eq!(bench.counts(record.generation)[&(0, Kind::SitelessCpuFault, 0)], (2, 8192));
    let usage = bench.probes().usage().unwrap();
    let own = usage.into_iter().find(|(tenant, _)| *tenant == Tenant::process(std::process::id())).unwrap().1;
    assert_eq!((own.charged[Resource::Sites], own.refused[Resource::Sites]), (2, 4));
}
