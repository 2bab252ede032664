use std::{sync::Arc, time::Duration};

use abi::{BlockRecord, Kind, RecordKind};
use model::{Counters, GpuUuid, Owner, ProcessId};

use super::*;
use crate::{
    BlockLimits, Retention,
    identity::{Identity, Sighting},
    ledger::{Limits, Losses},
};

const PROCESS: ProcessId = ProcessId { pid: 100, start_ticks: 7 };
const OTHER: ProcessId = ProcessId { pid: 200, start_ticks: 8 };
const CARD: GpuUuid = GpuUuid([3; 16]);
const RETENTION: Duration = Duration::from_hours(1);
const ENDED_RETENTION: Duration = Duration::from_mins(5);

fn ledger(max: usize) -> Ledger {
    Ledger::new(Limits {
        retention: ENDED_RETENTION,
        max_ended: 50,
        blocks: BlockLimits { of_process: 1000, of_all: 3000, ranges_of_all: 3000, returns_of_process: 0 },
        owners: OwnerLimits { max, retention: RETENTION, ..OwnerLimits::default() },
    })
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn unit(name: &str) -> OwnerKey {
    OwnerKey::Unit(name.to_owned())
}

/// Process of a unit, or without an owner.
fn of(name: &str) -> Identity {
    let owner = Owner { unit: (!name.is_empty()).then(|| name.to_owned()), ..Owner::default() };
    // Root's, which has no quota.
    Identity { name: "app".to_owned(), uid: 0, cgroup: None, owner, started: None }
}

fn cpu_faults(ledger: &mut Ledger, generation: Generation, faults: u64) {
    let key = CountKey { generation, gpu: 0, kind: Kind::CpuFault as u16, detail: 0 };
    ledger.count(key, Tally { events: faults, amount: 0 });
}

fn copied(ledger: &mut Ledger, generation: Generation, gpu: u32, bytes: u64) {
    let key = CountKey { generation, gpu, kind: Kind::CopyHtod as u16, detail: 0 };
    ledger.count(key, Tally { events: 1, amount: bytes });
}

fn moves(ledger: &mut Ledger, process: ProcessId, name: &str) {
    ledger.seen(process, Sighting::Here(of(name)), at(0));
}

/// The GPU has id 1.
fn shown(ledger: &mut Ledger) {
    ledger.shown(&Arc::new([(1, CARD)].into()));
}

/// CPU faults by owner, without zeroes.
fn faults(ledger: &Ledger) -> Vec<(String, u64)> {
    let owners = ledger.owners().into_iter().map(|(key, totals)| (key.to_string(), totals.host.cpu_faults()));
    owners.filter(|(_, faults)| *faults > 0).collect()
}

fn owned(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(key, faults)| ((*key).to_owned(), *faults)).collect()
}

fn ends(ledger: &mut Ledger, process: ProcessId, generation: Generation, now: SystemTime) {
    ledger.destroyed(generation, Losses::default(), now);
    ledger.close(generation);
    ledger.seen(process, Sighting::Gone, now);
}

#[test]
fn owner_totals_include_exited_processes() {
    let mut ledger = ledger(8);
    ledger.registered(1, PROCESS, of("a.service"));
    ledger.registered(2, OTHER, of("a.service"));
    cpu_faults(&mut ledger, 1, 3);
    cpu_faults(&mut ledger, 2, 4);
    ledger.settle_owners(at(10));
    assert_eq!((faults(&ledger), ledger.owners()[&unit("a.service")].processes), (owned(&[("unit a.service", 7)]), 2));

    ends(&mut ledger, PROCESS, 1, at(20));
    ledger.forget(at(20) + ENDED_RETENTION);
    ledger.settle_owners(at(20) + ENDED_RETENTION);
    let totals = &ledger.owners()[&unit("a.service")];
    assert_eq!((totals.host.cpu_faults(), totals.processes, totals.last_active_at), (7, 1, at(10)));
}

#[test]
fn earlier_counts_stay_with_the_former_owner() {
    let mut ledger = ledger(8);
    ledger.registered(1, PROCESS, of("a.service"));
    cpu_faults(&mut ledger, 1, 3);
    ledger.settle_owners(at(1));
    moves(&mut ledger, PROCESS, "b.service");
    ledger.settle_owners(at(2));
    cpu_faults(&mut ledger, 1, 10);
    ledger.lost(1, Losses { events: 5, ..Losses::default() });
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 3), ("unit b.service", 7)]));
    // And back.
    moves(&mut ledger, PROCESS, "a.service");
    ledger.settle_owners(at(3));
    cpu_faults(&mut ledger, 1, 11);
    ends(&mut ledger, PROCESS, 1, at(4));
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 4), ("unit b.service", 7)]));
    assert_eq!(ledger.owners()[&unit("b.service")].host.dropped_events, 5);
}

