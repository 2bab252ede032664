//! Actions that must not occur, and withdrawals that must.

use std::time::Duration;

use model::{
    Action, ActuatorKind, ApiCall, Call, CallResult, DecisionId, Mode, Order, Outcome, ProbeStatus, ProcessId,
    SourceState, Stage, Step,
};
use policy::act::InForce;

use crate::{
    program::Program,
    world::{GPU, World, directive},
};

/// Event after which the advice in force is unknown.
type Disturbance = dyn Fn(&mut World, ProcessId);

fn confirmed() -> (World, ProcessId) {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    (world, id)
}

#[test]
fn only_rollbacks_are_ordered_while_acting_is_off() {
    let (mut world, _) = confirmed();
    let before = world.orders.len();
    world.acting_enabled = false;
    world.run(10.0);
    assert!(world.orders[before..].iter().all(|(_, order)| order.is_rollback));
    assert_eq!(world.advised_blocks(), 0);
    assert!(matches!(world.decision().stage, Stage::Shadow(_)), "the plan is reported");
    world.acting_enabled = true;
    world.run(10.0);
    assert_eq!(world.decision().stage, Stage::Confirmed, "it is no fault of the plan");
}

#[test]
fn failure_of_the_first_trial_after_a_switch_costs_two_windows() {
    let (mut world, id) = confirmed();
    world.run(20.0);
    world.acting_enabled = false;
    world.run(5.0);
    let accessed_bytes = std::mem::replace(&mut world.process(id).accessed_bytes, 16 << 20);
    world.acting_enabled = true;
    let is_rolled_back =
        |world: &World| matches!(&world.decision().stage, Stage::RolledBack(why) if !why.contains("off"));
    world.run_until("a rolled-back decision", is_rolled_back);
    world.process(id).accessed_bytes = accessed_bytes;
    world.run(15.0);
    let restrictions = world.restrictions();
    assert_eq!(world.decision().stage, Stage::Confirmed, "{restrictions:#?}");
    // The next failure is one of the policy.
    world.process(id).accessed_bytes = 16 << 20;
    world.run_until("a rolled-back decision", is_rolled_back);
    world.process(id).accessed_bytes = accessed_bytes;
    world.run(15.0);
    assert!(is_rolled_back(&world));
}

#[test]
fn deferred_process_is_evaluated_only_to_end_what_is_not_permitted() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.deferred.insert(id);
    world.run(10.0);
    assert!(world.orders.is_empty() && world.acting.decisions().next().is_none());
    let (mut world, id) = confirmed();
    world.has_link = false;
    let restrictions = world.restrictions();
    assert!(!restrictions.is_empty());
    world.deferred.insert(id);
    world.has_link = true;
    let before = world.orders.len();
    world.run(10.0);
    assert_eq!((world.orders.len(), &world.decision().stage), (before, &Stage::Confirmed));
    for _ in 0..2 {
        assert_eq!(world.restrictions(), restrictions, "they stay");
    }
    world.acting_enabled = false;
    let rollbacks = world.interval();
    assert!(rollbacks.iter().all(|order| order.is_rollback) && !rollbacks.is_empty());
}

#[test]
fn switch_off_rolls_back_an_order_with_a_late_outcome() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    let late = loop {
        let orders = world.interval();
        if !orders.is_empty() {
            break orders;
        }
    };
    world.acting_enabled = false;
    let rollbacks = world.interval();
    assert!(rollbacks.iter().all(|order| order.is_rollback) && !rollbacks.is_empty());
    world.execute(late);
    world.execute(rollbacks);
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn pending_migrations_are_cancelled_when_their_directive_is_removed() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "prefetch-all")));
    let late = loop {
        let orders = world.interval();
        if !orders.is_empty() {
            break orders;
        }
    };
    world.directives.remove(&id);
    let [rollback] = world.interval().try_into().unwrap();
    assert!(rollback.is_rollback && rollback.steps.is_empty() && rollback.decision == late[0].decision);
    world.execute(late);
    world.execute(vec![rollback]);
    assert_eq!(world.interval(), [], "once is enough");
}

