use abi::Kind;
use model::{Access, Cause, Counters, GpuUuid, Owner, Process};

use super::*;

mod evictions;
mod gpus;
mod kinds;
mod memory;
mod sites;

const PROCESS: ProcessId = ProcessId { pid: 100, start_ticks: 7 };
const OTHER: ProcessId = ProcessId { pid: 200, start_ticks: 8 };
const CARD: GpuUuid = GpuUuid([3; 16]);
const OTHER_CARD: GpuUuid = GpuUuid([5; 16]);
const RETENTION: Duration = Duration::from_mins(5);
const BLOCKS: BlockLimits = BlockLimits { of_process: 1000, of_all: 3000, ranges_of_all: 3000, returns_of_process: 0 };

fn ledger() -> Ledger {
    Ledger::new(Limits { retention: RETENTION, max_ended: 3, blocks: BLOCKS, owners: OwnerLimits::default() })
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn named(name: &str) -> Identity {
    Identity { name: name.to_owned(), uid: 1000, cgroup: None, owner: Owner::default(), started: None }
}

fn lost(events: u64) -> Losses {
    Losses { events, ..Losses::default() }
}

fn count(ledger: &mut Ledger, generation: Generation, gpu: u32, kind: Kind, detail: u16, events: u64, amount: u64) {
    ledger.count(CountKey { generation, gpu, kind: kind as u16, detail }, Tally { events, amount });
}

fn processes(ledger: &Ledger) -> Vec<Process> {
    ledger.totals(|_| None, |_| SystemTime::UNIX_EPOCH).0
}

fn totals(ledger: &Ledger) -> Counts {
    ledger.totals(|_| None, |_| SystemTime::UNIX_EPOCH).1
}

/// Lists this GPU as processor 1, after a reading of the probes.
fn shown(ledger: &mut Ledger, uuid: GpuUuid) {
    ledger.shown(&Arc::new([(1, uuid)].into()));
}

/// Process with a VA space and this many CPU faults.
fn with_cpu_faults(ledger: &mut Ledger, process: ProcessId, generation: Generation, faults: u64) {
    ledger.registered(generation, process, named("app"));
    count(ledger, generation, 0, Kind::CpuFault, 0, faults, 0);
}

#[test]
fn process_is_counted_from_when_its_last_earlier_va_space_was_found() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("a"));
    ledger.registered(2, OTHER, named("b"));
    ledger.adopted(OTHER, at(10));
    // Its holder was killed, and it was found again.
    ledger.destroyed(2, Losses::default(), at(11));
    ledger.registered(3, OTHER, named("b"));
    ledger.adopted(OTHER, at(12));
    let counted_from: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.counted_from)).collect();
    assert_eq!(counted_from, [(PROCESS, None), (OTHER, Some(at(12)))]);
}

#[test]
fn changed_retention_applies_to_earlier_exits() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("a"));
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    ledger.seen(PROCESS, Sighting::Gone, at(10));
    ledger.forget(at(20));
    assert_eq!(processes(&ledger).len(), 1);
    let retention = Retention { ended_retention: RETENTION, max_ended: 0, owners: OwnerLimits::default() };
    ledger.retain(Retention { max_ended: 3, ended_retention: Duration::from_secs(11), ..retention });
    ledger.forget(at(20));
    assert_eq!(processes(&ledger).len(), 1);
    ledger.retain(retention);
    ledger.forget(at(20));
    assert!(processes(&ledger).is_empty());
}

#[test]
fn absolute_counts_are_not_added_twice() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 5, 0);
    assert_eq!(processes(&ledger)[0].host.cpu_faults(), 5);
}

#[test]
fn va_spaces_of_a_process_add_up() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    with_cpu_faults(&mut ledger, OTHER, 3, 5);
    let faults: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.host.cpu_faults())).collect();
    assert_eq!(faults, [(PROCESS, 7), (OTHER, 5)]);
    assert_eq!(totals(&ledger).host.cpu_faults(), 12);
}

