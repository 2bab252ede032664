//! What is true of a run, from code that is not uvmd: docs/truth.md says for each figure which source is taken and why.
//!
//! * [`procfs`]: the driver's statistics of a GPU
//! * [`derive`]: the truth of each scope, from what was counted; [`evictions`], [`population`]: what takes more than a look to know
//! * [`free`]: whether anybody has memory of a GPU
//! * [`kmsg`]: the kernel's log, which must hold no complaint; [`complaints`]: what is one

pub(crate) mod complaints;
pub(crate) mod derive;
mod evictions;
pub(crate) mod facts;
pub(crate) mod free;
pub(crate) mod kmsg;
mod population;
pub(crate) mod procfs;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use self::procfs::{GpuStats, Thrashing};
use crate::sys::{
    Uuid,
    ledger::{self, Ledger},
    swgpu::{Gpu, HardwareCounters},
    uvm::VaSpace,
};

/// Two looks at an idle driver this far apart find the same. Under emulation a batch of faults takes a few milliseconds.
const QUIET: Duration = Duration::from_millis(150);
const QUIET_DEADLINE: Duration = Duration::from_secs(30);

/// Keeps all GPUs in use by the driver, which forgets its statistics when the last user leaves, and reads them.
pub(crate) struct Observer {
    pub(crate) gpus: Vec<Gpu>,
    _holder: VaSpace,
    before: Vec<Counted>,
    cpu_before: Thrashing,
}

/// What was counted on one GPU.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) driver: GpuStats,
    pub(crate) thrashing: Thrashing,
    pub(crate) hardware: HardwareCounters,
    /// Who got whose frame.
    pub(crate) ledger: Ledger,
}

// === impl Observer ===

impl Observer {
    /// Start observing, before anything of the run happens.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let first = Gpu::open(0)?;
        let others: Vec<Gpu> = (1..first.count).map(Gpu::open).collect::<anyhow::Result<_>>()?;
        let gpus: Vec<Gpu> = [first].into_iter().chain(others).collect();
        let holder = VaSpace::new(gpus.iter().map(|gpu| &gpu.uuid))?;
        let before = count(&gpus)?;
        Ok(Self { gpus, _holder: holder, before, cpu_before: Thrashing::of_cpu()? })
    }

    /// What happened on each GPU, once nothing happens any more.
    pub(crate) fn observe(&self) -> anyhow::Result<Vec<Counted>> {
        let since = |(now, before): (Counted, &Counted)| Counted {
            driver: now.driver.since(&before.driver),
            thrashing: now.thrashing.since(&before.thrashing),
            hardware: now.hardware.since(&before.hardware),
            ledger: ledger::since(&now.ledger, &before.ledger),
        };
        Ok(count(&self.gpus)?.into_iter().zip(&self.before).map(since).collect())
    }

    /// What the driver did about thrashing at the CPU.
    pub(crate) fn cpu_thrashing(&self) -> anyhow::Result<Thrashing> {
        Ok(Thrashing::of_cpu()?.since(&self.cpu_before))
    }
}

fn count(gpus: &[Gpu]) -> anyhow::Result<Vec<Counted>> {
    let uuids: Vec<Uuid> = gpus.iter().map(|gpu| gpu.uuid).collect();
    let drivers = quiet(&uuids)?;
    let counted = |(driver, gpu): (GpuStats, &Gpu)| {
        let (thrashing, hardware) = (Thrashing::of_gpu(&gpu.uuid)?, gpu.counters()?);
        Ok(Counted { driver, thrashing, hardware, ledger: gpu.ledger()? })
    };
    drivers.into_iter().zip(gpus).map(counted).collect()
}

/// The driver's statistics once its fault buffers are empty and they have not changed for a while: the last faults of a kernel may have
/// been raised twice, and are counted after the kernel is done.
fn quiet(gpus: &[Uuid]) -> anyhow::Result<Vec<GpuStats>> {
    let look = || gpus.iter().map(procfs::read).collect::<anyhow::Result<Vec<GpuStats>>>();
    let deadline = Instant::now() + QUIET_DEADLINE;
    let mut last = look()?;
    loop {
        thread::sleep(QUIET);
        let now = look()?;
        if now == last && now.iter().all(GpuStats::fault_buffer_is_empty) {
            return Ok(now);
        }
        last = now;
        (Instant::now() < deadline).then_some(()).context("the driver does not come to rest though nothing runs")?;
    }
}
