//! Selection of idle tensors for migration, with tier and times.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BinaryHeap};

use trace::{Iteration, KernelId, Table, TensorId, id::Id};

use super::{Parameters, Ranking, kernel_at};
use crate::{Machine, Tier, channel::Channel, lifetimes, ring::Ring};

/// A tensor while no kernel uses it: from position `from` up to the use at `to`, less than an
/// iteration later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdlePeriod {
    pub(super) tensor: TensorId,
    pub(super) bytes: u64,
    pub(super) from: usize,
    pub(super) to: usize,
    length_ns: u64,
}

/// A selected migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Migration {
    pub(super) idle: IdlePeriod,
    pub(super) tier: Tier,
    /// Position at which it begins to migrate.
    pub(super) begin: usize,
    /// First position at which its memory is free ...
    pub(super) freed: usize,
    /// ... and the position at which its fetch begins.
    pub(super) fetch: usize,
}

/// Sort key: the worth; then the largest and longest; then the first.
type Rank = (u128, u128, Reverse<usize>);

/// State of the selection.
pub(super) struct Choice<'a> {
    iteration: &'a Iteration,
    machine: &'a Machine,
    parameters: &'a Parameters,
    idle: Vec<IdlePeriod>,
    out: Channel,
    back: Channel,
    budget_bytes: u64,
    load: Table<KernelId, u64>,
    /// Durations of kernels whose load exceeds the budget.
    pressure_ns: Ring,
    host_bytes: Table<KernelId, u64>,
}

impl<'a> Choice<'a> {
    pub(super) fn new(
        iteration: &'a Iteration,
        machine: &'a Machine,
        parameters: &'a Parameters,
        footprints: &Table<TensorId, u64>,
    ) -> Self {
        let budget_bytes = parameters.budget_bytes(machine);
        let load = lifetimes::load_bytes(iteration, footprints);
        let excess = load.values().iter().map(|&load| load > budget_bytes);
        let durations = iteration.kernels().values().iter().map(|kernel| kernel.duration_ns);
        let pressure = excess.zip(durations).map(|(excess, duration_ns)| if excess { duration_ns } else { 0 });
        let flash = machine.flash.as_ref();
        Self {
            iteration,
            machine,
            parameters,
            idle: idle_periods(iteration, footprints, parameters.least_bytes),
            out: Channel::of(iteration, &machine.host.out, flash.map(|flash| &flash.out)),
            back: Channel::of(iteration, &machine.host.back, flash.map(|flash| &flash.back)),
            budget_bytes,
            pressure_ns: Ring::of(pressure.collect()),
            host_bytes: Table::of(0, load.len()),
            load,
        }
    }

    /// Selects the best idle period repeatedly, until no kernel exceeds the budget or none is left.
    /// Returns the migrations and the remaining load.
    pub(super) fn run(mut self) -> (Vec<Migration>, Table<KernelId, u64>) {
        let idle = std::mem::take(&mut self.idle);
        let mut heap: BinaryHeap<Rank> = idle.iter().enumerate().map(|(at, idle)| self.rank(at, idle)).collect();
        let mut selected = Vec::new();
        while let Some(best) = heap.pop().filter(|_| self.pressure_ns.total() > 0) {
            let Some(idle) = idle.get(best.2.0) else { continue };
            // Selections since may have lowered its worth, never raised it. An entry that is still
            // the best after an update is the best.
            let now = self.rank(best.2.0, idle);
            if now.0 == 0 {
                continue;
            }
            if now < best && heap.peek().is_some_and(|next| *next > now) {
                heap.push(now);
                continue;
            }
            if let Some(migration) = self.migration(*idle) {
                selected.push(self.commit(migration));
            }
        }
        (selected, self.load)
    }

    fn rank(&self, at: usize, idle: &IdlePeriod) -> Rank {
        (self.worth(idle), u128::from(idle.bytes) * u128::from(idle.length_ns), Reverse(at))
    }

