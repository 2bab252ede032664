//! Events count for their VA space, and that for the process that created it.

use abi::{DropReason, Kind, Lifecycle, LifecycleKind};
use probes_test::{
    bench::{Bench, GpuFault},
    driver,
};

const PROGRAMS: &[&str] = &["uvm_register", "uvm_destroy", "uvm_destroyed", "uvm_notify"];
const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;

fn kinds(records: &[Lifecycle]) -> Vec<(LifecycleKind, u64)> {
    records.iter().map(|record| (record.kind().unwrap(), record.generation)).collect()
}

#[test]
fn record_of_a_va_space_identifies_its_process() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (_, record) = bench.register(SPACE);
    let own = procfs::process::Process::myself().unwrap();
    let stat = own.stat().unwrap();
    assert_eq!(i32::try_from(record.tgid), Ok(own.pid()));
    assert_eq!(record.uid, own.status().unwrap().ruid);
    // Identifies the process with the pid: exact although the record is in ns and /proc in ticks.
    let ns_per_tick = 1_000_000_000 / procfs::ticks_per_second();
    assert_eq!(record.start_boottime_ns / ns_per_tick, stat.starttime);
    let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    assert_eq!(String::from_utf8_lossy(&record.comm).trim_end_matches('\0'), thread.trim());
}

#[test]
fn reused_address_is_another_va_space() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, first) = bench.register(SPACE);
    bench.cpu_fault(&space, 0);
    driver::destroy(SPACE, || {});
    assert_eq!(kinds(&bench.probes().lifecycles()), [(LifecycleKind::Destroyed, first.generation)]);

    let (space, second) = bench.register(SPACE);
    assert_ne!(first.generation, second.generation);
    bench.cpu_fault(&space, 1);
    assert_eq!(bench.counts(first.generation), [((0, Kind::CpuFault, 0), (1, 0))].into());
    assert_eq!(bench.counts(second.generation), [((0, Kind::CpuFault, 1), (1, 0))].into());
}

#[test]
fn faults_serviced_during_destruction_count_for_their_va_space() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, record) = bench.register(SPACE);
    driver::destroy(SPACE, || bench.gpu_fault(&space, &GpuFault::default(), |entry| entry));
    assert_eq!(bench.counts(record.generation), [((1, Kind::GpuFault, 1), (1, 1))].into());
    assert_eq!(bench.lost(), []);
    // None after it.
    bench.gpu_fault(&space, &GpuFault::default(), |entry| entry);
    assert_eq!(bench.lost(), [(DropReason::UnknownVaSpace, 1)]);
}

#[test]
fn va_space_with_a_missed_end_ends_when_its_address_is_reused() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (_, first) = bench.register(SPACE);
    driver::mm_register(SPACE);
    let records = bench.probes().lifecycles();
    assert_eq!(
        kinds(&records),
        [(LifecycleKind::Destroyed, first.generation), (LifecycleKind::Registered, records[1].generation)]
    );
}

#[test]
fn address_reused_before_the_destruction_returns_keeps_its_new_va_space() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (space, first) = bench.register(SPACE);
    // The driver frees the memory first and then returns; meanwhile another CPU may have reused it.
    driver::destroy(SPACE, || driver::mm_register(SPACE));
    let records = bench.probes().lifecycles();
    let second = records[1].generation;
    assert_eq!(kinds(&records), [(LifecycleKind::Destroyed, first.generation), (LifecycleKind::Registered, second)]);
    bench.cpu_fault(&space, 1);
    assert_eq!(bench.counts(second), [((0, Kind::CpuFault, 1), (1, 0))].into());
    assert_eq!(bench.lost(), []);
}

#[test]
fn missed_return_ends_no_later_va_space() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let (_, first) = bench.register(SPACE);
    bench.without_returns(|| driver::destroy(SPACE, || {}));
    assert_eq!(bench.probes().lifecycles(), []);
    // The thread destroys another, unknown one.
    driver::destroy(SPACE + 4096, || {});
    assert_eq!(bench.probes().lifecycles(), []);
    // User space can detect it: the VA space was created and not reported as destroyed.
    let spaces: Vec<_> = bench.probes().spaces().unwrap().iter().map(|space| space.generation).collect();
    assert_eq!(spaces, [first.generation]);
    assert_eq!(bench.probes().hits().unwrap()[..4], [0, 1, 2, 1]);
}

#[test]
fn destruction_of_an_unknown_va_space_is_ignored() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    driver::destroy(SPACE, || {});
    assert_eq!(bench.probes().lifecycles(), []);
    assert_eq!(bench.lost(), []);
}

#[test]
fn generations_are_never_reused() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let (_, record) = bench.register(SPACE);
        driver::destroy(SPACE, || {});
        assert!(record.generation != 0 && seen.insert(record.generation));
    }
}

#[test]
fn every_run_of_a_probe_is_counted() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let (space, _) = bench.register(SPACE);
    bench.cpu_fault(&space, 0);
    bench.cpu_fault(&space, 0);
    driver::destroy(SPACE, || {});
    // In the order of abi::Probe: notify, register, destroy and its return.
    assert_eq!(bench.probes().hits().unwrap()[..4], [2, 1, 1, 1]);
}

#[test]
fn earlier_va_space_is_adopted_by_its_file_and_never_for_the_loader_or_its_child() {
    let Some(mut bench) = Bench::only(PROGRAMS, FAMILY) else { return };
    let files = [(); 3].map(|()| std::fs::File::open("/dev/ptmx").unwrap());
    let [one, other, of_child] = &files;
    // The first file twice, which is one VA space. This process holds them as well, like one that
    // migrates another's memory. The shell exits, so that the process is no longer this one's
    // child.
    let pid_file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pid-of-the-owner");
    let shell = std::process::Command::new("sh")
        .args(["-c", "sleep 600 <&0 & echo $! >\"$0\""])
        .arg(&pid_file)
        .stdin(one.try_clone().unwrap())
        .stdout(one.try_clone().unwrap())
        .stderr(other.try_clone().unwrap())
        .status()
        .unwrap();
    assert!(shell.success());
    let owner: u32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    let owner = procfs::process::Process::new(i32::try_from(owner).unwrap()).unwrap();
    // Children of the loader hold files of other processes to act on their memory.
    let mut child =
        std::process::Command::new("sleep").arg("600").stdin(of_child.try_clone().unwrap()).spawn().unwrap();
    let child_pid = child.id();
    let found = |bench: &mut Bench| {
        collector::testing::adopt(bench.probes()).unwrap();
        let mut records = bench.probes().lifecycles();
        // Terminals of other processes represent VA spaces just as well.
        records.retain(|record| [owner.pid().cast_unsigned(), child_pid, std::process::id()].contains(&record.tgid));
        records
    };
    let records = found(&mut bench);
    let [first, second] = &records[..] else { panic!("{records:?}") };
    assert_eq!([first.tgid, second.tgid], [owner.pid().cast_unsigned(); 2]);
    assert_eq!((first.kind(), second.kind()), (Some(LifecycleKind::Adopted), Some(LifecycleKind::Adopted)));
    assert_ne!(first.generation, second.generation);

    let stat = owner.stat().unwrap();
    assert_eq!(first.uid, owner.status().unwrap().ruid);
    assert_eq!(first.start_boottime_ns / (1_000_000_000 / procfs::ticks_per_second()), stat.starttime);
    assert_eq!(String::from_utf8_lossy(&first.comm).trim_end_matches('\0'), stat.comm);

    // A known VA space is not found again.
    assert_eq!(found(&mut bench), []);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(std::process::Command::new("kill").arg(owner.pid().to_string()).status().unwrap().success());
}
