use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use model::Interrupt;
use sys::{Roots, shared_memory::SharedMemoryError};

use super::{
    Program as Target,
    testing::{ADVICE_CALLS, Behaviour, LONG, Program, is_permitted, memory_of, open},
    *,
};
use crate::ActError;

const GPU: GpuUuid = GpuUuid([1; 16]);
const ADVICE: Advice = Advice::AccessedBy(GPU);
const ADVISE: Action = Action::Advise(ADVICE);
const WITHDRAW: Action = Action::Withdraw(ADVICE);

#[test]
fn actions_are_those_of_the_helper() {
    let [host, gpu] = [Place::Host, Place::Gpu(GPU)].map(Advice::PreferredLocation);
    let expected = [
        (Action::Migrate(Place::Gpu(GPU)), HelperAction::PrefetchToGpu, true),
        (Action::Touch(GPU), HelperAction::PrefetchToGpu, true),
        (Action::Migrate(Place::Host), HelperAction::PrefetchToHost, false),
        (Action::Advise(gpu), HelperAction::PreferGpu, true),
        (Action::Advise(host), HelperAction::PreferHost, false),
        (Action::Withdraw(gpu), HelperAction::UnsetPreferredLocation, false),
        (Action::Withdraw(host), HelperAction::UnsetPreferredHost, false),
        (ADVISE, HelperAction::SetAccessedBy, true),
        (WITHDRAW, HelperAction::UnsetAccessedBy, true),
        (Action::Advise(Advice::ReadDuplication), HelperAction::EnableReadDuplication, false),
        (Action::Withdraw(Advice::ReadDuplication), HelperAction::DisableReadDuplication, false),
    ];
    for (action, of_helper, names_gpu) in expected {
        assert_eq!(helper_action(action), (of_helper, names_gpu.then_some(GPU)), "{action:?}");
    }
}

#[test]
fn advice_that_was_not_given_is_denied_and_advice_that_was_not_withdrawn_failed() {
    let is_denied = |result| matches!(result, CallResult::Denied(_));
    let is_failed = |result| matches!(result, CallResult::Failed(_));
    for result in [CommandResult::NoDevice, CommandResult::Unsupported, CommandResult::NotActing] {
        assert!(is_denied(result_of(ADVISE, result)) && is_failed(result_of(WITHDRAW, result)), "{result:?}");
    }
    assert!(is_denied(result_of(ADVISE, CommandResult::ProgramAdvice)));
    assert_eq!(result_of(WITHDRAW, CommandResult::ProgramAdvice), CallResult::Replaced);
    for action in [ADVISE, WITHDRAW] {
        assert_eq!(result_of(action, CommandResult::NotAllocated), CallResult::NotMapped);
        assert_eq!(result_of(action, CommandResult::Done), CallResult::Done);
    }
}

#[test]
fn errors_of_cuda_have_their_names() {
    let failed = |action, error| result_of(action, CommandResult::Failed(error));
    let text = |text: &str| CallResult::Failed(format!("CUDA failed the call: {text}"));
    assert_eq!(failed(ADVISE, 801), text("CUDA_ERROR_NOT_SUPPORTED"));
    assert_eq!(failed(ADVISE, 12345), text("CUresult 12345 (cuda.h)"));
    assert_eq!(failed(Action::Migrate(Place::Gpu(GPU)), 2), text("CUDA_ERROR_OUT_OF_MEMORY"));
    assert_eq!(failed(Action::Migrate(Place::Host), 2), CallResult::HostMemory);
}

/// Interrupt of a call once the helper has taken its command.
struct OnceTaken<'a>(&'a Program, AtomicBool);

impl Interrupt for OnceTaken<'_> {
    fn is_cancelled(&self) -> bool {
        false
    }

    fn should_yield(&self) -> bool {
        let has_reported = self.0.has_reported();
        self.1.fetch_or(has_reported, Ordering::Relaxed) || has_reported
    }
}

/// Result of an action on the first two pages, and whether it has a duration.
fn call(program: &Program, action: Action, budget: &mut TimeBudget<'_>) -> (Result<CallResult, CallResult>, bool) {
    let (result, cost) = call_with_cost(program, action, budget);
    (result, !cost.took.is_zero())
}

