//! Who leaves, where to, and when it is back.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BinaryHeap};

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Parameters, Ranking, kernel_at};
use crate::{Machine, Tier, lifetimes, ring::Ring, way::Way};

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
        let load = lifetimes::load_bytes(iteration, footprints);
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

    /// Bytes, times how long memory is short from when half of it can have gone until half of it must come back, by the link alone: whether flash has the time as
    /// well shows where it would go, and the host may take what flash cannot.
    fn worth(&self, idle: &Idle) -> u128 {
        let &Idle { bytes, from, to, .. } = idle;
        let ends =
            self.out.done_by(Tier::Host, from, to, bytes / 2).zip(self.back.begin_by(Tier::Host, from, to, bytes / 2));
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
