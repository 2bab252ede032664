//! Interface of a live policy: it inspects the memory of a process at one GPU, makes a proposal
//! when it detects a phase for which it is designed, and controls the proposal until the phase ends.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use model::{
    Block, Counters, GpuKey, GpuUuid, Outcome, Process, Proposal, Range, Residency, Step, Verdict, VerdictKind,
    verdict::Victim,
};

use model::policy::{Form, Parameter};

use crate::act::{
    limits::{Limits, RENEWAL_BYTES, RENEWALS_PART},
    scene::Target,
};

/// Input of a policy: a process at a GPU, and the other processes there.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Time of the view, by a monotonic clock. Policies read no other clock.
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
    /// Kinds of accesses in the last window, by faults; `None` without a full window.
    pub accessed: Option<Accessed>,
    /// Mapped ranges of the process that may be acted on, by address.
    pub ranges: &'a [&'a Range],
    /// Blocks of the process in memory that may be acted on, by address.
    pub blocks: &'a [Block],
    /// Live processes with counts at this GPU, this one included, each with its blocks by address.
    pub gpu_processes: &'a [(&'a Process, &'a [Block])],
    /// Counts of all processes at the GPU, including exited ones; monotonic.
    pub gpu_totals: Option<&'a Counters>,
    /// Maximum renewals per second within the budgets.
    pub renewals_per_second: u64,
    /// Parameters of the policy, by name.
    pub parameters: &'a BTreeMap<String, String>,
}

/// Kinds of accesses that faults have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// Atomics of the GPU, which require resident memory.
    pub gpu_atomics: bool,
}

impl<'a> View<'a> {
    /// View of what a policy may act on.
    pub(crate) fn of(target: &'a Target<'_>, accessed: Option<Accessed>, limits: &Limits) -> Self {
        let budget = target.directive.budget.bytes_per_second.unwrap_or(u64::MAX);
        let bytes_per_second = budget.min(limits.process_bytes_per_second).min(limits.node_bytes_per_second);
        Self {
            now: target.scene.now,
            process: target.process,
            gpu: target.gpu,
            gpu_memory_bytes: target.memory_bytes,
            verdicts: target.verdicts,
            victims: &target.gpu_context.victims,
            accessed,
            ranges: &target.ranges,
            blocks: &target.blocks,
            gpu_processes: &target.gpu_context.processes,
            gpu_totals: target.scene.snapshot.gpu_totals.get(&target.key()),
            renewals_per_second: bytes_per_second / RENEWAL_BYTES / RENEWALS_PART,
            parameters: &target.directive.parameters,
        }
    }

    /// View of a process without memory or verdicts, at the Unix epoch.
    #[cfg(test)]
    pub(crate) const fn of_test(process: &'a Process, gpu: GpuUuid) -> Self {
        static NO_PARAMETERS: BTreeMap<String, String> = BTreeMap::new();
        Self {
            now: SystemTime::UNIX_EPOCH,
            process,
            gpu,
            gpu_memory_bytes: None,
            verdicts: &[],
            victims: &[],
            accessed: None,
            ranges: &[],
            blocks: &[],
            gpu_processes: &[],
            gpu_totals: None,
            renewals_per_second: 0,
            parameters: &NO_PARAMETERS,
        }
    }

    /// Other processes at this GPU, each with its blocks by address.
    pub fn others(&self) -> impl Iterator<Item = &'a (&'a Process, &'a [Block])> {
        self.gpu_processes.iter().filter(|(other, _)| other.id != self.process.id)
    }

    /// Whether faults have shown atomics of the GPU on the process's memory.
    #[must_use]
    pub fn uses_gpu_atomics(&self) -> bool {
        self.accessed.is_some_and(|accessed| accessed.gpu_atomics)
    }

    /// Key of the GPU in the process's counts.
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

    /// Active verdict of this kind.
    #[must_use]
    pub fn verdict(&self, kind: VerdictKind) -> Option<&'a Verdict> {
        self.verdicts.iter().copied().find(|verdict| verdict.kind == kind)
    }

    /// Value of a numeric parameter; `None` if it is not set.
    #[must_use]
    pub fn number(&self, parameter: &Parameter) -> Option<u64> {
        self.parameters.get(parameter.name)?.parse().ok()
    }

    /// Value of a word parameter, or its default.
    #[must_use]
    pub fn word(&self, parameter: &Parameter) -> &str {
        let unless_given = match parameter.form {
            Form::Word([first, ..]) => first,
            Form::Word([]) | Form::Number(..) => "",
        };
        self.parameters.get(parameter.name).map_or(unless_given, String::as_str)
    }
}

/// Live policy, without state: the state of a proposal in force is in [`Running`]. Its row is in
/// [`model::policy`].
pub trait LivePolicy: Named + Send + Sync {
    /// Makes a proposal; `None` if the policy's phase is not detected. The [`Proposal`] has the first
    /// steps, and [`Running`] returns the next ones. Both are created at each call, and dropped if
    /// the guard denies them.
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)>;
}

/// Name of a policy, implemented by `catalogue` from the rows of [`model::policy`].
pub trait Named {
    /// Name in overrides and in the audit log.
    fn name(&self) -> &'static str;
}

/// Proposal in force. Dropped at its end; the owner withdraws its advice.
pub trait Running: Send + fmt::Debug {
    /// Observes the view. Called at each interval before any other method, even while steps are
    /// being executed.
    fn observe(&mut self, _view: &View<'_>) {}

    /// Returns the next steps. Called at each interval after [`Running::observe`], except while its
    /// steps are being executed.
    fn next_steps(&mut self, view: &View<'_>) -> Next;

    /// Processes the outcomes of all steps of the proposal, including the first ones. Steps that
    /// the guard denied are reported at once, as [`model::CallResult::Denied`].
    fn record_outcome(&mut self, _outcome: &Outcome) {}

    /// Whether the effect of the proposal is complete. Memory that was resident before may have to
    /// leave the GPU once, as without the proposal. Until then, and for at most four windows, the
    /// proposal is not judged.
    fn has_settled(&self) -> bool {
        true
    }

    /// Bytes of its memory that the program has passed since the proposal began, if the policy can
    /// measure them, for example by faults on tripwires. They are compared with the arrivals at the
    /// GPU before it. A policy that prefetches is judged per passed byte, because a faster program
    /// migrates more.
    fn passed_bytes(&self) -> Option<u64> {
        None
    }
}

/// Next action of a proposal in force.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Steps to order; empty if none are due.
    Steps(Vec<Step>),
    /// End of the proposal because its phase is over, for this reason.
    End(String),
}

/// Whether at least the duration `long` has passed since a time.
pub(crate) fn has_passed(long: Duration, since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|passed| passed >= long)
}
