//! Environment of an iteration.

use planner::{machine::Store, pump::Pump};
use trace::Iteration;

use crate::{
    machine::{Flash, Link, Machine},
    units::BLOCK_BYTES,
};

/// Minimum GPU memory: four blocks, of which one may be in transit in each direction.
pub const MIN_GPU_BYTES: u64 = 8 << 20;

/// Least GPU memory that planners do not get, where a quarter of all is as much.
const RESERVED_BYTES: u64 = 64 << 20;

/// Iterations of a recorded program until its residency recurs, or nearly.
const WARM_UP: u32 = 2;
/// Iterations behind these: a multiple of periods up to 4.
const MEASURED: u32 = 12;

/// Handling of a dead tensor's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freed {
    /// The addresses stay in a cache, as in frameworks, with their contents. The driver cannot know
    /// that nobody needs them, and migrates them.
    #[default]
    Cached,
    /// The memory is freed in the driver, and the addresses begin empty.
    Released,
}

/// Environment of an iteration.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// GPU memory of the program, instead of the machine's.
    pub gpu_bytes: u64,
    /// Host memory.
    pub host_bytes: u64,
    /// Handling of dead tensors' memory.
    pub freed: Freed,
    /// Iterations to run. The first also pays for the CPU's writes and first touches.
    pub iterations: u32,
    /// Iterations of these, the last ones, whose mean is reported; at least one is.
    pub measured: u32,
    /// Distance of concurrent threads in the largest tensor of a kernel. It determines the memory
    /// that is accessed, and faulted on, at once.
    pub bytes_per_thread: u64,
    /// What a recorded program does before the iteration, with the driver alone, if its tensors have
    /// locations too. Otherwise all memory is on the host at first.
    pub before: &'a [Iteration],
    /// Lead of a kernel's launch before its earliest start, without stalls. It is known to policies
    /// that learn of kernels by their launches. Policies that know the iteration ignore it.
    pub launch_lead_ns: u64,
}

impl<'a> Setup<'a> {
    /// A set-up with all memory of a machine, two iterations, and adjacent words for adjacent
    /// threads.
    #[must_use]
    pub fn new(machine: &'a Machine) -> Self {
        let (gpu_bytes, host_bytes) = (machine.memory.gpu_bytes.value, machine.memory.host_bytes.value);
        Self {
            machine,
            gpu_bytes,
            host_bytes,
            freed: Freed::default(),
            iterations: 2,
            measured: 1,
            bytes_per_thread: 4,
            before: &[],
            launch_lead_ns: Pump::default().lead_ns,
        }
    }

    /// Set-up for an iteration of a recorded program, and the mean of several in the steady state:
    /// what is evicted may recur in each second or third one.
    #[must_use]
    pub fn after(self, before: &'a [Iteration]) -> Self {
        Self { before, iterations: WARM_UP + MEASURED, measured: MEASURED, ..self }
    }

    /// All planners. Those that learn of kernels by their launches use the lead of this set-up.
    #[must_use]
    pub fn planners(&self) -> Vec<Box<dyn planner::Planner>> {
        let mut planners = planner::all();
        planners.retain(|planner| planner.name() != planner::pump::NAME);
        planners.push(Box::new(Pump { lead_ns: self.launch_lead_ns, ..Pump::default() }));
        planners
    }

    /// Machine as described to planners: rates of whole blocks, the cost of a request, unlimited
    /// flash, and reduced GPU memory. The reduction covers what planners do not count. Tensors take
    /// whole blocks, blocks in transit take room at both ends, and dead memory stays until its
    /// place is needed.
    #[must_use]
    pub fn for_planners(&self) -> planner::Machine {
        let reserved_bytes = (self.gpu_bytes / 64).max(RESERVED_BYTES.min(self.gpu_bytes / 4));
        self.for_planners_within(self.gpu_bytes.saturating_sub(reserved_bytes))
    }

    /// As [`Self::for_planners`], with this GPU memory.
    #[must_use]
    pub fn for_planners_within(&self, gpu_bytes: u64) -> planner::Machine {
        let machine = self.machine;
        let block_ns = |link: &Link| (link.transfer_ns(BLOCK_BYTES) as f64).max(machine.requests.block_ns.value);
        let link = |link: &Link| planner::Link {
            latency_ns: machine.requests.call_ns.value,
            bytes_per_second: BLOCK_BYTES as f64 * 1e9 / block_ns(link),
        };
        // Each block is a separate transfer.
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
