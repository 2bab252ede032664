//! Quotas: a process or user may hold a limited number of map entries; others are not affected.

use abi::{
    DropReason, Kind, LifecycleKind, Quotas, Released, Resource, Tenant, TenantKind, Usage,
    quota::{ByResource, Quota, Rate},
};
use probes_test::{
    bench::{Bench, GpuFault, Migration},
    driver, uprobe,
};

const FAMILY: &str = "L2_550_555";
const SPACE: u64 = 0xffff_8881_2345_6780;
const MINUTE_NS: u64 = 60_000_000_000;

fn at(number: u64) -> u64 {
    SPACE + number * 4096
}

/// Quotas of one resource, without limits for the others.
fn only(resource: Resource, quota: Quota) -> Quotas {
    let mut quotas = Quotas::UNLIMITED;
    quotas.quotas[resource] = quota;
    quotas
}

const fn of_process(process_max: u32) -> Quota {
    Quota { process_max, ..Quota::UNLIMITED }
}

fn own() -> Tenant {
    Tenant::process(std::process::id())
}

fn usage(bench: &mut Bench, tenant: Tenant) -> Usage {
    let usage = bench.probes().usage().unwrap();
    usage.into_iter().find(|(found, _)| *found == tenant).map(|(_, usage)| usage).expect("it has made a VA space")
}

fn charged(bench: &mut Bench, resource: Resource) -> [u64; 3] {
    let user = Tenant::user(procfs::process::Process::myself().unwrap().status().unwrap().ruid);
    [own(), user, Tenant::NODE].map(|tenant| usage(bench, tenant).charged[resource])
}

#[test]
fn process_quota_bounds_va_spaces_of_each_process() {
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &only(Resource::Spaces, of_process(3))) else { return };
    // Before this process makes a call: the other one is a copy of it.
    uprobe::in_another_process(|| driver::mm_register(at(100))).unwrap();
    for number in 0..5 {
        driver::mm_register(at(number));
    }
    let made = bench.probes().lifecycles();
    assert_eq!(made.iter().filter(|record| record.tgid == own().id).count(), 3);
    assert_eq!(made.len(), 4);
    assert_eq!(bench.lost(), [(DropReason::SpacesFull, 2)]);
    let own = usage(&mut bench, own());
    let spaces = Resource::Spaces;
    assert_eq!((own.charged[spaces], own.refused[spaces]), (3, 2));
    // A released entry may be used again.
    driver::destroy(at(0), || {});
    driver::mm_register(at(7));
    assert_eq!(bench.lost(), [(DropReason::SpacesFull, 2)]);
    assert_eq!(charged(&mut bench, Resource::Spaces), [3, 4, 4]);
}

#[test]
fn user_quota_bounds_all_processes_together() {
    let quotas = only(Resource::Spaces, Quota { user_max: 2, ..Quota::UNLIMITED });
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &quotas) else { return };
    for number in 0..3 {
        uprobe::in_another_process(|| driver::mm_register(at(number))).unwrap();
    }
    assert_eq!(bench.probes().lifecycles().len(), 2);
    assert_eq!(bench.lost(), [(DropReason::SpacesFull, 1)]);
    assert_eq!(usage(&mut bench, Tenant::user(0)).refused[Resource::Spaces], 1);
}

#[test]
fn reserve_is_for_tenants_with_few_entries() {
    let quota = Quota { node_max: 2, process_few: 2, user_few: 10, ..Quota::UNLIMITED };
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &only(Resource::Spaces, quota)) else { return };
    uprobe::in_another_process(|| {
        for number in 10..14 {
            driver::mm_register(at(number));
        }
    })
    .unwrap();
    // Two until the node's quota is reached, and none after it: two are not few.
    assert_eq!(bench.probes().lifecycles().len(), 2);
    for number in 0..4 {
        driver::mm_register(at(number));
    }
    assert_eq!(bench.probes().lifecycles().len(), 2);
    assert_eq!(bench.lost(), [(DropReason::SpacesFull, 4)]);
}

