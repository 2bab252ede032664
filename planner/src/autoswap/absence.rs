//! Absences: idle times of tensors in which a migration fits, on a circular clock.
//!
//! A position counts kernels from the beginning of an iteration; positions from the number of
//! kernels on belong to the next iteration. An absence lies between a position in the iteration,
//! [`Absence::ready`], and the next use, less than an iteration later.

use trace::{Access, Iteration, TensorId, Use, id::Id};

use super::Parameters;
use crate::Machine;

/// A tensor between two uses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absence {
    pub(crate) tensor: TensorId,
    pub(crate) bytes: u64,
    /// The first position at which it may begin to migrate to the host.
    pub(crate) ready: usize,
    /// The position at which it must be back on the GPU.
    pub(crate) next_use: usize,
    pub(crate) out_ns: u64,
    pub(crate) back_ns: u64,
}

impl Absence {
    /// All absences of tensors of sufficient size, by tensor and then by time.
    pub(super) fn all(iteration: &Iteration, machine: &Machine, parameters: &Parameters) -> Vec<Self> {
        let kernels = iteration.kernels().len();
        let large = iteration.tensors().iter().filter(|(_, tensor)| tensor.bytes >= parameters.least_bytes);
        let mut all = Vec::new();
        for (id, tensor) in large {
            let uses = iteration.uses(id);
            let around = uses.first().filter(|_| tensor.persistent).map(|first| first.kernel.index() + kernels);
            let nexts = uses.iter().skip(1).map(|next| next.kernel.index()).chain(around);
            for (last, next_use) in uses.iter().zip(nexts) {
                let ready = last.kernel.index() + parameters.settle.kernels(*last);
                if ready < next_use {
                    let turn = if ready < kernels { 0 } else { kernels };
                    all.push(Self {
                        tensor: id,
                        bytes: tensor.bytes,
                        ready: ready - turn,
                        next_use: next_use - turn,
                        out_ns: machine.host.out.transfer_ns(tensor.bytes),
                        back_ns: machine.host.back.transfer_ns(tensor.bytes),
                    });
                }
            }
        }
        all
    }
}

/// Kernels from a tensor's use to its earliest migration: 1 where a single kernel is the whole use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// After a kernel that only read the tensor. At least 1.
    pub after_read: usize,
    /// After a kernel that wrote the tensor. At least 1.
    pub after_write: usize,
}

impl Settle {
    /// For kernels that represent all of their uses.
    pub const AT_ONCE: Self = Self { after_read: 1, after_write: 1 };
    /// For streams that report each use by itself, before its work is issued: the authors' numbers.
    pub const OF_STREAMS: Self = Self { after_read: 4, after_write: 6 };

    fn kernels(self, last: Use) -> usize {
        match last.access {
            Access::Read => self.after_read.max(1),
            Access::Write | Access::ReadWrite => self.after_write.max(1),
        }
    }
}

/// Begin of kernels without any wait, iteration after iteration.
#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "their unit")]
pub(super) struct Clock {
    starts_ns: Vec<u64>,
    period_ns: i128,
    durations_ns: Vec<u64>,
}

impl Clock {
    pub(super) fn of(iteration: &Iteration) -> Self {
        let starts_ns = iteration.kernels().ids().map(|kernel| iteration.start_ns(kernel)).collect();
        // An iteration of no duration has a period of 1 ns, which can hide no transfer.
        Self::new(starts_ns, i128::from(iteration.duration_ns().max(1)))
    }

    fn new(starts_ns: Vec<u64>, period_ns: i128) -> Self {
        let mut clock = Self { starts_ns, period_ns, durations_ns: Vec::new() };
        let durations_ns = (0..clock.kernels()).map(|kernel| clock.at(kernel + 1) - clock.at(kernel));
        clock.durations_ns = durations_ns.map(|ns| u64::try_from(ns).unwrap_or(0)).collect();
        clock
    }

    /// Time from a kernel's begin to that of the next.
    pub(super) fn duration_ns(&self, kernel: usize) -> u64 {
        self.durations_ns.get(kernel).copied().unwrap_or(0)
    }

    pub(super) fn kernels(&self) -> usize {
        self.starts_ns.len()
    }

    pub(super) fn period_ns(&self) -> i128 {
        self.period_ns
    }

    pub(super) fn at(&self, position: usize) -> i128 {
        let start = self.starts_ns.get(position % self.kernels()).copied().unwrap_or(0);
        i128::from(start) + self.period_ns * (position / self.kernels()) as i128
    }

    /// The first position that begins at a time or later.
    pub(super) fn first_from(&self, ns: i128) -> i128 {
        let within = ns.rem_euclid(self.period_ns);
        let place = self.starts_ns.partition_point(|&start| i128::from(start) < within);
        self.position(ns, place)
    }

    /// The last position that begins at a time or earlier.
    pub(super) fn last_until(&self, ns: i128) -> i128 {
        let within = ns.rem_euclid(self.period_ns);
        let place = self.starts_ns.partition_point(|&start| i128::from(start) <= within);
        self.position(ns, place) - 1
    }

    fn position(&self, ns: i128, place: usize) -> i128 {
        ns.div_euclid(self.period_ns) * self.kernels() as i128 + place as i128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_around() {
        let clock = Clock::new(vec![0, 10, 10, 30], 40);
        assert_eq!([0, 1, 2, 3].map(|kernel| clock.duration_ns(kernel)), [10, 0, 20, 10]);
        assert_eq!((clock.at(1), clock.at(7)), (10, 70));
        assert_eq!((clock.first_from(10), clock.first_from(11), clock.first_from(31)), (1, 3, 4));
        assert_eq!((clock.last_until(10), clock.last_until(39), clock.last_until(-1)), (2, 3, -1));
    }
}
