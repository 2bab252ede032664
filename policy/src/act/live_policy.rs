//! What a reactive policy is: it looks at a process's memory at one GPU, proposes a plan where it sees its phase, and then steers for as long as that
//! phase lasts.

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

/// A process at a GPU, and those beside it, as a policy sees them.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// When that was so, by a clock that nobody sets. The only clock there is.
    pub now: SystemTime,
    /// The process.
    pub process: &'a Process,
    /// At which GPU.
    pub gpu: GpuUuid,
    /// All memory of that GPU, where it is known.
    pub gpu_memory_bytes: Option<u64>,
    /// Verdicts on this process at this GPU.
    pub verdicts: &'a [&'a Verdict],
    /// Evictions at this GPU, by victim and evictor.
    pub victims: &'a [Victim],
    /// Access pattern in the last window, as far as faults show; `None` without a full window.
    pub accessed: Option<Accessed>,
    /// The process's ranges that may be acted upon and are mapped, by address.
    pub ranges: &'a [&'a Range],
    /// The process's blocks in memory that may be acted upon, by address.
    pub blocks: &'a [Block],
    /// The other processes at this GPU, each with its blocks by address.
    pub others: &'a [(&'a Process, &'a [Block])],
    /// Counts of all processes at the GPU, also of those that exited; monotonic.
    pub gpu_totals: Option<&'a Counters>,
    /// Blocks that may be renewed a second, by the budgets.
    pub renewals_per_second: u64,
    /// Parameters of the policy, by name.
    pub parameters: &'a BTreeMap<String, String>,
}

/// Kinds of faults that occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessed {
    /// The GPU did atomics: memory that it reaches across the link has to come to it for them.
    pub gpu_atomics: bool,
}

impl<'a> View<'a> {
    /// Whether the GPU is known to have done atomics on its memory.
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

    /// Its memory resident at the GPU.
    #[must_use]
    pub fn resident(&self) -> Residency {
        self.process.residency.get(&self.key()).copied().unwrap_or_default()
    }

    /// The verdict of this kind, if it is in force.
    #[must_use]
    pub fn verdict(&self, kind: VerdictKind) -> Option<&'a Verdict> {
        self.verdicts.iter().copied().find(|verdict| verdict.kind == kind)
    }

    /// A parameter that is a number; `None` if it was not given.
    #[must_use]
    pub fn number(&self, parameter: &Parameter) -> Option<u64> {
        self.parameters.get(parameter.name)?.parse().ok()
    }

    /// A parameter that is a word: what was given, or else what holds then.
    #[must_use]
    pub fn word(&self, parameter: &Parameter) -> &str {
        let unless_given = match parameter.form {
            Form::Word([first, ..]) => first,
            Form::Word([]) | Form::Number(..) => "",
        };
        self.parameters.get(parameter.name).map_or(unless_given, String::as_str)
    }
}

/// A policy. It has no memory of its own: what it must remember of a plan that is in force is in [`Running`]. Its row is in [`model::policy`].
pub trait LivePolicy: Named + Send + Sync {
    /// What it would do; `None` if what it is for is not there. The plan's steps are the first ones, and [`Running`] says what follows. Both are
    /// made anew each time it is asked, and dropped if the guard says no.
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)>;
}

/// A row of [`model::policy`], which names its implementation; see the `catalogue`.
pub trait Named {
    /// Its name in overrides and in the audit log.
    fn name(&self) -> &'static str;
}

/// A plan in force. Dropped when it ends; the advice that it gave is withdrawn by whoever holds it.
pub trait Running: Send + fmt::Debug {
    /// What is there now: told at each interval before anything else is asked, also while steps are being carried out.
    fn see(&mut self, _view: &View<'_>) {}

    /// What to do next. Asked at each interval after [`Running::see`], but not while steps that it asked for are being carried out.
    fn go_on(&mut self, view: &View<'_>) -> Next;

    /// What came of steps that it, or the plan, asked for: of each. What the guard left out comes back as [`model::CallResult::Denied`], at once.
    fn carried_out(&mut self, _outcome: &Outcome) {}

    /// Whether what it does shows in full by now: what was at the GPU before may have to leave it once as it would have. Until then, and for no more than
    /// four windows, it is not judged.
    fn has_settled(&self) -> bool {
        true
    }

    /// Bytes of its memory that the program has come through since the plan began, where the policy can tell, as by faults on what it left out on
    /// purpose. Before the plan that was what arrived at the GPU: a policy that brings memory ahead of the program is judged by this, as a program
    /// that gets on faster moves more.
    fn passed_bytes(&self) -> Option<u64> {
        None
    }
}

/// Next action of a running plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// These steps; none if there is nothing to do now.
    Steps(Vec<Step>),
    /// The end: its phase is over, for this reason.
    Over(String),
}

/// Whether so long has passed.
pub(crate) fn has_passed(long: Duration, since: SystemTime, now: SystemTime) -> bool {
    now.duration_since(since).is_ok_and(|passed| passed >= long)
}
