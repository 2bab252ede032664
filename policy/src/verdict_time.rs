//! Time for which verdicts held, by owner: it outlives the processes and the verdicts.

use std::{collections::BTreeMap, time::Duration};

use model::{GpuKey, OwnerKey, ProcessId, Snapshot, Verdict, VerdictTimeKey};

/// Sums by owner, GPU and kind, and the part of verdicts in force that they include.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerdictTime {
    sums: BTreeMap<VerdictTimeKey, Duration>,
    open: BTreeMap<(ProcessId, GpuKey), Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    owner: OwnerKey,
    counted: Duration,
}

impl VerdictTime {
    /// Adds the time for which a verdict has held. A verdict at an unknown GPU is counted only once
    /// the GPU is known: the sum could not be corrected.
    pub(crate) fn add(&mut self, verdict: &Verdict, duration: Duration, snapshot: &Snapshot) {
        let key = (verdict.process, verdict.gpu);
        if matches!(verdict.gpu, GpuKey::Pending(_)) {
            return;
        }
        let has_ended = verdict.ended_at.is_some();
        let known = if has_ended { self.open.remove(&key) } else { self.open.get(&key).cloned() };
        let Some(open) =
            known.or_else(|| Some(Counted { owner: owner(verdict.process, snapshot)?, counted: Duration::ZERO }))
        else {
            return;
        };
        let by = VerdictTimeKey { owner: open.owner.clone(), gpu: verdict.gpu, kind: verdict.kind };
        let sum = self.sums.entry(by).or_default();
        *sum = sum.saturating_add(duration.saturating_sub(open.counted));
        if !has_ended {
            self.open.insert(key, Counted { counted: duration.max(open.counted), ..open });
        }
    }

    /// Drops the sums of owners that are no longer listed; their other counts are dropped, too.
    pub(crate) fn retain_listed(&mut self, snapshot: &Snapshot) {
        self.sums.retain(|by, _| snapshot.owners.contains_key(&by.owner));
    }

    pub(crate) const fn sums(&self) -> &BTreeMap<VerdictTimeKey, Duration> {
        &self.sums
    }
}

/// Owner under which a process's counts are listed.
fn owner(process: ProcessId, snapshot: &Snapshot) -> Option<OwnerKey> {
    let process = snapshot.processes.iter().find(|each| each.id == process)?;
    let is_listed = |key: &OwnerKey| snapshot.owners.contains_key(key);
    Some(process.owner.key()).filter(is_listed).or(Some(OwnerKey::Other).filter(is_listed))
}
