//! Inspection of a process: its managed memory, and its VA spaces or the ring of its helper. All
//! are behind locks that the process may hold for any time, so it runs on a separate thread, with a
//! timeout. It is abandoned sooner if a withdrawal about another process waits for the same worker.

use std::{
    ops::Range,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use model::{ActuatorKind, CallResult};
use sys::{
    Roots, clock,
    pidfd::{PidFd, PidFdError},
    shared_memory::SharedMemory,
    uvm::{UvmError, mapped, target::VaSpace},
};

use crate::{
    budget::{Expired, TimeBudget},
    helper::{Ring, RingError},
    inspections::Inspections,
    process::{call_error_result, open_error_result},
    slots::Target,
};

/// Time limit of an inspection, after which it is abandoned.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Managed memory of a process, found by an inspection.
#[derive(Debug)]
pub(crate) struct Inspection {
    /// Managed memory, in the order of addresses.
    pub(crate) mapped: Vec<Range<u64>>,
    /// Access to that memory, if there is any.
    pub(crate) access: Option<Access>,
    /// For withdrawals by ioctl: ring of a helper, whose command they must not overtake, or why it is not
    /// accessible.
    pub(crate) withdrawal_ring: Option<Result<Ring, RingError>>,
}

/// Access of an actuator to the memory of a process.
#[derive(Debug)]
pub(crate) enum Access {
    /// Descriptors of its VA spaces.
    Spaces(Vec<OwnedFd>),
    /// Ring of its helper.
    Ring(Ring),
}

/// Reason why an actuator has no access.
#[derive(Debug, PartialEq, Eq)]
enum AccessError {
    /// This actuator has none, for this reason.
    Unavailable(String),
    /// No actuator has any. Result of the order.
    Fatal(CallResult),
}

type Function = Box<dyn FnOnce() + Send>;

/// Inspector of processes.
#[derive(Debug)]
pub(crate) struct Inspector {
    /// Idle thread, which waits for the next inspection.
    idle: Option<Sender<Function>>,
    inspections: Inspections,
}

impl Inspector {
    pub(crate) const fn new(inspections: Inspections) -> Self {
        Self { idle: None, inspections }
    }

    /// Inspects a process for the first possible actuator, in the rest of its order's budget.
    ///
    /// An error is the result of its orders: for instance, an earlier inspection of the process hangs, or
    /// no processor time is left.
    pub(crate) fn inspect(
        &mut self,
        roots: &Roots,
        process: &Arc<PidFd>,
        target: Target,
        actuators: &'static [ActuatorKind],
        is_withdrawal: bool,
        budget: &mut TimeBudget<'_>,
    ) -> Result<Inspection, CallResult> {
        if !self.inspections.has_time(target, is_withdrawal, clock::monotonic()) {
            let why = "the processor time for inspections of processes with large memory maps or many threads is used up: it recovers slowly";
            let result = if is_withdrawal { CallResult::Failed } else { CallResult::Denied };
            return Err(result(why.to_owned()));
        }
        let (roots, process, inspections) = (roots.clone(), Arc::clone(process), self.inspections.clone());
        let inspect = move || {
            // Charged even if the inspection is abandoned.
            let inspect =
                |threads: &mut usize| inspect(&roots, &process, actuators, is_withdrawal, &inspections, threads);
            inspections.run_charged(target, is_withdrawal, clock::monotonic(), inspect)
        };
        self.run_with_timeout(TIMEOUT, budget, target, is_withdrawal, inspect)?
    }

    /// Runs a function about a target on a separate thread, for a withdrawal or not. Returns its result,
    /// unless it takes more than this time or the rest of the budget.
    pub(crate) fn run_with_timeout<T: Send + 'static>(
        &mut self,
        at_most: Duration,
        budget: &mut TimeBudget<'_>,
        target: Target,
        is_withdrawal: bool,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallResult> {
        let slot = self.inspections.slots().take(target, is_withdrawal, at_most, budget);
        let slot = slot.map_err(|error| error.result("inspection"))?;
        let functions = match self.idle.take() {
            Some(functions) => functions,
            None => start().map_err(|error| CallResult::Failed(format!("no thread to inspect it: {error}")))?,
        };
        let begun = Instant::now();
        let (sender, result) = mpsc::channel();
        let abandon = slot.abandon_fn();
        let run = move || {
            // The slot is held until the function returns, even by a panic.
            let slot = slot;
            let result = function();
            drop(slot);
            let _ = sender.send(result);
        };
        let _ = functions.send(Box::new(run));
        let waited = budget.wait(at_most, Instant::now, |at_most| match result.recv_timeout(at_most) {
            Ok(result) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(WaitError::Panicked),
        });
        match waited {
            Ok(result) => {
                self.idle = Some(functions);
                Ok(result)
            }
            Err(WaitError::Panicked) => {
                Err(CallResult::Failed("the inspection of its files and memory map failed".to_owned()))
            }
            Err(WaitError::Expired(expired)) => {
                abandon();
                Err(abandoned(target.pid, begun.elapsed(), expired))
            }
        }
    }
}

/// Reason why there is no result.
enum WaitError {
    Panicked,
    Expired(Expired),
}

impl From<Expired> for WaitError {
    fn from(expired: Expired) -> Self {
        Self::Expired(expired)
    }
}

/// Result while an inspection hangs.
fn abandoned(pid: u32, took: Duration, expired: Expired) -> CallResult {
    let why = format!("{:.1} s, and {expired}", took.as_secs_f64());
    tracing::warn!("an inspection of process {pid} hangs, and was abandoned after {why}");
    CallResult::Failed(format!("the inspection of its files and memory map took more than {why}"))
}

/// Thread that runs the functions it receives, and ends without senders.
fn start() -> std::io::Result<Sender<Function>> {
    let (functions, received) = mpsc::channel::<Function>();
    let work = move || received.into_iter().for_each(|function| function());
    thread::Builder::new().name("inspector".to_owned()).spawn(work)?;
    Ok(functions)
}

/// Inspects a process. Adds the number of inspected threads to `threads`.
fn inspect(
    roots: &Roots,
    process: &PidFd,
    actuators: &[ActuatorKind],
    is_withdrawal: bool,
    inspections: &Inspections,
    threads: &mut usize,
) -> Result<Inspection, CallResult> {
    let mapped = mapped_of(roots, process)?;
    let access = |actuator: ActuatorKind| match actuator {
        ActuatorKind::Ioctl => spaces_of(roots, process).map(Access::Spaces),
        ActuatorKind::Helper => {
            let memory = ring_memory(roots, process, inspections).map_err(AccessError::Fatal)?;
            let ring = memory.and_then(|memory| Ring::open(roots, process, memory, threads));
            ring.map(Access::Ring).map_err(|error| AccessError::Unavailable(error.to_string()))
        }
    };
    let access = if mapped.is_empty() { None } else { Some(first_access(actuators, access)?) };
    let needs_ring = is_withdrawal && matches!(access, Some(Access::Spaces(_)));
    let withdrawal_ring = if needs_ring {
        let ring = ring_memory(roots, process, inspections)?.and_then(Ring::attach);
        // Without a ring, no command was submitted.
        Some(ring).filter(|ring| ring.as_ref().err().is_none_or(RingError::is_of_access))
    } else {
        None
    };
    Ok(Inspection { mapped, access, withdrawal_ring })
}

fn mapped_of(roots: &Roots, process: &PidFd) -> Result<Vec<Range<u64>>, CallResult> {
    let pid = process.pid();
    mapped::of(roots, pid).map_err(|source| call_error_result(process, &UvmError::Unreadable { pid, source }))
}

/// Memory of the ring of this process, and not of a later one with its pid.
fn ring_memory(
    roots: &Roots,
    process: &PidFd,
    inspections: &Inspections,
) -> Result<Result<Option<SharedMemory>, RingError>, CallResult> {
    let memory = inspections.ring(roots, process.pid(), clock::monotonic());
    // The pid was not reused until now.
    if process.has_exited().map_err(|error| open_error_result(&error))? {
        return Err(CallResult::Exited);
    }
    Ok(memory.map_err(RingError::from))
}

fn spaces_of(roots: &Roots, process: &PidFd) -> Result<Vec<OwnedFd>, AccessError> {
    let spaces = VaSpace::of(process, roots).map_err(|error| match error {
        // Missing descriptors are an error, unless the process no longer has memory.
        UvmError::NoVaSpace(_) if mapped_of(roots, process).is_ok_and(|mapped| mapped.is_empty()) => {
            AccessError::Fatal(CallResult::NotMapped)
        }
        // The kernel does not permit duplicates of descriptors, of this process or of any.
        UvmError::Process(error @ (PidFdError::NotPermitted(_) | PidFdError::NoCall(_))) => {
            AccessError::Unavailable(error.to_string())
        }
        error => AccessError::Fatal(call_error_result(process, &error)),
    })?;
    Ok(spaces.into_iter().map(OwnedFd::from).collect())
}

/// Access of the first actuator that can have it.
fn first_access<A>(
    actuators: &[ActuatorKind],
    mut access: impl FnMut(ActuatorKind) -> Result<A, AccessError>,
) -> Result<A, CallResult> {
    let mut reasons = Vec::new();
    for actuator in actuators {
        match access(*actuator) {
            Ok(access) => return Ok(access),
            Err(AccessError::Unavailable(reason)) => reasons.push(reason),
            Err(AccessError::Fatal(result)) => return Err(result),
        }
    }
    Err(CallResult::Failed(reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;
    use crate::{
        helper::testing::{Behaviour, Program, is_permitted, memory_of},
        slots::SlotError,
    };

    const LONG: Duration = Duration::from_mins(2);

    const fn target(pid: u32) -> Target {
        Target { pid, uid: Some(pid) }
    }

    fn run_with_timeout<T: Send + 'static>(
        inspector: &mut Inspector,
        at_most: Duration,
        target: Target,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallResult> {
        inspector.run_with_timeout(at_most, &mut TimeBudget::new(LONG, &|| false), target, false, function)
    }

    #[test]
    fn completed_inspection_returns_its_result() {
        let mut inspector = Inspector::new(Inspections::default());
        assert_eq!(run_with_timeout(&mut inspector, LONG, target(7), || 1).unwrap(), 1);
        let first = run_with_timeout(&mut inspector, LONG, target(7), || thread::current().id()).unwrap();
        assert_eq!(
            run_with_timeout(&mut inspector, LONG, target(8), || thread::current().id()).unwrap(),
            first,
            "the thread is used again"
        );
    }

    #[test]
    fn hung_inspection_blocks_only_its_own_process() {
        let mut inspector = Inspector::new(Inspections::default());
        let (open, gate) = mpsc::channel::<()>();
        let hangs = run_with_timeout(&mut inspector, Duration::from_millis(1), target(7), move || gate.recv().is_ok())
            .unwrap_err();
        let CallResult::Failed(late) = hangs else { panic!("{hangs:?}") };
        assert!(late.starts_with("the inspection of its files and memory map took more than 0."), "{late}");
        assert_eq!(run_with_timeout(&mut inspector, LONG, target(8), || 2).unwrap(), 2);
        assert_eq!(
            run_with_timeout(&mut inspector, LONG, target(7), || 1).unwrap_err(),
            SlotError::Hung.result("inspection")
        );
        drop(open);
        inspector.inspections.slots().wait_until_free();
        assert_eq!(run_with_timeout(&mut inspector, LONG, target(7), || 1).unwrap(), 1);
    }

    #[test]
    fn helper_is_chosen_if_the_kernel_permits_no_descriptors() {
        use ActuatorKind::{Helper, Ioctl};
        let both = [Ioctl, Helper];
        let unavailable = |reason: &str| Err(AccessError::Unavailable(reason.to_owned()));
        assert_eq!(first_access(&both, Ok), Ok(Ioctl));
        let refused = |kind| if kind == Ioctl { unavailable("no descriptors") } else { Ok(kind) };
        assert_eq!(first_access(&both, refused), Ok(Helper));
        assert_eq!(first_access(&[Ioctl], refused), Err(CallResult::Failed("no descriptors".to_owned())));
        let no_access = |kind| unavailable(if kind == Ioctl { "no descriptors" } else { "no helper" });
        assert_eq!(first_access(&both, no_access), Err(CallResult::Failed("no descriptors; no helper".to_owned())));
        let exits = |_| -> Result<ActuatorKind, _> { Err(AccessError::Fatal(CallResult::Exited)) };
        assert_eq!(first_access(&both, exits), Err(CallResult::Exited));
    }

    #[test]
    fn ring_of_a_later_process_with_the_pid_of_the_target_is_not_touched() {
        if !is_permitted() {
            return;
        }
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let target = PidFd::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let program = Program::start(Behaviour::NeverStarts);
        let (pid, other) = (target.pid(), program.process.pid());
        let maps = std::fs::read_to_string(format!("/proc/{other}/maps")).unwrap();
        let managed = "20000000000-20000200000 rw-s 20000000000 00:06 123 /dev/nvidia-uvm\n";
        let machine = Machine::new().with(&format!("proc/{pid}/maps"), maps + managed);
        for name in ["stat", "status", "map_files"] {
            machine.link(&format!("proc/{pid}/{name}"), &format!("/proc/{other}/{name}"));
        }
        let helper = [ActuatorKind::Helper];
        let inspected = inspect(&machine.roots, &target, &helper, false, &Inspections::default(), &mut 0);
        assert_eq!(inspected.unwrap_err(), CallResult::Exited);
        let memory = memory_of(&program.process).unwrap();
        assert_eq!(
            call_ring::Memory::open(&memory.copy_words(call_ring::memory::HEADER_WORDS).unwrap()).unwrap().mode(),
            call_ring::Mode::Record
        );
    }

    #[test]
    fn threads_with_inspected_filters_are_counted() {
        if !is_permitted() {
            return;
        }
        let program = Program::start(Behaviour::NeverStarts);
        let pid = program.process.pid();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let managed = "20000000000-20000200000 rw-s 20000000000 00:06 123 /dev/nvidia-uvm\n";
        let machine = Machine::new().with(&format!("proc/{pid}/maps"), maps + managed);
        for name in ["stat", "status", "map_files", "task"] {
            machine.link(&format!("proc/{pid}/{name}"), &format!("/proc/{pid}/{name}"));
        }
        let (helper, mut threads) = ([ActuatorKind::Helper], 0);
        inspect(&machine.roots, &program.process, &helper, false, &Inspections::default(), &mut threads).unwrap();
        assert_eq!(threads, std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count());
    }

    #[test]
    fn panic_is_reported_as_an_error() {
        let mut inspector = Inspector::new(Inspections::default());
        let panics = || -> u8 { panic!("in a test") };
        assert!(matches!(run_with_timeout(&mut inspector, LONG, target(7), panics), Err(CallResult::Failed(_))));
        assert_eq!(run_with_timeout(&mut inspector, LONG, target(7), || 1).unwrap(), 1);
    }
}
