use std::{
    fs,
    sync::{Arc, Mutex},
};

use model::{Actuator, Advice, Answer, Call, DecisionId, Order, Outcome, Place};
use sys::fake::Machine;

use super::*;
use crate::outcome_of;

const GPU: GpuUuid = GpuUuid([1; 16]);
const OTHER_GPU: GpuUuid = GpuUuid([2; 16]);
const LIVING: ProcessId = ProcessId { pid: 42, start_ticks: 7 };

fn machine() -> Machine {
    Machine::new()
        .with("proc/sys/kernel/random/boot_id", "first\n")
        .with("proc/42/stat", format!("42 (app) S {}7 {}\n", "0 ".repeat(18), "0 ".repeat(30)))
}

fn open(machine: &Machine) -> Journal {
    Journal::open(machine.roots.proc.join("journal"), machine.roots.clone()).unwrap()
}

fn text(machine: &Machine) -> String {
    fs::read_to_string(machine.roots.proc.join("journal")).unwrap()
}

fn step(begin: u64, end: u64, action: Action) -> Step {
    Step { begin, end, action }
}

const fn withdraw(advice: Advice) -> Action {
    Action::Withdraw(advice)
}

#[test]
fn what_was_intended_is_to_be_withdrawn_by_whoever_comes_next() {
    let machine = machine();
    let mut journal = open(&machine);
    assert_eq!(journal.leftovers(), []);
    let all = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(OTHER_GPU), Advice::ReadDuplication];
    let steps = all.map(|advice| step(4096, 8192, Action::Advise(advice)));
    journal.intend(LIVING, GPU, &steps).unwrap();
    journal.intend(LIVING, OTHER_GPU, &[step(0, 4096, Action::Advise(Advice::ReadDuplication))]).unwrap();
    drop(journal);
    let leftovers = open(&machine).leftovers();
    assert_eq!(leftovers.len(), 2);
    assert_eq!((leftovers[0].process, leftovers[0].gpu), (LIVING, GPU));
    assert_eq!(leftovers[0].steps, all.map(|advice| step(4096, 8192, withdraw(advice))));
    assert_eq!(leftovers[1].gpu, OTHER_GPU);
    assert_eq!(leftovers[1].steps, [step(0, 4096, withdraw(Advice::ReadDuplication))]);
}

#[test]
fn moves_leave_nothing_behind() {
    let machine = machine();
    let mut journal = open(&machine);
    journal
        .intend(LIVING, GPU, &[step(0, 4096, Action::Migrate(Place::Host)), step(0, 4096, Action::Renew(GPU))])
        .unwrap();
    journal.withdrawn(LIVING, GPU, &step(0, 4096, Action::Renew(GPU)));
    assert_eq!(text(&machine), "");
}

#[test]
fn what_was_withdrawn_is_not_withdrawn_again() {
    let machine = machine();
    let mut journal = open(&machine);
    let advice = Advice::PreferredLocation(Place::Gpu(GPU));
    journal.intend(LIVING, GPU, &[step(0, 8192, Action::Advise(advice))]).unwrap();
    journal.withdrawn(LIVING, GPU, &step(0, 4096, withdraw(advice)));
    drop(journal);
    let leftovers = open(&machine).leftovers();
    assert_eq!(
        leftovers.iter().flat_map(|left| &left.steps).collect::<Vec<_>>(),
        [&step(4096, 8192, withdraw(advice))]
    );
    let mut journal = open(&machine);
    journal.withdrawn(LIVING, GPU, &step(0, 8192, withdraw(advice)));
    drop(journal);
    assert_eq!(open(&machine).leftovers(), []);
}

#[test]
fn advice_on_a_process_that_is_gone_is_forgotten() {
    let machine = machine();
    let mut journal = open(&machine);
    let steps = [step(0, 4096, Action::Advise(Advice::ReadDuplication))];
    for process in [ProcessId { pid: 42, start_ticks: 8 }, ProcessId { pid: 43, start_ticks: 7 }] {
        journal.intend(process, GPU, &steps).unwrap();
    }
    drop(journal);
    assert_eq!(open(&machine).leftovers(), []);
    assert_eq!(text(&machine), "", "and its lines are gone");
    // The same id and start in another boot is another process.
    open(&machine).intend(LIVING, GPU, &steps).unwrap();
    machine.write("proc/sys/kernel/random/boot_id", "second\n");
    assert_eq!(open(&machine).leftovers(), []);
}

