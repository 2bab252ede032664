//! Footprints, on small streams and beside the memory that the lab's CUDA driver saw accessed.

use std::path::Path;

use trace::{
    Access, BlockId, Footprints, OpId, OpStream, Recorder,
    footprints::{Coverage, Extent, MIN_COVERAGE, Until, rounded},
    ops::{Argument, Block, Launch, Signature},
};
use trace_sources::import::lab::{self, LabLog};

const MIB: u64 = 1 << 20;
const ALL: std::ops::Range<OpId> = OpId(0)..OpId(u32::MAX);

/// Launches on a pool of 8 MiB and a block of its own, by the offsets that they name in each.
fn stream(launches: &[(&[u64], &[u64])]) -> OpStream {
    let mut recorder = Recorder::default();
    let block = |address, bytes| Block { bytes, address: Some(address) };
    let pool = recorder.malloc(0, 1, block(64 * MIB, 8 * MIB)).unwrap();
    let own = recorder.malloc(0, 2, block(96 * MIB, 100)).unwrap();
    let signature = recorder.signature(Signature { name: "k".to_owned(), grid: [1; 3], block: [1; 3] });
    for (time_ns, (in_pool, in_own)) in (1..).zip(launches) {
        let argument = |block, offset: &u64| Argument { offset_bytes: Some(*offset), ..Argument::of(block) };
        let arguments = in_pool.iter().map(|offset| argument(pool, offset));
        let arguments = arguments.chain(in_own.iter().map(|offset| argument(own, offset))).collect();
        let launch = Launch { signature, stream: 0, start_ns: None, duration_ns: None, arguments };
        recorder.launch(time_ns, launch).unwrap();
    }
    recorder.finish()
}

fn extents(footprints: &Footprints, op: u32) -> Vec<(u32, u64, u64)> {
    footprints.op(OpId(op)).iter().map(|extent| (extent.block.0, extent.begin, extent.end)).collect()
}

