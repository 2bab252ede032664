//! Every GPU that a snapshot knows of, with its sums.

use std::collections::BTreeMap;

use model::{Counters, Gpu, Snapshot};

/// One GPU of a snapshot.
pub(crate) struct GpuTotal<'a> {
    pub(crate) id: u32,
    /// `None` for a GPU that events name and the driver has not shown.
    pub(crate) gpu: Option<&'a Gpu>,
    pub(crate) total: &'a Counters,
}

impl GpuTotal<'_> {
    pub(crate) fn uuid(&self) -> Option<String> {
        self.gpu.and_then(uuid)
    }
}

/// All of them, in the order of their ids, whether or not anything was counted there yet.
pub(crate) fn totals(snapshot: &Snapshot) -> impl Iterator<Item = GpuTotal<'_>> {
    let mut totals: BTreeMap<u32, &Counters> = snapshot.gpus.keys().map(|id| (*id, &Counters::ZERO)).collect();
    totals.extend(snapshot.gpu_totals.iter().map(|(id, total)| (*id, total)));
    totals.into_iter().map(|(id, total)| GpuTotal { id, gpu: snapshot.gpus.get(&id), total })
}

/// A GPU's UUID as text.
pub(crate) fn uuid(gpu: &Gpu) -> Option<String> {
    gpu.uuid.map(|uuid| uuid.to_string())
}