#[test]
fn a_line_that_was_not_written_to_its_end_is_left_out() {
    let machine = machine();
    open(&machine).intend(LIVING, GPU, &[step(0, 4096, Action::Advise(Advice::ReadDuplication))]).unwrap();
    let whole = text(&machine);
    machine.write("proc/journal", format!("{whole}{}", whole.trim_end()));
    assert_eq!(open(&machine).leftovers().len(), 1);
    assert_eq!(text(&machine), whole);
    machine.write("proc/journal", whole.trim_end());
    assert_eq!(open(&machine).leftovers(), []);
}

#[test]
fn lines_that_nobody_can_read_hide_no_others() {
    let machine = machine();
    open(&machine).intend(LIVING, GPU, &[step(0, 4096, Action::Advise(Advice::AccessedBy(GPU)))]).unwrap();
    let good = text(&machine);
    let no_gpu = good.replace(&GPU.to_string(), "GPU-1");
    let no_range = good.replace("4096", "0");
    machine.write(
        "proc/journal",
        [b"\xff\n{}\n".as_slice(), no_gpu.as_bytes(), no_range.as_bytes(), good.as_bytes()].concat(),
    );
    assert_eq!(open(&machine).leftovers().len(), 1);
    assert_eq!(text(&machine), good);
}

#[test]
fn it_does_not_grow_without_end() {
    let machine = machine();
    let mut journal = open(&machine);
    let advise = step(0, 4096, Action::Advise(Advice::ReadDuplication));
    for _ in 0..600 {
        journal.intend(LIVING, GPU, &[advise]).unwrap();
        journal.withdrawn(LIVING, GPU, &advise);
    }
    journal.intend(LIVING, GPU, &[advise]).unwrap();
    assert!(text(&machine).lines().count() <= SPARE_LINES_MAX + 2);
    drop(journal);
    assert_eq!(open(&machine).leftovers().len(), 1);
}

#[test]
fn what_processes_leave_that_end_does_not_stay_for_ever() {
    const AT_ONCE: usize = 64;
    let machine = machine();
    let mut journal = open(&machine);
    let ranges = (0..AT_ONCE as u64).map(|at| (2 * at * 4096, (2 * at + 1) * 4096));
    let steps: Vec<_> = ranges.map(|(begin, end)| step(begin, end, Action::Advise(Advice::ReadDuplication))).collect();
    for pid in 1000..1050 {
        journal.intend(ProcessId { pid, start_ticks: 7 }, GPU, &steps).unwrap();
    }
    assert!(text(&machine).lines().count() <= SPARE_LINES_MAX + AT_ONCE);
    assert!(journal.in_force.iter().count() <= SPARE_LINES_MAX + AT_ONCE);
}

#[test]
fn no_two_keep_one_journal() {
    let machine = machine();
    let first = open(&machine);
    let error = Journal::open(machine.roots.proc.join("journal"), machine.roots.clone()).unwrap_err();
    assert!(error.to_string().contains("cannot be kept by two at once"), "{error}");
    drop(first);
    open(&machine);
}

#[test]
fn where_it_cannot_be_kept_it_says_so() {
    let machine = machine();
    let error = Journal::open(machine.roots.proc.join("nowhere/journal"), machine.roots.clone()).unwrap_err();
    assert!(error.to_string().ends_with("cannot be written: no such file or directory"), "{error}");
    machine.remove("proc/sys");
    let error = Journal::open(machine.roots.proc.join("journal"), machine.roots.clone()).unwrap_err();
    assert!(error.to_string().contains("cannot be kept without the boot's id"), "{error}");
}

/// Answers alike throughout, and shows what the journal held when it was called.
struct Answers(Answer, Machine);

impl Actuator for Answers {
    fn carry_out(&mut self, order: &Order, _off: &dyn Fn() -> bool) -> Outcome {
        let Self(answer, machine) = self;
        let written = text(machine).contains("read_duplication");
        let advises = order.steps.iter().any(|step| matches!(step.action, Action::Advise(_)));
        assert!(written || !advises, "the journal knows before the driver is called");
        let calls = order.steps.iter().map(|step| Call { step: *step, answer: answer.clone(), took_ns: 0 }).collect();
        Outcome { calls, ..outcome_of(order) }
    }
}

