//! Planners of a process's plans. Each planning runs in a separate process, because the workload is what a
//! program reports about itself. A planner may take any time and memory there, or abort; then there is no
//! plan.
//!
//! A thread waits for each planner process, checks its answer, and kills it at its limit of processor
//! time, or when the follower no longer wants its answer. [`quota`]: number of planner processes, and
//! their order.

mod quota;

use std::{
    fmt,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::Duration,
};

use model::{ProcessId, policy::PLAN_CHOOSER};
use plans::{Answer, Method, Outliner, Refusal, methods, methods::Workload, planning::wire};
pub(crate) use quota::CREDIT_PART;
use quota::{Quota, Wait};
use sys::{
    clock, cpu_time,
    executable::Program,
    sandbox::{self, Deadline, Ended, Failure, Limits, Process},
};

use crate::{backoff::Backoff, lock, meter::cpu_time_of};

/// Argument that starts a planner process, the only word of its command line.
const ARGUMENT: &str = "--planner";
/// Maximum processor time of a planning.
const CPU_MAX: Duration = Duration::from_secs(30);
/// Lower bound of the limit of processor time of a planning.
const CPU_MIN: Duration = Duration::from_secs(2);
/// Limits of a planner process.
const LIMITS: Limits = Limits { memory_bytes: 128 << 20, cpu: CPU_MAX };
/// Limit of processor time of a planning, as a share of the time that the process has used so far:
/// 1 / this.
const LIMIT_PART: u32 = 10;
/// Limit of the elapsed time of a planning, as a multiple of its processor time: the process has the
/// lowest priority.
const WALL_PER_CPU: u32 = 20;
/// The same while other users wait.
const CONTENDED_WALL_PER_CPU: u32 = 4;
/// Processor time of a start of a planner process, which the kernel does not charge to it.
const START_CPU: Duration = Duration::from_millis(5);

/// Runs a planner, if this process was started as one. To be called first in main.
#[must_use]
pub fn run_if_planner() -> Option<ExitCode> {
    sandbox::run_if_sandboxed(ARGUMENT, c"uvmd-planner", LIMITS, wire::answer)
}

/// Source of planners for processes.
#[derive(Clone)]
pub struct Planners {
    quota: Arc<Mutex<Quota>>,
    kind: Kind,
}

/// Place in which planners compute.
#[derive(Clone)]
enum Kind {
    /// In executions of this program.
    Processes(Program),
    /// In this process, created from the methods by a test.
    #[cfg(test)]
    InProcess(Arc<Factory>),
}

#[cfg(test)]
type Factory = dyn Fn(Vec<Box<dyn Method>>) -> Box<dyn Outliner> + Send + Sync;

impl Planners {
    /// Planners in processes: executions of this program, whose main function calls
    /// [`run_if_planner`] first.
    #[must_use]
    pub fn in_processes(program: Program) -> Self {
        Self { quota: Arc::default(), kind: Kind::Processes(program) }
    }

    /// Planners in this process, created by a function.
    #[cfg(test)]
    pub(crate) fn with_factory(
        factory: impl Fn(Vec<Box<dyn Method>>) -> Box<dyn Outliner> + Send + Sync + 'static,
    ) -> Self {
        Self { quota: Arc::default(), kind: Kind::InProcess(Arc::new(factory)) }
    }

    /// Planners of a policy for a process of this user.
    pub(crate) fn start(&self, process: ProcessId, user: u32, policy: &str) -> Box<dyn Outliner> {
        let methods = methods_of(policy);
        match &self.kind {
            Kind::Processes(program) => Box::new(PlannerProcess {
                program: program.clone(),
                process,
                user,
                methods: methods.iter().map(|method| method.name()).collect(),
                quota: Arc::clone(&self.quota),
                backoff: Backoff::default(),
                state: State::Idle,
            }),
            #[cfg(test)]
            Kind::InProcess(factory) => factory(methods),
        }
    }

    /// Credits processor time that a process of this user has used itself.
    pub(crate) fn credit(&self, user: u32, cpu: Duration) {
        lock(&self.quota).credit(user, cpu);
    }
}

impl fmt::Debug for Planners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Planners").field("quota", &self.quota).finish_non_exhaustive()
    }
}

fn methods_of(policy: &str) -> Vec<Box<dyn Method>> {
    if policy == PLAN_CHOOSER {
        methods::auto_plan_candidates()
    } else {
        methods::by_name(policy).into_iter().collect()
    }
}

/// Planners of one process, in a separate process.
struct PlannerProcess {
    program: Program,
    process: ProcessId,
    user: u32,
    methods: Vec<&'static str>,
    quota: Arc<Mutex<Quota>>,
    backoff: Backoff,
    state: State,
}

enum State {
    Idle,
    Waiting(Workload, Wait),
    Computing { answer: Receiver<Answer>, stop: Arc<AtomicBool> },
}

impl Outliner for PlannerProcess {
    fn start(&mut self, workload: Workload) -> Option<Answer> {
        self.cancel();
        self.state = State::Waiting(workload, Wait::Node);
        self.poll()
    }

    fn poll(&mut self) -> Option<Answer> {
        let answer = self.next_answer()?;
        match &answer {
            Ok(_) => self.backoff = Backoff::default(),
            Err(refusal) => self.backoff.record_failure(is_temporary(refusal), now()),
        }
        Some(answer)
    }

    fn retry_delay(&self) -> Option<Duration> {
        self.backoff.delay()
    }

    fn is_retry_due(&self) -> bool {
        self.backoff.is_due(now())
    }

    fn pause(&mut self) {
        if let State::Waiting(..) = self.state {
            lock(&self.quota).cancel(self.process);
        }
    }

