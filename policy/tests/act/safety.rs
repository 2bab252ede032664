//! Actions that must not occur, and withdrawals that must.

use model::{
    Action, ApiCall, Call, CallResult, DecisionId, Mode, Order, Outcome, ProbeStatus, SourceState, Stage, Step,
};
use policy::act::InForce;

use crate::{
    program::Program,
    world::{GPU, World, directive},
};

/// Makes the advice in force unknown.
type Spoil = dyn Fn(&mut World, model::ProcessId);

fn kept() -> (World, model::ProcessId) {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a kept decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    (world, id)
}

#[test]
fn once_switched_off_nothing_is_ordered_but_putting_things_back() {
    let (mut world, _) = kept();
    let before = world.orders.len();
    world.on = false;
    world.run(10.0);
    assert!(world.orders[before..].iter().all(|(_, order)| order.is_rollback));
    assert_eq!(world.advised_blocks(), 0);
    assert!(matches!(world.decision().stage, Stage::Shadow(_)), "what would be done is told");
    world.on = true;
    world.run(10.0);
    assert_eq!(world.decision().stage, Stage::Confirmed, "it is no fault of the plan");
}

#[test]
fn switched_off_between_an_order_and_its_outcome_what_was_done_of_it_is_taken_back() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    let late = loop {
        let orders = world.interval();
        if !orders.is_empty() {
            break orders;
        }
    };
    world.on = false;
    let undoing = world.interval();
    assert!(undoing.iter().all(|order| order.is_rollback) && !undoing.is_empty());
    world.carry_out(late);
    world.carry_out(undoing);
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn moves_that_are_not_done_yet_are_called_off_when_they_are_not_wanted_any_more() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "prefetch-all")));
    let late = loop {
        let orders = world.interval();
        if !orders.is_empty() {
            break orders;
        }
    };
    world.directives.remove(&id);
    let [undoing] = world.interval().try_into().unwrap();
    assert!(undoing.is_rollback && undoing.steps.is_empty() && undoing.decision == late[0].decision);
    world.carry_out(late);
    world.carry_out(vec![undoing]);
    assert_eq!(world.interval(), [], "once is enough");
}

