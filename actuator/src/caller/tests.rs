use std::{
    ops::Range,
    path::Path,
    process::{Command, id},
    slice::from_ref,
};

use call_ring::command::CommandResult;
use model::{Advice, DecisionId, GpuUuid, Place};
use procfs::process::Process;
use sys::{
    fake::{self, Machine},
    processes,
};

use super::*;
use crate::{
    budget::tests::AlwaysYields,
    helper::testing::{ADVICE_CALLS, Behaviour, Program, is_permitted},
};

const GPU: GpuUuid = GpuUuid([1; 16]);

fn process(pid: u32) -> ProcessId {
    let stat = Process::new(i32::try_from(pid).unwrap()).unwrap().stat().unwrap();
    ProcessId { pid, start_ticks: stat.starttime }
}

fn order(process: ProcessId, is_rollback: bool) -> Order {
    let step = |begin: u64| Step { begin, end: begin + (4 << 20), action: Action::Migrate(Place::Host) };
    Order { decision: DecisionId(1), process, gpu: GPU, steps: vec![step(0), step(8 << 20)], is_rollback }
}

fn results(order: &Order, interrupt: &dyn Interrupt) -> Vec<CallResult> {
    let outcome = Caller::new(Settings::default(), Roots::default(), Inspections::default()).execute(order, interrupt);
    let reported_bytes: u64 = outcome.calls.iter().map(|call| call.step.bytes()).sum();
    assert_eq!(reported_bytes, order.steps.iter().map(Step::bytes).sum::<u64>(), "every byte has an answer");
    outcome.calls.into_iter().map(|call| call.result).collect()
}

#[test]
fn exited_process_is_not_touched() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let order = order(process(child.id()), false);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(results(&order, &|| false), [CallResult::Exited, CallResult::Exited]);
}

#[test]
fn process_without_managed_memory_has_no_mappings() {
    let order = order(process(id()), false);
    assert_eq!(results(&order, &|| false), [CallResult::NotMapped, CallResult::NotMapped]);
}

#[test]
fn withdrawal_about_another_process_preempts_the_rest_of_an_order() {
    let step = |at: u64| Step { begin: at << 21, end: (at + 1) << 21, action: Action::Migrate(Place::Host) };
    let long = |is_rollback| Order { steps: (0..40).map(step).collect(), ..order(process(id()), is_rollback) };
    let denied = CallResult::Denied("a withdrawal for another process takes precedence".to_owned());
    assert_eq!(results(&long(false), &AlwaysYields), vec![denied; 40]);
    assert_eq!(results(&long(true), &AlwaysYields), vec![CallResult::NotMapped; 40], "withdrawals come in their order");
}

const MAPS: &str = "000000000000-000001000000 rw-s 000000000000 00:06 123 /dev/nvidia-uvm\n";

/// Results of an order for a process with these files.
fn results_of(machine: &Machine, pid: u32) -> Vec<CallResult> {
    let outcome = Caller::new(Settings::default(), machine.roots.clone(), Inspections::default())
        .execute(&order(process(pid), true), &|| false);
    outcome.calls.into_iter().map(|call| call.result).collect()
}

/// Whether all calls failed. Advice stays in the journal then.
fn are_all_failed(results: &[CallResult]) -> bool {
    results.iter().all(|answer| matches!(answer, CallResult::Failed(_)))
}

#[test]
fn mapping_with_a_closed_descriptor_counts_as_mapped() {
    let own = id();
    let machine = Machine::new().with(&format!("proc/{own}/maps"), MAPS);
    for name in ["stat", "fd"] {
        machine.link(&format!("proc/{own}/{name}"), &format!("/proc/{own}/{name}"));
    }
    assert!(are_all_failed(&results_of(&machine, own)));
    machine.write(&format!("proc/{own}/maps"), "");
    assert_eq!(results_of(&machine, own), [CallResult::NotMapped, CallResult::NotMapped]);
}

/// Results of an order for this process, this long after an instant.
fn results_after(caller: &mut Caller, begun: Instant, passed_s: u64, is_rollback: bool) -> Vec<CallResult> {
    let outcome =
        caller.execute_at(&order(process(id()), is_rollback), &|| false, begun + Duration::from_secs(passed_s));
    assert_eq!(outcome.calls.iter().map(|call| call.step.bytes()).sum::<u64>(), 8 << 20, "every byte has an answer");
    outcome.calls.into_iter().map(|call| call.result).collect()
}

