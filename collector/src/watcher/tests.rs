use std::time::Duration;

use super::*;
use crate::{Collector, btf::tests::small_kernel, roots::fake::Machine};

fn config(machine: &Machine) -> Config {
    Config { roots: machine.roots.clone(), ..Config::default() }
}

/// A machine that lacks nothing but a driver.
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
async fn without_a_driver_it_waits_and_says_what_for() {
    let SourceState::Waiting { missing } = state(&without_driver()) else { panic!() };
    assert_eq!(
        missing,
        ["the driver nvidia-uvm is not loaded: run `modprobe nvidia-uvm`, or start a CUDA program, which loads it"]
    );
}

#[tokio::test]
async fn without_kprobes_it_waits_even_with_a_driver() {
    let machine = with_driver("550.163.01\n");
    machine.remove("sys/bus");
    let SourceState::Waiting { missing } = state(&machine) else { panic!() };
    assert_eq!(missing, ["this kernel has no kprobes: boot one built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS"]);
}

#[tokio::test]
async fn an_unknown_driver_is_refused_and_the_supported_ones_are_named() {
    let SourceState::Refused { reason } = state(&with_driver("600.10\n")) else { panic!() };
    assert_eq!(
        reason,
        "driver 600.10 is not supported: the layout of its structures is not known; supported are \
         515-525, 530-545, 550-555, 560, 565-575, 580-595; update uvmd, or change the driver"
    );
}

#[tokio::test]
async fn a_driver_without_a_version_is_refused() {
    let SourceState::Refused { reason } = state(&with_driver("")) else { panic!() };
    assert!(reason.starts_with("the driver does not tell its version"), "{reason}");
}

#[tokio::test]
async fn a_kernel_whose_types_are_damaged_is_refused() {
    let machine = with_driver("550.163.01\n").with("sys/kernel/btf/vmlinux", "not BTF");
    let SourceState::Refused { reason } = state(&machine) else { panic!() };
    assert!(reason.contains("/sys/kernel/btf/vmlinux cannot be used: not BTF"), "{reason}");
}

#[tokio::test]
async fn a_refused_driver_is_waited_for_again_once_it_is_gone() {
    let machine = with_driver("600.10\n");
    let mut watcher = Watcher::new(config(&machine)).unwrap();
    watcher.look();
    assert!(matches!(watcher.snapshot().source.state, SourceState::Refused { .. }));
    machine.remove("sys/module/nvidia_uvm");
    watcher.look();
    assert!(matches!(watcher.snapshot().source.state, SourceState::Waiting { .. }));
}

#[tokio::test]
async fn every_reason_for_a_loss_is_always_listed() {
    let snapshot = Watcher::new(config(&Machine::new())).unwrap().snapshot();
    let reasons: Vec<_> = snapshot.source.dropped_events.iter().map(|(reason, events)| (*reason, *events)).collect();
    let expected =
        ["counts_full", "ring_full", "self_test", "skipped", "spaces_full", "unknown_va_space", "unreadable"];
    assert_eq!(reasons, expected.map(|reason| (reason, 0)));
}

#[test]
fn a_failed_self_test_names_the_family_and_what_failed() {
    let families = Families::known().unwrap();
    let family = families.of("550.163.01").unwrap();
    assert!(verdict(family, &[0; 9]).is_none());
    let refusal = verdict(family, &[2, 0, 1]).unwrap().to_string();
    assert_eq!(
        refusal,
        "the driver's events do not look as those of 550-555 should: a fault's VA space is not that of its event (2 times), \
         a fault address is not page aligned (1 times); counting has stopped, as the figures would be wrong"
    );
}

#[tokio::test]
async fn whoever_asks_gets_a_snapshot_taken_after_the_question() {
    let machine = Machine::new();
    let collector = Collector::start(config(&machine)).unwrap();
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
async fn a_driver_that_comes_is_noticed_by_itself() {
    let machine = without_driver();
    let collector = Collector::start(config(&machine)).unwrap();
    let snapshots = collector.snapshots();
    assert!(matches!(snapshots.latest().source.state, SourceState::Waiting { .. }));
    machine.write("sys/module/nvidia_uvm/version", "600.10");
    let noticed = async {
        while !matches!(snapshots.latest().source.state, SourceState::Refused { .. }) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), noticed).await.expect("noticed");
    collector.stop().await;
}