#[test]
fn a_process_that_ends_gets_no_more_orders() {
    let (mut world, id) = kept();
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
fn a_process_that_is_not_seen_any_more_is_left_as_it_was() {
    let (mut world, id) = kept();
    let mut snapshot = world.snapshot();
    snapshot.processes.clear();
    let orders = world.look(&snapshot);
    assert!(orders.iter().all(|order| order.is_rollback && order.process == id) && orders.len() == 1);
}

#[test]
fn when_nothing_is_counted_any_more_everything_is_taken_back() {
    let (mut world, _) = kept();
    let mut snapshot = world.snapshot();
    snapshot.source.state = SourceState::Waiting { missing: Vec::new() };
    let orders = world.look(&snapshot);
    world.carry_out(orders);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn advice_is_given_only_where_all_advice_was_seen_from_the_beginning() {
    let older = |world: &mut World, id| world.process(id).is_adopted = true;
    let by_application = |world: &mut World, id| world.process(id).host.api_calls[ApiCall::SetAccessedBy] = 1;
    let by_a_tool = |world: &mut World, id| world.process(id).host.tool_calls[ApiCall::SetPreferredLocation] = 1;
    let lost = |world: &mut World, id| world.process(id).host.dropped_events = 1;
    let unprobed = |world: &mut World, _| {
        let name = "uvm_enable_read_duplication".to_owned();
        world.probes =
            vec![ProbeStatus { name, hits: 0, run_time: None, missing: Some("no such function".to_owned()) }];
    };
    let cases: [(&str, &Spoil, bool); 5] = [
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
        let Stage::Denied(said) = &world.decision().stage else { panic!("{why}: {:#?}", world.decision()) };
        assert!(said.contains(why), "{said}");
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
fn memory_of_a_process_that_has_any_read_duplicated_is_not_moved() {
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
fn an_application_that_begins_to_advise_the_driver_is_left_to_itself() {
    let (mut world, id) = kept();
    world.process(id).host.api_calls[ApiCall::SetPreferredLocation] = 1;
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn without_a_reading_of_the_link_remote_mappings_stay_in_shadow() {
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
fn drivers_and_gpus_that_stood_still_elsewhere_are_left_alone_and_the_report_is_named() {
    let mut world = World::new();
    world.driver = "580.173.02".to_owned();
    world.gpu_name = Some("NVIDIA GB10".to_owned());
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "prefetch-all")));
    world.run(10.0);
    assert_eq!(world.orders, []);
    assert!(world.decision().stage.reason().unwrap().contains("https://github.com/"));
}

#[test]
fn a_driver_that_refuses_ends_the_trial() {
    let mut world = World::new();
    world.answers = Some(CallResult::Failed("NV_ERR_INVALID_ADDRESS".to_owned()));
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run(10.0);
    let rolled_back = world.acting.decisions().last().unwrap();
    assert!(rolled_back.stage.reason().unwrap().contains("NV_ERR_INVALID_ADDRESS"), "{rolled_back:#?}");
}

#[test]
fn what_cannot_be_withdrawn_is_tried_again_and_said_and_no_more_advice_is_given() {
    let (mut world, id) = kept();
    world.answers = Some(CallResult::Failed("busy".to_owned()));
    world.directives.remove(&id);
    world.run(5.0);
    let tries = world.orders.iter().filter(|(_, order)| order.is_rollback).count();
    assert_eq!(tries, 5);
    assert_eq!(world.decision().last_error, Some(CallResult::Failed("busy".to_owned())));
    world.directives.insert(id, directive(Mode::Act, "ping-pong"));
    world.run(20.0);
    assert!(world.decision().stage.reason().unwrap().contains("could not be withdrawn"), "{:#?}", world.decision());
    // The temporary failure is over: no advice stays in force for good.
    world.answers = None;
    world.directives.remove(&id);
    world.run(60.0);
    assert_eq!(world.advised_blocks(), 0);
    let refused = world.acting.decisions().find(|decision| decision.advice.len() > 1).unwrap();
    assert_eq!((refused.last_error.as_ref(), refused.done.advised_bytes), (None, 0));
    world.directives.insert(id, directive(Mode::Act, "ping-pong"));
    world.run_until("advice is given again", |world| world.advised_blocks() > 0);
}

#[test]
fn what_maps_memory_remotely_ends_when_accesses_across_the_link_are_not_seen_any_more() {
    let (mut world, id) = kept();
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

#[test]
fn what_uvmd_withdrew_itself_is_no_other_programs_advice() {
    let (mut world, id) = kept();
    let directive = world.directives.remove(&id).unwrap();
    world.run(1.0);
    assert_eq!(world.advised_blocks(), 0);
    world.directives.insert(id, directive);
    world.run(10.0);
    assert!(world.advised_blocks() > 0, "{:#?}", world.decision());
}

#[test]
fn what_was_never_called_hides_no_other_programs_advice() {
    let (mut world, id) = kept();
    let (_, Order { process, gpu, is_rollback, steps, .. }) = world.orders[0].clone();
    let decision = DecisionId(u64::MAX);
    for answer in
        [CallResult::Cancelled, CallResult::Denied("full".to_owned()), CallResult::NotMapped, CallResult::Exited]
    {
        let call = |step: &Step| Call { step: *step, result: answer.clone(), duration_ns: 0 };
        let calls = steps.iter().map(call).collect();
        let now = world.now();
        world.acting.carried_out(Outcome { decision, process, gpu, is_rollback, calls, ready_ns: 0 }, now);
    }
    world.process(id).host.tool_calls[ApiCall::SetPreferredLocation] += 1;
    world.run(1.0);
    assert!(world.decision().stage.reason().unwrap().contains("another program"), "{:#?}", world.decision());
}

#[test]
fn everything_is_taken_back_at_the_end_and_what_a_former_run_left_at_the_beginning() {
    let (mut world, id) = kept();
    let steps = world.orders.iter().flat_map(|(_, order)| order.steps.clone()).collect::<Vec<_>>();
    let decision = world.decision().id;
    let mut next = World::new();
    next.processes = std::mem::take(&mut world.processes);
    let in_force = InForce { decision, process: id, gpu: GPU, steps };
    let orders = next.acting.adopt(vec![in_force], decision);
    assert!(next.advised_blocks() > 0);
    next.carry_out(orders);
    assert_eq!(next.advised_blocks(), 0);
    let id = next.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    next.run(20.0);
    assert!(next.decision().id > decision, "names are not used twice");
    assert!(next.process(id).advised_blocks() > 0);
    let orders = next.acting.undo_all("the service ends");
    next.carry_out(orders);
    assert_eq!(next.advised_blocks(), 0);
    assert_eq!(next.decision().stage, Stage::RolledBack("the service ends".to_owned()));
}

#[test]
fn memory_on_which_the_gpu_does_atomics_is_not_kept_on_the_host() {
    let mut world = World::new();
    world.add(Program::AtomicsInTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run(60.0);
    assert_eq!(world.orders, [], "it would come to the GPU for each of them");
    let (mut world, id) = kept();
    world.process(id).program = Program::AtomicsInTurn;
    world.run(5.0);
    assert!(world.decision().stage.reason().unwrap().contains("atomics"), "{:#?}", world.decision());
    assert_eq!(world.advised_blocks(), 0);
}
