//! Properties for any sequence of events.

use std::{collections::VecDeque, time::Duration};

use model::policy::POLICIES;
use model::{Action, AdviceCalls, ApiCall, CallResult, Mode, Order, Outcome};
use proptest::prelude::*;

use crate::{
    program::Program,
    world::{World, directive},
};

/// Event in a world.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// This number of intervals passes.
    Pass(u8),
    /// Number of orders that get an outcome, and its result. Withdrawals always succeed; others: 0
    /// done, 1 failed though done, 2 failed, 3 cancelled, 4 not mapped, 5 no host memory.
    Complete(u8, u8),
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
    RollBackAll,
}

fn event() -> impl Strategy<Value = Event> {
    use Event::{Add, Advises, Back, Count, End, Hide, Link, Pass, RollBackAll, Switch};
    let policy = || 0..POLICIES.len();
    prop_oneof![
        12 => (1..25_u8).prop_map(Pass),
        12 => (1..9_u8, 0..6_u8).prop_map(|(orders, result)| Event::Complete(orders, result)),
        2 => (0..3_u8, policy()).prop_map(|(program, policy)| Add(program, policy)),
        3 => (0..4_usize, 0..3_u8, policy()).prop_map(|(index, mode, policy)| Event::Directive(index, mode, policy)),
        2 => (0..4_usize, 0..3_u8).prop_map(|(index, program)| Event::Program(index, program)),
        1 => (0..4_usize).prop_map(End),
        1 => (0..4_usize).prop_map(Hide),
        1 => Just(Switch),
        1 => Just(Link),
        1 => Just(Count),
        1 => Just(Back),
        1 => (0..4_usize).prop_map(Advises),
        1 => Just(RollBackAll),
    ]
}

fn program(number: u8) -> Program {
    [Program::InTurn, Program::OnGpu, Program::Idle][usize::from(number)]
}

fn complete(world: &mut World, order: &Order, result: u8) {
    let call = |world: &mut World, step: &model::Step| {
        let does = order.is_rollback || result <= 1;
        let done = if does { world.call(order, step) } else { CallResult::Done };
        match result {
            _ if order.is_rollback || done == CallResult::Exited => done,
            1 | 2 => CallResult::Failed("busy".to_owned()),
            3 => CallResult::Cancelled,
            4 => CallResult::HostMemory,
            _ => done,
        }
    };
    let before = world.advice_calls(order.process);
    let calls = order.steps.iter().map(|step| model::Call { step: *step, result: call(world, step), duration_ns: 1 });
    let calls = calls.collect();
    let by_ioctl = world.advice_calls(order.process) - before;
    let advice_calls = AdviceCalls { by_ioctl, by_helper: 0 };
    let now = world.now();
    world.acting.record_outcome(Outcome { advice_calls, ..Outcome::new(order, calls) }, now);
}

fn apply(world: &mut World, queue: &mut VecDeque<Order>, event: Event) {
    let count = world.processes.len().max(1);
    let name = |at: usize| POLICIES[at].name;
    match event {
        Event::Pass(intervals) => {
            for _ in 0..intervals {
                let orders = world.interval();
                assert!(world.acting_enabled || orders.iter().all(|order| order.is_rollback), "it is switched off");
                queue.extend(orders);
            }
        }
        Event::Complete(orders, result) => {
            for _ in 0..orders {
                let Some(order) = queue.pop_front() else { return };
                complete(world, &order, result);
            }
        }
        Event::Add(kind, policy) if world.processes.len() < 4 => {
            world.add(program(kind), 20, Some(directive(Mode::Act, name(policy))));
        }
        Event::Directive(index, mode, policy) => {
            if let Some(id) = world.processes.get(index % count).map(|process| process.id) {
                world.directives.insert(id, directive(Mode::ALL[usize::from(mode)], name(policy)));
            }
        }
        Event::Program(index, kind) => {
            if let Some(process) = world.processes.get_mut(index % count) {
                process.program = program(kind);
            }
        }
        Event::End(index) => {
            let now = world.now;
            if let Some(process) = world.processes.get_mut(index % count) {
                process.ended = Some(now);
            }
        }
        Event::Hide(index) => {
            if let Some(id) = world.processes.get(index % count).map(|process| process.id)
                && !world.hidden.remove(&id)
            {
                world.hidden.insert(id);
            }
        }
        Event::Switch => world.acting_enabled = !world.acting_enabled,
        Event::Link => world.has_link = !world.has_link,
        Event::Count => world.is_counting = !world.is_counting,
        Event::Back => world.now -= Duration::from_secs(10),
        Event::Advises(index) => {
            if let Some(process) = world.processes.get_mut(index % count) {
                process.host.api_calls[ApiCall::SetAccessedBy] += 1;
            }
        }
        Event::RollBackAll => queue.extend(world.acting.withdraw_all("requested by the test")),
        Event::Add(..) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_sequence_of_events_ends_without_panic_and_without_advice(
        events in prop::collection::vec(event(), 1..60)
    ) {
        let mut world = World::new();
        let mut queue = VecDeque::new();
        world.add(Program::InTurn, 20, Some(directive(Mode::Act, "ping-pong")));
        world.add(Program::InTurn, 20, Some(directive(Mode::Act, "pin-host")));
        for event in events {
            apply(&mut world, &mut queue, event);
        }
        queue.extend(world.acting.withdraw_all("the end"));
        for order in queue {
            complete(&mut world, &order, 0);
        }
        prop_assert_eq!(world.advised_blocks(), 0);
        prop_assert!(world.acting.decisions().all(|decision| !decision.stage.is_open()));
    }

    #[test]
    fn orders_contain_only_permitted_steps(events in prop::collection::vec(event(), 1..40)) {
        let mut world = World::new();
        let mut queue = VecDeque::new();
        world.add(Program::InTurn, 20, Some(directive(Mode::Act, "auto-live")));
        for event in events {
            apply(&mut world, &mut queue, event);
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
