mod disk;
mod versions;

use std::fs;

use model::{Advice, AdviceCalls, CallResult, Place};
use sys::fake::Machine;

use super::{
    state::{OWN_RANGES, SHARED_RANGES_MAX},
    testing::{Disk, LIVING, LONG, SOON, ZERO, machine},
    writer::SPARE_LINES_MAX,
    *,
};

const GPU: GpuUuid = GpuUuid([1; 16]);
const OTHER_GPU: GpuUuid = GpuUuid([2; 16]);

fn open(machine: &Machine) -> Journal {
    Disk::default().open(machine, LONG)
}

fn text(machine: &Machine) -> String {
    fs::read_to_string(machine.roots.proc.join("journal")).unwrap()
}

/// Lines of advice in the file.
fn lines(machine: &Machine) -> usize {
    text(machine).lines().filter(|line| line.contains("\"advice\"")).count()
}

fn step(begin: u64, end: u64, action: Action) -> Step {
    Step { begin, end, action }
}

const fn withdraw(advice: Advice) -> Action {
    Action::Withdraw(advice)
}

fn call(step: Step, answer: CallResult) -> Call {
    Call { step, result: answer, duration_ns: 0 }
}

/// Advice on the disk without an outcome, as if uvmd were killed now.
fn intend(journal: &Journal, process: ProcessId, gpu: GpuUuid, steps: &[Step]) -> Intent {
    let (sender, has_result) = std::sync::mpsc::sync_channel(1);
    let intent = Intent::begin(journal, (process, gpu), steps, move || {
        let _ = sender.try_send(());
    })
    .unwrap();
    has_result.recv_timeout(SOON).unwrap();
    intent.result().unwrap().unwrap();
    intent
}

/// Advice that was given.
fn give(journal: &Journal, process: ProcessId, gpu: GpuUuid, steps: &[Step]) {
    let intent = intend(journal, process, gpu, steps);
    let calls: Vec<_> = steps.iter().map(|step| call(*step, CallResult::Done)).collect();
    journal.record_results((process, gpu), &calls, Some((intent.number(), InForce::default())));
}

fn withdrawn(journal: &Journal, process: ProcessId, gpu: GpuUuid, step: Step) {
    journal.record_results((process, gpu), &[call(step, CallResult::Done)], None);
}

#[test]
fn pending_intents_are_withdrawn_by_the_next_run() {
    let machine = machine();
    let journal = open(&machine);
    assert_eq!(journal.leftovers(), []);
    let all = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(OTHER_GPU), Advice::ReadDuplication];
    let steps = all.map(|advice| step(4096, 8192, Action::Advise(advice)));
    drop(intend(&journal, LIVING, GPU, &steps));
    drop(intend(&journal, LIVING, OTHER_GPU, &[step(0, 4096, Action::Advise(Advice::ReadDuplication))]));
    drop(journal);
    let leftovers = open(&machine).leftovers();
    assert_eq!(leftovers.len(), 2);
    assert_eq!((leftovers[0].process, leftovers[0].gpu), (LIVING, GPU));
    assert_eq!(leftovers[0].steps, all.map(|advice| step(4096, 8192, withdraw(advice))));
    assert_eq!(leftovers[1].gpu, OTHER_GPU);
    assert_eq!(leftovers[1].steps, [step(0, 4096, withdraw(Advice::ReadDuplication))]);
}

#[test]
fn migrations_are_not_journaled() {
    let machine = machine();
    let journal = open(&machine);
    for action in [Action::Migrate(Place::Host), Action::Touch(GPU), withdraw(Advice::ReadDuplication)] {
        withdrawn(&journal, LIVING, GPU, step(0, 4096, action));
    }
    drop(journal);
    assert_eq!(lines(&machine), 0);
}

#[test]
fn withdrawn_advice_is_not_withdrawn_again() {
    let machine = machine();
    let journal = open(&machine);
    let advice = Advice::PreferredLocation(Place::Gpu(GPU));
    give(&journal, LIVING, GPU, &[step(0, 8192, Action::Advise(advice))]);
    withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(advice)));
    drop(journal);
    let leftovers = open(&machine).leftovers();
    assert_eq!(
        leftovers.iter().flat_map(|left| &left.steps).collect::<Vec<_>>(),
        [&step(4096, 8192, withdraw(advice))]
    );
    let journal = open(&machine);
    withdrawn(&journal, LIVING, GPU, step(0, 8192, withdraw(advice)));
    drop(journal);
    assert_eq!(open(&machine).leftovers(), []);
}

