//! Whether anybody has memory of a GPU.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;

use crate::{scenario::size::human, sys::swgpu::Gpu};

/// The driver gives everything back soon after its last user is gone.
const RELEASE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// All of the machine's.
pub(crate) fn gpus() -> anyhow::Result<Vec<Gpu>> {
    let first = Gpu::open(0)?;
    (0..first.count).map(Gpu::open).collect()
}

/// Nobody has, once the driver has given back what it held for those that are gone. Whoever keeps a GPU in use has some.
pub(crate) fn all_is_free(gpus: &[Gpu]) -> anyhow::Result<()> {
    let deadline = Instant::now() + RELEASE;
    for gpu in gpus {
        while gpu.counters()?.free_bytes < gpu.memory_bytes {
            if Instant::now() > deadline {
                let (free, of) = (human(gpu.counters()?.free_bytes), human(gpu.memory_bytes));
                bail!("{free} of {of} of a GPU are free though nothing runs");
            }
            thread::sleep(POLL);
        }
    }
    Ok(())
}