    /// Bytes times the time under pressure, between the position at which half of it can be on the
    /// host and that at which half of it must return. Only the host's link counts: the time of
    /// flash is checked when the tier is selected, and the host may take what flash cannot.
    fn worth(&self, idle: &IdlePeriod) -> u128 {
        let &IdlePeriod { bytes, from, to, .. } = idle;
        let ends = self.out.earliest_end(Tier::Host, from, to, bytes / 2).zip(self.back.latest_begin(
            Tier::Host,
            from,
            to,
            bytes / 2,
        ));
        let Some((from, to)) = ends.filter(|(from, to)| from < to) else { return 0 };
        let benefit = u128::from(bytes) * u128::from(self.pressure_ns.sum(from, to));
        match self.parameters.ranking {
            Ranking::Benefit => benefit,
            Ranking::BenefitByCost => {
                let store = self.machine.flash.as_ref().unwrap_or(&self.machine.host);
                benefit / u128::from(store.out.transfer_ns(bytes) + store.back.transfer_ns(bytes)).max(1)
            }
        }
    }

    /// The migration of a tensor to a tier, if it frees memory under pressure and can return in
    /// time.
    fn migration(&self, idle: IdlePeriod) -> Option<Migration> {
        let IdlePeriod { bytes, from, to, length_ns, .. } = idle;
        let has_margin = |transfer_ns: u64| {
            length_ns as f64 > self.parameters.margin * (transfer_ns as f64 + self.parameters.system_ns)
        };
        let fits_host =
            (from..to).all(|at| self.host_bytes[kernel_at(self.iteration, at)] + bytes <= self.machine.host.bytes);
        let host = Some(Tier::Host).filter(|_| fits_host && has_margin(self.machine.host.out.transfer_ns(bytes)));
        let flash = self.machine.flash.filter(|flash| has_margin(flash.out.transfer_ns(bytes))).map(|_| Tier::Flash);
        let flash_is_full = self.machine.flash.is_none_or(|flash| {
            let done_ns = self.iteration.start_ns(KernelId::new(from)) + flash.out.transfer_ns(bytes);
            let done = (from..to).find(|&at| self.iteration.start_ns(kernel_at(self.iteration, at)) >= done_ns);
            self.out.is_full(Tier::Flash, from, done.unwrap_or(to))
        });
        let order = if flash_is_full { [host, flash] } else { [flash, host] };
        order.into_iter().flatten().find_map(|tier| {
            let freed = self.out.earliest_end(tier, from, to, bytes)?;
            let fetch = self.back.latest_begin(tier, from, to, bytes)?;
            (freed < fetch && self.pressure_ns.sum(freed, fetch) > 0).then_some(Migration {
                idle,
                tier,
                begin: from,
                freed,
                fetch,
            })
        })
    }

    /// Books the migration's transfers and the memory that it frees. The transfer begins when the
    /// link has time, after those selected before.
    fn commit(&mut self, migration: Migration) -> Migration {
        let Migration { idle: IdlePeriod { bytes, from, to, .. }, tier, freed, fetch, .. } = migration;
        let begin = self.out.book_from(tier, from, bytes);
        self.back.book_to(tier, to, bytes);
        for position in freed..fetch {
            let kernel = kernel_at(self.iteration, position);
            self.load[kernel] -= bytes;
            if self.load[kernel] <= self.budget_bytes {
                self.pressure_ns.subtract(position, u64::MAX);
            }
        }
        if tier == Tier::Host {
            (from..to).for_each(|position| self.host_bytes[kernel_at(self.iteration, position)] += bytes);
        }
        Migration { begin, ..migration }
    }
}

fn idle_periods(iteration: &Iteration, footprints: &Table<TensorId, u64>, least_bytes: u64) -> Vec<IdlePeriod> {
    let large = iteration.tensors().iter().filter(|(_, tensor)| tensor.bytes >= least_bytes);
    let gaps = large.flat_map(|(tensor, _)| {
        iteration.gaps(tensor).into_iter().map(move |gap| {
            let turn = if gap.wraps { iteration.kernels().len() } else { 0 };
            let (from, to) = (gap.first.index(), gap.next_use.index() + turn);
            IdlePeriod { tensor, bytes: footprints[tensor], from, to, length_ns: iteration.gap_ns(gap) }
        })
    });
    gaps.filter(|idle| idle.to > idle.from + 1).collect()
}
