use std::{fs, time::Duration};

use model::SourceState;
use sys::fake::{Machine, small_driver, small_kernel};
use tokio::time;

use super::*;
use crate::{Collector, ledger::Losses};

fn config(machine: &Machine) -> Config {
    Config { roots: machine.roots.clone(), ..Config::default() }
}

/// Machine that lacks only a driver.
fn without_driver() -> Machine {
    Machine::new()
        .with("sys/bus/event_source/devices/kprobe/type", "6\n")
        .with("sys/kernel/btf/vmlinux", small_kernel())
}

fn with_driver(version: &str) -> Machine {
    without_driver().with("sys/module/nvidia_uvm/version", version).with("sys/module/nvidia_uvm/initstate", "live\n")
}

fn state(machine: &Machine) -> SourceState {
    Watcher::new(config(machine)).unwrap().snapshot().source.state
}

#[tokio::test]
async fn missing_driver_is_waited_for_and_reported() {
    let SourceState::Waiting { missing } = state(&without_driver()) else { panic!() };
    assert_eq!(
        missing,
        ["the driver nvidia-uvm is not loaded: run `modprobe nvidia-uvm`, or start a CUDA program, which loads it"]
    );
}

#[tokio::test]
async fn missing_kprobes_are_waited_for_even_with_a_driver() {
    let machine = with_driver("550.163.01\n");
    machine.remove("sys/bus");
    let SourceState::Waiting { missing } = state(&machine) else { panic!() };
    let kprobes = "this kernel has no kprobes, and does not show the driver's types in /sys/kernel/btf/nvidia_uvm, which fentry \
                   needs: boot one built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS, or build the driver with BTF";
    let tools = "the driver's tools cannot be used: /proc/devices does not list nvidia-uvm, so that uvmd cannot \
                 find the processes that use it: load the driver again";
    assert_eq!(missing, [kprobes, tools]);
    let config = Config { source: SourceChoice::Probes, ..config(&machine) };
    let state = Watcher::new(config).unwrap().snapshot().source.state;
    assert_eq!(state, SourceState::Waiting { missing: vec![kprobes.to_owned()] });
}

#[tokio::test]
async fn kernel_without_kprobes_is_refused_if_it_is_too_old_for_fentry() {
    // Its types have no bpf_preempt_disable.
    let machine = with_driver("550.163.01\n").with("sys/kernel/btf/nvidia_uvm", small_driver(136, 0));
    machine.remove("sys/bus");
    let config = Config { source: SourceChoice::Probes, ..config(&machine) };
    let SourceState::Refused { reason } = Watcher::new(config).unwrap().snapshot().source.state else { panic!() };
    assert!(reason.contains("fentry needs bpf_preempt_disable: boot Linux 6.10 or later"), "{reason}");
}

#[tokio::test]
async fn unknown_driver_is_refused_with_the_supported_versions() {
    let machine = with_driver("600.10\n");
    let by_probes = Config { source: SourceChoice::Probes, ..config(&machine) };
    let state_by_probes = Watcher::new(by_probes).unwrap().snapshot().source.state;
    let SourceState::Refused { reason } = state_by_probes else { panic!() };
    assert_eq!(
        reason,
        "driver 600.10 is not supported: the table of layouts has 515-525, 530-545, 550-555, 560, 565-575, 580-595, and the \
         kernel exposes no types in /sys/kernel/btf/nvidia_uvm; update uvmd, or build the driver with BTF"
    );
    // The tools lack their device, which may pass.
    let SourceState::Refused { reason: of_both } = state(&machine) else { panic!() };
    let tools = "; the driver's tools cannot be used either: /proc/devices does not list nvidia-uvm";
    assert!(of_both.starts_with(&(reason + tools)) && of_both.ends_with("; tries again in 1 s"), "{of_both}");
}

