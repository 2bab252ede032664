//! Reported restrictions.

use std::time::{Duration, SystemTime};

use model::{
    ApiCall, Budget, CallResult, Mode, PatternKind, ProcessId, Quantity, Restriction, RestrictionScope, Stage,
};

use crate::{
    card::Card,
    program::Program,
    world::{GPU, INTERVAL, World, directive},
};

const HOUR: Duration = Duration::from_hours(1);

/// Whether such a restriction applies at the GPU.
fn is_reported(all: &[Restriction], scope: RestrictionScope, reason: &str) -> bool {
    all.iter().any(|each| each.scope == scope && each.gpu == Some(GPU) && each.reason.contains(reason))
}

#[test]
fn restrictions_are_reported_with_scope_and_reason() {
    type Change = dyn Fn(&mut World, ProcessId);
    let older = |world: &mut World, id| world.process(id).is_adopted = true;
    let lost = |world: &mut World, id| world.process(id).host.dropped_events = 1;
    let advises = |world: &mut World, id| world.process(id).host.api_calls[ApiCall::SetAccessedBy] = 1;
    let duplicates = |world: &mut World, id| world.process(id).host.api_calls[ApiCall::EnableReadDuplication] = 1;
    let denied = |world: &mut World, _| {
        (world.driver, world.gpu_name) = ("595.71.05".to_owned(), Some("NVIDIA B200".to_owned()));
    };
    let unlinked = |world: &mut World, _| world.has_link = false;
    let without_calls = |world: &mut World, _| world.not_counted = &[Quantity::ApiCalls];
    let without_residency = |world: &mut World, _| world.not_counted = &[Quantity::Resident];
    let cases: [(&Change, RestrictionScope, &str); 10] = [
        (&without_calls, RestrictionScope::Advice, "the source does not count calls of the driver"),
        (&without_calls, RestrictionScope::Moves, "the source does not count calls of the driver"),
        (&without_residency, RestrictionScope::Moves, "the source does not count resident memory"),
        (&older, RestrictionScope::Advice, "used the driver before uvmd counted"),
        (&older, RestrictionScope::Moves, "may be read-duplicated"),
        (&lost, RestrictionScope::Advice, "events of the process were dropped"),
        (&advises, RestrictionScope::Advice, "the application advises the driver itself"),
        (&duplicates, RestrictionScope::Moves, "is read-duplicated"),
        (&denied, RestrictionScope::MovesToGpu, "github.com"),
        (&unlinked, RestrictionScope::RemoteMappings, "is not measured"),
    ];
    for (change, scope, reason) in cases {
        let mut world = World::new();
        let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
        change(&mut world, id);
        world.run(10.0);
        let all = world.restrictions();
        assert!(is_reported(&all, scope, reason), "{scope:?}, {reason}: {all:#?}");
    }
}

#[test]
fn confirmed_decision_has_no_restrictions() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    assert_eq!(world.restrictions(), []);
}

#[test]
fn cool_down_is_reported_with_its_remaining_time() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.forced_result = Some(CallResult::NotMapped);
    world.run_until("a rolled-back decision", |world| {
        world.acting.decisions().any(|decision| matches!(decision.stage, Stage::RolledBack(_)))
    });
    world.run(10.0);
    let [Restriction { scope, reason, .. }] = &world.restrictions()[..] else { panic!("{:#?}", world.restrictions()) };
    assert_eq!(*scope, RestrictionScope::Policy("ping-pong"));
    assert!(reason.ends_with("cool-down: 19 s") || reason.ends_with("cool-down: 20 s"), "{reason}");
}

#[test]
fn clock_changes_do_not_affect_the_cool_down() {
    for set in [|now: &mut SystemTime| *now -= HOUR, |now: &mut SystemTime| *now += HOUR] {
        let mut world = World::new();
        world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
        world.forced_result = Some(CallResult::NotMapped);
        world.run_until("a rolled-back decision", |world| {
            world.acting.decisions().any(|decision| matches!(decision.stage, Stage::RolledBack(_)))
        });
        world.forced_result = None;
        let until = world.elapsed + Duration::from_secs(30);
        set(&mut world.now);
        while world.elapsed + INTERVAL < until {
            world.run(0.1);
            assert_eq!(world.acting.decisions().count(), 1, "at {:?}, it rests until {until:?}", world.elapsed);
        }
        world.run(5.0);
        assert_eq!(world.acting.decisions().count(), 2);
        let made = world.decision().created_at;
        assert!(
            world.now.duration_since(made).unwrap() < Duration::from_secs(10),
            "the reported time is the calendar's"
        );
    }
}

#[test]
fn missing_case_for_a_policy_is_reported_with_the_verdicts() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "cycle")));
    world.run(0.3);
    assert!(
        is_reported(&world.restrictions(), RestrictionScope::Everything, "observed for less than 2 s"),
        "{:#?}",
        world.restrictions()
    );
    world.run(10.0);
    let all = world.restrictions();
    assert!(is_reported(&all, RestrictionScope::Everything, "no case for cycle: ping_pong"), "{all:#?}");
}

#[test]
fn exhausted_budget_restricts_migrations() {
    let mut world = World::new();
    let budget = Budget { bytes: Some(4 << 20), ..Budget::default() };
    world.add(Program::InTurn, 64, Some(model::Directive { budget, ..directive(Mode::Act, "prefetch-all") }));
    world.run(10.0);
    let all = world.restrictions();
    assert!(is_reported(&all, RestrictionScope::Moves, "the budget of 4.0 MiB is used up"), "{all:#?}");
}

#[test]
fn number_of_omitted_ranges_is_reported() {
    let mut card = Card::new(400);
    let process = card.add(
        (0..4440).map(|block| (block, false)).collect(),
        PatternKind::Cyclic,
        Some(directive(Mode::Act, "cycle")),
    );
    card.program_mut(process).allocation_blocks = 1;
    (0..100).for_each(|_| card.interval());
    let all = card.restrictions();
    assert!(is_reported(&all, RestrictionScope::SomeMemory, ": 344 of them"), "{all:#?}");
}

#[test]
fn missing_counts_are_reported_as_the_only_restriction() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.add(Program::InTurn, 64, None);
    world.is_counting = false;
    world.run(1.0);
    let reason = "nothing is counted".to_owned();
    assert_eq!(
        world.restrictions(),
        [Restriction { process: id, gpu: None, scope: RestrictionScope::Everything, reason }]
    );
}
