//! Who leaves, where to, and when it is back.

use std::{cmp::Reverse, collections::BinaryHeap};

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Parameters, Ranking, kernel_at};
use crate::planner::{Machine, Tier, ring::Ring, upkeep, way::Way};

/// A tensor while no kernel uses it: from position `from` up to the use at `to`, less than an iteration later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    pub(super) tensor: TensorId,
    pub(super) bytes: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    length_ns: u64,
}

/// A tensor that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away {
    pub(super) idle: Idle,
    pub(super) tier: Tier,
    /// It begins to leave.
    pub(super) leave: usize,
    /// From here on its memory is free ...
    pub(super) gone: usize,
    /// ... up to here, where it begins to come back.
    pub(super) back: usize,
}

/// What is chosen by: what it brings; of equals the largest and longest; of equals the first.
type Rank = (u128, u128, Reverse<usize>);

/// A choice as far as it was made.
pub(super) struct Choice<'a> {
    iteration: &'a Iteration,
    machine: &'a Machine,
    parameters: &'a Parameters,
    idle: Vec<Idle>,
    out: Way,
    back: Way,
    line_bytes: u64,
    load: Table<KernelId, u64>,
    /// Kernels with a load above the line: how long they run.
    short_ns: Ring,
    on_host: Table<KernelId, u64>,
}

impl<'a> Choice<'a> {
    pub(super) fn new(
        iteration: &'a Iteration,
        machine: &'a Machine,
        parameters: &'a Parameters,
        footprints: &Table<TensorId, u64>,
    ) -> Self {
        let line_bytes = parameters.line_bytes(machine);
        let load = upkeep::load_bytes(iteration, footprints);
        let above = load.values().iter().map(|&load| load > line_bytes);
        let durations = iteration.kernels().values().iter().map(|kernel| kernel.duration_ns);
        let short = above.zip(durations).map(|(above, duration_ns)| if above { duration_ns } else { 0 });
        let flash = machine.flash.as_ref();
        Self {
            iteration,
            machine,
            parameters,
            idle: idle(iteration, footprints, parameters.least_bytes),
            out: Way::of(iteration, &machine.host.out, flash.map(|flash| &flash.out)),
            back: Way::of(iteration, &machine.host.back, flash.map(|flash| &flash.back)),
            line_bytes,
            short_ns: Ring::of(short.collect()),
            on_host: Table::of(0, load.len()),
            load,
        }
    }

    /// Takes whoever is best, again and again, until memory is short nowhere or nobody is left; and the load that stays.
    pub(super) fn all(mut self) -> (Vec<Away>, Table<KernelId, u64>) {
        let idle = std::mem::take(&mut self.idle);
        let mut heap: BinaryHeap<Rank> = idle.iter().enumerate().map(|(at, idle)| self.rank(at, idle)).collect();
        let mut chosen = Vec::new();
        while let Some(best) = heap.pop().filter(|_| self.short_ns.total() > 0) {
            let Some(idle) = idle.get(best.2.0) else { continue };
            // What was taken since may have made it worth less, never more: looked at again, the best is the best.
            let now = self.rank(best.2.0, idle);
            if now.0 == 0 {
                continue;
            }
            if now < best && heap.peek().is_some_and(|next| *next > now) {
                heap.push(now);
                continue;
            }
            if let Some(away) = self.try_away(*idle) {
                chosen.push(self.take(away));
            }
        }
        (chosen, self.load)
    }

    fn rank(&self, at: usize, idle: &Idle) -> Rank {
        (self.worth(idle), u128::from(idle.bytes) * u128::from(idle.length_ns), Reverse(at))
    }

    /// Bytes, times how long memory is short from when half of it can have gone until half of it must come back.
    fn worth(&self, idle: &Idle) -> u128 {
        let &Idle { bytes, from, to, .. } = idle;
        let ends =
            self.out.done_by(Tier::Host, from, to, bytes / 2).zip(self.back.begin_by(Tier::Flash, from, to, bytes / 2));
        let Some((from, to)) = ends.filter(|(from, to)| from < to) else { return 0 };
        let benefit = u128::from(bytes) * u128::from(self.short_ns.between(from, to));
        match self.parameters.ranking {
            Ranking::Benefit => benefit,
            Ranking::BenefitByCost => {
                let store = self.machine.flash.as_ref().unwrap_or(&self.machine.host);
                benefit / u128::from(store.out.transfer_ns(bytes) + store.back.transfer_ns(bytes)).max(1)
            }
        }
    }

