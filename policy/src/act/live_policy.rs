//! Interface of a reactive policy: it inspects a process's memory at one GPU, proposes a plan if it
//! detects its phase, and then controls the plan as long as that phase lasts.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use model::{
    Block, Counters, GpuKey, GpuUuid, Outcome, Plan, Process, Range, Residency, Step, Verdict, VerdictKind,
    verdict::Victim,
};

use model::policy::{Form, Parameter};

/// Process at a GPU, and others beside it, as a policy's input.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time of the view, by a monotonic clock, the only one.
    pub now: SystemTime,
    /// The process.
    pub process: &'a Process,
    /// GPU.
    pub gpu: GpuUuid,
    /// Total memory of the GPU, if known.
    pub gpu_memory_bytes: Option<u64>,
    /// Verdicts on this process at this GPU.
    pub verdicts: &'a [&'a Verdict],
    /// Evictions at this GPU, by victim and evictor.
    pub victims: &'a [Victim],
    /// Access pattern in the last window, as far as faults show; `None` without a full window.
    pub accessed: Option<Accessed>,
    /// Mapped ranges of the process that may be acted upon, by address.
    pub ranges: &'a [&'a Range],
    /// Blocks of the process in memory that may be acted upon, by address.
    pub blocks: &'a [Block],
    /// Other processes at this GPU, each with its blocks by address.
    pub others: &'a [(&'a Process, &'a [Block])],
    /// Counts of all processes at the GPU, also of those that exited; monotonic.
    pub gpu_totals: Option<&'a Counters>,
    /// Maximum renewals per second, by the budgets.
    pub renewals_per_second: u64,
    /// Parameters of the policy, by name.
    pub parameters: &'a BTreeMap<String, String>,
}

/// Kinds of faults that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// Atomics of the GPU, which require its memory to be resident.
    pub gpu_atomics: bool,
}

impl<'a> View<'a> {
    /// Whether the GPU is known to have executed atomics on its memory.
    #[must_use]
    pub fn does_atomics(&self) -> bool {
        self.accessed.is_some_and(|accessed| accessed.gpu_atomics)
    }

    /// The GPU as a key of the process's counts.
    #[must_use]
    pub const fn key(&self) -> GpuKey {
        GpuKey::Known(self.gpu)
    }

    /// Counts of the process at the GPU.
    #[must_use]
    pub fn counters(&self) -> Option<&'a Counters> {
        self.process.gpus.get(&self.key())
    }

    /// The process's memory resident at the GPU.
    #[must_use]
    pub fn resident(&self) -> Residency {
        self.process.residency.get(&self.key()).copied().unwrap_or_default()
    }

    /// Verdict of this kind, if it is in force.
    #[must_use]
    pub fn verdict(&self, kind: VerdictKind) -> Option<&'a Verdict> {
        self.verdicts.iter().copied().find(|verdict| verdict.kind == kind)
    }

    /// Numeric parameter; `None` if it was not given.
    #[must_use]
    pub fn number(&self, parameter: &Parameter) -> Option<u64> {
        self.parameters.get(parameter.name)?.parse().ok()
    }

    /// Word parameter, or its default.
    #[must_use]
    pub fn word(&self, parameter: &Parameter) -> &str {
        let unless_given = match parameter.form {
            Form::Word([first, ..]) => first,
            Form::Word([]) | Form::Number(..) => "",
        };
        self.parameters.get(parameter.name).map_or(unless_given, String::as_str)
    }
}

/// Live policy. It is stateless: state of a plan in force is in [`Running`]. Its row is in
/// [`model::policy`].
pub trait LivePolicy: Named + Send + Sync {
    /// Proposes a plan; `None` if its phase is not detected. The plan has the first steps, and
    /// [`Running`] the next ones. Both are created anew at each call, and dropped if the guard
    /// denies them.
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)>;
}

/// A row of [`model::policy`], which names its implementation; see the `catalogue`.
pub trait Named {
    /// Name in overrides and in the audit log.
    fn name(&self) -> &'static str;
}

/// Plan in force. Dropped when it ends; its owner withdraws the advice that it gave.
pub trait Running: Send + fmt::Debug {
    /// Receives the view, at each interval before any other call, even while steps are being
    /// executed.
    fn see(&mut self, _view: &View<'_>) {}

    /// Returns the next steps. Called at each interval after [`Running::see`], but not while its
    /// steps are being executed.
    fn go_on(&mut self, view: &View<'_>) -> Next;

    /// Receives the outcomes of all steps of it or the plan. Steps that the guard omitted come back
    /// as [`model::CallResult::Denied`], at once.
    fn carried_out(&mut self, _outcome: &Outcome) {}

    /// Whether its effect is complete: memory that was at the GPU before may have to leave it once,
    /// as it would have. Until then, and for at most four windows, it is not judged.
    fn has_settled(&self) -> bool {
        true
    }

    /// Bytes of its memory that the program has passed since the plan began, if the policy can
    /// measure that, as by faults on tripwires. Before the plan, arrivals at the GPU are the
    /// measure. A policy that prefetches is judged by this, as a faster program migrates more.
    fn passed_bytes(&self) -> Option<u64> {
        None
    }
}

/// Next action of a running plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// These steps; none if nothing is due now.
    Steps(Vec<Step>),
    /// End of the plan: its phase is over, for this reason.
    Over(String),
}

/// Whether this much time has passed.
pub(crate) fn has_passed(long: Duration, since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|passed| passed >= long)
}