#[test]
fn exited_process_gets_no_orders() {
    let (mut world, id) = confirmed();
    world.process(id).ended = Some(world.now);
    let orders = world.orders.len();
    world.run(5.0);
    assert_eq!(world.orders.len(), orders);
    assert_eq!(world.decision().stage, Stage::Ended("the process has ended".to_owned()));
    world.processes.clear();
    world.run(5.0);
    assert_eq!(world.orders.len(), orders);
}

#[test]
fn process_missing_from_the_snapshot_is_rolled_back() {
    let (mut world, id) = confirmed();
    let mut snapshot = world.snapshot();
    snapshot.processes.clear();
    let orders = world.observe(&snapshot);
    assert!(orders.iter().all(|order| order.is_rollback && order.process == id) && orders.len() == 1);
}

#[test]
fn advice_is_withdrawn_when_counting_stops() {
    let (mut world, _) = confirmed();
    let mut snapshot = world.snapshot();
    snapshot.source.state = SourceState::Waiting { missing: Vec::new() };
    let orders = world.observe(&snapshot);
    world.execute(orders);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn advice_requires_complete_observation_of_earlier_advice() {
    let older = |world: &mut World, id| world.process(id).is_adopted = true;
    let by_application = |world: &mut World, id| world.process(id).host.api_calls[ApiCall::SetAccessedBy] = 1;
    let by_a_tool = |world: &mut World, id| world.process(id).host.tool_calls[ApiCall::SetPreferredLocation] = 1;
    let lost = |world: &mut World, id| world.process(id).host.dropped_events = 1;
    let unprobed = |world: &mut World, _| {
        let name = "uvm_enable_read_duplication".to_owned();
        world.probes =
            vec![ProbeStatus { name, hits: 0, run_time: None, missing: Some("no such function".to_owned()) }];
    };
    let without_calls = |world: &mut World, _| world.not_counted = &[model::Quantity::ApiCalls];
    let cases: [(&str, &Disturbance, bool); 6] = [
        ("the source does not count calls of the driver", &without_calls, false),
        ("the process used the driver before", &older, false),
        ("the application advises", &by_application, true),
        ("another program advised", &by_a_tool, true),
        ("events of the process were dropped", &lost, false),
        ("a probe is missing", &unprobed, false),
    ];
    for (why, make, may_move) in cases {
        let mut world = World::new();
        let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
        make(&mut world, id);
        world.run(10.0);
        let Stage::Denied(reason) = &world.decision().stage else { panic!("{why}: {:#?}", world.decision()) };
        assert!(reason.contains(why), "{reason}");
        assert_eq!(world.orders, [], "{why}");
        // Migrations leave no advice, unless memory is read-duplicated.
        world.directives.insert(id, directive(Mode::Act, "prefetch-all"));
        world.run(10.0);
        assert_eq!(!world.orders.is_empty(), may_move, "{why}");
        assert!(
            world
                .orders
                .iter()
                .flat_map(|(_, order)| &order.steps)
                .all(|step| matches!(step.action, Action::Migrate(_)))
        );
    }
}

#[test]
fn process_with_read_duplication_is_not_migrated() {
    for by_application in [true, false] {
        let mut world = World::new();
        let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "prefetch-all")));
        world.run_until("moves", |world| !world.orders.is_empty());
        let host = &mut world.process(id).host;
        let calls = if by_application { &mut host.api_calls } else { &mut host.tool_calls };
        calls[ApiCall::EnableReadDuplication] = 1;
        world.orders.clear();
        world.run(60.0);
        assert_eq!(world.orders, []);
        assert!(format!("{:?}", world.decision()).contains("read-duplicated"), "{:#?}", world.decision());
    }
}

#[test]
fn advice_is_withdrawn_when_the_application_advises_the_driver() {
    let (mut world, id) = confirmed();
    world.process(id).host.api_calls[ApiCall::SetPreferredLocation] = 1;
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn remote_mappings_stay_in_shadow_without_link_measurements() {
    let mut world = World::new();
    world.has_link = false;
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run(10.0);
    assert!(world.decision().stage.reason().unwrap().contains("link"), "{:#?}", world.decision());
    assert_eq!(world.orders, []);
    world.has_link = true;
    world.run(20.0);
    assert_eq!(world.decision().stage, Stage::Confirmed, "once there is one");
}

#[test]
fn drivers_and_gpus_with_known_hangs_are_denied_with_the_report() {
    let mut world = World::new();
    world.driver = "580.173.02".to_owned();
    world.gpu_name = Some("NVIDIA GB10".to_owned());
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "prefetch-all")));
    world.run(10.0);
    assert_eq!(world.orders, []);
    assert!(world.decision().stage.reason().unwrap().contains("https://github.com/"));
}