#[test]
fn keys_beyond_a_quota_are_dropped_only_for_their_va_space() {
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &only(Resource::Counts, of_process(2))) else { return };
    uprobe::in_another_process(|| driver::mm_register(at(1))).unwrap();
    let others = bench.probes().lifecycles()[0];
    let (space, record) = bench.register(SPACE);
    for access in 0..4 {
        bench.gpu_fault(&space, &GpuFault { access, ..GpuFault::default() }, |entry| entry);
    }
    bench.gpu_fault(&space, &GpuFault { access: 0, ..GpuFault::default() }, |entry| entry);
    let other = bench.space(at(1));
    bench.cpu_fault(&other, 1);
    assert_eq!(
        bench.counts(record.generation),
        [((1, Kind::GpuFault, 0), (2, 2)), ((1, Kind::GpuFault, 1), (1, 1))].into()
    );
    // The fault is raised here, and has no site there.
    assert_eq!(
        bench.counts(others.generation),
        [((0, Kind::CpuFault, 1), (1, 0)), ((0, Kind::SitelessCpuFault, 0), (1, 0))].into()
    );
    assert_eq!(bench.lost(), [(DropReason::CountsFull, 2)]);
    assert_eq!(usage(&mut bench, own()).refused[Resource::Counts], 2);
    // Repeated refusals use up no quota.
    assert_eq!(charged(&mut bench, Resource::Counts), [2, 4, 4]);
}

#[test]
fn keys_removed_by_user_space_can_be_inserted_again() {
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &only(Resource::Counts, of_process(1))) else { return };
    let (space, record) = bench.register(SPACE);
    bench.cpu_fault(&space, 0);
    bench.cpu_fault(&space, 1);
    assert_eq!(bench.counts(record.generation).len(), 1);
    for (key, _) in bench.probes().counts().unwrap() {
        bench.probes().forget(&key).unwrap();
    }
    // The inserted one stays charged until user space releases it; the refused one is not charged.
    let charged = usage(&mut bench, own()).charged;
    let mut entries = ByResource::default();
    entries[Resource::Counts] = charged[Resource::Counts];
    assert_eq!(entries[Resource::Counts], 1);
    bench.probes().release(own(), Released { entries, shares_until_ns: 0 }).unwrap();
    bench.cpu_fault(&space, 1);
    assert_eq!(bench.counts(record.generation), [((0, Kind::CpuFault, 1), (1, 0))].into());
}

#[test]
fn distributions_have_a_separate_quota() {
    let quotas = only(Resource::Distributions, of_process(1));
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &quotas) else { return };
    let (space, record) = bench.register(SPACE);
    for bytes in [4096, 65536, 4096] {
        bench.migration(&space, &Migration { bytes, ..Migration::default() });
    }
    let sizes: Vec<_> = bench.distributions(record.generation).into_values().collect();
    assert_eq!(sizes, [(2, 8192)]);
    // All bytes are counted.
    assert_eq!(bench.counts(record.generation)[&(1, Kind::CopyHtod, 0)], (3, 4096 + 65536 + 4096));
}

#[test]
fn evictions_beyond_the_pair_quota_are_counted_without_the_evictor() {
    let quotas = only(Resource::EvictorPairs, of_process(0));
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &quotas) else { return };
    let (space, record) = bench.register(SPACE);
    let eviction = Migration { from: 1, to: 0, cause: 4, ..Migration::default() };
    bench.migration(&space, &eviction);
    bench.migration(&space, &eviction);
    let evictions: Vec<_> =
        bench.evictions().into_iter().map(|((victim, evictor, ..), tally)| (victim, evictor, tally)).collect();
    assert_eq!(evictions, [(record.generation, 0, (0, 131_072))]);
    assert_eq!(bench.lost(), []);
}