#[test]
fn target_of_an_abandoned_order_is_paused_except_for_withdrawals() {
    let mut caller = Caller {
        order_budget: Duration::ZERO,
        ..Caller::new(Settings::default(), Roots::default(), Inspections::default())
    };
    let begun = Instant::now();
    let expired = [(); 2].map(|()| CallResult::Failed("gave up: its calls took more than 0 s in total".to_owned()));
    let denied = |seconds| {
        let why = format!("its calls took too long: the next are made in {seconds} s at the earliest");
        [(); 2].map(|()| CallResult::Denied(why.clone()))
    };
    assert_eq!(results_after(&mut caller, begun, 0, false), expired);
    assert_eq!(results_after(&mut caller, begun, 29, false), denied(1));
    assert_eq!(results_after(&mut caller, begun, 30, false), expired);
    assert_eq!(results_after(&mut caller, begun, 31, false), denied(59), "each time twice as long");
    // Withdrawals are tried all the same, and count too.
    assert_eq!(results_after(&mut caller, begun, 40, true), expired);
    assert_eq!(results_after(&mut caller, begun, 100, false), denied(60));
}

#[test]
fn mapping_of_a_process_without_its_first_thread_counts_as_mapped() {
    let without_first = fake::Process::leaderless(Path::new("/dev/null"));
    let pid = without_first.pid();
    let thread = processes::live_thread(&Roots::default(), pid).unwrap().unwrap();
    let of_thread = format!("proc/{pid}/task/{thread}");
    let machine = Machine::new().with(&format!("proc/{pid}/maps"), "").with(&format!("{of_thread}/maps"), MAPS);
    machine.link(&format!("proc/{pid}/stat"), &format!("/proc/{pid}/stat"));
    for name in ["stat", "fd"] {
        machine.link(&format!("{of_thread}/{name}"), &format!("/{of_thread}/{name}"));
    }
    assert!(are_all_failed(&results_of(&machine, pid)));
}

#[test]
fn orders_are_denied_once_the_inspection_time_of_their_user_is_spent() {
    let own = process(id());
    let mappings = (0..100_000_u64).map(|at| format!("{at:x}000-{at:x}800 rw-p 00000000 00:00 0\n"));
    let machine = Machine::new()
        .with(&format!("proc/{}/maps", own.pid), mappings.collect::<String>())
        .with(&format!("proc/{}/status", own.pid), "Uid:\t1000\t1000\t1000\t1000\n");
    machine.link(&format!("proc/{}/stat", own.pid), &format!("/proc/{}/stat", own.pid));
    let inspections = Inspections::default();
    let mut caller = Caller::new(Settings::default(), machine.roots.clone(), inspections.clone());
    let mut result = |is_rollback| caller.execute(&order(own, is_rollback), &|| false).calls[0].result.clone();
    // Other targets of the user have taken all but the last of its time.
    inspections.exhaust(1000);
    assert_eq!(result(false), CallResult::NotMapped);
    assert!(matches!(result(false), CallResult::Denied(why) if why.contains("large memory maps")));
    assert_eq!(result(true), CallResult::NotMapped, "withdrawals continue");
}

#[test]
fn cancelled_order_makes_no_calls_unless_it_is_a_rollback() {
    let own = process(id());
    assert_eq!(results(&order(own, false), &|| true), [CallResult::Cancelled, CallResult::Cancelled]);
    assert_eq!(results(&order(own, true), &|| true), [CallResult::NotMapped, CallResult::NotMapped]);
}

#[test]
fn call_size_is_bounded() {
    let part_bytes = |part_bytes| {
        let settings = Settings { part_bytes, ..Settings::default() };
        Caller::new(settings, Roots::default(), Inspections::default()).settings.part_bytes
    };
    assert_eq!(part_bytes(0), 2 << 20);
    assert_eq!(part_bytes(u64::MAX), 32 << 20);
    assert_eq!(part_bytes(8 << 20), 8 << 20);
}

/// First address of the memory of a program, which has 40 MiB of it.
const BASE: u64 = 0x200_0000_0000;

/// Machine with one program, whose memory is said to be managed.
fn machine_of(program: &Program) -> Machine {
    machine_with(program, from_ref(&(BASE..BASE + (40 << 20))))
}

/// Machine with one program, of which these ranges are managed memory, by its maps.
fn machine_with(program: &Program, ranges: &[Range<u64>]) -> Machine {
    let pid = program.process.pid();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let managed = ranges
        .iter()
        .map(|Range { start, end }| format!("{start:x}-{end:x} rw-s {start:x} 00:06 123 /dev/nvidia-uvm\n"));
    let managed: String = managed.collect();
    let machine = Machine::new()
        .with("proc/meminfo", "MemTotal: 999999999 kB\nMemAvailable: 999999999 kB\n")
        .with(&format!("proc/{pid}/maps"), maps + &managed)
        .with(&format!("proc/{pid}/cgroup"), "0::/\n");
    for name in ["stat", "status", "fd", "map_files", "task"] {
        machine.link(&format!("proc/{pid}/{name}"), &format!("/proc/{pid}/{name}"));
    }
    machine
}

