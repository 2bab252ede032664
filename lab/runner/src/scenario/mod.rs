//! A scenario: processes with managed memory, and what each does to it, as data. docs/scenarios.md is the language's reference.
//!
//! * [`parse`]: TOML to a [`Scenario`]; whatever comes out can be run (`raw`: the file's own shape)
//! * [`size`]: numbers of bytes
//! * [`order`]: in which order an access step visits its words

pub(crate) mod order;
pub(crate) mod parse;
mod raw;
pub(crate) mod size;

use serde::{Deserialize, Serialize};

pub(crate) use order::Order;
pub(crate) use parse::load;

/// Every access is to one word: the unit of offsets, lengths and strides, in bytes.
pub(crate) const WORD_BYTES: u64 = 8;

/// What one lab run does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Memory of the GPU the scenario is meant for, in MiB.
    pub(crate) gpu_mem_mib: u64,
    pub(crate) processes: Vec<Process>,
}

/// One process: its memory, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) allocations: Vec<Allocation>,
    pub(crate) steps: Vec<Step>,
}

/// One managed allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Allocation {
    pub(crate) name: String,
    /// A multiple of [`WORD_BYTES`].
    pub(crate) bytes: u64,
}

/// One thing a process does. Allocations are indices into [`Process::allocations`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// Read or write words by the CPU or the GPU.
    Access(Access),
    /// Read every byte by the CPU and compare.
    Verify { allocation: usize },
    /// Do the steps so many times.
    Repeat { times: u32, steps: Vec<Step> },
    /// Do nothing for a while.
    Sleep { milliseconds: u64 },
    /// End the process.
    Exit { code: u8 },
}

/// One pass over part of an allocation: the words at `offset`, `offset + stride`, ... below `offset + length`, each once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Access {
    pub(crate) by: Processor,
    pub(crate) kind: Kind,
    pub(crate) allocation: usize,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) stride_bytes: u64,
    pub(crate) order: Order,
}

/// Who accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Processor {
    Cpu,
    /// With how many accesses at most waiting on a fault at a time.
    Gpu {
        window: u32,
    },
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Read,
    Write,
}

// === impl Scenario ===

impl Scenario {
    /// Bytes of managed memory of all processes.
    pub(crate) fn managed_bytes(&self) -> u64 {
        self.processes.iter().flat_map(|process| &process.allocations).map(|allocation| allocation.bytes).sum()
    }
}

// === impl Access ===

impl Access {
    /// How many words it visits; at least one.
    pub(crate) const fn count(&self) -> u64 {
        self.length_bytes.div_ceil(self.stride_bytes)
    }

    /// The words it visits, as indices into the allocation, in its order.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let (offset_bytes, stride_bytes) = (self.offset_bytes, self.stride_bytes);
        self.order.indices(self.count()).map(move |at| (offset_bytes + at * stride_bytes) / WORD_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_visits_each_word_of_its_part_once() {
        let mut access = Access {
            by: Processor::Cpu,
            kind: Kind::Read,
            allocation: 0,
            offset_bytes: 64,
            length_bytes: 40,
            stride_bytes: 16,
            order: Order::Sequential,
        };
        assert_eq!(access.words().collect::<Vec<_>>(), [8, 10, 12]);
        access.order = Order::Random { seed: 3 };
        let mut words: Vec<_> = access.words().collect();
        words.sort_unstable();
        assert_eq!(words, [8, 10, 12]);
        access.stride_bytes = 4096;
        assert_eq!(access.words().collect::<Vec<_>>(), [8], "a stride beyond the part leaves its first word");
    }
}
