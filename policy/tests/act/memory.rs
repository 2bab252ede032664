//! Benefit of the policies that migrate and protect memory, on a GPU that evicts by age of arrival;
//! and their inaction outside their phases.

use std::time::Duration;

use model::{Directive, MemoryRange, Mode, PatternKind, ProcessId, Stage, block::BLOCK_BYTES};

use crate::{card::Card, program::BASE, walker::Round, world::directive};

const FRAMES: usize = 62;

fn walk(blocks: std::ops::Range<u64>, writes: bool) -> Round {
    blocks.map(|block| (block, writes)).collect()
}

/// Accesses to the hot part and to a part of the cold memory at every step.
fn hot_and_cold(hot: u64, cold: u64, steps: u64) -> Round {
    let each = cold / steps;
    let step = |at: u64| [walk(0..hot, true), walk(hot + at * each..hot + (at + 1) * each, false)].concat();
    (0..steps).flat_map(step).collect()
}

/// Runs with the driver alone, and with the policy.
fn both(
    policy: &str,
    rounds: u64,
    prepare: impl Fn(&mut Card, &dyn Fn() -> Option<Directive>) -> ProcessId,
) -> [(Card, ProcessId); 2] {
    both_on(FRAMES, policy, rounds, prepare)
}

fn both_on(
    frames: usize,
    policy: &str,
    rounds: u64,
    prepare: impl Fn(&mut Card, &dyn Fn() -> Option<Directive>) -> ProcessId,
) -> [(Card, ProcessId); 2] {
    ["observe", policy].map(|policy| {
        let mut card = Card::new(frames);
        let process = prepare(&mut card, &|| (policy != "observe").then(|| directive(Mode::Act, policy)));
        card.run(rounds);
        (card, process)
    })
}

fn share(helped: u64, alone: u64) -> f64 {
    helped as f64 / alone as f64
}

#[test]
fn savings_of_a_written_cycle_match_its_retained_part() {
    let [(alone, _), (helped, _)] =
        both("cycle", 60, |card, directive| card.add(walk(0..93, true), PatternKind::Cyclic, directive()));
    assert_eq!(helped.tried_policies(), ["cycle"]);
    // 62 frames, 10 blocks per interval: some 48 of 93 stay.
    let share = share(helped.link_bytes(), alone.link_bytes());
    assert!(share < 0.55, "{share}");
}

#[test]
fn late_order_does_not_lose_the_whole_retained_set() {
    let link_bytes = ["observe", "cycle"].map(|policy| {
        let mut card = Card::new(FRAMES);
        card.add(walk(0..93, true), PatternKind::Cyclic, (policy != "observe").then(|| directive(Mode::Act, policy)));
        for look in 0..1200 {
            // One order in forty is executed after nearly twice as many bytes have arrived as are
            // left to other memory.
            card.order_delay = Duration::from_millis(if look % 40 == 39 { 90 } else { 0 });
            card.interval();
        }
        share(card.link_bytes(), card.accesses())
    });
    let [alone, helped] = link_bytes;
    assert!(helped / alone < 0.52, "{}", helped / alone);
}

#[test]
fn many_allocations_are_retained_as_well_as_one() {
    let walks = |allocation_blocks| {
        let [(alone, _), (helped, _)] = both_on(160, "cycle", 20, |card, directive| {
            let process = card.add(walk(0..240, true), PatternKind::Cyclic, directive());
            card.program_mut(process).allocation_blocks = allocation_blocks;
            process
        });
        assert_eq!(helped.tried_policies(), ["cycle"], "in allocations of {allocation_blocks} blocks");
        share(helped.link_bytes(), alone.link_bytes())
    };
    let (one, many) = (walks(usize::MAX), walks(1));
    assert!((one - many).abs() < 0.02, "{one} of one allocation, {many} of 240");
}