#[test]
fn process_exits_with_its_last_va_space_and_keeps_its_counts() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    ledger.destroyed(1, Losses::default(), at(10));
    assert_eq!(processes(&ledger)[0].exited_at, None);
    ledger.destroyed(2, Losses::default(), at(20));
    assert_eq!(ledger.closing().len(), 2);
    // The last reading, and its effects.
    count(&mut ledger, 2, 0, Kind::CpuFault, 0, 6, 0);
    ledger.close(1);
    ledger.close(2);
    assert!(ledger.closing().is_empty());
    let [process] = &processes(&ledger)[..] else { panic!() };
    assert_eq!((process.exited_at, process.host.cpu_faults()), (Some(at(20)), 9));
}

#[test]
fn process_that_opens_the_driver_again_has_not_exited() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    let [process] = &processes(&ledger)[..] else { panic!() };
    assert_eq!((process.exited_at, process.host.cpu_faults()), (None, 7));
}

#[test]
fn reused_pid_is_another_process() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.destroyed(1, Losses::default(), at(10));
    let successor = ProcessId { start_ticks: 99, ..PROCESS };
    with_cpu_faults(&mut ledger, successor, 2, 4);
    let faults: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.host.cpu_faults())).collect();
    assert_eq!(faults, [(PROCESS, 3), (successor, 4)]);
}

#[test]
fn totals_never_decrease_when_a_process_is_forgotten() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    count(&mut ledger, 1, 1, Kind::CopyHtod, 0, 1, 4096);
    ledger.destroyed(1, lost(2), at(10));
    ledger.close(1);
    let before = totals(&ledger);
    assert_eq!(
        (before.host.cpu_faults(), before.gpus[&GpuKey::Unknown(1)].bytes_htod.total(), before.host.dropped_events),
        (3, 4096, 2)
    );

    ledger.forget(at(10) + RETENTION - Duration::from_secs(1));
    assert_eq!(processes(&ledger).len(), 1);
    ledger.forget(at(10) + RETENTION);
    assert_eq!(processes(&ledger), []);
    assert_eq!(totals(&ledger), before);
}

#[test]
fn oldest_exited_processes_beyond_the_limit_are_forgotten() {
    let mut ledger = ledger();
    for number in 0..5 {
        let process = ProcessId { pid: 100 - number, start_ticks: 1 };
        with_cpu_faults(&mut ledger, process, number.into(), 1);
        ledger.destroyed(number.into(), Losses::default(), at(10 + u64::from(number)));
        ledger.close(number.into());
    }
    with_cpu_faults(&mut ledger, OTHER, 9, 1);
    ledger.forget(at(20));
    let pids: Vec<_> = processes(&ledger).iter().map(|process| process.id.pid).collect();
    assert_eq!(pids, [96, 97, 98, 200]);
    assert_eq!(totals(&ledger).host.cpu_faults(), 6);
}

#[test]
fn process_has_exited_even_if_another_holds_its_va_space() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    assert_eq!(ledger.present(), [PROCESS]);
    ledger.seen(PROCESS, Sighting::Gone, at(10));
    assert_eq!(ledger.present(), []);
    assert_eq!(processes(&ledger)[0].exited_at, Some(at(10)));
    // It is forgotten; later counts of its VA space are in the sums.
    ledger.forget(at(10) + RETENTION);
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 8, 0);
    assert_eq!(processes(&ledger), []);
    assert_eq!(totals(&ledger).host.cpu_faults(), 8);
    ledger.destroyed(1, Losses::default(), at(1000));
    ledger.close(1);
    assert_eq!(totals(&ledger).host.cpu_faults(), 8);
}

#[test]
fn later_identity_from_proc_replaces_the_first() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("sh"));
    ledger.seen(PROCESS, Sighting::Here(named("python")), at(10));
    assert_eq!(processes(&ledger)[0].name, "python");
    assert_eq!(processes(&ledger)[0].exited_at, None);
}

#[test]
fn counts_before_the_record_of_their_va_space_find_their_process() {
    let mut ledger = ledger();
    count(&mut ledger, 1, 0, Kind::CpuFault, 1, 2, 0);
    assert_eq!(totals(&ledger).host.cpu_faults(), 2);
    ledger.registered(1, PROCESS, named("app"));
    assert_eq!(processes(&ledger)[0].host.cpu_faults(), 2);
    assert_eq!(totals(&ledger).host.cpu_faults(), 2);
}