#[tokio::test]
async fn unknown_driver_whose_types_lack_something_is_refused_by_its_name() {
    let machine = with_driver("600.10\n").with("sys/kernel/btf/nvidia_uvm", small_driver(136, 0));
    let SourceState::Refused { reason } = state(&machine) else { panic!() };
    assert!(reason.contains("the table of layouts lacks it, and its types cannot be used: no UVM_"), "{reason}");
}

#[tokio::test]
async fn driver_without_a_version_is_refused() {
    let SourceState::Refused { reason } = state(&with_driver("")) else { panic!() };
    assert!(reason.starts_with("the driver's version is neither in"), "{reason}");
}

#[tokio::test]
async fn kernel_with_damaged_btf_is_refused() {
    let machine = with_driver("550.163.01\n").with("sys/kernel/btf/vmlinux", "not BTF");
    let SourceState::Refused { reason } = state(&machine) else { panic!() };
    assert!(reason.contains("/sys/kernel/btf/vmlinux cannot be used: not BTF"), "{reason}");
}

#[tokio::test]
async fn removal_of_a_refused_driver_returns_to_waiting() {
    let machine = with_driver("600.10\n");
    let mut watcher = Watcher::new(config(&machine)).unwrap();
    watcher.look();
    assert!(matches!(watcher.snapshot().source.state, SourceState::Refused { .. }));
    machine.remove("sys/module/nvidia_uvm");
    watcher.look();
    assert!(matches!(watcher.snapshot().source.state, SourceState::Waiting { .. }));
}

#[tokio::test]
async fn separate_pid_namespace_is_reported_as_a_warning() {
    let machine = without_driver();
    machine.link("proc/1/root/proc", "/proc");
    let warnings = || Watcher::new(config(&machine)).unwrap().snapshot().source.warnings;
    assert!(warnings().is_empty());
    machine.link("proc/self/ns/pid", "pid:[4026532447]");
    assert!(matches!(&warnings()[..], [warning] if warning.contains("pid namespace")), "{:?}", warnings());
}

#[tokio::test]
async fn sys_that_does_not_answer_is_named_and_hides_nothing_for_long() {
    let machine = with_driver("600.10\n");
    machine.hang("sys/module/nvidia_uvm/initstate");
    let mut watcher = Watcher::new(config(&machine)).unwrap();
    let SourceState::Waiting { missing } = watcher.snapshot().source.state else { panic!() };
    assert!(matches!(&missing[..], [missing] if missing.starts_with("reads of /sys hang")), "{missing:?}");
    machine.write("sys/module/nvidia_uvm/initstate", "live\n");
    fs::remove_file(machine.roots.sys.join("module/nvidia_uvm/initstate")).unwrap();
    machine.write("sys/module/nvidia_uvm/initstate", "live\n");
    while matches!(watcher.snapshot().source.state, SourceState::Waiting { .. }) {
        watcher.look();
    }
    assert!(matches!(watcher.snapshot().source.state, SourceState::Refused { .. }), "of an unknown version");
}

#[tokio::test]
async fn every_drop_reason_is_always_listed() {
    let snapshot = Watcher::new(config(&Machine::new())).unwrap().snapshot();
    let reasons: Vec<_> = snapshot.source.dropped_events.iter().map(|(reason, events)| (*reason, *events)).collect();
    // The documents explain exactly these.
    let mut explained = model::DropReason::ALL.map(model::DropReason::name);
    explained.sort_unstable();
    assert_eq!(reasons, explained.map(|reason| (reason, 0)));
}

#[tokio::test]
async fn version_of_a_refused_driver_is_reported() {
    let driver = Watcher::new(config(&with_driver("600.10\n"))).unwrap().snapshot().source.driver.unwrap();
    assert_eq!((driver.version.as_str(), driver.layout), ("600.10", None));
}

