//! Check that all GPU memory is free.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;
use gpu::swgpu::Gpu;

use crate::scenario::size::human;

/// Time limit for the driver to free memory after its last user has exited.
const RELEASE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// All GPUs of the machine.
pub(crate) fn gpus() -> anyhow::Result<Vec<Gpu>> {
    let first = Gpu::open(0)?;
    Ok((0..first.count).map(Gpu::open).collect::<Result<_, _>>()?)
}

/// Waits until the driver has freed all memory of exited processes. A process that holds a GPU in
/// use has some.
pub(crate) fn all_is_free(gpus: &[Gpu]) -> anyhow::Result<()> {
    let deadline = Instant::now() + RELEASE;
    for gpu in gpus {
        while gpu.counters()?.free_bytes < gpu.memory_bytes {
            if Instant::now() > deadline {
                let (free, of) = (human(gpu.counters()?.free_bytes), human(gpu.memory_bytes));
                bail!("{free} of {of} of a GPU are free though nothing runs");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}
