use std::{
    cell::Cell,
    path::Path,
    process::{Command, id},
};

use model::{DecisionId, ProcessId};
use procfs::process::Process;
use sys::{
    fake::{self, Machine},
    processes,
};

use super::*;
use crate::budget::tests::Awaited;

const GPU: GpuUuid = GpuUuid([1; 16]);

fn process(pid: u32) -> ProcessId {
    let stat = Process::new(i32::try_from(pid).unwrap()).unwrap().stat().unwrap();
    ProcessId { pid, start_ticks: stat.starttime }
}

fn order(process: ProcessId, is_rollback: bool) -> Order {
    let step = |begin: u64| Step { begin, end: begin + (4 << 20), action: Action::Migrate(Place::Host) };
    Order { decision: DecisionId(1), process, gpu: GPU, steps: vec![step(0), step(8 << 20)], is_rollback }
}

fn answers(order: &Order, interrupt: &dyn Interrupt) -> Vec<CallResult> {
    let outcome = Ioctl::new(Settings::default(), Roots::default()).carry_out(order, interrupt);
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
    assert_eq!(answers(&order, &|| false), [CallResult::Exited, CallResult::Exited]);
}

#[test]
fn process_without_managed_memory_has_no_mappings() {
    let order = order(process(id()), false);
    assert_eq!(answers(&order, &|| false), [CallResult::NotMapped, CallResult::NotMapped]);
}

#[test]
fn withdrawal_about_another_process_preempts_the_rest_of_an_order() {
    let step = |at: u64| Step { begin: at << 21, end: (at + 1) << 21, action: Action::Migrate(Place::Host) };
    let long = |is_rollback| Order { steps: (0..40).map(step).collect(), ..order(process(id()), is_rollback) };
    let denied = CallResult::Denied("a withdrawal about another process comes first".to_owned());
    assert_eq!(answers(&long(false), &Awaited), vec![denied; 40]);
    assert_eq!(answers(&long(true), &Awaited), vec![CallResult::NotMapped; 40], "withdrawals come in their order");
}

const MAPS: &str = "000000000000-000001000000 rw-s 000000000000 00:06 123 /dev/nvidia-uvm\n";

/// Results of an order for a process with these files.
fn answers_of(machine: &Machine, pid: u32) -> Vec<CallResult> {
    let outcome =
        Ioctl::new(Settings::default(), machine.roots.clone()).carry_out(&order(process(pid), true), &|| false);
    outcome.calls.into_iter().map(|call| call.result).collect()
}

/// Advice with this result stays in the journal.
fn are_refused(answers: &[CallResult]) -> bool {
    answers.iter().all(|answer| matches!(answer, CallResult::Failed(_)))
}

#[test]
fn mapping_with_a_closed_descriptor_is_not_taken_for_unmapped() {
    let own = id();
    let machine = Machine::new().with(&format!("proc/{own}/maps"), MAPS);
    for name in ["stat", "fd"] {
        machine.link(&format!("proc/{own}/{name}"), &format!("/proc/{own}/{name}"));
    }
    assert!(are_refused(&answers_of(&machine, own)));
    machine.write(&format!("proc/{own}/maps"), "");
    assert_eq!(answers_of(&machine, own), [CallResult::NotMapped, CallResult::NotMapped]);
}

/// Results of an order for this process, this long after an instant.
fn answers_after(ioctl: &mut Ioctl, begun: Instant, passed_s: u64, is_rollback: bool) -> Vec<CallResult> {
    let outcome =
        ioctl.carry_out_at(&order(process(id()), is_rollback), &|| false, begun + Duration::from_secs(passed_s));
    assert_eq!(outcome.calls.iter().map(|call| call.step.bytes()).sum::<u64>(), 8 << 20, "every byte has an answer");
    outcome.calls.into_iter().map(|call| call.result).collect()
}

