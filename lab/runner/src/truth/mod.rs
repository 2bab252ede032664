//! What is true of a run, from code that is not uvmd: docs/truth.md says for each figure which source is taken and why.
//!
//! * [`procfs`]: the driver's statistics of a GPU
//! * [`kmsg`]: the kernel's log, which must hold no complaint

pub(crate) mod kmsg;
pub(crate) mod procfs;

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use self::procfs::GpuStats;
use crate::sys::{
    Uuid,
    swgpu::{Gpu, HardwareCounters},
    uvm::VaSpace,
};

/// Two looks at an idle driver this far apart find the same. Under emulation a batch of faults takes a few milliseconds.
const QUIET: Duration = Duration::from_millis(150);
const QUIET_DEADLINE: Duration = Duration::from_secs(30);

/// Keeps the GPU in use by the driver, which forgets its statistics when the last user leaves, and reads them.
pub(crate) struct Observer {
    pub(crate) gpu: Gpu,
    _holder: VaSpace,
    before: GpuStats,
    hardware_before: HardwareCounters,
}

/// What happened on the GPU between the observer's start and a quiet moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) driver: GpuStats,
    pub(crate) hardware: HardwareCounters,
}

// === impl Observer ===

impl Observer {
    /// Start observing, before anything of the run happens.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let gpu = Gpu::open()?;
        let holder = VaSpace::new(&gpu.uuid)?;
        let before = quiet(&gpu.uuid)?;
        let hardware_before = gpu.counters()?;
        Ok(Self { gpu, _holder: holder, before, hardware_before })
    }

    /// What happened, once nothing happens any more.
    pub(crate) fn observe(&self) -> anyhow::Result<Observed> {
        let driver = quiet(&self.gpu.uuid)?.since(&self.before);
        let hardware = self.gpu.counters()?.since(&self.hardware_before);
        Ok(Observed { driver, hardware })
    }
}

/// The driver's statistics once its fault buffer is empty and they have not changed for a while: the last faults of a kernel may have been
/// raised twice, and are counted after the kernel is done.
fn quiet(uuid: &Uuid) -> anyhow::Result<GpuStats> {
    let deadline = Instant::now() + QUIET_DEADLINE;
    let mut last = procfs::read(uuid)?;
    loop {
        thread::sleep(QUIET);
        let now = procfs::read(uuid)?;
        if now == last && now.fault_buffer_is_empty() {
            return Ok(now);
        }
        last = now;
        (Instant::now() < deadline).then_some(()).context("the driver does not come to rest though nothing runs")?;
    }
}