#[test]
fn an_extent_ends_at_the_next_address_or_with_its_block() {
    // 4 MiB are in use by the first launch alone, so that the second and third have what is behind.
    let stream = stream(&[(&[0, 4 * MIB], &[]), (&[MIB], &[16]), (&[MIB], &[])]);
    let named = Footprints::of(&stream, ALL, Until::NextNamed);
    assert_eq!(extents(&named, 2), [(0, 0, MIB), (0, 4 * MIB, 8 * MIB)]);
    assert_eq!(extents(&named, 3), [(0, MIB, 4 * MIB), (1, 16, 100)]);
    let used = Footprints::of(&stream, ALL, Until::NextInUse);
    assert_eq!(extents(&used, 2), [(0, 0, 8 * MIB)]);
    assert_eq!(extents(&used, 3), [(0, MIB, 8 * MIB), (1, 16, 100)]);
    // Addresses that other parts name do not count.
    let part = Footprints::of(&stream, OpId(3)..OpId(5), Until::NextNamed);
    assert_eq!(extents(&part, 3), [(0, MIB, 8 * MIB), (1, 16, 100)]);
    assert_eq!(part.iter().map(|(op, _)| op.0).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn an_extent_ends_at_an_address_that_is_named_before_the_memory_is_used_again() {
    let stream = stream(&[(&[0], &[]), (&[0, MIB], &[]), (&[0], &[]), (&[0], &[])]);
    assert_eq!(extents(&Footprints::of(&stream, ALL, Until::NextInUse), 2), [(0, 0, 8 * MIB)]);
    let between = Footprints::of(&stream, ALL, Until::NextBetween);
    assert_eq!(extents(&between, 2), [(0, 0, MIB)]);
    // What the third launch has may be what it writes for the fourth.
    assert_eq!([3, 4, 5].map(|op| extents(&between, op)), [[(0, 0, 8 * MIB)]; 3]);
}

/// What `Until::NextInUse` says, address by address.
fn end_in_use(launches: &[Vec<u64>], at: usize, begin: u64) -> u64 {
    let is_in_use = |offset: &u64| {
        let names = |launch: &Vec<u64>| launch.contains(offset);
        launches[..=at].iter().any(names) && launches[at..].iter().any(names)
    };
    launches.iter().flatten().copied().filter(|offset| *offset > begin && is_in_use(offset)).min().unwrap_or(8 * MIB)
}

#[test]
fn an_extent_ends_at_the_first_address_in_use_for_any_launches() {
    let mut state = 1_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for _ in 0..200 {
        let launches: Vec<Vec<u64>> =
            (0..=below(12)).map(|_| (0..below(4)).map(|_| below(16) * 4096).collect()).collect();
        let named: Vec<(&[u64], &[u64])> = launches.iter().map(|launch| (launch.as_slice(), &[][..])).collect();
        let footprints = Footprints::of(&stream(&named), ALL, Until::NextInUse);
        for (at, launch) in launches.iter().enumerate() {
            // The extents that begin at addresses, together.
            let mut expected: Vec<_> = launch.iter().map(|begin| (*begin, end_in_use(&launches, at, *begin))).collect();
            expected.sort_unstable();
            expected.dedup();
            let joined = expected.iter().fold(Vec::<(u64, u64)>::new(), |mut joined, &(begin, end)| {
                match joined.last_mut() {
                    Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                    _ => joined.push((begin, end)),
                }
                joined
            });
            let found = extents(&footprints, 2 + u32::try_from(at).unwrap());
            assert_eq!(
                found.iter().map(|(_, begin, end)| (*begin, *end)).collect::<Vec<_>>(),
                joined,
                "{launches:?} at {at}"
            );
        }
    }
}

#[test]
fn an_extent_ends_at_an_address_in_use_after_thousands_that_are_not() {
    let others: Vec<u64> = (1..5000).map(|at| at * 512).collect();
    let stream = stream(&[(&others, &[]), (&[0, 6 * MIB], &[])]);
    assert_eq!(extents(&Footprints::of(&stream, ALL, Until::NextInUse), 3), [(0, 0, 8 * MIB)]);
}

#[test]
fn copies_have_the_extent_that_they_state_and_blocks_without_addresses_all_of_theirs() {
    let mut recorder = Recorder::default();
    let block = recorder.malloc(0, 1, Block { bytes: 1000, address: None }).unwrap();
    let other = recorder.malloc(0, 2, Block { bytes: 50, address: None }).unwrap();
    let signature = recorder.signature(Signature { name: "copy".to_owned(), grid: [0; 3], block: [0; 3] });
    let copied = Argument { offset_bytes: Some(100), bytes: Some(20), ..Argument::of(block) };
    let launch = |arguments| Launch { signature, stream: 0, start_ns: None, duration_ns: None, arguments };
    recorder.launch(1, launch(vec![copied, Argument::of(other)])).unwrap();
    recorder.write(2, 1).unwrap();
    let stream = recorder.finish();
    let footprints = Footprints::of(&stream, ALL, Until::NextInUse);
    assert_eq!(extents(&footprints, 2), [(0, 100, 120), (1, 0, 50)]);
    assert_eq!(extents(&footprints, 3), [(0, 0, 1000)]);
}

#[test]
fn rounded_extents_are_units_of_the_address_space_within_their_block() {
    let mut recorder = Recorder::default();
    recorder.malloc(0, 1, Block { bytes: 5 * MIB, address: Some(MIB) }).unwrap();
    let stream = recorder.finish();
    let extent = |begin, end| Extent { block: BlockId(0), begin, end };
    let round = |extents: &[Extent]| rounded(&stream, extents, 2 * MIB);
    assert_eq!(round(&[extent(10, 20)]), [extent(0, MIB)]);
    assert_eq!(round(&[extent(MIB, MIB + 1), extent(3 * MIB, 3 * MIB + 1)]), [extent(MIB, 5 * MIB)]);
}

#[test]
fn tensors_of_an_iteration_are_pieces_that_the_same_launches_use() {
    let stream = stream(&[(&[0, 4 * MIB], &[]), (&[MIB], &[16]), (&[MIB], &[])]);
    let iteration = Footprints::of(&stream, ALL, Until::NextInUse).iteration(&stream).unwrap();
    let tensors: Vec<_> =
        iteration.tensors().values().iter().map(|tensor| (tensor.name.as_str(), tensor.bytes)).collect();
    assert_eq!(tensors, [("block 0 + 0", MIB), ("block 0 + 1048576", 7 * MIB), ("block 1 + 16", 84)]);
    let operands: Vec<Vec<u32>> = iteration
        .kernels()
        .ids()
        .map(|kernel| iteration.operands(kernel).iter().map(|operand| operand.tensor.0).collect())
        .collect();
    assert_eq!(operands, [vec![0, 1], vec![1, 2], vec![1]]);
    // The launches that use new memory first do not read it.
    let accesses = [0, 1, 2].map(|kernel| {
        let operands = iteration.operands(trace::KernelId(kernel)).iter();
        operands.map(|operand| operand.access).collect::<Vec<_>>()
    });
    assert_eq!(accesses[0], [Access::Write, Access::Write]);
    assert_eq!(
        (&accesses[1][..], &accesses[2][..]),
        (&[Access::ReadWrite, Access::Write][..], &[Access::ReadWrite][..])
    );
    let locations: Vec<_> =
        iteration.locations().unwrap().values().iter().map(|at| (at.address, at.allocation_bytes)).collect();
    assert_eq!(locations, [(64 * MIB, 8 * MIB), (65 * MIB, 8 * MIB), (96 * MIB + 16, 100)]);
    let durations: Vec<_> = iteration.kernels().values().iter().map(|kernel| kernel.duration_ns).collect();
    assert_eq!(durations, [1, 1, 0]);
    // Only what lives before and after a part has contents that outlive it.
    assert!(iteration.tensors().values().iter().all(|tensor| !tensor.persistent));
    let part = Footprints::of(&stream, OpId(3)..OpId(5), Until::NextNamed).iteration(&stream).unwrap();
    assert!(part.tensors().values().iter().all(|tensor| tensor.persistent));
}

#[test]
fn coverage_counts_each_byte_once_and_what_no_call_allocated() {
    let extent = |block, begin, end| Extent { block: BlockId(block), begin, end };
    let mut coverage = Coverage::default();
    let named = [extent(0, 0, 10), extent(0, 5, 20), extent(2, 0, 5)];
    coverage.add(&named, &[extent(0, 15, 30), extent(1, 0, 5), extent(2, 1, 3)], 4);
    assert_eq!((coverage.named_bytes, coverage.accessed_bytes, coverage.both_bytes), (25, 26, 7));
    assert!(!coverage.suffices());
    let mut enough = Coverage::default();
    enough.add(&[extent(0, 0, 9)], &[extent(0, 0, 10)], 0);
    assert!(enough.suffices() && (enough.recall() - MIN_COVERAGE).abs() < 1e-9);
    assert!((Coverage::default().recall() - 1.0).abs() < f64::EPSILON);
}

fn sample(name: &str) -> LabLog {
    lab::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)).unwrap()
}

