//! Limits of actions.

use model::{Action, Advice, CallResult, Mode, Order, Outcome, Place, Step, block::BLOCK_BYTES, decision::Event};
use policy::act::Limits;

use crate::{
    program::{BASE, Program},
    world::{World, directive, limits},
};

const MIB: u64 = 1 << 20;

fn moved(order: &Order) -> u64 {
    let moves = order.steps.iter().filter(|step| matches!(step.action, Action::Migrate(_)));
    moves.map(Step::bytes).sum()
}

/// Maximum excess of ordered bytes over the rate, in any span of time.
fn excess(world: &World, per_second: u64) -> i128 {
    let orders: Vec<_> = world.orders.iter().map(|(at, order)| (*at, moved(order))).collect();
    let mut worst = i128::MIN;
    for (from, (begin, _)) in orders.iter().enumerate() {
        let mut sum = 0_u64;
        for (at, bytes) in &orders[from..] {
            sum += bytes;
            let allowed = u128::from(per_second) * at.duration_since(*begin).unwrap().as_nanos() / 1_000_000_000;
            worst = worst.max(i128::from(sum) - i128::try_from(allowed).unwrap());
        }
    }
    worst
}

#[test]
fn bytes_migrated_in_any_interval_are_bounded_by_the_rate_plus_one_second() {
    let rate = 10 * BLOCK_BYTES + 4096;
    let mut process = directive(Mode::Act, "prefetch-all");
    process.budget.bytes_per_second = Some(rate);
    for (limits, directive) in [
        (limits(), process),
        (Limits { process_bytes_per_second: rate, ..limits() }, directive(Mode::Act, "prefetch-all")),
        (Limits { node_bytes_per_second: rate, ..limits() }, directive(Mode::Act, "prefetch-all")),
    ] {
        let mut world = World::with(limits);
        world.add(Program::InTurn, 64, Some(directive.clone()));
        world.run(30.0);
        let worst = excess(&world, rate);
        assert!(worst <= i128::from(rate), "{worst} of {rate}");
        assert!(worst > i128::from(rate - BLOCK_BYTES), "it is used");
    }
}

#[test]
fn node_rate_bounds_all_processes_together() {
    let rate = 20 * BLOCK_BYTES;
    let mut world = World::with(Limits { node_bytes_per_second: rate, ..limits() });
    for _ in 0..3 {
        world.add(Program::InTurn, 32, Some(directive(Mode::Act, "prefetch-all")));
    }
    world.run(20.0);
    assert!(excess(&world, rate) <= i128::from(rate));
}

#[test]
fn rate_change_applies_to_later_migrations() {
    let (rate, less) = (40 * BLOCK_BYTES, 10 * BLOCK_BYTES);
    let mut world = World::with(Limits { node_bytes_per_second: rate, ..limits() });
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "prefetch-all")));
    // The trial lasts from second 2 on, for two seconds.
    world.run(3.0);
    let faster = excess(&world, rate);
    world.acting.set_rates(less, rate);
    let before = world.orders.len();
    world.run(1.0);
    world.orders.drain(..before);
    let slower = excess(&world, less);
    assert!((i128::from(less)..=i128::from(rate)).contains(&faster), "{faster}");
    assert!((0..=i128::from(less)).contains(&slower), "{slower}");
}

#[test]
fn total_budget_bounds_migrated_bytes() {
    let mut directive = directive(Mode::Act, "prefetch-all");
    directive.budget.bytes = Some(100 * BLOCK_BYTES + 4096);
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive));
    world.run(30.0);
    let ordered: u64 = world.orders.iter().map(|(_, order)| moved(order)).sum();
    assert_eq!(ordered, 100 * BLOCK_BYTES, "in whole blocks");
}

#[test]
fn spent_budget_survives_a_temporary_absence_of_the_process() {
    let mut directive = directive(Mode::Act, "prefetch-all");
    directive.budget.bytes = Some(100 * BLOCK_BYTES);
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive));
    world.run(30.0);
    world.hidden.insert(id);
    world.run(0.1);
    world.hidden.clear();
    world.run(30.0);
    let ordered: u64 = world.orders.iter().map(|(_, order)| moved(order)).sum();
    assert_eq!(ordered, 100 * BLOCK_BYTES);
}

#[test]
fn host_advice_of_a_process_fits_the_headroom() {
    let mut world = World::new();
    world.headroom_bytes = 40 * BLOCK_BYTES;
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("an order", |world| !world.orders.is_empty());
    let to_host = |step: &&Step| step.action == Action::Advise(Advice::PreferredLocation(Place::Host));
    let bytes: Vec<u64> = world.orders[0].1.steps.iter().filter(to_host).map(Step::bytes).collect();
    let (all, most) = (bytes.iter().sum::<u64>(), bytes.iter().max().copied().unwrap());
    assert!(all <= world.headroom_bytes && all + most > world.headroom_bytes, "{bytes:?}");
}

