//! Evictions by victim and evictor in the last window, from their cumulative sums.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use model::{GpuKey, Party, ProcessId, Snapshot, verdict::Victim};

use crate::thresholds::EARLY;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    gpu: GpuKey,
    victim: ProcessId,
    evictor: ProcessId,
}

type Bytes = BTreeMap<Pair, u64>;

/// Evictions by victim and evictor in the last complete window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Victims {
    /// Start of the current window, by the clock of [`Snapshot::elapsed`], and the sums then.
    from: Option<(Duration, Bytes)>,
    latest: Vec<Victim>,
}

impl Victims {
    /// Adds a snapshot. The window ends with it if it has lasted `window_min`.
    pub(crate) fn observe(&mut self, snapshot: &Snapshot, window_min: Duration) {
        let now = pairs(snapshot);
        let Some((began, then)) = &self.from else {
            self.from = Some((snapshot.elapsed, now));
            return;
        };
        let window = snapshot.elapsed.saturating_sub(*began);
        if moved(then, &now) {
            // Counts that moved to another key are no evictions of this window.
            self.from = Some((snapshot.elapsed, now));
            return;
        }
        if window < window_min.mul_f64(1.0 - EARLY) || window.is_zero() {
            return;
        }
        self.latest = now
            .iter()
            .map(|(pair, bytes)| (pair, bytes.saturating_sub(then.get(pair).copied().unwrap_or_default())))
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(Pair { gpu, victim, evictor }, bytes)| Victim {
                victim: *victim,
                evictor: *evictor,
                gpu: *gpu,
                bytes,
                window,
            })
            .collect();
        self.latest.sort_by_key(|victim| Reverse(victim.bytes));
        self.from = Some((snapshot.elapsed, now));
    }

    /// Evictions of the last complete window, in descending order of bytes.
    pub(crate) fn latest(&self) -> &[Victim] {
        &self.latest
    }
}

/// Cumulative evicted bytes of each pair of different processes, for all causes.
fn pairs(snapshot: &Snapshot) -> Bytes {
    let mut pairs = Bytes::new();
    for pair in &snapshot.evictions {
        if let (Party::Process(victim), Party::Process(evictor)) = (pair.victim, pair.evictor)
            && victim != evictor
        {
            let bytes = pairs.entry(Pair { gpu: pair.gpu, victim, evictor }).or_default();
            *bytes = u64::saturating_add(*bytes, pair.bytes);
        }
    }
    pairs
}

/// Whether counts of an unknown GPU moved to a known one.
fn moved(then: &Bytes, now: &Bytes) -> bool {
    then.iter()
        .any(|(pair, bytes)| matches!(pair.gpu, GpuKey::Pending(_)) && now.get(pair).is_none_or(|now| now < bytes))
}