#[test]
fn events_dropped_for_lack_of_room_are_reported_at_their_process() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.lost(1, lost(2));
    assert_eq!(processes(&ledger)[0].total().dropped_events, 2);
    ledger.destroyed(1, lost(5), at(10));
    ledger.close(1);
    assert_eq!(processes(&ledger)[0].total().dropped_events, 5);
}

#[test]
fn driver_unload_ends_every_process_and_generations_may_repeat() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.close_all(Some(at(10)));
    assert_eq!(processes(&ledger)[0].exited_at, Some(at(10)));
    with_cpu_faults(&mut ledger, OTHER, 1, 4);
    let faults: Vec<_> = processes(&ledger).iter().map(|process| (process.id, process.host.cpu_faults())).collect();
    assert_eq!(faults, [(PROCESS, 3), (OTHER, 4)]);
}

#[test]
fn detached_probes_end_no_process() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.close_all(None);
    let [process] = &processes(&ledger)[..] else { panic!() };
    assert_eq!((process.exited_at, process.host.cpu_faults()), (None, 3));
}

#[test]
fn unreadable_process_has_not_exited() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.seen(PROCESS, Sighting::Unknown, at(10));
    assert_eq!(processes(&ledger)[0].exited_at, None);
    assert_eq!(ledger.present(), [PROCESS]);
}

#[test]
fn process_without_a_va_space_remains_until_it_exits() {
    let mut ledger = ledger();
    with_cpu_faults(&mut ledger, PROCESS, 1, 3);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    ledger.seen(PROCESS, Sighting::Here(named("app")), at(11));
    // A single failed read does not revert it.
    ledger.seen(PROCESS, Sighting::Unknown, at(12));
    ledger.forget(at(10) + 2 * RETENTION);
    with_cpu_faults(&mut ledger, PROCESS, 2, 4);
    assert_eq!(processes(&ledger)[0].host.cpu_faults(), 7);

    ledger.destroyed(2, Losses::default(), at(2000));
    ledger.close(2);
    ledger.seen(PROCESS, Sighting::Gone, at(2001));
    ledger.forget(at(2000) + RETENTION);
    assert_eq!(processes(&ledger), []);
}

#[test]
fn start_time_of_a_process_does_not_move_when_the_clock_is_set() {
    let mut ledger = ledger();
    let started = |seconds| Identity { started: Some(at(seconds)), ..named("app") };
    ledger.registered(1, PROCESS, started(5));
    ledger.registered(2, PROCESS, started(3600));
    ledger.seen(PROCESS, Sighting::Here(named("renamed")), at(10));
    assert_eq!(processes(&ledger)[0].started_at, Some(at(5)));
}

#[test]
fn discarding_wrong_counts_preserves_earlier_ones() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 0, Kind::CpuFault, 0, 5, 0);
    ledger.destroyed(1, Losses::default(), SystemTime::UNIX_EPOCH);
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    count(&mut ledger, 2, 0, Kind::CpuFault, 0, 1000, 0);
    assert_eq!(ledger.open(), [2]);
    ledger.discard();
    assert_eq!(processes(&ledger)[0].host.cpu_read_faults, 5);
    ledger.close_all(None);
    assert_eq!(processes(&ledger)[0].host.cpu_read_faults, 5);
}

#[test]
fn exited_processes_of_the_user_with_most_are_forgotten_first() {
    let mut ledger = ledger();
    let mut ends = |pid: u32, uid| {
        let process = ProcessId { pid, start_ticks: 1 };
        ledger.registered(pid.into(), process, Identity { uid, ..named("app") });
        ledger.destroyed(pid.into(), Losses::default(), at(pid.into()));
        ledger.close(pid.into());
        ledger.forget(at(100));
    };
    ends(1, 1);
    for pid in 10..20 {
        ends(pid, 2);
    }
    let left: Vec<_> = processes(&ledger).iter().map(|process| process.id.pid).collect();
    assert_eq!(left, [1, 18, 19]);
}
