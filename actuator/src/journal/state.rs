//! State of the journal in memory, with its pending writes. Its lock is held for moments and never
//! during I/O: withdrawals do not wait for a disk.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use model::{Action, Advice, Call, CallResult, GpuUuid, ProcessId, Step};

use super::{
    JournalError,
    in_force::InForce,
    line::Line,
    pending::{Batch, Completion, Pending, Write},
    unrecognised::Unrecognised,
};

/// Ranges with advice in force that each process may have, whatever others have: those of
/// contiguous memory with two kinds of advice (`ADVISED_PARTS_MAX` of the policies).
pub(super) const OWN_RANGES: usize = 160;
/// Ranges beyond these, of all processes together. uvmd acts on 512 processes at most, whose ranges
/// thus are no more than 131,072, apart from those that holes split while an order is carried out.
pub(super) const SHARED_RANGES_MAX: usize = (1 << 17) - 512 * OWN_RANGES;

/// Intent of a waiting or executing order. A withdrawal of other advice leaves its advice in force.
struct Intended {
    process: ProcessId,
    gpu: GpuUuid,
    steps: Vec<Step>,
}

/// State of the journal.
pub(super) struct State {
    boot: String,
    pub(super) in_force: InForce,
    intended: BTreeMap<u64, Intended>,
    next_intent: u64,
    pub(super) unrecognised: Unrecognised,
    pub(super) pending: Pending,
    /// Start of the current write.
    writing_since: Option<Instant>,
    /// Error of the last write.
    pub(super) last_error: Option<Arc<JournalError>>,
    pub(super) life: Life,
}

/// Whether the journal has users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    /// No users, with pending writes.
    Closing,
    /// The writer has ended.
    Closed,
}

/// Reason why advice must not be given.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Stuck(Duration),
    Full,
    /// Lines of this version.
    Newer(u64),
}

impl State {
    pub(super) fn new(boot: String, in_force: InForce, unrecognised: Unrecognised) -> Self {
        Self {
            boot,
            in_force,
            intended: BTreeMap::new(),
            next_intent: 0,
            unrecognised,
            pending: Pending::default(),
            writing_since: None,
            last_error: None,
            life: Life::Open,
        }
    }

    /// Start of the disk's current stall, if it is longer than this.
    pub(super) fn stalled_for(&self, intent_timeout: Duration) -> Option<Duration> {
        self.writing_since.map(|since| since.elapsed()).filter(|waited| *waited >= intent_timeout)
    }

