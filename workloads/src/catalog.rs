//! Catalogue of workloads.

use Advice::{AccessedByGpu, PreferredLocation, ReadMostly};
use Phase::{Advise, CpuRead, GpuRead, Increment, Prefetch, Write};
use Processor::{Cpu, Gpu};

use crate::{
    order::Order,
    phase::{Advice, Phase, Processor},
};

/// Workload: set-up phases, then the phases of each round. At the end the CPU reads all memory.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Name.
    pub name: &'static str,
    /// Description, in a line.
    pub description: &'static str,
    setup: &'static [Phase],
    round: &'static [Phase],
}

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "first-touch",
        description: "the GPU writes untouched memory: faults without copies",
        setup: &[Write(Gpu)],
        round: &[GpuRead(Order::Sequential)],
    },
    Workload {
        name: "cpu-write-gpu-read",
        description: "the CPU writes, the GPU reads once: every byte is copied once",
        setup: &[],
        round: &[Write(Cpu), GpuRead(Order::Sequential)],
    },
    Workload {
        name: "ping-pong",
        description: "CPU and GPU alternate on every page: every round copies all bytes both ways",
        setup: &[Write(Cpu)],
        round: &[Increment(Gpu), Increment(Cpu)],
    },
    Workload {
        name: "strided",
        description: "the CPU writes, the GPU reads a word in 64 KiB: few accesses, but all bytes are copied",
        setup: &[],
        round: &[Write(Cpu), GpuRead(Order::Strided)],
    },
    Workload {
        name: "random",
        description: "the CPU writes, the GPU reads every page once, shuffled",
        setup: &[],
        round: &[Write(Cpu), GpuRead(Order::Random)],
    },
    Workload {
        name: "prefetch",
        description: "the CPU writes, the program prefetches, the GPU reads without a fault",
        setup: &[],
        round: &[Write(Cpu), Prefetch(Gpu), GpuRead(Order::Sequential)],
    },
    Workload {
        name: "prefetch-back",
        description: "prefetched to the GPU, changed there, prefetched back and read",
        setup: &[],
        round: &[Write(Cpu), Prefetch(Gpu), Increment(Gpu), Prefetch(Cpu), CpuRead],
    },
    Workload {
        name: "preferred-host",
        description: "preferred location host: the GPU maps the memory, and nothing is copied",
        setup: &[Write(Cpu), Advise(PreferredLocation(Cpu))],
        round: &[GpuRead(Order::Sequential)],
    },
    Workload {
        name: "preferred-gpu",
        description: "preferred location GPU: memory migrates there, and back if the CPU cannot map it",
        setup: &[Write(Cpu), Advise(PreferredLocation(Gpu))],
        round: &[GpuRead(Order::Sequential), CpuRead],
    },
    Workload {
        name: "accessed-by",
        description: "accessed-by GPU: the memory is mapped in advance, without faults or copies",
        setup: &[Write(Cpu), Advise(AccessedByGpu)],
        round: &[GpuRead(Order::Sequential)],
    },
    Workload {
        name: "read-mostly",
        description: "read duplication: CPU and GPU read their own copies until the CPU writes",
        setup: &[Advise(ReadMostly)],
        round: &[Write(Cpu), GpuRead(Order::Sequential), CpuRead, GpuRead(Order::Sequential)],
    },
];

impl Workload {
    /// Workload of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        WORKLOADS.iter().find(|workload| workload.name == name).copied()
    }

    /// Phases of the workload with this number of rounds.
    #[must_use]
    pub fn phases(self, rounds: u32) -> Vec<Phase> {
        let rounds = (0..rounds).flat_map(|_| self.round.iter().copied());
        let mut phases: Vec<Phase> = self.setup.iter().copied().chain(rounds).collect();
        if phases.last() != Some(&CpuRead) {
            phases.push(CpuRead);
        }
        phases
    }

    /// Whether the size must be a power of two.
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
    fn rounds_repeat_the_phases_after_the_setup_and_the_cpu_reads_at_the_end() {
        let phases = Workload::named("ping-pong").unwrap().phases(2);
        assert_eq!(phases, [Write(Cpu), Increment(Gpu), Increment(Cpu), Increment(Gpu), Increment(Cpu), CpuRead]);
    }

    #[test]
    fn a_final_cpu_read_is_not_repeated() {
        let phases = Workload::named("preferred-gpu").unwrap().phases(1);
        assert_eq!(phases.iter().filter(|phase| **phase == CpuRead).count(), 1);
    }
}
