//! Stages of a decision.

use std::time::Duration;

use model::{Mode, Stage, VerdictKind, decision::Event};

use crate::{
    program::Program,
    world::{World, directive},
};

#[test]
fn observe_mode_gives_no_orders() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, None);
    world.add(Program::InTurn, 64, Some(directive(Mode::Observe, "auto-live")));
    world.run(20.0);
    assert!(!world.verdicts.active.is_empty(), "there is something to do");
    assert_eq!((world.orders.len(), world.events.len()), (0, 0));
}

#[test]
fn shadow_mode_reports_the_plan_and_its_bounds_without_orders() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Shadow, "ping-pong")));
    world.run(20.0);
    let decision = world.decision();
    assert!(matches!(decision.stage, Stage::Shadow(_)), "{decision:#?}");
    assert_eq!(decision.verdict, Some(VerdictKind::PingPong));
    assert!(decision.expected.faults_saved.at_least > 0.5 && !decision.ranges.is_empty());
    assert!(decision.before.inputs.bounces > 0);
    assert_eq!(world.orders, []);
    assert_eq!(world.events.len(), 1, "it is reported once");
}

#[test]
fn verification_window_begins_at_the_first_outcome() {
    // The window starts at most half a window after the plan; these outcomes are earlier.
    let judged = [0.0, 0.3].map(|late| {
        let mut world = World::new();
        world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
        while world.orders.is_empty() {
            let orders = world.interval();
            if !orders.is_empty() {
                let late = Duration::from_secs_f64(late);
                (world.now, world.elapsed) = (world.now + late, world.elapsed + late);
            }
            world.execute(orders);
        }
        let began = world.elapsed;
        while world.decision().stage != Stage::Confirmed {
            world.run(0.1);
        }
        world.elapsed.saturating_sub(began)
    });
    assert_eq!(judged[0], judged[1], "as long after the answer");
}

#[test]
fn helpful_plan_is_confirmed_and_reported_with_before_and_after() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    let decision = world.decision().clone();
    let (before, after) = (decision.before, decision.after.unwrap());
    // The program completes nine times as many rounds in that time.
    assert!(after.inputs.fault_entries * 3 < before.inputs.fault_entries, "{decision:#?}");
    assert!(after.replays * 3 < before.replays);
    let rounds = world.process(id).rounds;
    world.run(60.0);
    assert_eq!(world.decision().stage, Stage::Confirmed, "{:#?}", world.decision());
    assert!(world.process(id).rounds > rounds);
    let stages: Vec<&str> = world
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Created(decision) | Event::Updated(decision) => Some(decision.stage.name()),
            Event::Applied(_) | Event::Withheld(_) | Event::Switched { .. } => None,
        })
        .collect();
    assert_eq!(stages, ["trial", "confirmed"]);
}

#[test]
fn speedup_does_not_count_as_a_higher_cost() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    // Nearly all migrated memory is accessed remotely as well, and the program is ten times as
    // fast.
    world.process(id).accessed_bytes = 3 << 20;
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    let decision = world.decision();
    let bytes = |measured: &model::decision::Measured| {
        let link = measured.link.unwrap();
        (link.htod + link.dtoh) as f64 / measured.window.as_secs_f64()
    };
    assert!(
        bytes(&decision.after.unwrap()) > 2.0 * bytes(&decision.before),
        "it moves more in a second: {decision:#?}"
    );
}

#[test]
fn costly_plan_is_rolled_back_and_not_retried_until_something_changes() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.process(id).accessed_bytes = 12 << 20;
    world.run_until("a rolled-back decision", |world| {
        world.acting.decisions().any(|decision| matches!(decision.stage, Stage::RolledBack(_)))
    });
    let rolled_back = world.decision().clone();
    assert!(rolled_back.stage.reason().unwrap().contains("bytes over the link"), "{rolled_back:#?}");
    world.run(0.2);
    assert_eq!(world.advised_blocks(), 0);
    world.run(600.0);
    assert_eq!(world.acting.decisions().count(), 1, "nothing changed");
    world.directives.get_mut(&id).unwrap().parameters.insert("bounces".to_owned(), "8".to_owned());
    world.run(1.0);
    assert_eq!(world.acting.decisions().count(), 2, "something did");
}