fn call_with_cost(
    program: &Program,
    action: Action,
    budget: &mut TimeBudget<'_>,
) -> (Result<CallResult, CallResult>, Cost) {
    let (roots, id, process) = (Roots::default(), program.id(), &program.process);
    let ring = open(process).unwrap();
    let (pages, mut cost) = (PageRange::new(0x20_0000, 0x2000).unwrap(), Cost::default());
    let target = Target { roots: &roots, id, process };
    let result = HelperCalls::new(ring, target, GPU, budget).make(action, pages, &mut cost);
    (result, cost)
}

/// Wait of a withdrawal by ioctls for the helper.
fn idle_within(program: &Program, limit: Duration) -> Result<u64, CallResult> {
    wait_with(&Ring::attach(memory_of(&program.process)), program, limit)
}

fn wait_with(ring: &Result<Ring, RingError>, program: &Program, limit: Duration) -> Result<u64, CallResult> {
    let (roots, id, process) = (Roots::default(), program.id(), &program.process);
    wait_until_idle(ring, Target { roots: &roots, id, process }, &mut TimeBudget::new(limit, &|| false))
}

/// Submits a command as a former uvmd, and wakes the helper.
fn submit_as_former_uvmd(program: &Program) {
    let ring = Ring::attach(memory_of(&program.process)).unwrap();
    let command = Command { action: HelperAction::PreferGpu, gpu: GPU.0, begin: 0, end: 4096 };
    ring.submit(&command).unwrap().unwrap();
}

fn call_within(program: &Program, action: Action, limit: Duration) -> (Result<CallResult, CallResult>, bool) {
    call(program, action, &mut TimeBudget::new(limit, &|| false))
}

#[test]
fn command_is_executed_as_submitted() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Answers(CommandResult::Done));
    assert_eq!(call_within(&program, ADVISE, LONG), (Ok(CallResult::Done), true));
    assert_eq!(program.next_report(), "SetAccessedBy 0x200000 0x202000 1");
    // An action that names no GPU is about the order's.
    assert_eq!(call_within(&program, Action::Migrate(Place::Host), LONG), (Ok(CallResult::Done), true));
    assert_eq!(program.next_report(), "PrefetchToHost 0x200000 0x202000 1");
}

#[test]
fn command_that_nobody_takes_is_revoked() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Sleeps);
    let reason = || NOT_TAKEN.to_owned();
    let limit = Duration::from_millis(20);
    assert_eq!(call_within(&program, ADVISE, limit), (Err(CallResult::Denied(reason())), false));
    assert_eq!(call_within(&program, WITHDRAW, limit), (Err(CallResult::Failed(reason())), false));
    let ring = open(&program.process).unwrap();
    assert!(ring.commands(|commands| commands.revoke_pending().is_none()).unwrap());
}

#[test]
fn order_does_not_wait_for_a_program_without_calls() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Behaviour::NeverStarts);
    let begun = Instant::now();
    let (Err(CallResult::Denied(reason)), false) = call_within(&program, ADVISE, LONG) else { panic!() };
    assert_eq!(reason, NOT_STARTED);
    assert!(begun.elapsed() < LONG / 2);
    let ring = open(&program.process).unwrap();
    assert!(ring.commands(|commands| commands.revoke_pending().is_none()).unwrap(), "nothing was submitted");
}

#[test]
fn command_in_progress_is_abandoned_and_fails_further_orders_at_once() {
    if !is_permitted() {
        return;
    }
    let mut program = Program::start_acting(Behaviour::Hangs);
    let interrupt = OnceTaken(&program, AtomicBool::new(false));
    let abandoned = call(&program, ADVISE, &mut TimeBudget::new(LONG, &interrupt));
    let reason =
        "gave up: a call hangs, and a withdrawal for another process waits; its helper still executes the last call";
    assert_eq!(abandoned, (Err(CallResult::Failed(reason.to_owned())), true));
    let busy = (Err(CallResult::Failed(BUSY.to_owned())), false);
    assert_eq!(call_within(&program, WITHDRAW, LONG), busy, "at once");
    program.release();
    program.release();
    let (result, cost) = loop {
        let (result, cost) = call_with_cost(&program, WITHDRAW, &mut TimeBudget::new(LONG, &|| false));
        if result != busy.0 {
            break (result, cost);
        }
    };
    assert_eq!(result, Ok(CallResult::Done));
    assert_eq!(cost.advice_calls, 2 * ADVICE_CALLS, "its own, and those of the command left behind");
    assert_eq!(program.next_report(), "UnsetAccessedBy 0x200000 0x202000 1");
}