#[test]
fn call_beyond_the_quota_is_not_followed_to_its_return() {
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &only(Resource::Calls, of_process(1))) else { return };
    let (_, record) = bench.register(SPACE);
    let (_, other) = bench.register(at(1));
    driver::destroy(SPACE, || {
        // A call within the call, as another thread's would be.
        std::thread::scope(|scope| {
            scope.spawn(|| driver::destroy(at(1), || {}));
        });
    });
    // Both have ended, the untracked one at its start.
    let gone: Vec<_> = bench.probes().lifecycles().iter().map(|record| record.generation).collect();
    assert_eq!(gone, [other.generation, record.generation]);
    let calls = Resource::Calls;
    let usage = usage(&mut bench, own());
    assert_eq!((usage.charged[calls], usage.refused[calls]), (0, 1));
}

#[test]
fn call_is_released_by_the_tenant_it_was_charged_to() {
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &only(Resource::Calls, of_process(4))) else { return };
    let calls = Resource::Calls;
    // A process without a VA space is charged to the node, as its user has none either; within the
    // call it creates its first.
    let mut of_node = 0;
    driver::allocate(false, || {
        of_node = usage(&mut bench, Tenant::NODE).charged[calls];
        driver::mm_register(SPACE);
    });
    assert_eq!(of_node, 1);
    assert_eq!(charged(&mut bench, calls), [0, 0, 0]);
    let mut of_all = [0; 3];
    driver::allocate(false, || of_all = charged(&mut bench, calls));
    assert_eq!(of_all, [1, 1, 0]);
    assert_eq!(charged(&mut bench, calls), [0, 0, 0]);
}

fn paced(rate: Rate) -> Quotas {
    Quotas { process_rate: rate, ..Quotas::UNLIMITED }
}

#[test]
fn va_spaces_created_too_fast_share_a_generation_of_their_process() {
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &paced(Rate { every_ns: MINUTE_NS, burst: 2 })) else {
        return;
    };
    for number in 0..5 {
        driver::mm_register(at(number));
    }
    let records = bench.probes().lifecycles();
    let kinds: Vec<_> = records.iter().map(|record| record.kind().unwrap()).collect();
    assert_eq!(kinds, [LifecycleKind::Registered, LifecycleKind::Registered, LifecycleKind::SharedByProcess]);
    assert_eq!((records[2].tgid, records[2].uid), (records[0].tgid, records[0].uid));
    for number in 0..5 {
        let space = bench.space(at(number));
        bench.cpu_fault(&space, 0);
    }
    let of_each: Vec<_> =
        records.iter().map(|record| bench.counts(record.generation)[&(0, Kind::CpuFault, 0)].0).collect();
    assert_eq!(of_each, [1, 1, 3]);
    assert_eq!(usage(&mut bench, own()).shared_spaces, 3);
    // The end of VA spaces with a shared generation is not reported.
    for number in 0..5 {
        driver::destroy(at(number), || {});
    }
    let gone: Vec<_> = bench.probes().lifecycles().iter().map(|record| record.generation).collect();
    assert_eq!(gone, [records[0].generation, records[1].generation]);
    assert_eq!(usage(&mut bench, own()).shared_spaces, 0);
    assert_eq!(bench.probes().spaces().unwrap(), []);
    assert_eq!(bench.lost(), []);
}

#[test]
fn endless_opening_and_closing_writes_few_records() {
    let rate = Rate { every_ns: MINUTE_NS, burst: 4 };
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &paced(rate)) else { return };
    for _ in 0..1000 {
        let space = bench.space(SPACE);
        driver::mm_register(SPACE);
        bench.cpu_fault(&space, 0);
        driver::destroy(SPACE, || {});
    }
    // Four with an end record each, and one for all others.
    assert_eq!(bench.probes().lifecycles().len(), 9);
    assert_eq!((bench.keys(), bench.lost()), (5, vec![]));
    let faults: u64 = bench.probes().counts().unwrap().iter().map(|(_, tally)| tally.events).sum();
    assert_eq!(faults, 1000);
}