/// Precision and recall of all launches, in percent.
fn figures(log: &LabLog, until: Until, unit_bytes: u64) -> [u64; 2] {
    let footprints = Footprints::of(&log.stream, ALL, until);
    let mut coverage = Coverage::default();
    for executed in &log.executed {
        let accessed: Vec<_> = executed.read.iter().chain(&executed.written).copied().collect();
        let round = |extents: &[Extent]| rounded(&log.stream, extents, unit_bytes);
        coverage.add(&round(footprints.op(executed.op)), &round(&accessed), executed.elsewhere_bytes(unit_bytes));
    }
    [coverage.precision(), coverage.recall()].map(|share| format!("{:.0}", share * 100.0).parse().unwrap())
}

#[test]
fn footprints_of_tinygrad_are_what_the_driver_saw_accessed() {
    let [mlp, cnn] = ["tinygrad-mlp.log.gz", "tinygrad-cnn.log.gz"].map(sample);
    assert_eq!((mlp.executed.len(), cnn.executed.len()), (102, 250));
    let all = |until, unit_bytes| [&mlp, &cnn].map(|log| figures(log, until, unit_bytes));
    assert_eq!(all(Until::NextNamed, 2 * MIB), [[100, 98], [100, 98]]);
    assert_eq!(all(Until::NextInUse, 2 * MIB), [[98, 99], [90, 99]]);
    assert_eq!(all(Until::NextNamed, 4096), [[100, 84], [77, 48]]);
    assert_eq!(all(Until::NextInUse, 4096), [[83, 88], [36, 61]]);
    // A plan of whole blocks has enough of what the programs access.
    for log in [&mlp, &cnn] {
        let footprints = Footprints::of(&log.stream, ALL, Until::default()).rounded(&log.stream, 2 * MIB);
        let iteration = footprints.iteration(&log.stream).unwrap();
        assert_eq!(iteration.kernels().len(), footprints.iter().count());
        assert!(iteration.tensors().values().iter().all(|tensor| tensor.bytes > 0));
    }
}