    /// Adds an intent with these steps. Returns its number, and the process's advice in force
    /// before it.
    pub(super) fn begin_intent(
        &mut self,
        (process, gpu): (ProcessId, GpuUuid),
        steps: &[Step],
        intent_timeout: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(u64, InForce, Arc<Completion>), Refusal> {
        if let Some(waited) = self.stalled_for(intent_timeout) {
            return Err(Refusal::Stuck(waited));
        }
        let new = steps.iter().filter(|step| matches!(step.action, Action::Advise(_))).count();
        let before = self.in_force.of(process);
        let own = before.len() + new;
        let shared = self.in_force.len_beyond(OWN_RANGES, process) + own.saturating_sub(OWN_RANGES);
        if own > OWN_RANGES && shared > SHARED_RANGES_MAX {
            return Err(Refusal::Full);
        }
        if let Some(version) = steps.iter().find_map(|step| self.unrecognised.blocking_version(process, step)) {
            return Err(Refusal::Newer(version));
        }
        for step in steps {
            if let Action::Advise(advice) = step.action {
                self.add(process, gpu, (step.begin, step.end), advice);
            }
        }
        let completion = Arc::new(Completion::new(wake));
        self.pending.add_completion(Arc::clone(&completion));
        let number = self.next_intent;
        self.next_intent += 1;
        self.intended.insert(number, Intended { process, gpu, steps: steps.to_vec() });
        Ok((number, before, completion))
    }

    /// Records the results of an order's calls, in their order. `intent`: that of the order if it
    /// gave advice, with the advice in force before.
    pub(super) fn record_outcome(
        &mut self,
        (process, gpu): (ProcessId, GpuUuid),
        calls: &[Call],
        intent: Option<(u64, InForce)>,
    ) {
        let mut before = InForce::default();
        if let Some((number, found)) = intent {
            self.intended.remove(&number);
            before = found;
        }
        for Call { step, result, .. } in calls {
            let range = (step.begin, step.end);
            match (result, step.action) {
                (CallResult::Exited, _) => self.in_force.forget(process),
                // Advice ends with the mapping.
                (CallResult::Done | CallResult::NotMapped | CallResult::Replaced, Action::Withdraw(advice))
                | (CallResult::NotMapped, Action::Advise(advice)) => self.remove(process, gpu, range, advice),
                // The driver was not called for these; advice of an earlier order may be in force.
                (
                    CallResult::Cancelled | CallResult::Denied(_) | CallResult::Shadow | CallResult::HostMemory,
                    Action::Advise(advice),
                ) => self.restore(process, gpu, range, advice, &before),
                // A failed call may have taken effect in part.
                (_, Action::Advise(advice)) => {
                    self.add(process, gpu, range, advice);
                    // A later step of the same memory must not replace it.
                    before.add(process, gpu, range, advice);
                }
                _ => {}
            }
        }
    }

    /// Cancels an intent of which nothing was executed.
    pub(super) fn cancel(&mut self, number: u64, before: &InForce) {
        let Some(Intended { process, gpu, steps }) = self.intended.remove(&number) else { return };
        for step in steps {
            if let Action::Advise(advice) = step.action {
                self.restore(process, gpu, (step.begin, step.end), advice, before);
            }
        }
    }

    fn add(&mut self, process: ProcessId, gpu: GpuUuid, range: (u64, u64), advice: Advice) {
        if range.0 < range.1 && !self.in_force.covers(process, gpu, range, advice) {
            self.in_force.add(process, gpu, range, advice);
            self.write(process, gpu, range, advice, false);
        }
    }

    fn remove(&mut self, process: ProcessId, gpu: GpuUuid, range: (u64, u64), advice: Advice) {
        if !self.in_force.remove(process, range, advice) {
            return;
        }
        self.write(process, gpu, range, advice, true);
        // Advice of another intent of this kind may be given only after this withdrawal.
        let others = self.intended.values().filter(|intended| intended.process == process);
        let again: Vec<_> = others
            .flat_map(|intended| intended.steps.iter().map(|step| (intended.gpu, *step)))
            .filter_map(|(gpu, step)| match step.action {
                Action::Advise(other) if InForce::replaces(advice, other) => {
                    Some((gpu, (step.begin.max(range.0), step.end.min(range.1)), other))
                }
                _ => None,
            })
            .collect();
        for (gpu, range, advice) in again {
            self.add(process, gpu, range, advice);
        }
    }

    /// Reverts advice that was not given: the earlier advice is in force again, unless that of
    /// another order has replaced it.
    fn restore(&mut self, process: ProcessId, gpu: GpuUuid, range: (u64, u64), advice: Advice, before: &InForce) {
        let own: Vec<_> = self
            .in_force
            .within(process, range, advice)
            .filter(|(_, found, at)| (*found, *at) == (advice, gpu))
            .map(|(range, ..)| range)
            .collect();
        for range in own {
            self.remove(process, gpu, range, advice);
            for (range, advice, gpu) in before.within(process, range, advice) {
                self.add(process, gpu, range, advice);
            }
        }
    }

    fn write(&mut self, process: ProcessId, gpu: GpuUuid, range: (u64, u64), advice: Advice, is_withdrawn: bool) {
        self.pending.push(Line::new(&self.boot, process, gpu, range, advice, is_withdrawn).text());
    }

    /// Whether no write is pending or in progress.
    pub(super) const fn is_idle(&self) -> bool {
        !self.pending.is_due && self.writing_since.is_none()
    }

    /// Starts the next write: of the whole file if that is requested or necessary.
    pub(super) fn take(&mut self, rewrites: bool) -> Batch {
        self.writing_since = Some(Instant::now());
        let Self { pending, in_force, unrecognised, .. } = self;
        pending.take(rewrites, || Write::Rewrite(in_force.clone(), unrecognised.clone()))
    }

    /// Ends a write, with or without success.
    pub(super) fn written(&mut self, result: &Result<(), Arc<JournalError>>) {
        self.writing_since = None;
        if result.is_err() {
            // The failed write may be on the disk in part: the next one replaces it.
            self.pending.require_rewrite();
        }
        self.last_error = result.as_ref().err().cloned();
    }
}