#[test]
fn owner_changes_once_the_counted_gpus_are_known() {
    let mut ledger = ledger(8);
    ledger.registered(1, PROCESS, of("a.service"));
    copied(&mut ledger, 1, 1, 4096);
    ledger.settle_owners(at(1));
    moves(&mut ledger, PROCESS, "b.service");
    ledger.settle_owners(at(2));
    let bytes = |ledger: &Ledger, name| {
        let gpus = ledger.owners()[&unit(name)].gpus.clone();
        gpus.into_iter().map(|(gpu, counters)| (gpu, counters.bytes_htod.total())).collect::<Vec<_>>()
    };
    assert_eq!((bytes(&ledger, "a.service"), bytes(&ledger, "b.service")), (vec![(GpuKey::Pending(1), 4096)], vec![]));
    shown(&mut ledger);
    ledger.settle_owners(at(3));
    copied(&mut ledger, 1, 1, 5096);
    let card = GpuKey::Known(CARD);
    assert_eq!((bytes(&ledger, "a.service"), bytes(&ledger, "b.service")), (vec![(card, 4096)], vec![(card, 1000)]));
}

#[test]
fn fetched_bytes_count_for_the_owner_at_that_time() {
    let fetched = |bytes| BlockRecord {
        generation: 1,
        address: 2 << 20,
        gpu: 1,
        kind: RecordKind::CopyHtod as u16,
        bytes,
        ..BlockRecord::default()
    };
    let mut ledger = ledger(8);
    ledger.registered(1, PROCESS, of("a.service"));
    copied(&mut ledger, 1, 1, 65536);
    shown(&mut ledger);
    ledger.add_block_record(&fetched(65536));
    ledger.settle_owners(at(1));
    moves(&mut ledger, PROCESS, "b.service");
    ledger.settle_owners(at(2));
    ledger.add_block_record(&fetched(4096));
    let fetched = |ledger: &Ledger| {
        ["a.service", "b.service"].map(|name| ledger.owners()[&unit(name)].reuse[&GpuKey::Known(CARD)].fetched_bytes)
    };
    assert_eq!(fetched(&ledger), [65536, 4096]);
    ends(&mut ledger, PROCESS, 1, at(3));
    ledger.forget(at(3) + ENDED_RETENTION);
    assert_eq!(fetched(&ledger), [65536, 4096]);
    // The sum of all stays when its owners are no longer listed.
    let all = |ledger: &Ledger| ledger.reuse()[&GpuKey::Known(CARD)].fetched_bytes;
    assert_eq!(all(&ledger), 69632);
    for _ in 0..2 {
        ledger.settle_owners(at(4) + RETENTION * 2);
    }
    assert!(!ledger.owners().contains_key(&unit("b.service")));
    assert_eq!(all(&ledger), 69632);
}

#[test]
fn inherited_va_space_counts_for_its_creators_owner() {
    let mut ledger = ledger(8);
    ledger.registered(1, PROCESS, of("a.service"));
    cpu_faults(&mut ledger, 1, 3);
    ledger.settle_owners(at(1));
    ledger.seen(PROCESS, Sighting::Gone, at(2));
    ledger.forget(at(2) + ENDED_RETENTION);
    assert!(ledger.processes.is_empty());
    cpu_faults(&mut ledger, 1, 8);
    // It has no process any more, but further counts.
    ledger.settle_owners(at(3) + RETENTION * 2);
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 8)]));
    ledger.destroyed(1, Losses::default(), at(4));
    ledger.close(1);
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 8)]));
}

#[test]
fn unlisted_owner_counts_as_other_until_there_is_room() {
    let mut ledger = ledger(1);
    ledger.registered(1, PROCESS, of("a.service"));
    ledger.registered(2, OTHER, of("b.service"));
    cpu_faults(&mut ledger, 1, 3);
    cpu_faults(&mut ledger, 2, 4);
    ledger.settle_owners(at(10));
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 3), ("other", 4)]));

    // A listed owner stays, though idle, while it has a process.
    let end = at(10) + RETENTION * 2;
    ledger.settle_owners(end);
    ends(&mut ledger, PROCESS, 1, end);
    ledger.forget(end + ENDED_RETENTION);
    ledger.settle_owners(end + RETENTION - Duration::from_secs(1));
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 3), ("other", 4)]));
    ledger.settle_owners(end + RETENTION);
    ledger.settle_owners(end + RETENTION);
    cpu_faults(&mut ledger, 2, 9);
    // Its earlier counts under `other` stay there, which would decrease otherwise.
    assert_eq!(faults(&ledger), owned(&[("unit b.service", 5), ("other", 4)]));
    assert_eq!(ledger.owners.retired.counts.host.cpu_faults(), 3);
}

