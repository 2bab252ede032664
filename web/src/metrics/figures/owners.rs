//! Rows of owners: pods, jobs, containers and units. The collector decides which owners are listed,
//! and for how long: their number is bounded, and an owner keeps its series until it is idle.

use std::collections::BTreeMap;

use model::{Counters, GpuKey, OwnerKey, PodNames, Process, Residency, Snapshot};

use super::{Row, by_gpu, labels_of_gpu, rows as gpu_rows};

/// Rows of one owner.
pub(in crate::metrics) struct OwnerRows<'a> {
    pub(in crate::metrics) key: &'a OwnerKey,
    /// Values of the labels of the owner.
    pub(in crate::metrics) labels: Vec<String>,
    /// Rows of its GPUs: labels of the GPU, then of the owner.
    pub(in crate::metrics) gpus: Vec<Row<'a>>,
    /// Counts that belong to no GPU.
    pub(in crate::metrics) host: &'a Counters,
    /// Number of running processes.
    pub(in crate::metrics) processes: u64,
    /// Managed bytes of the running processes, as far as their mappings could be read.
    pub(in crate::metrics) managed_bytes: u64,
    /// Resident bytes in each GPU with a known UUID, with the labels of `gpus`.
    pub(in crate::metrics) resident: Vec<(Vec<String>, Residency)>,
}

pub(super) fn rows(snapshot: &Snapshot) -> Vec<OwnerRows<'_>> {
    let mut running: BTreeMap<&OwnerKey, Vec<&Process>> = BTreeMap::new();
    for process in snapshot.processes.iter().filter(|process| process.exited_at.is_none()) {
        if let Some(key) = listed(snapshot, process) {
            running.entry(key).or_default().push(process);
        }
    }
    snapshot
        .owners
        .iter()
        .map(|(key, totals)| {
            let names = names(snapshot, key);
            let mut on_gpus = gpu_rows(snapshot, &by_gpu(&totals.gpus), &totals.reuse);
            for row in &mut on_gpus {
                row.labels.extend(names.iter().cloned());
            }
            let processes = running.remove(key).unwrap_or_default();
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

fn resident(snapshot: &Snapshot, processes: &[&Process], names: &[String; 8]) -> Vec<(Vec<String>, Residency)> {
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

/// Owner in whose series a process's counts are, if any.
pub(in crate::metrics) fn listed<'a>(snapshot: &'a Snapshot, process: &Process) -> Option<&'a OwnerKey> {
    let find = |key: &OwnerKey| snapshot.owners.get_key_value(key).map(|(key, _)| key);
    find(&process.owner.key()).or_else(|| find(&OwnerKey::Other))
}

/// Values of `owner_kind`, `pod_uid`, `hpc_job`, `container_id`, `unit`, `namespace`, `pod` and
/// `container`. Prometheus takes an empty label for an absent one: without names, series are as if
/// there were no such labels.
pub(in crate::metrics) fn names(snapshot: &Snapshot, key: &OwnerKey) -> [String; 8] {
    let of = |kind: &str| if key.kind() == kind { key.id().to_owned() } else { String::new() };
    let [namespace, pod, container] = match snapshot.owner_names.of(key) {
        Some(PodNames { namespace, name, only_container, .. }) => {
            [namespace.clone(), name.clone(), only_container.clone().unwrap_or_default()]
        }
        None => Default::default(),
    };
    [key.kind().to_owned(), of("pod"), of("job"), of("container"), of("unit"), namespace, pod, container]
}
