use std::{cell::Cell, process::Command};

use model::{DecisionId, ProcessId};
use procfs::process::Process;

use super::*;

const GPU: GpuUuid = GpuUuid([1; 16]);

fn process(pid: u32) -> ProcessId {
    let stat = Process::new(i32::try_from(pid).unwrap()).unwrap().stat().unwrap();
    ProcessId { pid, start_ticks: stat.starttime }
}

fn order(process: ProcessId, is_undoing: bool) -> Order {
    let step = |begin: u64| Step { begin, end: begin + (4 << 20), action: Action::Migrate(Place::Host) };
    Order { decision: DecisionId(1), process, gpu: GPU, steps: vec![step(0), step(8 << 20)], is_undoing }
}

fn answers(order: &Order, off: &dyn Fn() -> bool) -> Vec<Answer> {
    let outcome = Ioctl::new(Settings::default(), Roots::default()).carry_out(order, off);
    let told: u64 = outcome.calls.iter().map(|call| call.step.bytes()).sum();
    assert_eq!(told, order.steps.iter().map(Step::bytes).sum::<u64>(), "every byte has an answer");
    outcome.calls.into_iter().map(|call| call.answer).collect()
}

#[test]
fn a_process_that_has_ended_is_not_touched() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let order = order(process(child.id()), false);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answers(&order, &|| false), [Answer::Ended, Answer::Ended]);
}

#[test]
fn a_process_without_managed_memory_has_nothing_mapped() {
    let order = order(process(std::process::id()), false);
    assert_eq!(answers(&order, &|| false), [Answer::NotMapped, Answer::NotMapped]);
}

#[test]
fn nothing_is_begun_once_it_is_called_off_but_what_puts_something_back() {
    let own = process(std::process::id());
    assert_eq!(answers(&order(own, false), &|| true), [Answer::CalledOff, Answer::CalledOff]);
    assert_eq!(answers(&order(own, true), &|| true), [Answer::NotMapped, Answer::NotMapped]);
}

#[test]
fn the_va_space_that_has_the_range_is_found() {
    let nowhere = || UvmError::Refused { request: "UVM_MIGRATE", status: Status::INVALID_ADDRESS };
    let asked = Cell::new(0);
    let has = |wanted: u32| {
        asked.set(0);
        ask_each(&[1, 2, 3], |space| {
            asked.set(asked.get() + 1);
            if *space == wanted { Ok(()) } else { Err(nowhere()) }
        })
    };
    assert!(has(2).is_ok());
    assert_eq!(asked.get(), 2);
    assert!(matches!(has(4), Err(UvmError::Refused { status: Status::INVALID_ADDRESS, .. })));
}

#[test]
fn what_one_va_space_refuses_no_other_is_asked() {
    let asked = Cell::new(0);
    let answer = ask_each(&[1, 2, 3], |space| {
        asked.set(asked.get() + 1);
        let status = if *space == 2 { Status::NO_MEMORY } else { Status::INVALID_ADDRESS };
        Err(UvmError::Refused { request: "UVM_MIGRATE", status })
    });
    assert!(matches!(answer, Err(UvmError::Refused { status: Status::NO_MEMORY, .. })));
    assert_eq!(asked.get(), 2);
}

#[test]
fn a_call_is_never_larger_than_the_driver_is_to_be_held_up() {
    let part_bytes = |part_bytes| {
        let settings = Settings { part_bytes, ..Settings::default() };
        Ioctl::new(settings, Roots::default()).settings.part_bytes
    };
    assert_eq!(part_bytes(0), 2 << 20);
    assert_eq!(part_bytes(u64::MAX), 32 << 20);
    assert_eq!(part_bytes(8 << 20), 8 << 20);
}

#[test]
fn whoever_waits_is_let_in_for_as_long_as_the_locks_were_held() {
    let mut ioctl = Ioctl::new(Settings::default(), Roots::default());
    let mut pause_after = |turn| {
        ioctl.turn = turn;
        let begun = Instant::now();
        ioctl.let_others_in();
        (begun.elapsed(), ioctl.turn)
    };
    let (pause, left) = pause_after(Duration::from_millis(20));
    assert!(pause >= Duration::from_millis(20));
    assert_eq!(left, Duration::ZERO);
    // Short calls share a pause.
    let short = TURN / 2;
    assert_eq!(pause_after(short).1, short);
}

#[test]
fn a_call_that_waited_itself_makes_no_long_pause_and_a_renewal_none_that_is_too_late_for_the_next() {
    let wanted = |action, took: Duration| {
        let step = Step { begin: 0, end: 2 << 20, action };
        pause_wanted(&Call { step, answer: Answer::Done, took_ns: nanoseconds(took) })
    };
    let gpu = GpuUuid([1; 16]);
    let (move_back, short, long) = (Action::Migrate(Place::Host), Duration::from_micros(200), Duration::from_mins(1));
    assert_eq!((wanted(move_back, short), wanted(move_back, long)), (short, PAUSE_MAX));
    let renewal = |took_ms| wanted(Action::Renew(gpu), Duration::from_millis(took_ms));
    assert_eq!(wanted(Action::Renew(gpu), short), short);
    assert_eq!([2, 8, 60_000].map(renewal), [1, 2, 50].map(Duration::from_millis));
    assert_eq!(wanted(Action::Advise(Advice::AccessedBy(gpu)), long), PAUSE_MAX);
}
