//! Properties for any sequence of events.

use std::{collections::VecDeque, time::Duration};

use model::policy::POLICIES;
use model::{Action, ApiCall, CallResult, Mode, Order, Outcome};
use proptest::prelude::*;

use crate::{
    program::Program,
    world::{World, directive},
};

/// Event.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// Passage of this many intervals.
    Pass(u8),
    /// Results for this many orders. Withdrawals always succeed; others as given: 0 done, 1 failed
    /// though done, 2 failed, 3 cancelled, 4 not mapped, 5 no host memory.
    Answer(u8, u8),
    Add(u8, usize),
    Directive(usize, u8, usize),
    Program(usize, u8),
    End(usize),
    Hide(usize),
    Switch,
    Link,
    Count,
    /// Clock set back.
    Back,
    Advises(usize),
    UndoAll,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{Add, Advises, Back, Count, End, Hide, Link, Pass, Switch, UndoAll};
    let policy = || 0..POLICIES.len();
    prop_oneof![
        12 => (1..25_u8).prop_map(Pass),
        12 => (1..9_u8, 0..6_u8).prop_map(|(orders, how)| Happening::Answer(orders, how)),
        2 => (0..3_u8, policy()).prop_map(|(program, policy)| Add(program, policy)),
        3 => (0..4_usize, 0..3_u8, policy()).prop_map(|(who, mode, policy)| Happening::Directive(who, mode, policy)),
        2 => (0..4_usize, 0..3_u8).prop_map(|(who, program)| Happening::Program(who, program)),
        1 => (0..4_usize).prop_map(End),
        1 => (0..4_usize).prop_map(Hide),
        1 => Just(Switch),
        1 => Just(Link),
        1 => Just(Count),
        1 => Just(Back),
        1 => (0..4_usize).prop_map(Advises),
        1 => Just(UndoAll),
    ]
}

fn program(number: u8) -> Program {
    [Program::InTurn, Program::OnGpu, Program::Idle][usize::from(number)]
}

fn answer(world: &mut World, order: &Order, how: u8) {
    let call = |world: &mut World, step: &model::Step| {
        let does = order.is_rollback || how <= 1;
        let done = if does { world.call(order, step) } else { CallResult::Done };
        match how {
            _ if order.is_rollback || done == CallResult::Exited => done,
            1 | 2 => CallResult::Failed("busy".to_owned()),
            3 => CallResult::Cancelled,
            4 => CallResult::HostMemory,
            _ => done,
        }
    };
    let calls = order.steps.iter().map(|step| model::Call { step: *step, result: call(world, step), duration_ns: 1 });
    let calls = calls.collect();
    let Order { decision, process, gpu, is_rollback, .. } = *order;
    let now = world.now();
    world.acting.carried_out(Outcome { decision, process, gpu, is_rollback, calls, ready_ns: 0 }, now);
}

fn happen(world: &mut World, queue: &mut VecDeque<Order>, happening: Happening) {
    let count = world.processes.len().max(1);
    let name = |at: usize| POLICIES[at].name;
    match happening {
        Happening::Pass(intervals) => {
            for _ in 0..intervals {
                let orders = world.interval();
                assert!(world.on || orders.iter().all(|order| order.is_rollback), "it is switched off");
                queue.extend(orders);
            }
        }
        Happening::Answer(orders, how) => {
            for _ in 0..orders {
                let Some(order) = queue.pop_front() else { return };
                answer(world, &order, how);
            }
        }
        Happening::Add(kind, policy) if world.processes.len() < 4 => {
            world.add(program(kind), 20, Some(directive(Mode::Act, name(policy))));
        }
        Happening::Directive(who, mode, policy) => {
            if let Some(id) = world.processes.get(who % count).map(|process| process.id) {
                world.directives.insert(id, directive(Mode::ALL[usize::from(mode)], name(policy)));
            }
        }
        Happening::Program(who, kind) => {
            if let Some(process) = world.processes.get_mut(who % count) {
                process.program = program(kind);
            }
        }
        Happening::End(who) => {
            let now = world.now;
            if let Some(process) = world.processes.get_mut(who % count) {
                process.ended = Some(now);
            }
        }
        Happening::Hide(who) => {
            if let Some(id) = world.processes.get(who % count).map(|process| process.id)
                && !world.hidden.remove(&id)
            {
                world.hidden.insert(id);
            }
        }
        Happening::Switch => world.on = !world.on,
        Happening::Link => world.has_link = !world.has_link,
        Happening::Count => world.is_counting = !world.is_counting,
        Happening::Back => world.now -= Duration::from_secs(10),
        Happening::Advises(who) => {
            if let Some(process) = world.processes.get_mut(who % count) {
                process.host.api_calls[ApiCall::SetAccessedBy] += 1;
            }
        }
        Happening::UndoAll => queue.extend(world.acting.undo_all("the test says so")),
        Happening::Add(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_comes_nothing_panics_and_all_advice_that_was_given_is_taken_back(
        happenings in prop::collection::vec(happening(), 1..60)
    ) {
        let mut world = World::new();
        let mut queue = VecDeque::new();
        world.add(Program::InTurn, 20, Some(directive(Mode::Act, "ping-pong")));
        world.add(Program::InTurn, 20, Some(directive(Mode::Act, "pin-host")));
        for happening in happenings {
            happen(&mut world, &mut queue, happening);
        }
        queue.extend(world.acting.undo_all("the end"));
        for order in queue {
            answer(&mut world, &order, 0);
        }
        prop_assert_eq!(world.advised_blocks(), 0);
        prop_assert!(world.acting.decisions().all(|decision| !decision.stage.is_open()));
    }

    #[test]
    fn only_what_the_decision_may_do_is_ordered(happenings in prop::collection::vec(happening(), 1..40)) {
        let mut world = World::new();
        let mut queue = VecDeque::new();
        world.add(Program::InTurn, 20, Some(directive(Mode::Act, "auto-live")));
        for happening in happenings {
            happen(&mut world, &mut queue, happening);
        }
        for (_, order) in &world.orders {
            prop_assert!(!order.steps.is_empty() || order.is_rollback);
            for step in &order.steps {
                prop_assert!(step.begin < step.end);
                prop_assert_eq!(order.is_rollback, matches!(step.action, Action::Withdraw(_)));
            }
        }
    }
}
