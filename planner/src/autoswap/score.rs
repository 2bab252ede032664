//! Selection of absences: scores, votes and weights, until the load fits.

use serde::Serialize;

use super::{
    Problem,
    absence::{Absence, Clock},
    load::Load,
};

/// Weights of the scores DOA, AOA, WDOA and SWDOA. Their sum is 1.
pub type Weights = [f64; 4];

/// Ranking of absences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Duration of absence: its time less both transfers.
    Doa,
    /// Area of absence: DOA times bytes. A negative DOA is divided by the bytes, so that larger
    /// tensors are preferred.
    Aoa,
    /// Weighted duration of absence: the excess of the load over the limit, integrated over the
    /// absence.
    Wdoa,
    /// WDOA, with the load reduced by the absences already selected.
    Swdoa,
    /// The smallest sum of ranks by duration, AOA and WDOA.
    Vote,
    /// The largest weighted sum of the four scores, each scaled to between 0 and 1.
    Weighted(Weights),
}

impl Rule {
    /// Rules that rank by one score.
    pub const SINGLE_SCORES: [Self; 4] = [Self::Doa, Self::Aoa, Self::Wdoa, Self::Swdoa];
}

/// Scores of absences at a limit, as far as they do not depend on the absences already selected.
pub(super) struct Ranking {
    fixed: Vec<f64>,
    /// Weight of SWDOA, which does depend on them.
    swdoa_weight: f64,
}

impl Ranking {
    pub(super) fn of(problem: &Problem<'_>, rule: Rule, limit_bytes: u64) -> Self {
        let absences = &problem.absences;
        let pressure = Pressure::of(&problem.live, &problem.clock, limit_bytes, &problem.live.slots_above(limit_bytes));
        let idle = |of: &Absence| (problem.clock.at(of.next_use) - problem.clock.at(of.ready)) as f64;
        let doa = |of: &Absence| idle(of) - of.out_ns as f64 - of.back_ns as f64;
        let aoa = |of: &Absence| if doa(of) < 0.0 { doa(of) / of.bytes as f64 } else { doa(of) * of.bytes as f64 };
        let wdoa = |of: &Absence| pressure.over(of);
        let all = |score: &dyn Fn(&Absence) -> f64| absences.iter().map(score).collect::<Vec<_>>();
        let (fixed, swdoa_weight) = match rule {
            Rule::Doa => (all(&doa), 0.0),
            Rule::Aoa => (all(&aoa), 0.0),
            Rule::Wdoa => (all(&wdoa), 0.0),
            Rule::Swdoa => (vec![0.0; absences.len()], 1.0),
            Rule::Vote => {
                let ranks = [ranks(&all(&idle)), ranks(&all(&aoa)), ranks(&all(&wdoa))];
                (weighted(&ranks, [-1.0; 3]), 0.0)
            }
            Rule::Weighted([doa_weight, aoa_weight, wdoa_weight, swdoa_weight]) => {
                let scores = [scaled(all(&doa)), scaled(all(&aoa)), scaled(all(&wdoa))];
                (weighted(&scores, [doa_weight, aoa_weight, wdoa_weight]), swdoa_weight)
            }
        };
        Self { fixed, swdoa_weight }
    }

    /// Selects absences one by one, always one over the fullest slot, until the load is within the
    /// limit or no absence is left at that slot. `load` is without the absences selected before;
    /// those of this call are subtracted from it. True if any was selected.
    pub(super) fn select(
        &self,
        problem: &Problem<'_>,
        limit_bytes: u64,
        load: &mut Load,
        selected: &mut Vec<usize>,
    ) -> bool {
        let before = selected.len();
        let mut taken = vec![false; problem.absences.len()];
        for &at in selected.iter() {
            mark(&mut taken, at);
        }
        // An absence makes no slot fuller: slots within the limit need no second look.
        let mut over = load.slots_above(limit_bytes);
        while let Some(slot) = load.fullest(&over) {
            let candidates: Vec<_> = problem
                .absences
                .iter()
                .enumerate()
                .zip(&taken)
                .filter(|((_, absence), taken)| !**taken && load.straddles(absence, slot))
                .map(|(entry, _)| entry)
                .collect();
            let Some((at, absence)) = self.best(problem, limit_bytes, load, &over, &candidates) else { break };
            load.subtract(Load::longest_slots(absence), absence.bytes);
            over.retain(|slot| load.bytes(*slot) > limit_bytes);
            mark(&mut taken, at);
            selected.push(at);
        }
        selected.len() > before
    }

