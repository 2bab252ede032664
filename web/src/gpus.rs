//! Every GPU that a snapshot knows of, with its sums.

use std::collections::BTreeMap;

use model::{Counters, GpuKey, Snapshot};

/// One GPU of a snapshot.
pub(crate) struct GpuTotal<'a> {
    pub(crate) key: GpuKey,
    /// The driver's processor id that it had last.
    pub(crate) id: Option<u32>,
    pub(crate) name: Option<&'a str>,
    pub(crate) total: Counters,
}

/// All of them, in the order of their ids, whether or not anything was counted there yet.
pub(crate) fn totals(snapshot: &Snapshot) -> Vec<GpuTotal<'_>> {
    let mut totals = shown(&snapshot.gpu_totals);
    for key in snapshot.gpus.keys() {
        totals.entry(shown_as(*key)).or_default();
    }
    let mut gpus: Vec<_> = totals
        .into_iter()
        .map(|(key, total)| {
            let name = snapshot.gpus.get(&key).and_then(|gpu| gpu.name.as_deref());
            GpuTotal { key, id: id(snapshot, key), name, total }
        })
        .collect();
    gpus.sort_by_key(|gpu| (gpu.id.is_none(), gpu.id, gpu.key));
    gpus
}

/// Counts by GPU as they are shown now.
pub(crate) fn shown(gpus: &BTreeMap<GpuKey, Counters>) -> BTreeMap<GpuKey, Counters> {
    let mut shown: BTreeMap<GpuKey, Counters> = BTreeMap::new();
    for (key, counters) in gpus {
        *shown.entry(shown_as(*key)).or_default() += counters;
    }
    shown
}

/// What is pending is not known yet, and shown with what never will be.
const fn shown_as(key: GpuKey) -> GpuKey {
    match key {
        GpuKey::Known(_) | GpuKey::Unknown(_) => key,
        GpuKey::Pending(id) => GpuKey::Unknown(id),
    }
}

/// The driver's processor id that a GPU had last.
pub(crate) fn id(snapshot: &Snapshot, key: GpuKey) -> Option<u32> {
    match key {
        GpuKey::Known(_) => snapshot.gpus.get(&key)?.id,
        GpuKey::Pending(id) | GpuKey::Unknown(id) => Some(id),
    }
}

/// A GPU's UUID as text.
pub(crate) fn uuid(key: GpuKey) -> Option<String> {
    key.uuid().map(|uuid| uuid.to_string())
}