#[test]
fn advice_on_an_exited_process_is_dropped_and_the_process_reported() {
    let machine = machine();
    let journal = open(&machine);
    let steps = [step(0, 4096, Action::Advise(Advice::ReadDuplication))];
    let gone = [ProcessId { pid: 42, start_ticks: 8 }, ProcessId { pid: 43, start_ticks: 7 }];
    for process in gone {
        give(&journal, process, GPU, &steps);
    }
    drop(journal);
    let journal = open(&machine);
    assert_eq!((journal.leftovers(), journal.ended()), (vec![], &gone[..]));
    assert_eq!(lines(&machine), 0, "and its lines are gone");
    // The same id and start time in another boot is another process.
    give(&journal, LIVING, GPU, &steps);
    drop(journal);
    machine.write("proc/sys/kernel/random/boot_id", "second\n");
    assert_eq!(open(&machine).leftovers(), []);
}

#[test]
fn journal_size_is_bounded() {
    let machine = machine();
    let journal = open(&machine);
    let advise = step(0, 4096, Action::Advise(Advice::ReadDuplication));
    for _ in 0..600 {
        give(&journal, LIVING, GPU, &[advise]);
        withdrawn(&journal, LIVING, GPU, step(0, 4096, withdraw(Advice::ReadDuplication)));
    }
    give(&journal, LIVING, GPU, &[advise]);
    assert!(lines(&machine) <= SPARE_LINES_MAX + 4, "{}", lines(&machine));
    drop(journal);
    assert_eq!(open(&machine).leftovers().len(), 1);
}

#[test]
fn advice_of_exited_processes_is_removed() {
    const AT_ONCE: usize = 64;
    let machine = machine();
    let journal = open(&machine);
    let ranges = (0..AT_ONCE as u64).map(|at| (2 * at * 4096, (2 * at + 1) * 4096));
    let steps: Vec<_> = ranges.map(|(begin, end)| step(begin, end, Action::Advise(Advice::ReadDuplication))).collect();
    for pid in 1000..1050 {
        give(&journal, ProcessId { pid, start_ticks: 7 }, GPU, &steps);
    }
    assert!(lines(&machine) <= SPARE_LINES_MAX + 2 * AT_ONCE);
    assert!(journal.state().in_force.len() <= SPARE_LINES_MAX + 2 * AT_ONCE);
}

#[test]
fn advice_in_force_is_bounded() {
    let machine = machine();
    let journal = open(&machine);
    let most = OWN_RANGES + SHARED_RANGES_MAX;
    let ranges = (0..most as u64).map(|at| (2 * at * 4096, (2 * at + 1) * 4096));
    let steps: Vec<_> = ranges.map(|(begin, end)| step(begin, end, Action::Advise(Advice::ReadDuplication))).collect();
    drop(intend(&journal, LIVING, GPU, &steps));
    let is_refused = |process, steps: &[Step]| {
        let begun = Intent::begin(&journal, (process, GPU), steps, || {});
        begun.err().is_some_and(|error| matches!(error, JournalError::Full(_)))
    };
    assert!(is_refused(LIVING, &steps[..1]));
    // The ranges of another process remain.
    let other = ProcessId { pid: 1000, start_ticks: 7 };
    assert!(is_refused(other, &steps[..=OWN_RANGES]));
    drop(intend(&journal, other, GPU, &steps[..OWN_RANGES]));
    assert!(is_refused(other, &steps[OWN_RANGES..][..1]));
    drop(journal);
    // Room for all of it, at any time of its read.
    assert!(fs::metadata(machine.roots.proc.join("journal")).unwrap().len() * 2 < read::FILE_BYTES_MAX);
    assert_eq!(open(&machine).leftovers()[0].steps.len(), most);
}

#[test]
fn journal_has_one_writer() {
    let machine = machine();
    let first = open(&machine);
    let error = Journal::open(&machine.roots.proc.join("journal"), machine.roots.clone()).unwrap_err();
    assert!(matches!(error, JournalError::InUse(_)), "{error}");
    drop(first);
    open(&machine);
}

#[test]
fn unwritable_journal_is_reported() {
    let machine = machine();
    let error = Journal::open(&machine.roots.proc.join("nowhere/journal"), machine.roots.clone()).unwrap_err();
    assert!(error.to_string().ends_with("cannot be locked: no such file or directory"), "{error}");
    machine.remove("proc/sys");
    let error = Journal::open(&machine.roots.proc.join("journal"), machine.roots.clone()).unwrap_err();
    assert!(error.to_string().contains("cannot be kept without the boot's id"), "{error}");
}

