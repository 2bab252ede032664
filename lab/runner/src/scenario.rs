//! A scenario: processes with managed memory, and what each does to it, as data. docs/scenarios.md is the language's reference.
//!
//! * [`parse`]: a file to a [`Scenario`]; whatever comes out can be run. What a step is, each of [`steps`] says itself
//! * [`table`]: the file's tables, taken apart key by key
//! * [`part`], [`place`], [`size`]: a part of an allocation, where pages can be, numbers of bytes
//! * [`order`]: in which order an access step visits its words
//! * [`variation`]: what makes runs of one scenario differ; [`target`]: what a policy must reach on it

mod call;
pub(crate) mod order;
pub(crate) mod parse;
pub(crate) mod part;
pub(crate) mod place;
pub(crate) mod size;
pub(crate) mod steps;
pub(crate) mod table;
pub(crate) mod target;
pub(crate) mod variation;

use std::{collections::BTreeMap, fmt, time::Duration};

pub(crate) use call::Call;
pub(crate) use order::Order;
pub(crate) use parse::{load, load_varied};
pub(crate) use part::Part;
pub(crate) use place::Place;
pub(crate) use target::Target;
pub(crate) use variation::Variation;

use steps::Step;

/// Every access is to one word: the unit of offsets, lengths and strides, in bytes.
pub(crate) const WORD_BYTES: u64 = 8;

/// What one lab run does.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// The memory of each GPU the scenario is meant for, in MiB.
    pub(crate) gpu_mem_mib: u64,
    pub(crate) gpu_count: u32,
    /// Whether the GPUs reach each other's memory directly.
    pub(crate) nvlink: bool,
    /// Module parameters that nvidia-uvm is to be loaded with.
    pub(crate) driver_parameters: BTreeMap<String, u64>,
    pub(crate) processes: Vec<Process>,
    /// What a policy must reach on it.
    pub(crate) targets: Vec<Target>,
    /// How this run of it differs from what is written.
    pub(crate) variation: Variation,
    /// The file itself, for the processes, which read it again.
    pub(crate) text: String,
}

/// One process: its memory, and what it does.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) allocations: Vec<Allocation>,
    /// The machine's GPUs it uses, by number; the first does what names no GPU.
    pub(crate) gpus: Vec<u32>,
    /// How long after the others it starts.
    pub(crate) start_after: Duration,
    /// How long after its start it is killed with -9.
    pub(crate) kill_after: Option<Duration>,
    /// How much host memory its cgroup may have.
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) steps: Vec<Box<dyn Step>>,
    /// How long it waits before the first of them.
    pub(crate) delay: Duration,
}

/// One managed allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) name: String,
    /// A multiple of [`WORD_BYTES`].
    pub(crate) bytes: u64,
}

/// What a step may refer to, and where it stands.
pub(crate) struct Scope<'a> {
    pub(crate) process: &'a str,
    pub(crate) allocations: &'a [Allocation],
    pub(crate) gpus: &'a [u32],
    /// The number of the enclosing step with a dot: step `2.1` is the first of step 2.
    pub(crate) prefix: String,
    pub(crate) depth: usize,
    pub(crate) variation: Variation,
}

// === impl Scenario ===

impl Scenario {
    /// Bytes of managed memory of all processes.
    pub(crate) fn managed_bytes(&self) -> u64 {
        self.processes.iter().flat_map(|process| &process.allocations).map(|allocation| allocation.bytes).sum()
    }
}

// === impl Process ===

/// Where managed memory starts, in every process: far from everything else in it, so that runs can be compared address by address.
const MANAGED_BASE: u64 = 0x200_0000_0000;
/// The driver manages memory in blocks of this size; no two allocations share one.
const BLOCK_BYTES: u64 = 2 << 20;

impl Process {
    /// Where each of its allocations begins.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        self.allocations.iter().scan(MANAGED_BASE, |next, allocation| {
            let address = *next;
            *next += allocation.bytes.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
            Some(address)
        })
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("steps", &self.steps).finish_non_exhaustive()
    }
}

// === impl Scope ===

impl Scope<'_> {
    pub(crate) fn allocation(&self, name: &str) -> Result<(usize, &Allocation), String> {
        let found = self.allocations.iter().enumerate().find(|(_, allocation)| allocation.name == name);
        found.ok_or_else(|| format!("no allocation is named {name:?}"))
    }

    /// A GPU of the process: the one that the step names, else its first.
    pub(crate) fn gpu(&self, number: Option<u32>) -> Result<u32, String> {
        match number {
            None => self.gpus.first().copied().ok_or_else(|| "the process has no GPU".to_owned()),
            Some(number) => self.place(Place::Gpu(number)).map(|_| number),
        }
    }

    /// A place that the process can use.
    pub(crate) fn place(&self, place: Place) -> Result<Place, String> {
        match place {
            Place::Gpu(number) if !self.gpus.contains(&number) => {
                Err(format!("{place} is not the process's; it has gpus = {:?}", self.gpus))
            }
            place => Ok(place),
        }
    }

    /// The scope of the steps inside the step of that number.
    pub(crate) fn inside(&self, number: &str) -> Self {
        let &Self { process, allocations, gpus, variation, .. } = self;
        Self { process, allocations, gpus, prefix: format!("{number}."), depth: self.depth + 1, variation }
    }
}