#[tokio::test(start_paused = true)]
async fn temporary_refusal_is_retried_and_reports_the_time() {
    let machine = with_driver("550.163.01\n");
    // A folder in its place: existing, but not readable.
    machine.write("sys/kernel/btf/vmlinux.types/file", "");
    fs::remove_file(machine.roots.sys.join("kernel/btf/vmlinux")).unwrap();
    fs::rename(machine.roots.sys.join("kernel/btf/vmlinux.types"), machine.roots.sys.join("kernel/btf/vmlinux"))
        .unwrap();
    let by_probes = Config { source: SourceChoice::Probes, ..config(&machine) };
    let mut watcher = Watcher::new(by_probes).unwrap();
    let reason = |watcher: &Watcher| match watcher.snapshot().source.state {
        SourceState::Refused { reason } => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(&watcher).ends_with("; tries again in 1 s"), "{}", reason(&watcher));

    machine.remove("sys/kernel/btf/vmlinux");
    machine.write("sys/kernel/btf/vmlinux", "not BTF");
    watcher.look();
    assert!(reason(&watcher).contains("cannot be read"), "tried again too early: {}", reason(&watcher));
    time::advance(Duration::from_secs(1)).await;
    watcher.look();
    // This does not pass by itself.
    assert!(reason(&watcher).ends_with("not BTF of this machine's byte order, or damaged"), "{}", reason(&watcher));
}

#[tokio::test(start_paused = true)]
async fn probes_that_still_fail_after_three_retries_give_way_to_the_tools() {
    let machine = with_driver("550.163.01\n");
    // A folder in its place: existing, but not readable.
    machine.remove("sys/kernel/btf");
    machine.write("sys/kernel/btf/vmlinux/file", "");
    let mut watcher = Watcher::new(config(&machine)).unwrap();
    for retry in [1, 2, 4, 8] {
        let SourceState::Refused { reason } = watcher.snapshot().source.state else { panic!() };
        // They are tried, and lack their device.
        assert_eq!(reason.contains("the driver's tools cannot be used either"), retry == 8, "{reason}");
        assert!(reason.ends_with(&format!("; tries again in {retry} s")), "{reason}");
        time::advance(Duration::from_secs(retry)).await;
        watcher.look();
    }
}

#[tokio::test]
async fn fresh_snapshot_is_taken_after_its_request() {
    let machine = Machine::new();
    let collector = Collector::start(config(&machine)).await.unwrap();
    let snapshots = collector.snapshots();
    for _ in 0..3 {
        let asked = SystemTime::now();
        assert!(snapshots.fresh().await.unwrap().taken >= asked);
    }
    assert!(snapshots.latest().taken <= SystemTime::now());
    collector.stop().await;
    assert!(snapshots.fresh().await.is_none());
}

#[tokio::test]
async fn loaded_driver_is_detected_without_a_request() {
    let machine = without_driver();
    let collector = Collector::start(config(&machine)).await.unwrap();
    let snapshots = collector.snapshots();
    assert!(matches!(snapshots.latest().source.state, SourceState::Waiting { .. }));
    machine.write("sys/module/nvidia_uvm/version", "600.10");
    let noticed = async {
        while !matches!(snapshots.latest().source.state, SourceState::Refused { .. }) {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(Duration::from_mins(1), noticed).await.expect("noticed");
    collector.stop().await;
}

#[test]
fn many_closed_va_spaces_make_a_reading_urgent() {
    let mut watcher = Watcher::new(config(&Machine::new())).unwrap();
    for generation in 1..64 {
        watcher.ledger.destroyed(generation, Losses::default(), SystemTime::now());
    }
    assert!(!watcher.is_urgent());
    watcher.ledger.destroyed(64, Losses::default(), SystemTime::now());
    assert!(watcher.is_urgent());
}

#[tokio::test]
async fn dropped_collector_ends() {
    let collector = Collector::start(config(&Machine::new())).await.unwrap();
    let snapshots = collector.snapshots();
    drop(collector);
    let ended = async { while snapshots.fresh().await.is_some() {} };
    time::timeout(Duration::from_mins(1), ended).await.expect("ended");
}
