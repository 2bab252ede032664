//! Which absences are taken: scores, votes and weights, and the choice until the load fits.

use serde::Serialize;

use super::{
    Problem,
    absence::{Absence, Clock},
    load::Load,
};

/// How much weight each score has: DOA, AOA, WDOA, SWDOA. They sum up to 1.
pub type Weights = [f64; 4];

/// By what absences are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Duration of absence: the time that is left of it besides both transfers.
    Doa,
    /// Area of absence: that times the bytes; where there is no time left, divided by them, so that of those the larger is preferred.
    Aoa,
    /// Weighted duration of absence: by how much the load is above the limit, summed up over the time of the absence.
    Wdoa,
    /// The same with what was chosen before already away.
    Swdoa,
    /// The least sum of ranks by the length of the absence, AOA and WDOA.
    Vote,
    /// The most by the weighted sum of the four scores, each scaled to between 0 and 1.
    Weighted(Weights),
}

impl Rule {
    /// The four scores.
    pub const PURE: [Self; 4] = [Self::Doa, Self::Aoa, Self::Wdoa, Self::Swdoa];
}

/// What each absence is worth at a limit, so far as that does not depend on what is chosen with it.
pub(super) struct Ranking {
    fixed: Vec<f64>,
    /// What SWDOA counts besides.
    weight_of_rest: f64,
}

impl Ranking {
    pub(super) fn of(problem: &Problem<'_>, rule: Rule, limit_bytes: u64) -> Self {
        let absences = &problem.absences;
        let pressure = Pressure::of(&problem.live, &problem.clock, limit_bytes, &problem.live.over(limit_bytes));
        let idle = |of: &Absence| (problem.clock.at(of.next_use) - problem.clock.at(of.ready)) as f64;
        let doa = |of: &Absence| idle(of) - of.out_ns as f64 - of.back_ns as f64;
        let aoa = |of: &Absence| if doa(of) < 0.0 { doa(of) / of.bytes as f64 } else { doa(of) * of.bytes as f64 };
        let wdoa = |of: &Absence| pressure.over(of);
        let all = |score: &dyn Fn(&Absence) -> f64| absences.iter().map(score).collect::<Vec<_>>();
        let (fixed, weight_of_rest) = match rule {
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
        Self { fixed, weight_of_rest }
    }

    /// Takes absences one by one, always one that lies over the fullest slot, until nothing is above the limit or nothing more can leave there. Load is what there is with
    /// those away that were chosen before; those chosen now leave it. True if any was.
    pub(super) fn choose(
        &self,
        problem: &Problem<'_>,
        limit_bytes: u64,
        load: &mut Load,
        chosen: &mut Vec<usize>,
    ) -> bool {
        let before = chosen.len();
        let mut taken = vec![false; problem.absences.len()];
        for &at in chosen.iter() {
            take(&mut taken, at);
        }
        // What leaves makes no slot fuller: what is not over the limit now is not looked at again.
        let mut over = load.over(limit_bytes);
        while let Some(slot) = load.fullest(&over) {
            let open: Vec<_> = problem
                .absences
                .iter()
                .enumerate()
                .zip(&taken)
                .filter(|((_, absence), taken)| !**taken && load.straddles(absence, slot))
                .map(|(entry, _)| entry)
                .collect();
            let Some((at, absence)) = self.best(problem, limit_bytes, load, &over, &open) else { break };
            load.leave(Load::away_all_along(absence), absence.bytes);
            over.retain(|slot| load.holds(*slot) > limit_bytes);
            take(&mut taken, at);
            chosen.push(at);
        }
        chosen.len() > before
    }

    fn best<'a>(
        &self,
        problem: &Problem<'_>,
        limit_bytes: u64,
        load: &Load,
        over: &[usize],
        open: &[(usize, &'a Absence)],
    ) -> Option<(usize, &'a Absence)> {
        let rest = if self.weight_of_rest == 0.0 {
            vec![0.0; open.len()]
        } else {
            let pressure = Pressure::of(load, &problem.clock, limit_bytes, over);
            scaled(open.iter().map(|(_, absence)| pressure.over(absence)).collect())
        };
        let mut best: Option<(f64, (usize, &Absence))> = None;
        for (&entry, rest) in open.iter().zip(rest) {
            let worth = self.fixed.get(entry.0).copied().unwrap_or(0.0) + self.weight_of_rest * rest;
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, entry));
            }
        }
        best.map(|(_, entry)| entry)
    }
}

fn take(taken: &mut [bool], at: usize) {
    if let Some(taken) = taken.get_mut(at) {
        *taken = true;
    }
}

/// How far the load is above the limit, summed up over time: byte nanoseconds up to and with each kernel over which there are any.
struct Pressure {
    sums: Vec<(usize, f64)>,
    kernels: usize,
}

impl Pressure {
    /// With the slots over the limit, in order.
    fn of(load: &Load, clock: &Clock, limit_bytes: u64, over: &[usize]) -> Self {
        let mut sum = 0.0;
        let sums = over.iter().filter_map(|&slot| {
            let kernel = Load::running(slot)?;
            sum += (load.holds(slot) - limit_bytes) as f64 * clock.duration_ns(kernel) as f64;
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

/// To between 0 and 1; all 0 where all are the same.
fn scaled(mut scores: Vec<f64>) -> Vec<f64> {
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = if most > least { most - least } else { 1.0 };
    for score in &mut scores {
        *score = (*score - least) / range;
    }
    scores
}

/// The place of each when the most comes first; equals have the same.
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
