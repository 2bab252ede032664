use abi::count::RecordLosses;
use model::DegradedReason;

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const USER: Tenant = Tenant::user(1000);
const PROCESS: Tenant = Tenant::process(7);
const OWNER: Owner = Owner { tgid: 7, uid: 1000 };
const COUNTS: Resource = Resource::Counts;

fn usage(charge: impl FnOnce(&mut Usage)) -> Usage {
    let mut usage = Usage {
        charged: ByResource::default(),
        refused: ByResource::default(),
        latest_generation: 0,
        shared_generation: 0,
        shared_spaces: 0,
        dropped_events: 0,
        records: RecordLosses::default(),
        paced_until_ns: 0,
        start_boottime_ns: 0,
        comm: [0; 16],
        uid: OWNER.uid,
        padding: 0,
    };
    charge(&mut usage);
    usage
}

fn charged(resource: Resource, number: u64) -> Usage {
    usage(|usage| usage.charged[resource] = number)
}

fn tenants() -> Tenants {
    Tenants::default().renewed(&Quotas::new(16384, 65536, 16384))
}

fn space(generation: Generation) -> Space {
    Space {
        generation,
        serial: generation,
        dropped_events: 0,
        records: RecordLosses::default(),
        owner: OWNER,
        window_records: 0,
        window_began_ns: 0,
        shared_by: 0,
        padding: 0,
    }
}

fn count(generation: Generation, detail: u16) -> CountKey {
    CountKey { generation, gpu: 0, kind: Kind::CpuFault as u16, detail }
}

/// Released counts by tenant.
fn released(tenants: &mut Tenants, keys: &[CountKey], spaces: &[Space]) -> Vec<(Tenant, u64)> {
    let released = tenants.release(keys.iter(), [].iter(), [].iter(), spaces, |_| 0);
    released.into_iter().map(|(tenant, released)| (tenant, released.entries[COUNTS])).collect()
}

#[test]
fn charge_without_an_entry_is_released_once() {
    let mut tenants = tenants();
    let held = charged(Resource::Counts, 5);
    tenants.observe(vec![(USER, held), (PROCESS, held)], 0);
    assert_eq!(released(&mut tenants, &[count(1, 0), count(1, 1)], &[space(1)]), [(USER, 3), (PROCESS, 3)]);
    assert_eq!(released(&mut tenants, &[count(1, 0), count(1, 1)], &[space(1)]), []);
    // Two more keys, and one of the former removed.
    let held = charged(Resource::Counts, 7);
    tenants.observe(vec![(USER, held), (PROCESS, held)], 0);
    let keys = [count(1, 0), count(1, 2), count(1, 3)];
    assert_eq!(released(&mut tenants, &keys, &[space(1)]), [(USER, 4), (PROCESS, 4)]);
}

#[test]
fn keys_of_a_closed_va_space_are_charged_until_removed() {
    let mut tenants = tenants();
    tenants.owns(1, OWNER);
    tenants.observe(vec![(PROCESS, charged(Resource::Counts, 2))], 0);
    assert_eq!(released(&mut tenants, &[count(1, 0), count(1, 1)], &[]), []);
    assert_eq!(released(&mut tenants, &[], &[]), [(PROCESS, 2)]);
}

#[test]
fn sites_are_charged_until_removed() {
    let mut tenants = tenants();
    tenants.observe(vec![(PROCESS, charged(Resource::Sites, 3))], 0);
    let sites = [1, 2].map(|pc| SiteKey { generation: 1, pc });
    let mut released = |sites: &[SiteKey]| {
        let released = tenants.release([].iter(), [].iter(), sites.iter(), &[space(1)], |_| 0);
        released.into_iter().map(|(_, released)| released.entries[Resource::Sites]).collect::<Vec<_>>()
    };
    assert_eq!([released(&sites), released(&sites), released(&sites[..1])], [vec![1], vec![], vec![2]]);
}

