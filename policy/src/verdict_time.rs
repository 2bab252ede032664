//! Time for which verdicts held, by owner: it outlives the processes and the verdicts.

use std::{collections::BTreeMap, time::Duration};

use model::{GpuKey, OwnerKey, Process, ProcessId, Snapshot, Verdict, VerdictTimeKey, usage};

/// Sums by owner, GPU and kind, and the part of verdicts in force that they include.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerdictTime {
    sums: BTreeMap<VerdictTimeKey, Duration>,
    open: BTreeMap<(ProcessId, GpuKey), Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    owner: OwnerKey,
    step: Option<String>,
    duration: Duration,
}

/// New part of a verdict's time.
#[derive(Debug)]
pub(crate) struct Increment {
    pub(crate) owner: OwnerKey,
    /// Step of the job.
    pub(crate) step: Option<String>,
    pub(crate) duration: Duration,
}

impl VerdictTime {
    /// Adds the time for which a verdict of this process of the snapshot has held, and returns its
    /// new part. A verdict at an unknown GPU is counted only once the GPU is known: the sum could
    /// not be corrected.
    pub(crate) fn add(
        &mut self,
        verdict: &Verdict,
        duration: Duration,
        process: Option<&Process>,
        snapshot: &Snapshot,
    ) -> Option<Increment> {
        let key = (verdict.process, verdict.gpu);
        if matches!(verdict.gpu, GpuKey::Pending(_)) {
            return None;
        }
        let has_ended = verdict.ended_at.is_some();
        let known = if has_ended { self.open.remove(&key) } else { self.open.get(&key).cloned() };
        let open = known.or_else(|| counted_from_now(process?, snapshot))?;
        let by = VerdictTimeKey { owner: open.owner.clone(), gpu: verdict.gpu, kind: verdict.kind };
        let new = duration.saturating_sub(open.duration);
        let sum = self.sums.entry(by).or_default();
        *sum = sum.saturating_add(new);
        let increment = Increment { owner: open.owner.clone(), step: open.step.clone(), duration: new };
        if !has_ended {
            self.open.insert(key, Counted { duration: duration.max(open.duration), ..open });
        }
        Some(increment)
    }

    /// Drops the sums of owners that are no longer listed; their other counts are dropped, too.
    pub(crate) fn retain_listed(&mut self, snapshot: &Snapshot) {
        self.sums.retain(|by, _| snapshot.owners.contains_key(&by.owner));
    }

    pub(crate) const fn sums(&self) -> &BTreeMap<VerdictTimeKey, Duration> {
        &self.sums
    }
}

/// Owner under which a process's counts are listed, and step, of a verdict without counted time.
fn counted_from_now(process: &Process, snapshot: &Snapshot) -> Option<Counted> {
    let is_listed = |key: &OwnerKey| snapshot.owners.contains_key(key);
    let owner = Some(process.owner.key()).filter(is_listed).or(Some(OwnerKey::Other).filter(is_listed))?;
    Some(Counted { owner, step: usage::step(process).map(str::to_owned), duration: Duration::ZERO })
}
