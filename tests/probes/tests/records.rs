//! Block records: written, sampled out and dropped ones; counts do not depend on them.

use abi::{Kind, RecordKind};
use collector::Records;
use probes_test::bench::{Bench, Migration};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;

#[test]
fn copy_is_recorded_with_its_block_and_cause() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    let address = 0x7f00_0020_0000 + 65536;
    bench.migration(&space, &Migration { from: 1, to: 0, address, bytes: 8192, cause: 4 });
    bench.cpu_fault(&space, 1);
    let [copy, fault] = bench.blocks()[..] else { panic!() };
    assert_eq!(
        (copy.generation, copy.address, copy.bytes, copy.events),
        (record.generation, 0x7f00_0020_0000, 8192, 1)
    );
    assert_eq!((copy.kind, copy.cause, copy.gpu, copy.slots), (RecordKind::CopyDtoh as u16, 4, 1, 0b10));
    assert_eq!((fault.kind, fault.gpu), (RecordKind::CpuFault as u16, 0));
    assert_eq!((fault.address, fault.slots), (0x7f00_0020_0000, 1));
    assert!(fault.boottime_ns >= copy.boottime_ns && copy.boottime_ns > 0);
    assert_eq!(bench.fates(), [2, 0, 0]);
}

#[test]
fn records_beyond_the_rate_are_sampled_out_while_counts_stay_exact() {
    let few = Records { max_per_second: 100, ..Records::default() };
    let Some(mut bench) = Bench::with(FAMILY, 1024, few) else { return };
    let (space, record) = bench.register(SPACE);
    for _ in 0..1000 {
        bench.cpu_fault(&space, 0);
    }
    let [written, sampled_out, dropped] = bench.fates();
    assert_eq!((written + sampled_out, dropped), (1000, 0));
    assert!(written >= 10 && sampled_out > 0, "{written}");
    assert_eq!(bench.blocks().len() as u64, written);
    assert_eq!(bench.counts(record.generation)[&(0, Kind::CpuFault, 0)], (1000, 0));
    assert_eq!(bench.lost(), []);
    let losses = bench.probes().spaces().unwrap()[0].records;
    assert_eq!((losses.sampled_out, losses.dropped), (sampled_out, 0));
}

#[test]
fn block_records_beyond_the_ring_are_dropped_while_counts_stay_exact() {
    let small = Records { ring_bytes: 4096, max_per_second: 1_000_000, ..Records::default() };
    let Some(mut bench) = Bench::with(FAMILY, 1024, small) else { return };
    // Many VA spaces, none of which exceeds its share.
    let spaces: Vec<_> = (0..40).map(|number| bench.register(SPACE + number * 4096)).collect();
    for (space, record) in &spaces {
        for _ in 0..25 {
            bench.cpu_fault(space, 0);
        }
        assert_eq!(bench.counts(record.generation)[&(0, Kind::CpuFault, 0)], (25, 0));
    }
    let [written, sampled_out, dropped] = bench.fates();
    assert_eq!((written + dropped, sampled_out), (1000, 0));
    assert!((50..100).contains(&written), "{written}");
    assert_eq!(bench.lost(), []);
    // A VA space's end reports it too, and there is room again.
    assert_eq!(bench.blocks().len() as u64, written);
    let (last, _) = &spaces[39];
    bench.cpu_fault(last, 0);
    assert_eq!(bench.blocks().len(), 1);
    probes_test::driver::destroy(last.address, || {});
    assert_eq!(bench.probes().lifecycles()[0].records.dropped, 25);
}

#[test]
fn va_space_writes_at_most_its_share_of_the_ring() {
    let small = Records { ring_bytes: 4096, max_per_second: 1_000_000, ..Records::default() };
    let Some(mut bench) = Bench::with(FAMILY, 1024, small) else { return };
    let (space, record) = bench.register(SPACE);
    let (other, other_record) = bench.register(SPACE + 4096);
    for _ in 0..1000 {
        bench.cpu_fault(&space, 0);
    }
    bench.cpu_fault(&other, 0);
    let spaces = bench.probes().spaces().unwrap();
    let sampled_out =
        |generation| spaces.iter().find(|space| space.generation == generation).unwrap().records.sampled_out;
    assert!(sampled_out(record.generation) > 0);
    assert_eq!(sampled_out(other_record.generation), 0);
    assert_eq!(bench.counts(record.generation)[&(0, Kind::CpuFault, 0)], (1000, 0));
}

#[test]
fn disabled_records_are_neither_written_nor_dropped() {
    let none = Records { enabled: false, ..Records::default() };
    let Some(mut bench) = Bench::with(FAMILY, 1024, none) else { return };
    let (space, record) = bench.register(SPACE);
    bench.cpu_fault(&space, 0);
    assert_eq!((bench.blocks().len(), bench.fates()), (0, [0, 0, 0]));
    assert_eq!(bench.counts(record.generation)[&(0, Kind::CpuFault, 0)], (1, 0));
}