#[test]
fn hot_set_is_retained_and_cold_memory_streams() {
    let [(alone, _), (helped, _)] =
        both("hot-cold", 40, |card, directive| card.add(hot_and_cold(40, 84, 4), PatternKind::Unknown, directive()));
    assert_eq!(helped.tried_policies(), ["hot-cold"]);
    let share = share(helped.link_bytes(), alone.link_bytes());
    assert!(share < 0.5, "{share}");
}

#[test]
fn fitting_tenant_is_retained_and_the_other_evicts_its_own_memory() {
    let [(alone, victim), (helped, _)] = both("tenants", 40, |card, directive| {
        let victim = card.add(walk(0..24, false).repeat(20), PatternKind::Unknown, directive());
        card.program_mut(victim).computes = Duration::from_millis(2);
        card.add(walk(0..128, false), PatternKind::Cyclic, directive());
        victim
    });
    assert_eq!(helped.tried_policies(), ["tenants"]);
    let faults = |card: &Card| card.program(victim).counters.fault_entries.total();
    let of_victim = share(faults(&helped), faults(&alone));
    assert!(of_victim < 0.2, "{of_victim}");
    let aggressor = |card: &Card| {
        let counters = &card.programs[1].counters;
        counters.bytes_htod.total() + counters.bytes_dtoh.total()
    };
    let of_aggressor = share(aggressor(&helped), aggressor(&alone));
    assert!(of_aggressor < 1.1, "{of_aggressor}");
}

#[test]
fn tenant_is_retained_again_soon_after_acting_was_switched_off_and_on() {
    for (off_intervals, slow_ms) in [(1, 0), (1, 50), (5, 10), (20, 20), (100, 0), (300, 50)] {
        let mut card = Card::new(FRAMES);
        for (blocks, computes_ms) in [(20, 2), (18, 3)] {
            let round = walk(0..blocks, false).repeat(20);
            let victim = card.add(round, PatternKind::Unknown, Some(directive(Mode::Act, "tenants")));
            card.program_mut(victim).computes = Duration::from_millis(computes_ms);
        }
        let other = card.add(walk(0..128, false), PatternKind::Cyclic, None);
        card.program_mut(other).computes = Duration::from_millis(slow_ms);
        let are_confirmed =
            |card: &Card| card.decisions().filter(|decision| decision.stage == Stage::Confirmed).count() == 2;
        let intervals_until_confirmed =
            |card: &mut Card| (0..600).find(|_| (card.interval(), are_confirmed(card)).1).expect("both are confirmed");
        intervals_until_confirmed(&mut card);
        (0..200).for_each(|_| card.interval());
        card.acting_enabled = false;
        (0..off_intervals).for_each(|_| card.interval());
        card.acting_enabled = true;
        let intervals = intervals_until_confirmed(&mut card);
        assert!(intervals < 100, "off for {off_intervals} intervals: {intervals}");
    }
}

#[test]
fn part_of_a_program_that_exceeds_the_gpu_is_not_prefetched_at_the_expense_of_others() {
    let mut card = Card::new(FRAMES);
    let victim = card.add(walk(0..24, false).repeat(20), PatternKind::Unknown, None);
    card.program_mut(victim).computes = Duration::from_millis(2);
    let part = MemoryRange { begin: BASE, end: BASE + 40 * BLOCK_BYTES };
    let directive = Directive { range: Some(part), ..directive(Mode::Act, "prefetch-all") };
    card.add(walk(0..128, false), PatternKind::Cyclic, Some(directive));
    card.run(40);
    assert_eq!(card.tried_policies(), [""; 0]);
    let is_denied = |stage: &Stage| matches!(stage, Stage::Denied(why) if why.contains("already evicts processes"));
    assert!(card.decisions().any(|decision| is_denied(&decision.stage)), "{:#?}", card.decisions().next());
}