#[test]
fn policy_that_failed_during_another_plan_is_retried_without_it() {
    let mut world = World::new();
    let other = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    world.add(Program::OnGpu, 64, Some(directive(Mode::Act, "harmful")));
    let harmful = |world: &World| world.acting.decisions().filter(|decision| decision.policy == "harmful").count();
    world.run(100.0);
    assert_eq!(harmful(&world), 1, "nothing changed");
    world.directives.get_mut(&other).unwrap().mode = Mode::Observe;
    world.run(100.0);
    assert_eq!(harmful(&world), 2);
}

#[test]
fn harmful_policy_is_rolled_back_within_two_windows() {
    for program in [Program::OnGpu, Program::InTurn] {
        let mut world = World::new();
        world.add(program, 64, Some(directive(Mode::Act, "harmful")));
        world.run_until("a rolled-back decision", |world| {
            world.acting.decisions().any(|decision| matches!(decision.stage, Stage::RolledBack(_)))
        });
        let decision = world.decision();
        let lasted = decision.updated_at.duration_since(decision.created_at).unwrap();
        assert!(lasted <= Duration::from_secs(4), "{program:?}: {lasted:?}");
        let orders = world.orders.len();
        world.run(60.0);
        assert_eq!(world.orders.len(), orders, "{program:?}: it is not tried again");
    }
}

#[test]
fn trial_of_a_paused_program_is_rolled_back_after_four_windows() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a trial", |world| world.acting.decisions().any(|decision| decision.stage == Stage::Trial));
    world.process(id).program = Program::Idle;
    world.run(6.0);
    assert_eq!(world.decision().stage, Stage::Trial);
    world.run(4.0);
    assert!(world.decision().stage.reason().unwrap().contains("too little"), "{:#?}", world.decision());
    // The program resumes later.
    world.process(id).program = Program::InTurn;
    world.run(60.0);
    assert_eq!(world.decision().stage, Stage::Confirmed);
}

#[test]
fn plan_and_advice_end_with_the_phase_that_justified_them() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    assert!(world.advised_blocks() > 50);
    world.process(id).program = Program::Idle;
    world.run(15.0);
    assert_eq!(world.decision().stage.name(), "ended");
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn confirmed_plan_is_rolled_back_when_it_no_longer_helps() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    world.process(id).accessed_bytes = 16 << 20;
    world.run_until("a rolled-back decision", |world| {
        world.acting.decisions().any(|decision| matches!(decision.stage, Stage::RolledBack(_)))
    });
    world.run(0.2);
    assert_eq!(world.advised_blocks(), 0);
}

#[test]
fn plan_for_a_few_blocks_is_confirmed() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 2, Some(directive(Mode::Act, "ping-pong")));
    world.process(id).round = Duration::from_millis(120);
    world.process(id).accessed_bytes = 512 * 32;
    world.run(60.0);
    assert_eq!(world.acting.decisions().count(), 1);
    assert_eq!(world.decision().stage, Stage::Confirmed, "{:#?}", world.decision());
}

#[test]
fn directive_change_ends_the_open_decision() {
    let mut world = World::new();
    let id = world.add(Program::InTurn, 64, Some(directive(Mode::Act, "ping-pong")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    world.directives.insert(id, directive(Mode::Shadow, "ping-pong"));
    world.run(5.0);
    assert_eq!(world.advised_blocks(), 0);
    let stages: Vec<&str> = world.acting.decisions().map(|decision| decision.stage.name()).collect();
    assert_eq!(stages, ["shadow", "ended"]);
    world.directives.remove(&id);
    world.run(1.0);
    assert_eq!(world.decision().stage.name(), "ended");
}

#[test]
fn auto_live_selects_the_helpful_policy() {
    let mut world = World::new();
    world.add(Program::InTurn, 64, Some(directive(Mode::Act, "auto-live")));
    world.run_until("a confirmed decision", |world| {
        world.acting.decisions().any(|decision| decision.stage == Stage::Confirmed)
    });
    assert_eq!(world.decision().policy, "ping-pong");
}
