//! Advice in force, by memory.

use std::collections::BTreeMap;

use model::{Advice, GpuUuid, ProcessId};

/// Advice of a kind replaces other advice of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A range has at most one preferred location.
    PreferredLocation,
    AccessedBy(GpuUuid),
    ReadDuplication,
}

impl Kind {
    const fn of(advice: Advice) -> Self {
        match advice {
            Advice::PreferredLocation(_) => Self::PreferredLocation,
            Advice::AccessedBy(gpu) => Self::AccessedBy(gpu),
            Advice::ReadDuplication => Self::ReadDuplication,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    end: u64,
    advice: Advice,
    gpu: GpuUuid,
}

/// Advice by process and kind, and then by first address; of one kind no two overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InForce(BTreeMap<(ProcessId, Kind), BTreeMap<u64, Span>>);

impl InForce {
    pub(super) fn add(&mut self, process: ProcessId, gpu: GpuUuid, (begin, end): (u64, u64), advice: Advice) {
        self.remove(process, (begin, end), advice);
        if begin < end {
            let spans = self.0.entry((process, Kind::of(advice))).or_default();
            spans.insert(begin, Span { end, advice, gpu });
        }
    }

    /// Whether exactly this advice is in force in all of the range.
    pub(super) fn covers(&self, process: ProcessId, gpu: GpuUuid, (begin, end): (u64, u64), advice: Advice) -> bool {
        let mut covered = begin;
        for ((from, to), found, at) in self.within(process, (begin, end), advice) {
            if from != covered || (found, at) != (advice, gpu) {
                return false;
            }
            covered = to;
        }
        covered == end
    }

    /// Number of ranges with advice in force.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Number of ranges that the other processes have beyond `own` each.
    pub(super) fn len_beyond(&self, own: usize, except: ProcessId) -> usize {
        let mut counts: BTreeMap<ProcessId, usize> = BTreeMap::new();
        for ((process, _), spans) in self.0.iter().filter(|((process, _), _)| *process != except) {
            *counts.entry(*process).or_default() += spans.len();
        }
        counts.into_values().map(|count| count.saturating_sub(own)).sum()
    }

    /// Removes advice, and returns whether there was any.
    pub(super) fn remove(&mut self, process: ProcessId, (begin, end): (u64, u64), advice: Advice) -> bool {
        let key = (process, Kind::of(advice));
        let Some(spans) = self.0.get_mut(&key) else { return false };
        let cut: Vec<(u64, Span)> =
            spans.range(..end).rev().take_while(|(_, span)| span.end > begin).map(|(at, span)| (*at, *span)).collect();
        for (at, span) in &cut {
            spans.remove(at);
            if *at < begin {
                spans.insert(*at, Span { end: begin, ..*span });
            }
            if span.end > end {
                spans.insert(end, *span);
            }
        }
        if spans.is_empty() {
            self.0.remove(&key);
        }
        !cut.is_empty()
    }

    /// Whether the advice replaces the other.
    pub(super) fn replaces(advice: Advice, other: Advice) -> bool {
        Kind::of(advice) == Kind::of(other)
    }

    /// Advice of this process only.
    pub(super) fn of(&self, process: ProcessId) -> Self {
        let own = self.0.iter().filter(|((found, _), _)| *found == process);
        Self(own.map(|(key, spans)| (*key, spans.clone())).collect())
    }

    /// Advice of this kind in force in this range, in order of address.
    pub(super) fn within(
        &self,
        process: ProcessId,
        (begin, end): (u64, u64),
        advice: Advice,
    ) -> impl Iterator<Item = ((u64, u64), Advice, GpuUuid)> + '_ {
        let spans = self.0.get(&(process, Kind::of(advice))).into_iter().flat_map(move |spans| {
            // One may start before the range.
            let first = spans.range(..=begin).next_back().filter(|(_, span)| span.end > begin);
            spans.range(first.map_or(begin, |(at, _)| *at)..end)
        });
        spans.map(move |(at, span)| (((*at).max(begin), span.end.min(end)), span.advice, span.gpu))
    }

    pub(super) fn forget(&mut self, process: ProcessId) {
        self.0.retain(|(found, _), _| *found != process);
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(ProcessId) -> bool) {
        let mut last = None;
        self.0.retain(|(process, _), _| {
            // A process's entries are adjacent, and it is queried once.
            let (_, keeps) =
                *last.filter(|(found, _)| found == process).get_or_insert_with(|| (*process, keep(*process)));
            last = Some((*process, keeps));
            keeps
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessId, GpuUuid, u64, u64, Advice)> + '_ {
        self.0.iter().flat_map(|((process, _), spans)| {
            spans.iter().map(|(begin, span)| (*process, span.gpu, *begin, span.end, span.advice))
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Place;

    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);
    const PROCESS: ProcessId = ProcessId { pid: 7, start_ticks: 70 };
    const READ: Advice = Advice::ReadDuplication;

    fn spans(in_force: &InForce) -> Vec<(u64, u64)> {
        in_force.iter().map(|(_, _, begin, end, _)| (begin, end)).collect()
    }

    fn with(ranges: &[(u64, u64)]) -> InForce {
        let mut in_force = InForce::default();
        for range in ranges {
            in_force.add(PROCESS, GPU, *range, READ);
        }
        in_force
    }

    #[test]
    fn withdrawal_of_a_part_keeps_the_rest() {
        let mut in_force = with(&[(0, 10), (20, 30), (40, 50)]);
        assert!(in_force.remove(PROCESS, (5, 45), READ));
        assert_eq!(spans(&in_force), [(0, 5), (45, 50)]);
        assert!(in_force.remove(PROCESS, (46, 47), READ));
        assert_eq!(spans(&in_force), [(0, 5), (45, 46), (47, 50)]);
        assert!(!in_force.remove(PROCESS, (5, 45), READ));
        assert!(in_force.remove(PROCESS, (0, 50), READ));
        assert_eq!(in_force, InForce::default());
    }

    #[test]
    fn advice_replaces_earlier_advice_of_its_kind() {
        let mut in_force = with(&[(0, 10)]);
        in_force.add(PROCESS, GPU, (5, 15), READ);
        assert_eq!(spans(&in_force), [(0, 5), (5, 15)]);
        let other = GpuUuid([2; 16]);
        in_force.add(PROCESS, GPU, (0, 10), Advice::PreferredLocation(Place::Host));
        in_force.add(PROCESS, GPU, (0, 10), Advice::PreferredLocation(Place::Gpu(other)));
        in_force.add(PROCESS, GPU, (0, 10), Advice::AccessedBy(GPU));
        in_force.add(PROCESS, GPU, (0, 10), Advice::AccessedBy(other));
        assert_eq!(in_force.iter().count(), 5);
        // Any location.
        assert!(in_force.remove(PROCESS, (0, 10), Advice::PreferredLocation(Place::Host)));
        assert!(in_force.iter().all(|(.., advice)| !matches!(advice, Advice::PreferredLocation(_))));
    }

    #[test]
    fn each_process_is_checked_once() {
        let mut in_force = with(&[(0, 10)]);
        in_force.add(PROCESS, GPU, (0, 10), Advice::AccessedBy(GPU));
        let other = ProcessId { pid: 8, start_ticks: 70 };
        in_force.add(other, GPU, (0, 10), READ);
        let mut asked = Vec::new();
        in_force.retain(|process| {
            asked.push(process);
            process == other
        });
        assert_eq!(asked, [PROCESS, other]);
        assert_eq!(in_force.iter().map(|(process, ..)| process).collect::<Vec<_>>(), [other]);
        in_force.forget(other);
        assert_eq!(in_force.iter().count(), 0);
    }
}