/// Outcome of an order of an action on all of the memory and 8 MiB beyond.
fn outcome_by(program: &Program, choice: ActuatorChoice, action: Action) -> Outcome {
    let settings = Settings { actuator: choice, ..Settings::default() };
    let step = Step { begin: BASE, end: BASE + (48 << 20), action };
    let is_rollback = matches!(action, Action::Withdraw(_));
    let order = Order { decision: DecisionId(1), process: program.id(), gpu: GPU, steps: vec![step], is_rollback };
    Caller::new(settings, machine_of(program).roots.clone(), Inspections::default()).execute(&order, &|| false)
}

const BY_HELPER: ActuatorChoice = ActuatorChoice::Only(ActuatorKind::Helper);
/// Why ioctls about the program are impossible.
const NO_DESCRIPTOR: &str = "has no descriptor of a VA space of nvidia-uvm";

#[test]
fn order_is_carried_out_by_the_helper_in_parts() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Answers(CommandResult::Done));
    let place = Place::Gpu(GPU);
    let range =
        |begin_mib: u64, end_mib: u64| format!("{:#x} {:#x} 1", BASE + (begin_mib << 20), BASE + (end_mib << 20));
    let commands = |action, count| {
        let outcome = outcome_by(&program, BY_HELPER, action);
        assert_eq!(outcome.actuator, Some(ActuatorKind::Helper));
        assert_eq!(outcome.advice_calls, AdviceCalls { by_ioctl: 0, by_helper: count as u64 * ADVICE_CALLS });
        let (last, done) = outcome.calls.split_last().unwrap();
        assert_eq!((last.result.clone(), last.step.bytes()), (CallResult::NotMapped, 8 << 20));
        assert!(done.iter().all(|call| call.result == CallResult::Done && call.duration_ns > 0), "{outcome:?}");
        (done.len(), program.next_reports(count))
    };
    let blocks = (0..20).map(|block| format!("PrefetchToGpu {}", range(2 * block, 2 * block + 2)));
    assert_eq!(commands(Action::Migrate(place), 20), (20, blocks.collect()));
    let advised = |name: &str| [range(0, 32), range(32, 40)].map(|range| format!("{name} {range}")).to_vec();
    assert_eq!(commands(Action::Advise(Advice::PreferredLocation(Place::Host)), 2), (2, advised("PreferHost")));
    let withdraw = |place| Action::Withdraw(Advice::PreferredLocation(place));
    assert_eq!(commands(withdraw(Place::Host), 2), (2, advised("UnsetPreferredHost")));
    assert_eq!(commands(withdraw(place), 2), (2, advised("UnsetPreferredLocation")));
}

#[test]
fn advice_on_memory_with_many_holes_ends() {
    if !is_permitted() {
        return;
    }
    let program = Program::start_acting(Behaviour::Answers(CommandResult::Done));
    let order = |action| {
        let step = Step { begin: BASE, end: BASE + 400 * 4096, action };
        let is_rollback = matches!(action, Action::Withdraw(_));
        let order = Order { decision: DecisionId(1), process: program.id(), gpu: GPU, steps: vec![step], is_rollback };
        let every_second: Vec<_> = (0..200).map(|at| BASE + at * 8192..BASE + at * 8192 + 4096).collect();
        let settings = Settings { actuator: BY_HELPER, ..Settings::default() };
        let machine = machine_with(&program, &every_second);
        let mut outcome =
            Caller::new(settings, machine.roots.clone(), Inspections::default()).execute(&order, &|| false);
        let last = outcome.calls.pop().unwrap();
        (outcome.calls.iter().filter(|call| call.result == CallResult::NotMapped).count(), last)
    };
    let advice = Advice::PreferredLocation(Place::Host);
    let (holes, rest) = order(Action::Advise(advice));
    assert_eq!(holes, HOLES_MAX + 1);
    assert_eq!(rest.result, CallResult::Denied("more than 64 parts of its memory took no advice".to_owned()));
    assert!(rest.step.end == BASE + 400 * 4096 && rest.step.bytes() > 200 * 4096);
    assert_eq!(order(Action::Withdraw(advice)).0, 199, "withdrawals go on");
}

