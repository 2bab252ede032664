//! Where an iteration runs.

use planner::{machine::Store, pump::Pump};

use crate::{
    machine::{Flash, Link, Machine},
    units::BLOCK_BYTES,
};

/// The least memory on the GPU: what a batch of faults can take, and what may be on its way.
pub const LEAST_GPU_BYTES: u64 = 64 << 20;

/// What becomes of memory whose tensor is dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freed {
    /// Its addresses go to a cache as frameworks have one, contents and all: the driver does not know that nobody needs them, and moves them.
    #[default]
    Cached,
    /// It is given back to the driver: gone at once, and its addresses begin empty.
    Released,
}

/// Where an iteration runs.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The GPU's memory that the program may have, in place of the machine's.
    pub gpu_bytes: u64,
    /// The host's.
    pub host_bytes: u64,
    /// What becomes of dead tensors' memory.
    pub freed: Freed,
    /// How many iterations are run; the last one is reported. The first pays for what the CPU has written and nobody touched.
    pub iterations: u32,
    /// How far the threads that run at once lie apart in the largest tensor of a kernel: how much is touched, and faulted on, at once.
    pub bytes_per_thread: u64,
    /// How long before it could begin a kernel is launched, if nothing holds anything up: what a policy knows that learns of kernels by their launches. Those
    /// that know the iteration do not need it.
    pub launch_lead_ns: u64,
}

impl<'a> Setup<'a> {
    /// All of a machine's memory; two iterations; neighbouring threads touch neighbouring words.
    #[must_use]
    pub fn new(machine: &'a Machine) -> Self {
        let (gpu_bytes, host_bytes) = (machine.memory.gpu_bytes.value, machine.memory.host_bytes.value);
        Self {
            machine,
            gpu_bytes,
            host_bytes,
            freed: Freed::default(),
            iterations: 2,
            bytes_per_thread: 4,
            launch_lead_ns: Pump::default().lead_ns,
        }
    }

    /// All planners, those that learn of kernels by their launches with the lead that these have here.
    #[must_use]
    pub fn planners(&self) -> Vec<Box<dyn planner::Planner>> {
        let mut planners = planner::all();
        planners.retain(|planner| planner.name() != planner::pump::NAME);
        planners.push(Box::new(Pump { lead_ns: self.launch_lead_ns, ..Pump::default() }));
        planners
    }

    /// What a planner is told of it: rates of whole blocks, what a request costs, flash without end, and less memory on the GPU than there is, for what planners do not
    /// count: tensors take whole blocks, blocks on their way take room at both ends, and memory of the dead lies around until somebody needs its place.
    #[must_use]
    pub fn for_planners(&self) -> planner::Machine {
        self.for_planners_within(self.gpu_bytes.saturating_sub((self.gpu_bytes / 64).max(LEAST_GPU_BYTES)))
    }

    /// The same with so much memory on the GPU.
    #[must_use]
    pub fn for_planners_within(&self, gpu_bytes: u64) -> planner::Machine {
        let machine = self.machine;
        let block_ns = |link: &Link| (link.transfer_ns(BLOCK_BYTES) as f64).max(machine.requests.block_ns.value);
        let link = |link: &Link| planner::Link {
            latency_ns: machine.requests.call_ns.value,
            bytes_per_second: BLOCK_BYTES as f64 * 1e9 / block_ns(link),
        };
        // Each block is a transfer of its own.
        let flash = |flash: &Flash| planner::Link {
            latency_ns: machine.requests.call_ns.value,
            bytes_per_second: BLOCK_BYTES as f64 * 1e9 / flash.transfer_ns(BLOCK_BYTES) as f64,
        };
        planner::Machine {
            gpu_bytes,
            host: Store { bytes: self.host_bytes, out: link(&machine.link_to_host), back: link(&machine.link_to_gpu) },
            flash: Some(Store { bytes: u64::MAX, out: flash(&machine.flash_write), back: flash(&machine.flash_read) }),
        }
    }
}