/// Replays and link bytes of a walk that remain with `stream`.
fn left_by_stream(walk: &Round, pattern: PatternKind) -> [f64; 2] {
    let [(alone, process), (helped, _)] = both("stream", 60, |card, directive| {
        let process = card.add(walk.clone(), pattern, directive());
        card.program_mut(process).computes = Duration::from_millis(40);
        process
    });
    assert_eq!(helped.tried_policies(), ["stream"]);
    let replays = |card: &Card| card.program(process).counters.replays;
    [share(replays(&helped), replays(&alone)), share(helped.link_bytes(), alone.link_bytes())]
}

#[test]
fn sequential_walk_is_prefetched() {
    let [replays, link_bytes] = left_by_stream(&walk(0..124, true), PatternKind::Sequential);
    assert!(replays < 0.1, "{replays}");
    assert!(link_bytes < 1.05, "{link_bytes}");
}

#[test]
fn cyclic_walk_is_partly_retained_and_otherwise_prefetched() {
    let [replays, link_bytes] = left_by_stream(&walk(0..93, false), PatternKind::Cyclic);
    assert!(replays < 0.1, "{replays}");
    // Of 62 frames, 31 are between two tripwires, and a few more ahead of the walk: some 20 of 93
    // blocks stay.
    assert!(link_bytes < 0.8, "{link_bytes}");
}

#[test]
fn prefetches_denied_by_the_budget_are_repeated_in_order() {
    let cards = [0, 64 << 20].map(|bytes_per_second| {
        let mut card = Card::new(FRAMES);
        let mut wanted = directive(Mode::Act, "stream");
        wanted.budget.bytes_per_second = Some(bytes_per_second).filter(|bytes| *bytes > 0);
        let wanted = if bytes_per_second == 0 { directive(Mode::Observe, "observe") } else { wanted };
        let process = card.add(walk(0..200, false), PatternKind::Sequential, Some(wanted));
        // 50 MiB per second.
        card.program_mut(process).computes = Duration::from_millis(40);
        card.run(40);
        card.program(process).counters.replays
    });
    let [alone, helped] = cards;
    assert!(share(helped, alone) < 0.15, "{helped} of {alone}");
}

#[test]
fn retained_set_is_bounded_by_the_renewal_rate() {
    let left = [None, Some(256 << 20)].map(|bytes_per_second| {
        // 3 s until all frames are replaced, as on a GPU of 80 GB at 25 GB/s.
        let mut card = Card::new(3000);
        card.fetch_duration = Duration::from_millis(1);
        let mut wanted = directive(if bytes_per_second.is_some() { Mode::Act } else { Mode::Observe }, "cycle");
        // A renewal is charged 64 KiB, so 2,048 renewals per second for 1,000 arriving blocks.
        wanted.budget.bytes_per_second = bytes_per_second;
        card.add(walk(0..4500, false), PatternKind::Cyclic, Some(wanted));
        card.run(20);
        let denied = |decision: &model::Decision| matches!(decision.last_error, Some(model::CallResult::Denied(_)));
        assert!(!card.decisions().any(denied), "{:#?}", card.decisions().next());
        card.link_bytes()
    });
    // 3,000 frames of which 2,048 / (2,048 + 2 * 1,000) can be retained: a third of 4,500 blocks.
    let share = share(left[1], left[0]);
    assert!(share < 0.75, "{share}");
}

#[test]
fn unused_memory_is_not_retained() {
    let mut card = Card::new(620);
    card.fetch_duration = Duration::from_millis(5);
    let process = card.add(walk(0..1500, false), PatternKind::Cyclic, Some(directive(Mode::Act, "cycle")));
    let pass = |card: &mut Card, seconds: u32| (0..10 * seconds).for_each(|_| card.interval());
    card.program_mut(process).round = walk(0..930, false);
    pass(&mut card, 60);
    assert_eq!(card.tried_policies(), ["cycle"]);
    // It would fit, except for the retained memory.
    (card.program_mut(process).round, card.program_mut(process).at) = (walk(930..1500, false), 0);
    pass(&mut card, 60);
    let before = card.link_bytes();
    pass(&mut card, 10);
    assert_eq!(card.link_bytes(), before, "{:#?}", card.decisions().next());
}

