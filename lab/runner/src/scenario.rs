//! Scenarios: processes with managed memory and their steps, as data. docs/scenarios.md is the
//! language's reference.
//!
//! * [`parse`]: parser of scenario files; a parsed [`Scenario`] is valid. Each module of [`steps`]
//!   parses its steps
//! * [`table`]: TOML tables, whose keys are consumed one by one
//! * [`part`], [`place`], [`size`]: parts of allocations, locations of pages, byte counts
//! * [`order`]: order in which an access step visits its words
//! * [`variation`]: differences between runs of one scenario; [`target`]: bounds that a policy must
//!   reach

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

/// Bytes of a word: the size of an access, and the unit of offsets, lengths and strides.
pub(crate) const WORD_BYTES: u64 = 8;

/// A scenario: the input of one lab run.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// Memory of each GPU, in MiB.
    pub(crate) gpu_mem_mib: u64,
    pub(crate) gpu_count: u32,
    /// Whether the GPUs access each other's memory directly.
    pub(crate) nvlink: bool,
    /// Module parameters of nvidia-uvm.
    pub(crate) driver_parameters: BTreeMap<String, u64>,
    pub(crate) processes: Vec<Process>,
    /// Bounds that a policy must reach.
    pub(crate) targets: Vec<Target>,
    /// Variation of this run.
    pub(crate) variation: Variation,
    /// Text of the file, which each worker process parses again.
    pub(crate) text: String,
}

/// A process: its memory and its steps.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) allocations: Vec<Allocation>,
    /// Numbers of the machine's GPUs that the process uses. Steps that name no GPU use the first.
    pub(crate) gpus: Vec<u32>,
    /// Delay of its start after the others.
    pub(crate) start_after: Duration,
    /// Time after its start at which it is killed (-9).
    pub(crate) kill_after: Option<Duration>,
    /// Limit of host memory of its cgroup.
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) steps: Vec<Box<dyn Step>>,
    /// Delay before the first step.
    pub(crate) delay: Duration,
}

/// A managed allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) name: String,
    /// Size, a multiple of [`WORD_BYTES`].
    pub(crate) bytes: u64,
}

/// Context of a step's parser: the names that the step may use, and its position.
pub(crate) struct Scope<'a> {
    pub(crate) process: &'a str,
    pub(crate) allocations: &'a [Allocation],
    pub(crate) gpus: &'a [u32],
    /// Number of the enclosing step with a dot: step `2.1` is the first of step 2.
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

/// Address of the first allocation in every process. The address is far from all other mappings, so
/// that runs can be compared address by address.
const MANAGED_BASE: u64 = 0x200_0000_0000;
/// Size of the driver's VA blocks; no two allocations share one.
const BLOCK_BYTES: u64 = 2 << 20;

impl Process {
    /// Start address of each allocation.
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

    /// GPU of the process: the one that the step names, or the first.
    pub(crate) fn gpu(&self, number: Option<u32>) -> Result<u32, String> {
        match number {
            None => self.gpus.first().copied().ok_or_else(|| "the process has no GPU".to_owned()),
            Some(number) => self.place(Place::Gpu(number)).map(|_| number),
        }
    }

    /// Check that the process can use a place.
    pub(crate) fn place(&self, place: Place) -> Result<Place, String> {
        match place {
            Place::Gpu(number) if !self.gpus.contains(&number) => {
                Err(format!("{place} is not the process's; it has gpus = {:?}", self.gpus))
            }
            place => Ok(place),
        }
    }

    /// Scope of the steps nested in the step of this number.
    pub(crate) fn nested(&self, number: &str) -> Self {
        let &Self { process, allocations, gpus, variation, .. } = self;
        Self { process, allocations, gpus, prefix: format!("{number}."), depth: self.depth + 1, variation }
    }
}