fn order(action: Action) -> Order {
    let steps = vec![step(0, 4096, action)];
    Order { decision: DecisionId(1), process: LIVING, gpu: GPU, steps, is_undoing: false }
}

#[test]
fn an_actuators_advice_is_known_until_it_is_withdrawn_or_gone() {
    const READ: Advice = Advice::ReadDuplication;
    for (advised, withdrawn, stays_bytes) in [
        (Answer::Done, Answer::Done, 0),
        (Answer::Done, Answer::NotMapped, 0),
        (Answer::Done, Answer::Ended, 0),
        (Answer::NotMapped, Answer::CalledOff, 0),
        (Answer::Refused(String::new()), Answer::Refused(String::new()), 4096),
        (Answer::CalledOff, Answer::CalledOff, 0),
    ] {
        let machine = machine();
        let journal = Arc::new(Mutex::new(open(&machine)));
        let mut actuator = Journalled::new(Answers(advised.clone(), machine), Arc::clone(&journal));
        actuator.carry_out(&order(Action::Advise(READ)), &|| false);
        actuator.inner.0 = withdrawn.clone();
        actuator.carry_out(&order(withdraw(READ)), &|| false);
        let stays: u64 = journal.lock().unwrap().leftovers().iter().flat_map(|left| &left.steps).map(Step::bytes).sum();
        assert_eq!(stays, stays_bytes, "{advised:?}, then {withdrawn:?}");
    }
}

#[test]
fn what_is_called_off_before_it_begins_is_not_written_down() {
    let machine = machine();
    let journal = Arc::new(Mutex::new(open(&machine)));
    let mut would_do_it = Journalled::new(Answers(Answer::Done, machine), Arc::clone(&journal));
    let outcome = would_do_it.carry_out(&order(Action::Advise(Advice::ReadDuplication)), &|| true);
    assert!(outcome.calls.iter().all(|call| call.answer == Answer::CalledOff), "{outcome:?}");
    assert_eq!(text(&would_do_it.inner.1), "");
}

#[test]
fn of_an_order_that_is_called_off_in_the_middle_only_what_was_given_is_to_be_withdrawn() {
    const AT_GPU: Action = Action::Advise(Advice::PreferredLocation(Place::Gpu(GPU)));
    const AT_HOST: Action = Action::Advise(Advice::PreferredLocation(Place::Host));
    /// Does as much of an order, and is called off then.
    struct UpTo(u64);
    impl Actuator for UpTo {
        fn carry_out(&mut self, order: &Order, _off: &dyn Fn() -> bool) -> Outcome {
            let answer = |step: &Step| if step.end <= self.0 { Answer::Done } else { Answer::CalledOff };
            let calls = order.steps.iter().map(|step| Call { step: *step, answer: answer(step), took_ns: 0 }).collect();
            Outcome { calls, ..outcome_of(order) }
        }
    }
    let machine = machine();
    let journal = Arc::new(Mutex::new(open(&machine)));
    let mut actuator = Journalled::new(UpTo(8192), Arc::clone(&journal));
    let with = |steps| Order { steps, ..order(AT_HOST) };
    let pages = |pages: &[u64], action| pages.iter().map(|at| step(at * 4096, (at + 1) * 4096, action)).collect();
    actuator.carry_out(&with(pages(&[1], AT_GPU)), &|| false);
    actuator.inner.0 = 4096;
    actuator.carry_out(&with(pages(&[0, 1, 2], AT_HOST)), &|| false);
    drop((actuator, journal));
    let left = open(&machine).leftovers();
    let left: Vec<Step> = left.into_iter().flat_map(|left| left.steps).collect();
    let host = step(0, 4096, withdraw(Advice::PreferredLocation(Place::Host)));
    assert_eq!(left, [host, step(4096, 8192, withdraw(Advice::PreferredLocation(Place::Gpu(GPU))))]);

    // Steps of one order may be about the same memory.
    let mut actuator = Journalled::new(UpTo(4096), Arc::new(Mutex::new(open(&machine))));
    actuator.carry_out(&with(vec![step(0, 4096, AT_HOST), step(0, 16384, AT_HOST)]), &|| false);
    drop(actuator);
    let left = open(&machine).leftovers();
    assert!(left.iter().flat_map(|left| &left.steps).any(|step| *step == host), "{left:?}");
}