    fn status(&self) -> &'static str {
        match self.state {
            State::Idle | State::Computing { .. } => "its plan is being computed",
            State::Waiting(_, Wait::User) => "its plan waits for a planner of another process of its user",
            State::Waiting(_, Wait::Node) => "its plan waits for planners of other users",
            State::Waiting(_, Wait::Budget) => "its plan waits: its user has used up its processor time for planners",
        }
    }

    fn cancel(&mut self) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {}
            State::Waiting(..) => lock(&self.quota).cancel(self.process),
            State::Computing { stop, .. } => {
                stop.store(true, Ordering::Relaxed);
                tracing::debug!("planning for process {} is cancelled: its plan is no longer needed", self.process.pid);
            }
        }
    }
}

impl Drop for PlannerProcess {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl PlannerProcess {
    /// Answer, if it has come.
    fn next_answer(&mut self) -> Option<Answer> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => None,
            State::Waiting(workload, _) => {
                let turn = lock(&self.quota).start(self.process, self.user, now());
                match turn {
                    Err(wait) => {
                        self.state = State::Waiting(workload, wait);
                        None
                    }
                    Ok(()) => self.spawn(workload).err().map(Err),
                }
            }
            State::Computing { answer, stop } => match answer.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.state = State::Computing { answer, stop };
                    None
                }
                Err(TryRecvError::Disconnected) => {
                    Some(Err(failed("its thread has ended without an answer".to_owned())))
                }
                Ok(answer) => Some(answer),
            },
        }
    }

    /// Starts a planner process, whose turn it is.
    fn spawn(&mut self, workload: Workload) -> Result<(), Refusal> {
        let turn = Turn { user: self.user, quota: Arc::clone(&self.quota), spent: Duration::ZERO };
        let question = wire::question(&self.methods, &workload)?;
        let limit = (cpu_time_of(self.process).unwrap_or_default() / LIMIT_PART).clamp(CPU_MIN, CPU_MAX);
        let deadline = Deadline { cpu: limit, wall: limit * WALL_PER_CPU };
        let (sender, answer) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (program, methods, stopped) = (self.program.clone(), self.methods.clone(), Arc::clone(&stop));
        let pid = self.process.pid;
        let compute = move || {
            let mut turn = turn;
            let (begun, quota) = (now(), Arc::clone(&turn.quota));
            let is_contended = || lock(&quota).is_contended(turn.user, now());
            let is_long = || now().saturating_sub(begun) > limit * CONTENDED_WALL_PER_CPU;
            let should_stop = || stopped.load(Ordering::Relaxed) || (is_long() && is_contended());
            let ended = compute(&program, &question, methods.len(), deadline, should_stop);
            turn.spent = ended.cpu + START_CPU;
            // The check is a part of the turn, as it takes time and memory, too.
            let is_wanted = !stopped.load(Ordering::Relaxed);
            let answer = is_wanted.then(|| checked(&ended, &methods, &workload, limit, pid));
            turn.spent += cpu_time::of_this_thread();
            drop(turn);
            if let Some(answer) = answer {
                let _ = sender.send(answer);
            }
        };
        let thread = thread::Builder::new().name("planner".to_owned());
        thread.spawn(compute).map_err(|error| failed(format!("its thread cannot be started: {error}")))?;
        self.state = State::Computing { answer, stop };
        Ok(())
    }
}

/// Turn of a planner process, which ends on drop.
struct Turn {
    user: u32,
    quota: Arc<Mutex<Quota>>,
    spent: Duration,
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.quota).finish(self.user, self.spent, now());
    }
}

/// Answer of a planner process to a question.
fn compute(
    program: &Program,
    question: &[u8],
    methods: usize,
    deadline: Deadline,
    should_stop: impl Fn() -> bool,
) -> Ended {
    match Process::start(program, ARGUMENT) {
        Ok(process) => process.run(question, wire::answer_bytes_max(methods), deadline, should_stop),
        Err(error) => Ended { output: Err(Failure::Unwatched(error)), written: Vec::new(), cpu: Duration::ZERO },
    }
}

/// Checked answer of a planner process; its best one so far if it was ended.
fn checked(ended: &Ended, methods: &[&'static str], workload: &Workload, limit: Duration, pid: u32) -> Answer {
    let failure = match &ended.output {
        Ok(answers) => return wire::check(answers, methods, workload),
        Err(failure) => failure,
    };
    let best = wire::best_so_far(&ended.written, methods, workload);
    let answer = best.ok_or_else(|| refusal(failure, limit));
    let result = match &answer {
        Ok(best) => format!("plan of {}", best.method),
        Err(refusal) => format!("no plan: {refusal}"),
    };
    tracing::warn!("planning for process {pid} ended early, as {failure}; {result}");
    answer
}

fn refusal(failure: &Failure, limit: Duration) -> Refusal {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    match failure {
        Failure::CpuTime(_) => Refusal::PlanningTime { limit_ms: ms(limit) },
        Failure::WallTime(wall) => Refusal::PlanningDelayed { limit_ms: ms(*wall) },
        // Other users waited. An unwanted answer is not read, so there is no other reason.
        Failure::Stopped => Refusal::PlanningDelayed { limit_ms: ms(limit * CONTENDED_WALL_PER_CPU) },
        Failure::Memory => Refusal::PlanningMemory { limit_bytes: LIMITS.memory_bytes },
        failure => failed(failure.to_string()),
    }
}

/// Whether another planning of the same iteration may have another result.
const fn is_temporary(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::PlanningTime { .. }
            | Refusal::PlanningDelayed { .. }
            | Refusal::PlanningMemory { .. }
            | Refusal::PlannerFailed { .. }
    )
}

fn failed(reason: String) -> Refusal {
    Refusal::PlannerFailed { reason }
}

fn now() -> Duration {
    clock::monotonic()
}

#[cfg(test)]
mod tests;