#[test]
fn user_without_a_separate_usage_is_charged_with_the_other_users() {
    let mut tenants = tenants();
    tenants.observe(vec![(Tenant::OTHER_USERS, charged(Resource::Counts, 4))], 0);
    assert_eq!(released(&mut tenants, &[count(1, 0)], &[space(1)]), [(Tenant::OTHER_USERS, 3)]);
}

#[test]
fn charges_released_by_the_probes_are_not_released_by_user_space() {
    let mut tenants = tenants();
    tenants.observe(vec![(PROCESS, charged(Resource::Spaces, 3))], 0);
    assert_eq!(tenants.release([].iter(), [].iter(), [].iter(), &[], |_| 0), []);
    assert_eq!(tenants.forgettable(SECOND_NS), []);
}

#[test]
fn idle_tenant_is_forgotten_once_its_full_burst_is_available() {
    let mut tenants = tenants();
    let paced = usage(|usage| usage.paced_until_ns = 5 * SECOND_NS);
    tenants.observe(vec![(Tenant::NODE, usage(|_| {})), (USER, usage(|_| {})), (PROCESS, paced)], 0);
    let forgettable = |tenants: &Tenants| {
        tenants.forgettable(6 * SECOND_NS).into_iter().map(|(tenant, _)| tenant).collect::<Vec<_>>()
    };
    assert_eq!(tenants.forgettable(SECOND_NS), []);
    // The process first: its user is charged for it.
    assert_eq!(forgettable(&tenants), [PROCESS]);
    tenants.forgotten(PROCESS);
    assert_eq!(forgettable(&tenants), [USER]);
}

#[test]
fn shared_generation_is_idle_without_va_spaces_and_rate_limit() {
    let mut tenants = tenants();
    let shared = |spaces, until_ns| {
        usage(|usage| {
            usage.shared_generation = 9;
            usage.shared_spaces = spaces;
            usage.paced_until_ns = until_ns;
        })
    };
    let mut is_idle = |usage| {
        tenants.observe(vec![(PROCESS, usage)], 0);
        tenants.shared(SECOND_NS)[0].is_idle
    };
    assert!(!is_idle(shared(1, 0)));
    assert!(!is_idle(shared(0, 2 * SECOND_NS)));
    assert!(is_idle(shared(0, 0)));
}

#[test]
fn losses_of_a_shared_generation_are_summed_over_its_va_spaces() {
    let mut tenants = tenants();
    let shared = usage(|usage| {
        usage.shared_generation = 9;
        usage.dropped_events = 2;
    });
    tenants.observe(vec![(PROCESS, shared)], 0);
    let lost = |generation, dropped_events| Space { dropped_events, ..space(generation) };
    let losses = tenants.losses(&[lost(9, 3), lost(9, 4), lost(1, 0), lost(2, 5)]);
    let events: BTreeMap<_, _> = losses.into_iter().map(|(generation, losses)| (generation, losses.events)).collect();
    assert_eq!(events, [(2, 5), (9, 9)].into());
}

#[test]
fn end_of_a_costly_users_sharing_is_passed_to_the_probes() {
    let mut tenants = tenants();
    tenants.observe(vec![(USER, usage(|_| {})), (PROCESS, usage(|_| {}))], 0);
    let mut released = |until_ns| {
        let released = tenants.release([].iter(), [].iter(), [].iter(), &[], |_| until_ns);
        released.into_iter().map(|(tenant, released)| (tenant, released.shares_until_ns)).collect::<Vec<_>>()
    };
    assert_eq!(released(5), [(USER, 5)]);
    assert_eq!(released(5), []);
    assert_eq!(released(0), [(USER, 0)]);
}

fn refused(held: u64, refusals: u64) -> Usage {
    usage(|usage| {
        usage.charged[COUNTS] = held;
        usage.refused[COUNTS] = refusals;
    })
}