#[test]
fn owner_without_counts_takes_no_place() {
    let mut ledger = ledger(3);
    ledger.registered(1, PROCESS, of("a.service"));
    cpu_faults(&mut ledger, 1, 3);
    copied(&mut ledger, 1, 1, 4096);
    shown(&mut ledger);
    for second in 1..10 {
        ledger.settle_owners(at(second));
        moves(&mut ledger, PROCESS, &format!("{second}.service"));
    }
    ledger.settle_owners(at(10));
    cpu_faults(&mut ledger, 1, 5);
    assert_eq!(faults(&ledger), owned(&[("unit 9.service", 2), ("unit a.service", 3)]));
}

#[test]
fn raised_owner_limit_applies_to_later_owners() {
    let mut ledger = ledger(1);
    ledger.registered(1, PROCESS, of("a.service"));
    let room = |max, retention| Retention {
        ended_retention: ENDED_RETENTION,
        max_ended: 3,
        owners: OwnerLimits { max, retention, ..OwnerLimits::default() },
    };
    ledger.retain(room(2, RETENTION));
    ledger.registered(2, OTHER, of("b.service"));
    cpu_faults(&mut ledger, 1, 3);
    cpu_faults(&mut ledger, 2, 4);
    ledger.settle_owners(at(10));
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 3), ("unit b.service", 4)]));
    // A smaller limit removes no owner until it is idle for the new retention.
    ledger.retain(room(1, 2 * RETENTION));
    let end = at(20) + RETENTION;
    for process in [(PROCESS, 1), (OTHER, 2)] {
        ends(&mut ledger, process.0, process.1, at(20));
    }
    ledger.forget(end);
    ledger.settle_owners(end);
    assert_eq!(ledger.owners().len(), 2);
    ledger.settle_owners(end + RETENTION);
    ledger.settle_owners(end + RETENTION);
    assert!(faults(&ledger).is_empty(), "{:?}", faults(&ledger));
}

#[test]
fn counts_without_a_process_belong_to_other() {
    let mut ledger = ledger(8);
    cpu_faults(&mut ledger, 9, 2);
    ledger.settle_owners(at(1));
    assert_eq!(faults(&ledger), owned(&[("other", 2)]));
    // Its process becomes known later.
    ledger.registered(9, PROCESS, of("a.service"));
    cpu_faults(&mut ledger, 9, 5);
    assert_eq!(faults(&ledger), owned(&[("other", 5)]));
    ledger.settle_owners(at(2));
    cpu_faults(&mut ledger, 9, 6);
    assert_eq!(faults(&ledger), owned(&[("unit a.service", 1), ("other", 5)]));
}

#[test]
fn counts_of_fault_handlers_have_no_owner() {
    let mut ledger = ledger(8);
    let key = CountKey { generation: NO_SPACE, gpu: 1, kind: Kind::GpuReplay as u16, detail: 0 };
    ledger.count(key, Tally { events: 3, amount: 0 });
    ledger.settle_owners(at(1));
    assert!(ledger.owners().is_empty());
}

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// All counts that do not depend on shared batches.
fn comparable(host: &Counters, gpus: &BTreeMap<GpuKey, Counters>) -> (u64, u64, Vec<(GpuKey, u64)>) {
    let gpus = gpus.iter().map(|(gpu, counters)| (*gpu, counters.bytes_htod.total())).filter(|(_, bytes)| *bytes > 0);
    (host.cpu_faults(), host.dropped_events, gpus.collect())
}