#[test]
fn first_order_by_a_helper_is_denied_at_once_and_starts_it() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Behaviour::NeverStarts);
    let outcome = outcome_by(&program, BY_HELPER, Action::Migrate(Place::Gpu(GPU)));
    assert_eq!(outcome.actuator, Some(ActuatorKind::Helper));
    let is_denied = |call: &Call| matches!(&call.result, CallResult::Denied(why) if why.contains("not started"));
    assert!(outcome.calls.iter().all(is_denied), "{outcome:?}");
}

#[test]
fn withdrawal_that_the_helper_fails_is_tried_by_ioctl() {
    if !is_permitted() {
        return;
    }
    let reasons = |part| {
        let program = Program::start(part);
        let outcome = outcome_by(&program, BY_HELPER, Action::Withdraw(Advice::ReadDuplication));
        let reason = |call: Call| match call.result {
            CallResult::Failed(reason) => Some(reason),
            _ => None,
        };
        outcome.calls.into_iter().filter_map(reason).collect::<Vec<_>>()
    };
    // The program has no descriptor of the driver.
    // A helper that is off gets no command.
    for (part, by_helper) in [(Behaviour::NeverStarts, "not started its thread"), (Behaviour::IsOff, "")] {
        let reasons = reasons(part);
        let are_both = |reason: &String| reason.contains(by_helper) && reason.ends_with(NO_DESCRIPTOR);
        assert!(!reasons.is_empty() && reasons.iter().all(are_both), "{reasons:?}");
    }
    // Other parts of the order may succeed.
    let program = Program::start_acting(Behaviour::Answers(CommandResult::Failed(600)));
    let outcome = outcome_by(&program, BY_HELPER, Action::Withdraw(Advice::ReadDuplication));
    assert_eq!(program.next_reports(2).len(), 2);
    let is_failed = |call: &&Call| matches!(call.result, CallResult::Failed(_));
    assert_eq!(outcome.calls.iter().filter(is_failed).count(), 2);
    assert_eq!(outcome.actuator, Some(ActuatorKind::Helper));
}

#[test]
fn order_for_a_program_without_a_helper_fails_with_the_reason() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Behaviour::IsAbsent);
    let [call] = outcome_by(&program, BY_HELPER, Action::Migrate(Place::Host)).calls.try_into().unwrap();
    assert_eq!(
        call.result,
        CallResult::Failed("the helper is not in it, or is off, as under a seccomp filter".to_owned())
    );
    // A withdrawal is tried by ioctls, too; the program has no descriptor of the driver.
    let outcome = outcome_by(&program, BY_HELPER, Action::Withdraw(Advice::ReadDuplication));
    let [call] = outcome.calls.try_into().unwrap();
    let CallResult::Failed(reason) = call.result else { panic!("{call:?}") };
    assert!(reason.ends_with(NO_DESCRIPTOR), "{reason}");
    assert_eq!(outcome.actuator, None);
}

#[test]
fn program_with_a_helper_is_called_by_ioctl_unless_descriptors_are_refused() {
    if !is_permitted() {
        return;
    }
    let program = Program::start(Behaviour::Answers(CommandResult::Done));
    let outcome = outcome_by(&program, ActuatorChoice::Auto, Action::Migrate(Place::Host));
    assert!(are_all_failed(&outcome.calls.into_iter().map(|call| call.result).collect::<Vec<_>>()));
    assert!(!program.has_reported());
}

#[test]
fn inspection_that_hangs_for_a_worker_counts_for_all_others_until_it_returns() {
    let own = id();
    let machine = Machine::new().with(&format!("proc/{own}/status"), "Uid:\t1000\t1000\t1000\t1000\n");
    machine.link(&format!("proc/{own}/stat"), &format!("/proc/{own}/stat"));
    // Opening it hangs until there is a writer.
    let maps = machine.roots.proc.join(format!("{own}/maps"));
    assert!(Command::new("mkfifo").arg(&maps).status().unwrap().success());
    let inspections = Inspections::default();
    let failure = || {
        let caller = Caller::new(Settings::default(), machine.roots.clone(), inspections.clone());
        let mut caller = Caller { order_budget: Duration::from_millis(10), ..caller };
        match caller.execute(&order(process(own), false), &|| false).calls.into_iter().next() {
            Some(Call { result: CallResult::Failed(reason), .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let end = || {
        drop(std::fs::File::options().write(true).open(&maps).unwrap());
        inspections.slots().wait_until_free();
    };
    let (first, second) = (failure(), failure());
    assert!(first.contains("took more than"), "{first}");
    assert!(second.contains("an earlier inspection hangs"), "{second}");
    end();
    let third = failure();
    assert!(third.contains("took more than"), "{third}");
    end();
}