fn sentences(tenants: &Tenants) -> Vec<String> {
    let name = |uid| (uid == OWNER.uid).then(|| "eve".to_owned());
    tenants.limits.degradations(name).into_iter().map(|degradation| degradation.description).collect()
}

#[test]
fn process_at_its_quota_is_reported_for_a_minute() {
    let mut tenants = tenants();
    tenants.observe(vec![(USER, refused(1024, 0)), (PROCESS, refused(1024, 3))], 0);
    let [sentence] = &sentences(&tenants)[..] else { panic!("{:?}", sentences(&tenants)) };
    assert_eq!(
        sentence,
        "process 7 of user eve (uid 1000): 1024 of at most 1024 counts are in use; further events are dropped"
    );
    let degradation = &tenants.limits.degradations(|_| None)[0];
    assert_eq!(
        (degradation.reason, degradation.pid, degradation.uid),
        (DegradedReason::QuotaReached, Some(7), Some(1000))
    );
    // Only as long as there are no further denials.
    tenants.observe(vec![(USER, refused(1024, 0)), (PROCESS, refused(1024, 3))], 59 * SECOND_NS);
    assert_eq!(sentences(&tenants).len(), 1);
    tenants.observe(vec![(USER, refused(1024, 0)), (PROCESS, refused(1024, 3))], 61 * SECOND_NS);
    assert!(sentences(&tenants).is_empty());
}

#[test]
fn user_at_its_quota_is_reported_instead_of_its_processes() {
    let mut tenants = tenants();
    tenants.observe(vec![(USER, refused(8192, 1)), (PROCESS, refused(16, 0))], 0);
    let all = sentences(&tenants);
    assert!(
        matches!(&all[..], [sentence] if sentence.starts_with("user eve (uid 1000): 8192 of at most 8192 counts")),
        "{all:?}"
    );
}

#[test]
fn refusals_are_summed_by_user_across_forgotten_tenants() {
    let mut tenants = tenants();
    tenants.observe(vec![(USER, refused(1, 5)), (PROCESS, refused(1, 5))], 0);
    tenants.observe(vec![(USER, refused(1, 7))], 0);
    tenants.observe(vec![], 0);
    // It became active again, with new denials; and the probes were reattached.
    tenants.observe(vec![(USER, refused(1, 2)), (Tenant::OTHER_USERS, refused(1, 1))], 0);
    let tenants = tenants.renewed(&Quotas::UNLIMITED);
    let refusals: Vec<_> =
        tenants.limits.refusals(|_| None).into_iter().map(|each| (each.uid, each.resource, each.refusals)).collect();
    // Five of its process, at that one's quota, and nine of its own.
    assert_eq!(refusals, [(None, "counts", 1), (Some(1000), "counts", 14)]);
}

#[test]
fn process_that_creates_va_spaces_too_fast_is_reported() {
    let mut tenants = tenants();
    let shared = usage(|usage| usage.shared_spaces = 3);
    tenants.observe(vec![(PROCESS, shared)], 0);
    assert_eq!(
        sentences(&tenants),
        [
            "process 7 of user eve (uid 1000): VA spaces are created too fast to be distinguished, and are counted together"
        ]
    );
}

#[test]
fn full_node_is_reported_with_its_largest_users() {
    let mut tenants = tenants();
    let users = [(Tenant::user(1), 10), (USER, 30), (Tenant::user(3), 20), (Tenant::user(4), 5)];
    let users = users.map(|(tenant, held)| (tenant, refused(held, 0)));
    tenants.observe([vec![(Tenant::NODE, refused(65, 3))], users.to_vec()].concat(), 0);
    assert_eq!(
        sentences(&tenants),
        [
            "65 counts are in use, and the rest is reserved for processes with few; further events of others are dropped; \
             the largest share is of user eve (uid 1000): 30, uid 3: 20, uid 1: 10"
        ]
    );
}