/// Advice in force on page 0 after these results of the advice and of its withdrawal.
fn remaining_bytes(advised: CallResult, withdrawn: CallResult) -> u64 {
    const READ: Advice = Advice::ReadDuplication;
    let machine = machine();
    let journal = open(&machine);
    let intent = intend(&journal, LIVING, GPU, &[step(0, 4096, Action::Advise(READ))]);
    let calls = [call(step(0, 4096, Action::Advise(READ)), advised)];
    journal.record_results((LIVING, GPU), &calls, Some((intent.number(), InForce::default())));
    drop(intent);
    journal.record_results((LIVING, GPU), &[call(step(0, 4096, withdraw(READ)), withdrawn)], None);
    let known: u64 = journal.leftovers().iter().flat_map(|left| &left.steps).map(Step::bytes).sum();
    drop(journal);
    let read: u64 = open(&machine).leftovers().iter().flat_map(|left| &left.steps).map(Step::bytes).sum();
    assert!(read >= known, "the file has no less");
    known
}

#[test]
fn advice_is_known_until_it_is_withdrawn_or_gone() {
    let refused = || CallResult::Failed(String::new());
    for (advised, withdrawn, expected_bytes) in [
        (CallResult::Done, CallResult::Done, 0),
        (CallResult::Done, CallResult::NotMapped, 0),
        (CallResult::Done, CallResult::Exited, 0),
        (CallResult::NotMapped, CallResult::Cancelled, 0),
        (refused(), refused(), 4096),
        (CallResult::Cancelled, CallResult::Cancelled, 0),
    ] {
        assert_eq!(
            remaining_bytes(advised.clone(), withdrawn.clone()),
            expected_bytes,
            "{advised:?}, then {withdrawn:?}"
        );
    }
}

#[test]
fn cancelled_order_leaves_only_given_advice_to_withdraw() {
    const AT_GPU: Action = Action::Advise(Advice::PreferredLocation(Place::Gpu(GPU)));
    const AT_HOST: Action = Action::Advise(Advice::PreferredLocation(Place::Host));
    /// Executes this much of an order, which is then cancelled.
    fn up_to(done: u64, journal: &Journal, steps: &[Step]) {
        let intent = intend(journal, LIVING, GPU, steps);
        let answer = |step: &Step| if step.end <= done { CallResult::Done } else { CallResult::Cancelled };
        let calls: Vec<_> = steps.iter().map(|step| call(*step, answer(step))).collect();
        let outcome = Outcome { calls, ..outcome() };
        intent.record_outcome(&outcome);
    }
    fn outcome() -> Outcome {
        let decision = model::DecisionId(1);
        Outcome {
            decision,
            process: LIVING,
            gpu: GPU,
            is_rollback: false,
            actuator: None,
            calls: vec![],
            advice_calls: AdviceCalls::default(),
            ready_ns: 0,
        }
    }
    let machine = machine();
    let journal = open(&machine);
    let pages = |pages: &[u64], action| -> Vec<Step> {
        pages.iter().map(|at| step(at * 4096, (at + 1) * 4096, action)).collect()
    };
    up_to(8192, &journal, &pages(&[1], AT_GPU));
    up_to(4096, &journal, &pages(&[0, 1, 2], AT_HOST));
    drop(journal);
    let left = open(&machine).leftovers();
    let left: Vec<Step> = left.into_iter().flat_map(|left| left.steps).collect();
    let host = step(0, 4096, withdraw(Advice::PreferredLocation(Place::Host)));
    assert_eq!(left, [host, step(4096, 8192, withdraw(Advice::PreferredLocation(Place::Gpu(GPU))))]);

    // Steps of one order may be about the same memory.
    let journal = open(&machine);
    up_to(4096, &journal, &[step(0, 4096, AT_HOST), step(0, 16384, AT_HOST)]);
    drop(journal);
    let left = open(&machine).leftovers();
    assert!(left.iter().flat_map(|left| &left.steps).any(|step| *step == host), "{left:?}");
}

#[test]
fn withdrawal_at_another_gpu_keeps_pending_advice() {
    let machine = machine();
    let journal = open(&machine);
    let at = |place| Action::Advise(Advice::PreferredLocation(place));
    give(&journal, LIVING, GPU, &[step(0, 8192, at(Place::Gpu(GPU)))]);
    drop(intend(&journal, LIVING, OTHER_GPU, &[step(4096, 8192, at(Place::Host))]));
    withdrawn(&journal, LIVING, GPU, step(0, 8192, withdraw(Advice::PreferredLocation(Place::Gpu(GPU)))));
    drop(journal);
    let left: Vec<_> = open(&machine).leftovers().into_iter().map(|left| (left.gpu, left.steps)).collect();
    assert_eq!(left, [(OTHER_GPU, vec![step(4096, 8192, withdraw(Advice::PreferredLocation(Place::Host)))])]);
}