    fn best<'a>(
        &self,
        problem: &Problem<'_>,
        limit_bytes: u64,
        load: &Load,
        over: &[usize],
        candidates: &[(usize, &'a Absence)],
    ) -> Option<(usize, &'a Absence)> {
        let swdoa = if self.swdoa_weight == 0.0 {
            vec![0.0; candidates.len()]
        } else {
            let pressure = Pressure::of(load, &problem.clock, limit_bytes, over);
            scaled(candidates.iter().map(|(_, absence)| pressure.over(absence)).collect())
        };
        let mut best: Option<(f64, (usize, &Absence))> = None;
        for (&entry, swdoa) in candidates.iter().zip(swdoa) {
            let worth = self.fixed.get(entry.0).copied().unwrap_or(0.0) + self.swdoa_weight * swdoa;
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, entry));
            }
        }
        best.map(|(_, entry)| entry)
    }
}

fn mark(taken: &mut [bool], at: usize) {
    if let Some(taken) = taken.get_mut(at) {
        *taken = true;
    }
}

/// Excess of the load over the limit, integrated over time: byte nanoseconds up to and including
/// each kernel with an excess.
struct Pressure {
    sums: Vec<(usize, f64)>,
    kernels: usize,
}

impl Pressure {
    /// Pressure of the slots over the limit, in order.
    fn of(load: &Load, clock: &Clock, limit_bytes: u64, over: &[usize]) -> Self {
        let mut sum = 0.0;
        let sums = over.iter().filter_map(|&slot| {
            let kernel = Load::running(slot)?;
            sum += (load.bytes(slot) - limit_bytes) as f64 * clock.duration_ns(kernel) as f64;
            Some((kernel, sum))
        });
        Self { sums: sums.collect(), kernels: clock.kernels() }
    }

    fn over(&self, absence: &Absence) -> f64 {
        let until = |kernel: usize| {
            let before = self.sums.partition_point(|&(of, _)| of < kernel);
            before.checked_sub(1).and_then(|last| self.sums.get(last)).map_or(0.0, |&(_, sum)| sum)
        };
        let turns = if absence.next_use < self.kernels { 0.0 } else { until(self.kernels) };
        until(absence.next_use % self.kernels) + turns - until(absence.ready)
    }
}

/// Scales scores to between 0 and 1; all are 0 where all are equal.
fn scaled(mut scores: Vec<f64>) -> Vec<f64> {
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = if most > least { most - least } else { 1.0 };
    for score in &mut scores {
        *score = (*score - least) / range;
    }
    scores
}

/// Rank of each score, the largest first; equal scores have the same rank.
fn ranks(scores: &[f64]) -> Vec<f64> {
    let mut sorted = scores.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    scores.iter().map(|score| sorted.partition_point(|other| other > score) as f64).collect()
}

fn weighted(scores: &[Vec<f64>; 3], [a, b, c]: [f64; 3]) -> Vec<f64> {
    let [first, second, third] = scores;
    first.iter().zip(second).zip(third).map(|((x, y), z)| a * x + b * y + c * z).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_have_the_same_rank_and_the_most_comes_first() {
        assert_eq!(ranks(&[3.0, 9.0, 3.0, 1.0]), [1.0, 0.0, 1.0, 3.0]);
        assert_eq!(scaled(vec![3.0, 9.0, 6.0]), [0.0, 1.0, 0.5]);
        assert_eq!(scaled(vec![4.0, 4.0]), [0.0, 0.0]);
    }
}
