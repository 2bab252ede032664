//! Owners of processes, and their sums.

use std::cmp::Reverse;

use model::{Capabilities, Counters, OwnerKey, OwnerNames, OwnerTotals, PodNames, Quantity, Snapshot};

use super::{busyness::busyness, sum, time};
use crate::{
    gpus,
    paging::{Cursors, Order, Page, PageRequest},
    problem::Problem,
};

pub(super) fn owner(all: &OwnerNames, owner: &model::Owner) -> api::Owner {
    let model::Owner { container, pod, job, unit } = owner;
    let key = owner.key();
    let names = pod.as_ref().and_then(|pod| all.pods.get(&pod.uid));
    api::Owner {
        kind: key.kind().to_owned(),
        id: key.id().to_owned(),
        label: all.label(&key),
        container: container.as_ref().map(|container| container.id.clone()),
        container_runtime: container.as_ref().and_then(|container| container.runtime).map(str::to_owned),
        pod_uid: pod.as_ref().map(|pod| pod.uid.clone()),
        names: names.map(|names| pod_names(names, names.container(owner))),
        slurm_job: job.as_ref().map(|job| job.id.clone()),
        slurm_step: job.as_ref().and_then(|job| job.step.clone()),
        unit: unit.clone(),
    }
}

fn pod_names(names: &PodNames, container: Option<&str>) -> api::PodNames {
    let PodNames { namespace, name, workload, containers: _, only_container: _, labels } = names;
    api::PodNames {
        namespace: namespace.clone(),
        pod: name.clone(),
        container: container.map(str::to_owned),
        workload: workload.clone(),
        labels: labels.clone(),
    }
}

/// Page of the selected owners, those whose processes migrated or faulted most memory first.
pub(crate) fn owners(
    snapshot: &Snapshot,
    order: Order,
    is_selected: impl Fn(&OwnerKey, &OwnerTotals) -> bool,
    cursors: &Cursors,
    page_request: &PageRequest,
) -> Result<Page, Problem> {
    let key_of = |(key, totals): (&OwnerKey, &OwnerTotals)| {
        (Reverse(order.rank(|| busyness(totals.gpus.values().chain([&totals.host])))), key.clone())
    };
    let owners = snapshot
        .owners
        .iter()
        .filter(|(key, totals)| is_selected(key, totals))
        .map(|owner| (key_of(owner), owner))
        .collect();
    let show = |(key, totals): &(&OwnerKey, &OwnerTotals)| {
        owner_totals(key, totals, &totals.gpus.values().chain([&totals.host]).sum(), snapshot)
    };
    cursors.page(page_request, owners, show)
}

pub(super) fn owner_totals(
    key: &OwnerKey,
    totals: &OwnerTotals,
    total: &Counters,
    snapshot: &Snapshot,
) -> api::OwnerTotals {
    let capabilities = Capabilities::of(snapshot);
    let of_a_gpu = capabilities.of_a_gpu(snapshot);
    let reuses = gpus::by_gpu(&totals.reuse);
    api::OwnerTotals {
        kind: key.kind().to_owned(),
        id: key.id().to_owned(),
        label: snapshot.owner_names.label(key),
        names: snapshot.owner_names.of(key).map(|names| pod_names(names, names.only_container.as_deref())),
        processes: totals.processes,
        last_active_at: time(totals.last_active_at),
        reuse: capabilities.counted(Quantity::Reuse, sum(totals.reuse.values())),
        counts: api::Counts::new(total, capabilities),
        gpus: gpus::by_gpu(&totals.gpus)
            .iter()
            .map(|(key, counters)| api::OwnerGpu {
                uuid: gpus::uuid(*key),
                reuse: capabilities.counted(Quantity::Reuse, reuses.get(key).copied().unwrap_or_default()),
                counts: api::Counts::new(counters, of_a_gpu),
            })
            .collect(),
    }
}
