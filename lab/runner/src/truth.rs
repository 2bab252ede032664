//! Truth of a run, from sources other than uvmd: docs/truth.md gives the source of each figure and
//! its reason.
//!
//! * [`procfs`]: the driver's statistics of a GPU
//! * [`derive`](mod@derive): truth of each scope, from the counts; [`evictions`], [`population`]:
//!   figures that need several sources
//! * [`free`]: check that all GPU memory is free
//! * [`kmsg`]: the kernel's log, which must have no complaint; [`complaints`]: rules for complaints

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
use gpu::{
    Uuid,
    swgpu::{Gpu, HardwareCounters},
    uvm::VaSpace,
};

use self::procfs::{GpuStats, Thrashing};
use crate::sys::ledger::{self, Ledger};

/// Interval in which an idle driver's statistics must not change. Under emulation a batch of faults
/// takes a few milliseconds.
const IDLE_INTERVAL: Duration = Duration::from_millis(150);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reader of the statistics of all GPUs. It holds the GPUs in use, as the driver clears their
/// statistics when the last user leaves.
pub(crate) struct Observer {
    pub(crate) gpus: Vec<Gpu>,
    _holder: VaSpace,
    before: Vec<Counted>,
    cpu_before: Thrashing,
}

/// Counts of one GPU.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) driver: GpuStats,
    pub(crate) thrashing: Thrashing,
    pub(crate) hardware: HardwareCounters,
    /// Frame ledger.
    pub(crate) ledger: Ledger,
}

// === impl Observer ===

impl Observer {
    /// Starts observing, before any part of the run.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let first = Gpu::open(0)?;
        let others: Vec<Gpu> = (1..first.count).map(Gpu::open).collect::<Result<_, _>>()?;
        let gpus: Vec<Gpu> = [first].into_iter().chain(others).collect();
        let holder = VaSpace::new(gpus.iter().map(|gpu| &gpu.uuid))?;
        let before = count(&gpus)?;
        Ok(Self { gpus, _holder: holder, before, cpu_before: Thrashing::of_cpu()? })
    }

    /// Counts of each GPU since the start, once the driver is idle.
    pub(crate) fn observe(&self) -> anyhow::Result<Vec<Counted>> {
        let since = |(now, before): (Counted, &Counted)| Counted {
            driver: now.driver.since(&before.driver),
            thrashing: now.thrashing.since(&before.thrashing),
            hardware: now.hardware.since(&before.hardware),
            ledger: ledger::since(&now.ledger, &before.ledger),
        };
        Ok(count(&self.gpus)?.into_iter().zip(&self.before).map(since).collect())
    }

    /// Driver's counts of thrashing at the CPU since the start.
    pub(crate) fn cpu_thrashing(&self) -> anyhow::Result<Thrashing> {
        Ok(Thrashing::of_cpu()?.since(&self.cpu_before))
    }
}

fn count(gpus: &[Gpu]) -> anyhow::Result<Vec<Counted>> {
    let uuids: Vec<Uuid> = gpus.iter().map(|gpu| gpu.uuid).collect();
    let drivers = wait_until_idle(&uuids)?;
    let counted = |(driver, gpu): (GpuStats, &Gpu)| {
        let (thrashing, hardware) = (Thrashing::of_gpu(&gpu.uuid)?, gpu.counters()?);
        Ok(Counted { driver, thrashing, hardware, ledger: ledger::read(gpu)? })
    };
    drivers.into_iter().zip(gpus).map(counted).collect()
}

/// Driver's statistics, once its fault buffers are empty and the statistics have not changed for an
/// interval: the last faults of a kernel may have been raised twice, and are counted after the
/// kernel has completed.
fn wait_until_idle(gpus: &[Uuid]) -> anyhow::Result<Vec<GpuStats>> {
    let read = || gpus.iter().map(procfs::read).collect::<anyhow::Result<Vec<GpuStats>>>();
    let deadline = Instant::now() + IDLE_TIMEOUT;
    let mut last = read()?;
    loop {
        thread::sleep(IDLE_INTERVAL);
        let now = read()?;
        if now == last && now.iter().all(GpuStats::fault_buffer_is_empty) {
            return Ok(now);
        }
        last = now;
        (Instant::now() < deadline).then_some(()).context("the driver is not idle though nothing runs")?;
    }
}
