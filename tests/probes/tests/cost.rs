//! What one event costs. Run by hand, on an idle machine, and compared with another build of the same machine:
//! `cargo test --release -p probes-test --test cost -- --ignored --nocapture`

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
};

use probes_test::bench::{Bench, GpuFault, Migration, Space};

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const ROUNDS: usize = 30;
const EVENTS: u64 = 2000;

/// Time and runs of the program so far.
fn runs(bench: &mut Bench) -> (u64, u64) {
    let fd = bench.probes().program_fd("uvm_notify").expect("it is loaded").as_fd().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("a descriptor's");
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0);
    (value("run_time_ns:"), value("run_cnt:"))
}

/// The least that a round took, in ns an event: others of the machine's only add to it.
fn cost(bench: &mut Bench, space: &Space, event: impl Fn(&Bench, &Space, u64)) -> u64 {
    let rounds = (0..ROUNDS).map(|_| {
        let (time, count) = runs(bench);
        for number in 0..EVENTS {
            event(bench, space, number);
        }
        let (later, more) = runs(bench);
        (later - time) / (more - count).max(1)
    });
    rounds.min().unwrap_or_default()
}

#[test]
#[ignore = "a measurement, not a test"]
fn of_faults_and_copies() {
    let Some(mut bench) = Bench::new("L2_550_555") else { return };
    fs::write(STATISTICS, "1").expect("root");
    let (space, _) = bench.register(0xffff_8881_2345_6780);
    let fault = cost(&mut bench, &space, |bench, space, _| bench.gpu_fault(space, &GpuFault::default(), |entry| entry));
    let cpu = cost(&mut bench, &space, |bench, space, _| bench.cpu_fault(space, 0));
    let copy = cost(&mut bench, &space, |bench, space, _| bench.migration(space, &Migration::default()));
    fs::write(STATISTICS, "0").expect("root");
    println!("GPU fault {fault} ns, CPU fault {cpu} ns, copy {copy} ns");
}