#[test]
fn order_waits_once_for_a_command_of_a_former_uvmd() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Hangs);
    submit_as_former_uvmd(&program);
    program.next_report();
    let busy = || (Err(CallResult::Denied(BUSY.to_owned())), false);
    assert_eq!(call_within(&program, ADVISE, Duration::from_millis(20)), busy());
    assert_eq!(call_within(&program, ADVISE, LONG), busy(), "at once");
}

#[test]
fn advice_calls_count_with_any_result() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Answers(CommandResult::Failed(1)));
    let (result, cost) = call_with_cost(&program, ADVISE, &mut TimeBudget::new(LONG, &|| false));
    assert!(matches!(result, Ok(CallResult::Failed(_))), "{result:?}");
    assert_eq!(cost.advice_calls, ADVICE_CALLS);
}

#[test]
fn ioctls_of_a_withdrawal_follow_the_command_of_the_helper() {
    if !is_permitted() {
        return;
    }
    let mut program = Program::start_acting(Behaviour::Hangs);
    submit_as_former_uvmd(&program);
    program.next_report();
    let short = Duration::from_millis(20);
    assert_eq!(idle_within(&program, short), Err(CallResult::Failed(BUSY.to_owned())));
    // Withdrawals have waited for the time of an order.
    assert_eq!(idle_within(&program, short), Ok(0));
    program.release();
    assert_eq!(idle_within(&program, LONG), Ok(0));
    // Command of this uvmd, whose calls count.
    let interrupt = OnceTaken(&program, AtomicBool::new(false));
    assert!(call(&program, ADVISE, &mut TimeBudget::new(LONG, &interrupt)).0.is_err());
    program.release();
    assert_eq!(idle_within(&program, LONG), Ok(ADVICE_CALLS));
}

#[test]
fn ioctls_of_a_withdrawal_wait_once_for_a_ring_that_is_not_accessible() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Sleeps);
    let wait = |limit| wait_with(&Err(RingError::Memory(Arc::new(SharedMemoryError::Late))), &program, limit);
    let short = Duration::from_millis(20);
    let why = SharedMemoryError::Late.to_string();
    assert_eq!(wait(short), Err(CallResult::Failed(why)), "the helper may carry out a command");
    assert_eq!(wait(short), Ok(0));
}

#[test]
fn ioctls_of_a_withdrawal_revoke_a_command_that_nobody_has_taken() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Sleeps);
    submit_as_former_uvmd(&program);
    assert_eq!(idle_within(&program, LONG), Ok(0));
    let ring = Ring::attach(memory_of(&program.process)).unwrap();
    assert!(ring.commands(|commands| commands.revoke_pending().is_none()).unwrap());
}

#[test]
fn process_killed_during_a_command_has_exited() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Hangs);
    let (roots, id, process) = (Roots::default(), program.id(), PidFd::open(program.process.pid()).unwrap());
    let ring = open(&process).unwrap();
    let (pages, mut cost) = (PageRange::new(0x20_0000, 0x2000).unwrap(), Cost::default());
    let killed = thread::spawn(move || {
        let mut program = program;
        program.next_report();
        program.kill();
    });
    let mut budget = TimeBudget::new(LONG, &|| false);
    let target = Target { roots: &roots, id, process: &process };
    let result = HelperCalls::new(ring, target, GPU, &mut budget).make(ADVISE, pages, &mut cost);
    assert_eq!(result, Err(CallResult::Exited));
    killed.join().unwrap();
}

#[test]
fn process_that_overwrites_its_ring_fails_its_own_order() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Overwrites);
    let (Err(CallResult::Failed(reason)), true) = call_within(&program, ADVISE, LONG) else { panic!() };
    assert_eq!(reason, "its shared memory is not a ring of the helper: unknown header");
    assert!(matches!(open(&program.process), Err(RingError::Invalid(_))));
}

#[test]
fn helper_without_commands_is_reported() {
    if !is_permitted() {
        return;
    }
    let error = |part| open(&Program::start(part).process).unwrap_err();
    assert!(matches!(error(Behaviour::IsAbsent), RingError::Absent));
    assert!(matches!(error(Behaviour::IsOlder), RingError::Older));
    assert!(matches!(error(Behaviour::IsFiltered), RingError::NotPermitted(ActError::Filtered)));
    assert!(matches!(error(Behaviour::IsOff), RingError::NotPermitted(ActError::Off)));
    assert!(matches!(error(Behaviour::Fails), RingError::Ended));
}
