use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use model::Interrupt;
use sys::Roots;

use super::{
    testing::{LONG, Part, Program, is_permitted},
    *,
};

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
        (Action::Withdraw(gpu), HelperAction::PreferNowhere, false),
        (Action::Withdraw(host), HelperAction::PreferNowhere, false),
        (ADVISE, HelperAction::AccessByGpu, true),
        (WITHDRAW, HelperAction::NoAccessByGpu, true),
        (Action::Advise(Advice::ReadDuplication), HelperAction::Duplicate, false),
        (Action::Withdraw(Advice::ReadDuplication), HelperAction::DoNotDuplicate, false),
    ];
    for (action, of_helper, names_gpu) in expected {
        assert_eq!(helper_action(action), (of_helper, names_gpu.then_some(GPU)), "{action:?}");
    }
}

#[test]
fn advice_that_was_not_given_is_denied_and_advice_that_was_not_withdrawn_failed() {
    let is_denied = |result| matches!(result, CallResult::Denied(_));
    let is_failed = |result| matches!(result, CallResult::Failed(_));
    for answer in [Answer::NoDevice, Answer::Unsupported] {
        assert!(is_denied(result_of(ADVISE, answer)) && is_failed(result_of(WITHDRAW, answer)), "{answer:?}");
    }
    assert!(is_denied(result_of(ADVISE, Answer::ProgramAdvice)));
    assert_eq!(result_of(WITHDRAW, Answer::ProgramAdvice), CallResult::Replaced);
    assert_eq!(result_of(ADVISE, Answer::NotAllocated), CallResult::NotMapped);
    assert!(is_failed(result_of(WITHDRAW, Answer::NotAllocated)));
    for action in [ADVISE, WITHDRAW] {
        assert_eq!(result_of(action, Answer::Done), CallResult::Done);
    }
}

#[test]
fn errors_of_cuda_have_their_names() {
    let failed = |action, error| result_of(action, Answer::Failed(error));
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

    fn is_awaited(&self) -> bool {
        let has_reported = self.0.has_reported();
        self.1.fetch_or(has_reported, Ordering::Relaxed) || has_reported
    }
}

/// Result of an action on the first two pages, and whether it has a duration.
fn call(program: &Program, action: Action, budget: &mut TimeBudget<'_>) -> (Result<CallResult, CallResult>, bool) {
    let ring = Ring::open(&Roots::default(), &program.process).unwrap();
    let (pages, mut took) = (PageRange::new(0x20_0000, 0x2000).unwrap(), Duration::ZERO);
    let result = HelperCalls::new(ring, &program.process, GPU, budget).make(action, pages, &mut took);
    (result, !took.is_zero())
}

fn call_within(program: &Program, action: Action, limit: Duration) -> (Result<CallResult, CallResult>, bool) {
    call(program, action, &mut TimeBudget::new(limit, &|| false))
}

#[test]
fn command_is_carried_out_as_it_was_submitted() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Part::Answers(Answer::Done));
    assert_eq!(call_within(&program, ADVISE, LONG), (Ok(CallResult::Done), true));
    assert_eq!(program.next_report(), "AccessByGpu 0x200000 0x202000 1");
    // Without a GPU of its own, it is the order's.
    assert_eq!(call_within(&program, Action::Migrate(Place::Host), LONG), (Ok(CallResult::Done), true));
    assert_eq!(program.next_report(), "PrefetchToHost 0x200000 0x202000 1");
}

#[test]
fn command_that_nobody_takes_is_revoked() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Part::Sleeps);
    let reason = || "its helper did not take the command in time".to_owned();
    let limit = Duration::from_millis(20);
    assert_eq!(call_within(&program, ADVISE, limit), (Err(CallResult::Denied(reason())), false));
    assert_eq!(call_within(&program, WITHDRAW, limit), (Err(CallResult::Failed(reason())), false));
    let ring = Ring::open(&Roots::default(), &program.process).unwrap();
    assert_eq!(ring.commands().unwrap().take(), None);
}

#[test]
fn program_without_calls_is_not_waited_for() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Part::Rests);
    let (Err(CallResult::Denied(reason)), false) = call_within(&program, ADVISE, LONG) else { panic!() };
    assert_eq!(reason, "its helper has not started its thread: the next call of the program to CUDA does");
}

#[test]
fn command_that_is_carried_out_is_left_behind_and_precedes_the_next() {
    if !is_permitted() {
        return;
    }
    let mut program = Program::start(Part::Hangs);
    let interrupt = OnceTaken(&program, AtomicBool::new(false));
    let left_behind = call(&program, ADVISE, &mut TimeBudget::new(LONG, &interrupt));
    let reason = "gave up: a call hangs, and a withdrawal of others waits; its helper still carries out the last";
    assert_eq!(left_behind, (Err(CallResult::Failed(reason.to_owned())), true));
    let busy = "its helper still carries out a former command".to_owned();
    let limit = Duration::from_millis(20);
    assert_eq!(call_within(&program, WITHDRAW, limit), (Err(CallResult::Failed(busy)), false));
    program.release();
    program.release();
    assert_eq!(call_within(&program, WITHDRAW, LONG), (Ok(CallResult::Done), true));
    assert_eq!(program.next_report(), "NoAccessByGpu 0x200000 0x202000 1");
}

#[test]
fn process_that_is_killed_meanwhile_has_exited() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Part::Hangs);
    let process = PidFd::open(program.process.pid()).unwrap();
    let ring = Ring::open(&Roots::default(), &process).unwrap();
    let (pages, mut took) = (PageRange::new(0x20_0000, 0x2000).unwrap(), Duration::ZERO);
    let killed = thread::spawn(move || {
        let mut program = program;
        program.next_report();
        program.kill();
    });
    let mut budget = TimeBudget::new(LONG, &|| false);
    let result = HelperCalls::new(ring, &process, GPU, &mut budget).make(ADVISE, pages, &mut took);
    assert_eq!(result, Err(CallResult::Exited));
    killed.join().unwrap();
}

#[test]
fn process_that_overwrites_its_ring_fails_its_own_order() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Part::Overwrites);
    let (Err(CallResult::Failed(reason)), true) = call_within(&program, ADVISE, LONG) else { panic!() };
    assert_eq!(reason, "its shared memory is no ring of the helper: no header of a ring");
    assert!(matches!(Ring::open(&Roots::default(), &program.process), Err(RingError::Invalid(_))));
}

#[test]
fn helper_without_commands_is_reported() {
    if !is_permitted() {
        return;
    }
    let error = |part| Ring::open(&Roots::default(), &Program::start(part).process).unwrap_err();
    assert!(matches!(error(Part::IsAbsent), RingError::Absent));
    assert!(matches!(error(Part::IsOlder), RingError::Older));
    assert!(matches!(error(Part::Fails), RingError::Ended));
}