#[test]
fn driver_error_ends_the_trial() {
    let mut world = World::new();
    world.forced_result = Some(CallResult::Failed("NV_ERR_INVALID_ADDRESS".to_owned()));
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run(10.0);
    let rolled_back = world.acting.decisions().last().unwrap();
    assert!(rolled_back.stage.reason().unwrap().contains("NV_ERR_INVALID_ADDRESS"), "{rolled_back:#?}");
}

#[test]
fn failed_withdrawal_is_retried_and_reported_and_prevents_new_advice() {
    let (mut world, id) = confirmed();
    world.forced_result = Some(CallResult::Failed("busy".to_owned()));
    world.directives.remove(&id);
    world.run(5.0);
    let tries = world.orders.iter().filter(|(_, order)| order.is_rollback).count();
    assert_eq!(tries, 5);
    assert_eq!(world.decision().last_error, Some(CallResult::Failed("busy".to_owned())));
    world.directives.insert(id, directive(Mode::Act, "ping-pong"));
    world.run(20.0);
    assert!(world.decision().stage.reason().unwrap().contains("could not be withdrawn"), "{:#?}", world.decision());
    // After the temporary failure, the advice is withdrawn in the end.
    world.forced_result = None;
    world.directives.remove(&id);
    world.run(60.0);
    assert_eq!(world.advised_blocks(), 0);
    let refused = world.acting.decisions().find(|decision| decision.advice.len() > 1).unwrap();
    assert_eq!((refused.last_error.as_ref(), refused.done.advised_bytes), (None, 0));
    world.directives.insert(id, directive(Mode::Act, "ping-pong"));
    world.run_until("advice is given again", |world| world.advised_blocks() > 0);
}

#[test]
fn remote_mappings_are_rolled_back_when_link_measurements_stop() {
    let (mut world, id) = confirmed();
    assert!(world.advised_blocks() > 0);
    world.has_link = false;
    world.run(1.0);
    assert!(world.advised_blocks() > 0, "one look that failed is no reason");
    world.run(4.0);
    assert_eq!(world.advised_blocks(), 0);
    let ended = world.acting.decisions().find(|decision| matches!(decision.stage, Stage::RolledBack(_))).unwrap();
    assert!(ended.process == id && ended.stage.reason().unwrap().contains("link"), "{ended:#?}");
    world.has_link = true;
    world.run_until("it is tried again", |world| world.advised_blocks() > 0);
}

fn is_advised_again_after_a_withdrawal(world: &mut World, id: ProcessId) {
    let directive = world.directives.remove(&id).unwrap();
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
    world.directives.insert(id, directive);
    world.run(10.0);
    assert!(world.advised_blocks() > 0, "{:#?}", world.decision());
}

#[test]
fn withdrawals_of_uvmd_do_not_count_as_advice_of_other_programs() {
    let (mut world, id) = confirmed();
    is_advised_again_after_a_withdrawal(&mut world, id);
}

#[test]
fn calls_of_the_helper_do_not_count_as_advice_of_the_application() {
    let mut world = World::new();
    world.actuator = ActuatorKind::Helper;
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("advice", |world| world.advised_blocks() > 0);
    world.run(10.0);
    assert!(world.advised_blocks() > 0, "{:#?}", world.decision());
    assert_eq!(world.decision().actuator, Some(ActuatorKind::Helper));
    is_advised_again_after_a_withdrawal(&mut world, id);
    // One further call is the application's own.
    world.process(id).host.api_calls[ApiCall::SetAccessedBy] += 1;
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
    assert!(world.decision().stage.reason().unwrap().contains("advises the driver itself"), "{:#?}", world.decision());
}