#[test]
fn target_of_an_abandoned_order_is_paused_except_for_withdrawals() {
    let mut ioctl = Ioctl { order_budget: Duration::ZERO, ..Ioctl::new(Settings::default(), Roots::default()) };
    let begun = Instant::now();
    let given_up = [(); 2].map(|()| CallResult::Failed("gave up: its calls took more than 0 s together".to_owned()));
    let denied = |seconds| {
        let why = format!("calls about it took too long: the next are in {seconds} s at the earliest");
        [(); 2].map(|()| CallResult::Denied(why.clone()))
    };
    assert_eq!(answers_after(&mut ioctl, begun, 0, false), given_up);
    assert_eq!(answers_after(&mut ioctl, begun, 29, false), denied(1));
    assert_eq!(answers_after(&mut ioctl, begun, 30, false), given_up);
    assert_eq!(answers_after(&mut ioctl, begun, 31, false), denied(59), "each time twice as long");
    // Withdrawals are tried all the same, and count too.
    assert_eq!(answers_after(&mut ioctl, begun, 40, true), given_up);
    assert_eq!(answers_after(&mut ioctl, begun, 100, false), denied(60));
}

#[test]
fn mapping_of_a_process_without_its_first_thread_is_not_taken_for_unmapped() {
    let without_first = fake::Process::leaderless(Path::new("/dev/null"));
    let pid = without_first.pid();
    let thread = processes::live_thread(&Roots::default(), pid).unwrap().unwrap();
    let of_thread = format!("proc/{pid}/task/{thread}");
    let machine = Machine::new().with(&format!("proc/{pid}/maps"), "").with(&format!("{of_thread}/maps"), MAPS);
    machine.link(&format!("proc/{pid}/stat"), &format!("/proc/{pid}/stat"));
    for name in ["stat", "fd"] {
        machine.link(&format!("{of_thread}/{name}"), &format!("/{of_thread}/{name}"));
    }
    assert!(are_refused(&answers_of(&machine, pid)));
}

#[test]
fn cancelled_order_makes_no_calls_unless_it_is_a_rollback() {
    let own = process(id());
    assert_eq!(answers(&order(own, false), &|| true), [CallResult::Cancelled, CallResult::Cancelled]);
    assert_eq!(answers(&order(own, true), &|| true), [CallResult::NotMapped, CallResult::NotMapped]);
}

#[test]
fn va_space_with_the_range_is_found() {
    let nowhere = || Failed::Uvm(UvmError::Refused { request: "UVM_MIGRATE", status: Status::INVALID_ADDRESS });
    let calls = Cell::new(0);
    let has = |wanted: u32| {
        calls.set(0);
        call_each(&[1, 2, 3], |space| {
            calls.set(calls.get() + 1);
            if *space == wanted { Ok(()) } else { Err(nowhere()) }
        })
    };
    assert!(has(2).is_ok());
    assert_eq!(calls.get(), 2);
    assert!(matches!(has(4), Err(Failed::Uvm(UvmError::Refused { status: Status::INVALID_ADDRESS, .. }))));
}

#[test]
fn driver_error_of_a_va_space_ends_the_search() {
    let calls = Cell::new(0);
    let answer = call_each(&[1, 2, 3], |space| {
        calls.set(calls.get() + 1);
        let status = if *space == 2 { Status::NO_MEMORY } else { Status::INVALID_ADDRESS };
        Err(Failed::Uvm(UvmError::Refused { request: "UVM_MIGRATE", status }))
    });
    assert!(matches!(answer, Err(Failed::Uvm(UvmError::Refused { status: Status::NO_MEMORY, .. }))));
    assert_eq!(calls.get(), 2);
}

#[test]
fn call_size_is_bounded() {
    let part_bytes = |part_bytes| {
        let settings = Settings { part_bytes, ..Settings::default() };
        Ioctl::new(settings, Roots::default()).settings.part_bytes
    };
    assert_eq!(part_bytes(0), 2 << 20);
    assert_eq!(part_bytes(u64::MAX), 32 << 20);
    assert_eq!(part_bytes(8 << 20), 8 << 20);
}