#[test]
fn processes_started_too_fast_share_a_generation_of_their_user() {
    let rate = Rate { every_ns: MINUTE_NS, burst: 1 };
    let quotas = Quotas { user_rate: rate, ..Quotas::UNLIMITED };
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &quotas) else { return };
    for number in 0..3 {
        uprobe::in_another_process(|| driver::mm_register(at(number))).unwrap();
    }
    let records = bench.probes().lifecycles();
    let kinds: Vec<_> = records.iter().map(|record| record.kind().unwrap()).collect();
    assert_eq!(kinds, [LifecycleKind::Registered, LifecycleKind::SharedByUser]);
    let shared: Vec<_> = bench.probes().spaces().unwrap().iter().map(|space| space.generation).collect();
    assert_eq!(shared.iter().filter(|generation| **generation == records[1].generation).count(), 2);
}

#[test]
fn processes_of_a_costly_user_share_a_generation_for_a_time() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    let uid = procfs::process::Process::myself().unwrap().status().unwrap().ruid;
    let shares = |shares_until_ns| Released { shares_until_ns, ..Released::default() };
    bench.probes().release(Tenant::user(uid), shares(u64::MAX)).unwrap();
    // Before this process makes a call: the other one is a copy of it.
    uprobe::in_another_process(|| {
        driver::mm_register(at(3));
        driver::destroy(at(3), || {});
    })
    .unwrap();
    // User space has nothing to do for it.
    let tenants = bench.probes().usage().unwrap();
    assert!(tenants.iter().all(|(tenant, _)| tenant.kind != TenantKind::Process as u32), "{tenants:?}");
    assert_eq!(usage(&mut bench, Tenant::NODE).charged[Resource::Processes], 0);
    driver::mm_register(at(1));
    let kinds: Vec<_> = bench.probes().lifecycles().iter().map(|record| record.kind().unwrap()).collect();
    assert_eq!(kinds, [LifecycleKind::SharedByUser]);
    bench.probes().release(Tenant::user(uid), shares(1)).unwrap();
    driver::mm_register(at(2));
    assert_eq!(bench.probes().lifecycles()[0].kind(), Some(LifecycleKind::Registered));
}

#[test]
fn dropped_events_of_a_shared_generation_outlive_its_va_spaces() {
    let mut quotas = paced(Rate { every_ns: MINUTE_NS, burst: 0 });
    quotas.quotas[Resource::Counts] = of_process(0);
    let Some(mut bench) = Bench::with_quotas(FAMILY, 1024, &quotas) else { return };
    for number in 0..2 {
        let space = bench.space(at(number));
        driver::mm_register(at(number));
        bench.cpu_fault(&space, 0);
        driver::destroy(at(number), || {});
    }
    assert_eq!(usage(&mut bench, own()).dropped_events, 2);
}

#[test]
fn idle_tenant_can_be_forgotten_and_returns() {
    let Some(mut bench) = Bench::new(FAMILY) else { return };
    driver::mm_register(SPACE);
    driver::destroy(SPACE, || {});
    // Another process came and exited in between.
    let read = usage(&mut bench, own());
    driver::mm_register(SPACE);
    assert!(!bench.probes().forget_tenant(own(), &read).unwrap());
    driver::destroy(SPACE, || {});
    let read = usage(&mut bench, own());
    assert!(bench.probes().forget_tenant(own(), &read).unwrap());
    assert!(bench.probes().forget_tenant(own(), &read).unwrap());
    assert!(bench.probes().usage().unwrap().iter().all(|(tenant, _)| *tenant != own()));
    driver::mm_register(SPACE);
    assert_eq!(usage(&mut bench, own()).charged[Resource::Spaces], 1);
}