    /// Where it can go, be gone while memory is short and be back in time.
    fn try_away(&self, idle: Idle) -> Option<Away> {
        let Idle { bytes, from, to, length_ns, .. } = idle;
        let spare_ns = |transfer_ns: u64| {
            length_ns as f64 > self.parameters.margin * (transfer_ns as f64 + self.parameters.system_ns)
        };
        let host_fits =
            (from..to).all(|at| self.on_host[kernel_at(self.iteration, at)] + bytes <= self.machine.host.bytes);
        let host = Some(Tier::Host).filter(|_| host_fits && spare_ns(self.machine.host.out.transfer_ns(bytes)));
        let flash = self.machine.flash.filter(|flash| spare_ns(flash.out.transfer_ns(bytes))).map(|_| Tier::Flash);
        let full = self.machine.flash.is_none_or(|flash| {
            let done_ns = self.iteration.start_ns(KernelId::new(from)) + flash.out.transfer_ns(bytes);
            let done = (from..to).find(|&at| self.iteration.start_ns(kernel_at(self.iteration, at)) >= done_ns);
            self.out.is_full(Tier::Flash, from, done.unwrap_or(to))
        });
        let order = if full { [host, flash] } else { [flash, host] };
        order.into_iter().flatten().find_map(|tier| {
            let gone = self.out.done_by(tier, from, to, bytes)?;
            let back = self.back.begin_by(tier, from, to, bytes)?;
            (gone < back && self.short_ns.between(gone, back) > 0).then_some(Away {
                idle,
                tier,
                leave: from,
                gone,
                back,
            })
        })
    }

    /// Books its transfers and what they free. It leaves when the links have time for it: not ahead of who was taken before.
    fn take(&mut self, away: Away) -> Away {
        let Away { idle: Idle { bytes, from, to, .. }, tier, gone, back, .. } = away;
        let leave = self.out.book_from(tier, from, bytes);
        self.back.book_to(tier, to, bytes);
        for position in gone..back {
            let kernel = kernel_at(self.iteration, position);
            self.load[kernel] -= bytes;
            if self.load[kernel] <= self.line_bytes {
                self.short_ns.take(position, u64::MAX);
            }
        }
        if tier == Tier::Host {
            (from..to).for_each(|position| self.on_host[kernel_at(self.iteration, position)] += bytes);
        }
        Away { leave, ..away }
    }
}

fn idle(iteration: &Iteration, footprints: &Table<TensorId, u64>, least_bytes: u64) -> Vec<Idle> {
    let large = iteration.tensors().iter().filter(|(_, tensor)| tensor.bytes >= least_bytes);
    let gaps = large.flat_map(|(tensor, _)| {
        iteration.gaps(tensor).into_iter().map(move |gap| {
            let turn = if gap.wraps { iteration.kernels().len() } else { 0 };
            let (from, to) = (gap.first.index(), gap.next_use.index() + turn);
            Idle { tensor, bytes: footprints[tensor], from, to, length_ns: iteration.gap_ns(gap) }
        })
    });
    gaps.filter(|idle| idle.to > idle.from + 1).collect()
}

#[cfg(test)]
mod tests {
    use trace::{
        Tensor,
        draft::{Draft, DraftKernel},
    };

    use super::*;
    use crate::planner::{Link, machine::Store};

    const MIB: u64 = 1 << 20;

    fn store(bytes: u64, bytes_per_second: f64) -> Store {
        let link = Link { latency_ns: 1000.0, bytes_per_second };
        Store { bytes, out: link, back: link }
    }

    fn machine(gpu_bytes: u64) -> Machine {
        Machine { gpu_bytes, host: store(100 * MIB, 16e9), flash: Some(store(u64::MAX, 3e9)) }
    }

    fn made_up(seed: u64) -> Iteration {
        let mut state = seed;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut draft = Draft::default();
        for index in 0..30 {
            let bytes = (1 + next(20)) * MIB;
            draft.tensor(Tensor { name: String::new(), bytes, role: trace::Role::Other, persistent: index < 5 });
        }
        for _ in 0..60 {
            let mut some = |count: u64| (0..count).map(|_| TensorId(u32::try_from(next(30)).unwrap())).collect();
            let (inputs, outputs) = (some(2), some(1));
            draft.kernel(DraftKernel { name: String::new(), duration_ns: next(3_000_000), inputs, outputs });
        }
        draft.check().unwrap()
    }

