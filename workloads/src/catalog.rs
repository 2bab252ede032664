//! The workloads.

use Advice::{AccessedByGpu, PreferredLocation, ReadMostly};
use Phase::{Advise, CpuRead, GpuRead, Increment, Prefetch, Write};
use Processor::{Cpu, Gpu};

use crate::{
    order::Order,
    phase::{Advice, Phase, Processor},
};

/// A workload: phases done once, then phases done in every round; at the end the CPU reads everything.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// What it is called.
    pub name: &'static str,
    /// What it is for, in a line.
    pub about: &'static str,
    setup: &'static [Phase],
    round: &'static [Phase],
}

/// Every workload.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "first-touch",
        about: "the GPU writes memory nobody touched: faults, but nothing to copy",
        setup: &[Write(Gpu)],
        round: &[GpuRead(Order::Sequential)],
    },
    Workload {
        name: "cpu-write-gpu-read",
        about: "the CPU writes, the GPU reads once: every byte is copied once",
        setup: &[],
        round: &[Write(Cpu), GpuRead(Order::Sequential)],
    },
    Workload {
        name: "ping-pong",
        about: "CPU and GPU take turns on every page: every round copies all bytes both ways",
        setup: &[Write(Cpu)],
        round: &[Increment(Gpu), Increment(Cpu)],
    },
    Workload {
        name: "strided",
        about: "the CPU writes, the GPU reads a word in 64 KiB: few accesses, yet everything is copied",
        setup: &[],
        round: &[Write(Cpu), GpuRead(Order::Strided)],
    },
    Workload {
        name: "random",
        about: "the CPU writes, the GPU reads every page once, shuffled",
        setup: &[],
        round: &[Write(Cpu), GpuRead(Order::Random)],
    },
    Workload {
        name: "prefetch",
        about: "the CPU writes, the program prefetches, the GPU reads without a fault",
        setup: &[],
        round: &[Write(Cpu), Prefetch(Gpu), GpuRead(Order::Sequential)],
    },
    Workload {
        name: "prefetch-back",
        about: "prefetched to the GPU, changed there, prefetched back and read",
        setup: &[],
        round: &[Write(Cpu), Prefetch(Gpu), Increment(Gpu), Prefetch(Cpu), CpuRead],
    },
    Workload {
        name: "preferred-host",
        about: "memory that prefers the host: the GPU maps it and copies nothing",
        setup: &[Write(Cpu), Advise(PreferredLocation(Cpu))],
        round: &[GpuRead(Order::Sequential)],
    },
    Workload {
        name: "preferred-gpu",
        about: "memory that prefers the GPU: it comes there, and goes back where the CPU cannot map it",
        setup: &[Write(Cpu), Advise(PreferredLocation(Gpu))],
        round: &[GpuRead(Order::Sequential), CpuRead],
    },
    Workload {
        name: "accessed-by",
        about: "memory mapped for the GPU beforehand: neither faults nor copies",
        setup: &[Write(Cpu), Advise(AccessedByGpu)],
        round: &[GpuRead(Order::Sequential)],
    },
    Workload {
        name: "read-mostly",
        about: "both read, each its own copy; the CPU's writes end that",
        setup: &[Advise(ReadMostly)],
        round: &[Write(Cpu), GpuRead(Order::Sequential), CpuRead, GpuRead(Order::Sequential)],
    },
];

impl Workload {
    /// The workload of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.iter().find(|workload| workload.name == name).copied()
    }

    /// Its phases, with so many rounds.
    #[must_use]
    pub fn phases(self, rounds: u32) -> Vec<Phase> {
        let rounds = (0..rounds).flat_map(|_| self.round.iter().copied());
        let mut phases: Vec<Phase> = self.setup.iter().copied().chain(rounds).collect();
        if phases.last() != Some(&CpuRead) {
            phases.push(CpuRead);
        }
        phases
    }

    /// Whether its size must be a power of two.
    #[must_use]
    pub fn is_shuffled(self) -> bool {
        self.phases(1).contains(&GpuRead(Order::Random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for workload in WORKLOADS {
            assert_eq!(WORKLOADS.iter().filter(|other| other.name == workload.name).count(), 1);
            assert!(Workload::named(workload.name).is_some());
        }
        assert!(Workload::named("fill-the-card").is_none());
    }

    #[test]
    fn rounds_repeat_what_comes_after_the_setup_and_the_cpu_reads_at_the_end() {
        let phases = Workload::named("ping-pong").unwrap().phases(2);
        assert_eq!(phases, [Write(Cpu), Increment(Gpu), Increment(Cpu), Increment(Gpu), Increment(Cpu), CpuRead]);
    }

    #[test]
    fn what_ends_with_the_cpu_reading_is_not_read_twice() {
        let phases = Workload::named("preferred-gpu").unwrap().phases(1);
        assert_eq!(phases.iter().filter(|phase| **phase == CpuRead).count(), 1);
    }
}