#[test]
fn host_advice_of_all_processes_fits_the_headroom() {
    let mut world = World::new();
    world.headroom_bytes = 40 * BLOCK_BYTES;
    for _ in 0..2 {
        world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    }
    world.run_until("orders for both", |world| {
        let of = |pid| world.orders.iter().any(|(_, order)| order.process.pid == pid);
        of(100) && of(101) || world.now.duration_since(world.since).unwrap().as_secs() > 90
    });
    let to_host = |step: &&Step| step.action == Action::Advise(Advice::PreferredLocation(Place::Host));
    let steps = world.orders.iter().flat_map(|(_, order)| &order.steps);
    let bytes: u64 = steps.filter(to_host).map(Step::bytes).sum();
    assert!(bytes > 0 && bytes <= world.headroom_bytes, "{bytes}");
}

#[test]
fn host_reservation_is_released_when_its_process_exits() {
    let mut world = World::new();
    world.headroom_bytes = 70 * BLOCK_BYTES;
    let first = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("advice", |world| world.advised_blocks() > 0);
    world.process(first).ended = Some(world.now);
    world.orders.clear();
    let second = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("advice for the second", |world| world.orders.iter().any(|(_, order)| order.process == second));
}

#[test]
fn host_reserve_is_never_used() {
    let mut world = World::with(Limits { host_reserve_bytes: 1 << 30, ..limits() });
    world.headroom_bytes = (1 << 30) + 8 * MIB;
    world.add(Program::OnGpu, 64, Some(directive(Mode::Act, "harmful")));
    world.run(5.0);
    for (_, order) in &world.orders {
        assert!(moved(order) <= 8 * MIB, "{order:?}");
    }
    assert!(!world.orders.is_empty());
    world.headroom_bytes = 1 << 30;
    world.orders.clear();
    world.run(300.0);
    assert_eq!(world.orders, []);
}

#[test]
fn migrations_to_the_gpu_leave_room_for_other_processes() {
    let mut world = World::new();
    world.add(Program::OnGpu, 200, None);
    world.add(Program::OnGpu, 1, None);
    world.run(5.0);
    world.add(Program::InTurn, 600, Some(directive(Mode::Act, "prefetch-all")));
    world.run(20.0);
    let room = (1 << 30) - (1 << 30) / 50 - 201 * BLOCK_BYTES;
    let most = world.orders.iter().map(|(_, order)| moved(order)).max().unwrap();
    assert!(most <= room && most + BLOCK_BYTES > room, "{most} of {room}");
}

#[test]
fn only_memory_selected_by_the_directive_is_touched() {
    let mut only = directive(Mode::Act, "ping-pong");
    only.range = Some((BASE + 8 * BLOCK_BYTES, BASE + 24 * BLOCK_BYTES).into());
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(only));
    world.run(10.0);
    let steps: Vec<_> = world.orders.iter().flat_map(|(_, order)| &order.steps).collect();
    assert!(!steps.is_empty());
    assert!(steps.iter().all(|step| step.begin >= BASE + 8 * BLOCK_BYTES && step.end <= BASE + 24 * BLOCK_BYTES));
    let mut large = directive(Mode::Act, "ping-pong");
    large.allocation_larger_than_bytes = Some(64 * BLOCK_BYTES);
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(large));
    world.run(10.0);
    assert_eq!(world.orders, []);
}

#[test]
fn denied_migrations_are_reported_without_a_call() {
    let mut directive = directive(Mode::Act, "prefetch-all");
    directive.budget.bytes_per_second = Some(4 * BLOCK_BYTES);
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive));
    world.run(5.0);
    assert!(matches!(world.decision().last_error, Some(CallResult::Denied(_))));
    let is_denied = |outcome: &Outcome| outcome.calls.iter().any(|call| matches!(call.result, CallResult::Denied(_)));
    assert!(!world.events.iter().any(|event| matches!(event, Event::Applied(outcome) if is_denied(outcome))));
    assert!(world.events.iter().any(|event| matches!(event, Event::Withheld(outcome) if is_denied(outcome))));
}

#[test]
fn ended_decisions_are_forgotten_beyond_the_limit() {
    let mut world = World::with(Limits { decisions_max: 5, cool_down_windows: 0, ..limits() });
    let id = world.add(Program::InTurn, 32, None);
    for round in 0..20 {
        let mut directive = directive(Mode::Shadow, "ping-pong");
        directive.parameters.insert("round".to_owned(), round.to_string());
        world.directives.insert(id, directive);
        world.run(3.0);
    }
    assert!(world.acting.decisions().count() <= 6);
    let ids: Vec<_> = world.acting.decisions().map(|decision| decision.id).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
}