    #[test]
    fn the_heap_takes_the_same_as_looking_at_all_of_them_each_time() {
        let mut taken = 0;
        for seed in 0..20 {
            let (iteration, machine) = (made_up(seed), machine((60 + seed * 8) * MIB));
            for ranking in [Ranking::Benefit, Ranking::BenefitByCost] {
                let parameters = Parameters { ranking, system_ns: 0.0, ..Parameters::default() };
                let footprints = upkeep::footprints(&iteration);
                let new = || Choice::new(&iteration, &machine, &parameters, &footprints);
                let (mut slow, mut expected) = (new(), Vec::new());
                let mut left: Vec<_> = slow.idle.clone().into_iter().enumerate().collect();
                while slow.short_ns.total() > 0 {
                    left.retain(|(_, idle)| slow.worth(idle) > 0);
                    left.sort_by_key(|(at, idle)| slow.rank(*at, idle));
                    let Some((_, idle)) = left.pop() else { break };
                    expected.extend(slow.try_away(idle).map(|away| slow.take(away)));
                }
                taken += expected.len();
                assert_eq!(new().all(), (expected, slow.load), "seed {seed}");
            }
        }
        assert!(taken > 200, "{taken}");
    }

    #[test]
    fn links_carry_no_more_than_they_can_and_the_host_holds_no_more_than_it_has() {
        for seed in 0..20 {
            let (iteration, machine) = (made_up(seed), machine((60 + seed * 8) * MIB));
            let parameters = Parameters { system_ns: 0.0, ..Parameters::default() };
            let footprints = upkeep::footprints(&iteration);
            let (chosen, load) = Choice::new(&iteration, &machine, &parameters, &footprints).all();
            let kernels = iteration.kernels().len();
            // All that has to leave between two positions fits what the link carries meanwhile; and all that has to come back.
            for (from, to) in (0..kernels).flat_map(|from| (from..from + kernels).map(move |to| (from, to))) {
                let carried: u64 = (from..to)
                    .map(|at| machine.host.out.carried_bytes(iteration.kernels().values()[at % kernels].duration_ns))
                    .sum();
                let within = |begin: usize, end: usize| from <= begin && end <= to;
                let out: u64 = chosen.iter().filter(|of| within(of.idle.from, of.gone)).map(|of| of.idle.bytes).sum();
                let back: u64 = chosen.iter().filter(|of| within(of.back, of.idle.to)).map(|of| of.idle.bytes).sum();
                assert!(out <= carried && back <= carried, "seed {seed}, {from}..{to}: {out} and {back} of {carried}");
            }
            let mut on_host = vec![0; kernels];
            let mut expected = upkeep::load_bytes(&iteration, &footprints);
            for of in &chosen {
                assert!(of.idle.from <= of.leave && of.leave < of.gone && of.gone < of.back && of.back < of.idle.to);
                for at in (of.idle.from..of.idle.to).filter(|_| of.tier == Tier::Host) {
                    on_host[at % kernels] += of.idle.bytes;
                }
                (of.gone..of.back).for_each(|at| expected[kernel_at(&iteration, at)] -= of.idle.bytes);
            }
            assert!(on_host.iter().all(|&bytes| bytes <= machine.host.bytes));
            assert_eq!(load, expected);
        }
    }

    #[test]
    fn what_is_idle_for_long_goes_to_flash_and_to_the_host_when_flash_has_no_time() {
        let mut draft = Draft::default();
        let tensor = |persistent| Tensor { name: String::new(), bytes: 20 * MIB, role: trace::Role::Other, persistent };
        let idle: Vec<_> = (0..4).map(|_| draft.tensor(tensor(true))).collect();
        let busy = draft.tensor(tensor(false));
        let mut kernel = |inputs: Vec<TensorId>, outputs, duration_ns| {
            draft.kernel(DraftKernel { name: String::new(), duration_ns, inputs, outputs })
        };
        // Flash takes 7 ms for one of them, each way; all four have to leave.
        kernel(idle.clone(), vec![], 1_000_000);
        (0..32).for_each(|_| _ = kernel(vec![], vec![busy], 1_000_000));
        let iteration = draft.check().unwrap();
        let parameters = Parameters { system_ns: 0.0, margin: 2.0, ..Parameters::default() };
        let footprints = upkeep::footprints(&iteration);
        let (chosen, _) = Choice::new(&iteration, &machine(24 * MIB), &parameters, &footprints).all();
        let tiers: Vec<_> = chosen.iter().map(|of| of.tier).collect();
        assert_eq!(tiers, [Tier::Flash, Tier::Flash, Tier::Host, Tier::Host]);
    }
}