/// Log of lines without numbers and times: each has the number of its line.
fn log_of(name: &str, lines: &[String]) -> LabLog {
    let path = std::env::temp_dir().join(format!("uvmd-lab-log-{name}-{}", std::process::id()));
    let numbered = (1..).zip(lines).map(|(seq, line)| format!("{{\"seq\":{seq},\"t_ns\":{seq},{line}}}\n"));
    std::fs::write(&path, numbered.collect::<String>()).unwrap();
    let log = lab::load(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    log
}

fn called(op: &str, kind: &str, address: u64, bytes: u64) -> String {
    format!(r#""op":"{op}","address":{address},"bytes":{bytes},"kind":"{kind}""#)
}

fn launched(address: u64) -> String {
    format!(r#""op":"launch","kernel":"k","pointers":[{{"at":0,"base":{address},"offset":0}}]"#)
}

fn accessed(of: u64, address: u64) -> String {
    format!(r#""op":"access","of":{of},"read":[[{address},4096]],"written":[]"#)
}

/// Blocks and offsets of the addresses that a log's launches name.
fn named(log: &LabLog) -> Vec<Vec<(u32, Option<u64>)>> {
    let launches = log.stream.launches().values().iter();
    let argument = |argument: &Argument| (argument.block.0, argument.offset_bytes);
    launches.map(|launch| launch.arguments.iter().map(argument).collect()).collect()
}

#[test]
fn a_block_that_covers_freed_ones_has_their_addresses() {
    let begin = 64 * MIB;
    let log = log_of(
        "covered",
        &[
            called("malloc", "managed", begin + 2 * MIB, MIB),
            launched(begin + 2 * MIB),
            called("free", "managed", begin + 2 * MIB, MIB),
            // It ends after the free, which waits for nothing.
            accessed(2, begin + 2 * MIB),
            called("malloc", "managed", begin, 8 * MIB),
            launched(begin + 3 * MIB),
            launched(begin + 2 * MIB + 4096),
            accessed(6, begin + 3 * MIB),
            accessed(7, begin + 2 * MIB + 4096),
        ],
    );
    assert_eq!(named(&log), [[(0, Some(0))], [(1, Some(3 * MIB))], [(1, Some(2 * MIB + 4096))]]);
    let read: Vec<_> =
        log.executed.iter().map(|executed| (executed.read.clone(), executed.elsewhere_bytes(4096))).collect();
    let extent = |block, begin| (vec![Extent { block: BlockId(block), begin, end: begin + 4096 }], 0);
    assert_eq!(read, [extent(0, 0), extent(1, 3 * MIB), extent(1, 2 * MIB + 4096)]);
}

#[test]
fn memory_of_the_host_is_so_until_its_free() {
    let begin = 64 * MIB;
    let log = log_of(
        "host",
        &[
            called("malloc", "managed", begin, 4 * MIB),
            called("free", "managed", begin, 4 * MIB),
            // Behind the begin of what was freed.
            called("malloc", "host", begin + MIB, MIB),
            launched(begin + MIB),
            accessed(4, begin + MIB),
            called("free", "host", begin + MIB, MIB),
            called("malloc", "managed", begin + MIB / 2, MIB),
            launched(begin + MIB),
            accessed(8, begin + MIB),
            called("free", "managed", begin + MIB / 2, MIB),
            called("malloc", "host", begin + 8 * MIB, MIB),
            called("free", "host", begin + 8 * MIB, MIB),
            launched(begin + 8 * MIB),
            accessed(13, begin + 8 * MIB),
        ],
    );
    assert_eq!(named(&log), [vec![], vec![(1, Some(MIB / 2))], vec![]]);
    let read: Vec<_> =
        log.executed.iter().map(|executed| (executed.read.len(), executed.elsewhere_bytes(4096))).collect();
    assert_eq!(read, [(0, 0), (1, 0), (0, 4096)]);
}

#[test]
fn memory_that_no_call_allocated_counts_in_units() {
    let begin = 64 * MIB;
    let access = |of: u64, read: &str, written: &str| {
        format!(r#""op":"access","of":{of},"read":[{read}],"written":[{written}]"#)
    };
    let run = |offset: u64, bytes: u64| format!("[{},{bytes}]", begin + offset);
    let log = log_of(
        "elsewhere",
        &[
            launched(0),
            // One page and parts of it, read and written; and pages at the end of a unit and behind it.
            access(1, &run(4096, 4096), &run(4096, 4096)),
            access(1, &run(4096, 8192), &run(4096, 4096)),
            access(1, &format!("{},{}", run(2 * MIB - 4096, 8192), run(0, 4096)), ""),
            access(1, "", ""),
        ],
    );
    let bytes =
        |unit_bytes| log.executed.iter().map(|executed| executed.elsewhere_bytes(unit_bytes)).collect::<Vec<_>>();
    assert_eq!(bytes(4096), [4096, 8192, 12288, 0]);
    assert_eq!(bytes(2 * MIB), [2 * MIB, 2 * MIB, 4 * MIB, 0]);
}

#[test]
fn damaged_logs_of_the_lab_are_rejected_with_their_line() {
    let folder = std::env::temp_dir().join(format!("uvmd-lab-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("log");
    let error = |text: &str| {
        std::fs::write(&path, text).unwrap();
        lab::load(&path).unwrap_err().to_string()
    };
    let malloc = r#"{"op":"malloc","seq":1,"t_ns":1,"address":4096,"bytes":8,"kind":"managed"}"#;
    assert!(error(&format!("{malloc}\n{malloc}\n")).ends_with("log:2: 0x1000 is already allocated"));
    let access = r#"{"op":"access","seq":2,"t_ns":2,"of":1,"read":[],"written":[]}"#;
    assert!(error(&format!("{malloc}\n{access}\n")).contains("log:2: invalid of"));
    let beyond = r#"{"op":"malloc","t_ns":1,"address":18446744073709551615,"bytes":8,"kind":"managed"}"#;
    assert!(error(beyond).ends_with("log:1: the sum of block sizes exceeds 64 bits"));
    assert!(error("{}\n").contains("log:1: invalid t_ns"));
    std::fs::remove_dir_all(&folder).unwrap();
}