#[test]
fn owner_sums_match_the_totals_and_never_decrease_for_two_thousand_processes() {
    const OWNERS_MAX: usize = 20;
    let (mut ledger, mut dice) = (ledger(OWNERS_MAX), Dice(1));
    // Each with its VA spaces and their counts.
    let mut living: Vec<(ProcessId, Vec<(Generation, u64)>)> = Vec::new();
    let (mut generation, mut started) = (0, 0);
    let mut before = ledger.owners();
    for second in 0..1500_u64 {
        let now = at(second * 60);
        for _ in 0..dice.below(4) {
            started += 1;
            // Pids are reused by processes of other owners.
            let process = ProcessId { pid: u32::try_from(started % 97).unwrap(), start_ticks: started };
            let owner = format!("{}.service", dice.below(5) + second / 50);
            let spaces = (0..=dice.below(2)).map(|_| {
                generation += 1;
                (generation, 0)
            });
            let spaces: Vec<_> = spaces.collect();
            for (generation, _) in &spaces {
                ledger.registered(*generation, process, of(&owner));
            }
            living.push((process, spaces));
        }
        for (_, spaces) in &mut living {
            for (generation, counted) in spaces {
                *counted += dice.below(100);
                cpu_faults(&mut ledger, *generation, *counted);
                copied(&mut ledger, *generation, 1 + u32::try_from(*generation % 3).unwrap(), *counted * 4096);
                ledger.lost(*generation, Losses { events: *counted / 50, ..Losses::default() });
            }
        }
        if dice.below(3) == 0 {
            // The third GPU is never listed.
            ledger.shown(&Arc::new([(1, CARD), (2, GpuUuid([5; 16]))].into()));
        }
        for _ in 0..dice.below(10) {
            if living.is_empty() {
                break;
            }
            let at = usize::try_from(dice.below(living.len() as u64)).unwrap();
            match dice.below(3) {
                0 => moves(&mut ledger, living[at].0, &format!("{}.service", dice.below(8) + second / 50)),
                1 => {
                    let (process, spaces) = living.swap_remove(at);
                    ledger.seen(process, Sighting::Gone, now);
                    for (generation, _) in spaces {
                        ledger.destroyed(generation, Losses::default(), now);
                        ledger.close(generation);
                    }
                }
                // It exits, and other processes hold its VA spaces.
                _ => ledger.seen(living[at].0, Sighting::Gone, now),
            }
        }
        ledger.forget(now);
        ledger.settle_owners(now);

        let owners = ledger.owners();
        assert!(owners.len() <= OWNERS_MAX + 1, "{}", owners.len());
        let mut sum = ledger.owners.retired.counts.clone();
        for totals in owners.values() {
            sum.add(&Counts { host: totals.host.clone(), gpus: totals.gpus.clone(), ..Counts::NONE });
        }
        let (_, all) = ledger.totals(|_| None, at_boot);
        assert_eq!(comparable(&sum.host, &sum.gpus), comparable(&all.host, &all.gpus), "at {second}");
        for (key, earlier) in &before {
            let Some(later) = owners.get(key) else { continue };
            assert!(later.host.cpu_faults() >= earlier.host.cpu_faults(), "{key} at {second}");
            let bytes = |totals: &OwnerTotals| totals.gpus.values().map(|gpu| gpu.bytes_htod.total()).sum::<u64>();
            assert!(bytes(later) >= bytes(earlier), "{key} at {second}");
        }
        before = owners;
    }
    assert!(started > 2000, "{started}");
    assert!(ledger.owners.retired.counts.host.cpu_faults() > 0);
}

const fn at_boot(_: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
}

fn by_user(uid: u32, name: &str) -> Identity {
    Identity { uid, ..of(name) }
}

/// Process of a user, in a separate unit.
fn of_user(ledger: &mut Ledger, number: u32, uid: u32) {
    let process = ProcessId { pid: number, start_ticks: 1 };
    ledger.registered(number.into(), process, by_user(uid, &format!("unit{number}.scope")));
    cpu_faults(ledger, number.into(), 1);
}

#[test]
fn user_quota_bounds_listed_owners() {
    let mut ledger = ledger(8);
    for number in 0..10 {
        of_user(&mut ledger, number, 1000);
    }
    of_user(&mut ledger, 50, 1001);
    ledger.settle_owners(at(0));
    let owners = ledger.owners();
    let units: Vec<_> = owners.keys().map(OwnerKey::id).collect();
    assert_eq!(units, ["unit0.scope", "unit1.scope", "unit50.scope", ""]);
    assert_eq!(owners[&OwnerKey::Other].host.cpu_faults(), 8);
    assert_eq!(ledger.users_at_quota().iter().copied().collect::<Vec<_>>(), [1000]);
}

#[test]
fn root_units_and_kubelet_pods_have_no_user_quota() {
    let mut ledger = ledger(8);
    for number in 0..4 {
        of_user(&mut ledger, number, 0);
    }
    for number in 10..14 {
        let owner = Owner { pod: Some(model::Pod { uid: format!("pod{number}") }), ..Owner::default() };
        let identity = Identity { owner, ..by_user(1000, "") };
        ledger.registered(number.into(), ProcessId { pid: number, start_ticks: 1 }, identity);
    }
    ledger.settle_owners(at(0));
    assert_eq!(ledger.owners().len(), 8);
    assert!(ledger.users_at_quota().is_empty());
}
