//! Owners: pods, jobs, containers and units. Who is listed, and for how long, the collector decides: their number is bounded, and who has series
//! keeps them until idle.

use std::collections::BTreeMap;

use model::{Counters, GpuKey, OwnerKey, Process, Residency, Snapshot};

use super::{Row, by_gpu, labels_of_gpu, rows as gpu_rows};

/// One owner.
pub(in crate::metrics) struct OwnerRows<'a> {
    pub(in crate::metrics) key: &'a OwnerKey,
    /// Those that name it.
    pub(in crate::metrics) labels: Vec<String>,
    /// It on each GPU: the GPU's labels, and its own.
    pub(in crate::metrics) gpus: Vec<Row<'a>>,
    /// What belongs to no GPU.
    pub(in crate::metrics) host: &'a Counters,
    /// Its processes that live.
    pub(in crate::metrics) processes: u64,
    /// What they have mapped, as far as that could be read.
    pub(in crate::metrics) managed_bytes: u64,
    /// What of it is in the memory of each GPU that is known, with the labels of `gpus`.
    pub(in crate::metrics) resident: Vec<(Vec<String>, Residency)>,
}

pub(super) fn rows(snapshot: &Snapshot) -> Vec<OwnerRows<'_>> {
    let mut living: BTreeMap<&OwnerKey, Vec<&Process>> = BTreeMap::new();
    for process in snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
        if let Some(key) = listed(snapshot, process) {
            living.entry(key).or_default().push(process);
        }
    }
    snapshot
        .owners
        .iter()
        .map(|(key, totals)| {
            let names = names(key);
            let mut on_gpus = gpu_rows(snapshot, &by_gpu(&totals.gpus), &totals.reuse);
            for row in &mut on_gpus {
                row.labels.extend(names.iter().cloned());
            }
            let processes = living.remove(key).unwrap_or_default();
            OwnerRows {
                key,
                labels: names.to_vec(),
                gpus: on_gpus,
                host: &totals.host,
                processes: totals.processes,
                managed_bytes: processes.iter().filter_map(|process| process.managed_bytes).sum(),
                resident: resident(snapshot, &processes, &names),
            }
        })
        .collect()
}

fn resident(snapshot: &Snapshot, processes: &[&Process], names: &[String; 5]) -> Vec<(Vec<String>, Residency)> {
    let mut by_gpu: BTreeMap<GpuKey, Residency> = BTreeMap::new();
    for (key, bytes) in processes.iter().flat_map(|process| &process.residency) {
        *by_gpu.entry(*key).or_default() += bytes;
    }
    let row = |(key, bytes): (&GpuKey, &Residency)| {
        let labels = labels_of_gpu(snapshot, *key).into_iter().chain(names.iter().cloned());
        (labels.collect(), *bytes)
    };
    by_gpu.iter().filter(|(key, _)| key.uuid().is_some()).map(row).collect()
}

/// The owner that a process's counts are shown under, if any is.
pub(in crate::metrics) fn listed<'a>(snapshot: &'a Snapshot, process: &Process) -> Option<&'a OwnerKey> {
    let find = |wanted: &OwnerKey| snapshot.owners.get_key_value(wanted).map(|(key, _)| key);
    find(&process.owner.key()).or_else(|| find(&OwnerKey::Other))
}

/// The values of `owner_kind`, `pod_uid`, `hpc_job`, `container_id` and `unit`.
pub(in crate::metrics) fn names(key: &OwnerKey) -> [String; 5] {
    let of = |wanted: &str| if key.kind() == wanted { key.id().to_owned() } else { String::new() };
    [key.kind().to_owned(), of("pod"), of("job"), of("container"), of("unit")]
}