#[test]
fn phases_longer_than_a_window_are_judged_by_work() {
    let [(alone, _), (helped, _)] = both_on(760, "hot-cold", 20, |card, directive| {
        card.fetch_duration = Duration::from_millis(4);
        let process = card.add(hot_and_cold(380, 760, 4), PatternKind::Unknown, directive());
        // The hot part alone takes 3.8 s, without arrivals while it is retained.
        card.program_mut(process).computes = Duration::from_millis(10);
        process
    });
    assert_eq!(helped.tried_policies(), ["hot-cold"]);
    let share = share(helped.link_bytes(), alone.link_bytes());
    assert!(share < 0.5, "{share}");
}

#[test]
fn no_policy_acts_when_all_memory_fits() {
    for policy in ["cycle", "hot-cold", "tenants", "stream", "auto-live"] {
        let [(alone, _), (helped, _)] = both(policy, 200, |card, directive| {
            card.add(walk(0..30, false), PatternKind::Cyclic, directive());
            card.add(walk(0..30, true), PatternKind::Sequential, directive())
        });
        assert!(helped.tried_policies().is_empty(), "{policy}: {:?}", helped.tried_policies());
        assert_eq!(helped.link_bytes(), alone.link_bytes(), "{policy}");
    }
}

#[test]
fn tenants_that_each_fit_are_not_ranked() {
    let [_, (helped, _)] = both("tenants", 40, |card, directive| {
        card.add(walk(0..40, false), PatternKind::Cyclic, directive());
        card.add(walk(0..40, false), PatternKind::Cyclic, directive())
    });
    assert!(helped.tried_policies().is_empty(), "{:?}", helped.tried_policies());
}

#[test]
fn auto_live_retains_the_fitting_tenant_without_prefetching_for_the_other() {
    let [(alone, victim), (helped, _)] = both("auto-live", 40, |card, directive| {
        let victim = card.add(walk(0..24, false).repeat(20), PatternKind::Unknown, directive());
        card.program_mut(victim).computes = Duration::from_millis(2);
        card.add(walk(0..128, false), PatternKind::Cyclic, directive());
        victim
    });
    let faults = |card: &Card| card.program(victim).counters.fault_entries.total();
    let of_victim = share(faults(&helped), faults(&alone));
    assert!(!helped.tried_policies().contains(&"stream"), "{:?}", helped.tried_policies());
    assert!(of_victim < 0.2, "{of_victim} {:?}", helped.tried_policies());
}

#[test]
fn observed_tenant_does_not_block_policies_of_others() {
    let mut card = Card::new(FRAMES);
    let tenant = card.add(walk(0..24, false).repeat(20), PatternKind::Unknown, Some(directive(Mode::Act, "tenants")));
    card.program_mut(tenant).computes = Duration::from_millis(2);
    let walker = card.add(walk(0..128, true), PatternKind::Sequential, None);
    card.program_mut(walker).computes = Duration::from_millis(40);
    let pass = |card: &mut Card, seconds: u32| (0..10 * seconds).for_each(|_| card.interval());
    pass(&mut card, 10);
    assert_eq!(card.tried_policies(), ["tenants"]);
    card.set_directive(walker, directive(Mode::Act, "stream"));
    pass(&mut card, 10);
    assert_eq!(card.tried_policies(), ["tenants"], "it would evict the retained set");
    card.program_mut(tenant).rounds_max = 0;
    card.set_directive(tenant, directive(Mode::Observe, "tenants"));
    for _ in 0..60 {
        pass(&mut card, 1);
        if card.tried_policies().contains(&"stream") {
            return;
        }
    }
    panic!("it is not helped: {:#?}", card.events.last());
}
