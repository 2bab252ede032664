//! Instructions that the kernel's verifier visits for a probe: it gives up at a million, and old
//! kernels visit more than new ones.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
};

use collector::testing::Probes;
use probes_test::bench::Bench;

/// A quarter of the verifier's limit.
const INSTRUCTIONS_MAX: u64 = 250_000;

#[test]
fn every_probe_is_far_below_the_verifier_limit() {
    let Some(mut bench) = Bench::new("L2_550_555") else { return };
    for (program, _, _) in Probes::programs() {
        let fd = bench.probes().program_fd(program).unwrap().as_fd().as_raw_fd();
        let fdinfo = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let verified = fdinfo.lines().find_map(|line| line.strip_prefix("verified_insns:"));
        // Reported since Linux 5.16.
        let Some(verified) = verified else { return println!("skipped: this kernel does not report it") };
        let verified: u64 = verified.trim().parse().unwrap();
        assert!((1..INSTRUCTIONS_MAX).contains(&verified), "{program}: {verified}");
    }
}