#[test]
fn advice_of_the_application_is_seen_while_an_order_is_in_progress() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    while world.interval().is_empty() {}
    // The helper has had no order, so it makes no calls.
    world.process(id).host.api_calls[ApiCall::SetAccessedBy] += 1;
    world.interval();
    assert!(world.decision().stage.reason().unwrap().contains("advises the driver itself"), "{:#?}", world.decision());
}

#[test]
fn order_that_the_actuator_denies_is_tried_again_soon() {
    let mut world = World::new();
    world.actuator = ActuatorKind::Helper;
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.forced_result = Some(CallResult::Denied("its helper has not started its thread".to_owned()));
    world.run_until("a denied order", |world| !world.orders.is_empty());
    world.run(1.0);
    let reason = world.decision().stage.reason().unwrap().to_owned();
    assert_eq!(reason, "no call was made: its helper has not started its thread");
    world.forced_result = None;
    let began = world.now;
    let again = loop {
        let orders = world.interval();
        if !orders.is_empty() {
            break orders;
        }
        assert!(world.now.duration_since(began).unwrap() < Duration::from_secs(30));
    };
    // A call of the helper whose outcome is pending.
    world.process(id).host.api_calls[ApiCall::SetAccessedBy] += 1;
    world.interval();
    assert_eq!(world.decision().stage, Stage::Trial, "{:#?}", world.decision());
    world.process(id).host.api_calls[ApiCall::SetAccessedBy] -= 1;
    world.execute(again);
    world.run(10.0);
    assert!(world.advised_blocks() > 0, "{:#?}", world.decision());
}

#[test]
fn advice_that_the_program_has_replaced_is_not_withdrawn_again() {
    let (mut world, id) = confirmed();
    world.forced_result = Some(CallResult::Replaced);
    world.directives.remove(&id);
    world.run(10.0);
    assert_eq!(world.orders.iter().filter(|(_, order)| order.is_rollback).count(), 1);
    assert!(!world.acting.is_busy());
}

#[test]
fn steps_without_a_call_do_not_hide_advice_of_other_programs() {
    let (mut world, id) = confirmed();
    let order = Order { decision: DecisionId(u64::MAX), ..world.orders[0].1.clone() };
    for answer in
        [CallResult::Cancelled, CallResult::Denied("full".to_owned()), CallResult::NotMapped, CallResult::Exited]
    {
        let call = |step: &Step| Call { step: *step, result: answer.clone(), duration_ns: 0 };
        let calls = order.steps.iter().map(call).collect();
        let now = world.now();
        world.acting.record_outcome(Outcome::new(&order, calls), now);
    }
    world.process(id).host.tool_calls[ApiCall::SetPreferredLocation] += 1;
    world.run(1.0);
    assert!(world.decision().stage.reason().unwrap().contains("another program"), "{:#?}", world.decision());
}

#[test]
fn advice_is_withdrawn_at_shutdown_and_leftovers_at_startup() {
    let (mut world, id) = confirmed();
    let steps = world.orders.iter().flat_map(|(_, order)| order.steps.clone()).collect::<Vec<_>>();
    let decision = world.decision().id;
    let mut next = World::new();
    next.processes = std::mem::take(&mut world.processes);
    let in_force = InForce { decision, process: id, gpu: GPU, steps };
    let orders = next.acting.adopt(vec![in_force], decision);
    assert!(next.advised_blocks() > 0);
    next.execute(orders);
    assert_eq!(next.advised_blocks(), 0);
    let id = next.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    next.run(20.0);
    assert!(next.decision().id > decision, "names are not used twice");
    assert!(next.process(id).advised_blocks() > 0);
    let orders = next.acting.withdraw_all("the service ends");
    next.execute(orders);
    assert_eq!(next.advised_blocks(), 0);
    assert_eq!(next.decision().stage, Stage::RolledBack("the service ends".to_owned()));
}

#[test]
fn memory_with_gpu_atomics_is_not_placed_on_the_host() {
    let mut world = World::new();
    world.add(Program::AtomicsInTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run(60.0);
    assert_eq!(world.orders, [], "it would come to the GPU for each of them");
    let (mut world, id) = confirmed();
    world.process(id).program = Program::AtomicsInTurn;
    world.run(5.0);
    assert!(world.decision().stage.reason().unwrap().contains("atomics"), "{:#?}", world.decision());
    assert_eq!(world.advised_blocks(), 0);
}
