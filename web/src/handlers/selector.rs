//! Selectors of processes, owners and GPUs, for lists.

use std::collections::HashSet;

use axum::http::Uri;
use model::{GpuKey, Owner, OwnerKey, Process, ProcessId, Snapshot, VerdictKind, Verdicts};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::parameters::{GpuName, Name, OwnerName, PidParameter, UidParameter, UpTo, VerdictName};
use crate::{problem::Problem, query::QueryPart};

/// Selector of owners, GPU and verdict. Each parameter restricts the list further.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OwnerSelector {
    /// Owner, as `KIND:ID` of `owner.kind` and `owner.id`, such as `job:4711`; or `other`.
    #[param(value_type = Option<String>, pattern = "^((pod|job|container|unit):.+|other)$", max_length = 1024)]
    owner: Option<OwnerName>,
    /// Kubernetes namespace of pods whose names are known.
    #[param(value_type = Option<String>, min_length = 1, max_length = 1024)]
    namespace: Option<Name>,
    /// UID of a Kubernetes pod, or its name. Several pods may have had the same name.
    #[param(value_type = Option<String>, min_length = 1, max_length = 1024)]
    pod: Option<Name>,
    /// Id of a Slurm job.
    #[param(value_type = Option<String>, min_length = 1, max_length = 1024)]
    job: Option<Name>,
    /// Id of a container.
    #[param(value_type = Option<String>, min_length = 1, max_length = 1024)]
    container: Option<Name>,
    /// Systemd service or scope.
    #[param(value_type = Option<String>, min_length = 1, max_length = 1024)]
    unit: Option<Name>,
    /// GPU, by UUID, the first group of that, or NVML's index.
    #[param(
        value_type = Option<String>,
        pattern = "^(GPU-[0-9a-fA-F]{8}((-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?|[0-9]{1,9})$"
    )]
    gpu: Option<GpuName>,
    /// Kind of verdict: of active verdicts, and in the list of verdicts of ended ones, too.
    #[param(value_type = Option<String>, pattern = "^(capacity_thrash|ping_pong|driver_throttling|streaming|first_touch_storm)$")]
    verdict: Option<VerdictName>,
}

/// Selector of processes by their ids.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ProcessIds {
    /// Process id. An id that was used again selects each process that had it.
    #[param(value_type = Option<u32>, minimum = 1)]
    pid: Option<PidParameter>,
    /// User id.
    #[param(value_type = Option<u32>, minimum = 0)]
    uid: Option<UidParameter>,
}

/// Selector of processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessSelector {
    ids: ProcessIds,
    owners: OwnerSelector,
}

impl QueryPart for ProcessSelector {
    fn names() -> Vec<String> {
        [ProcessIds::names(), OwnerSelector::names()].concat()
    }

    fn read(uri: &Uri) -> Result<Self, Problem> {
        Ok(Self { ids: ProcessIds::read(uri)?, owners: OwnerSelector::read(uri)? })
    }
}

fn matches<T: PartialEq + Copy>(selected: Option<T>, actual: Option<T>) -> bool {
    selected.is_none() || selected == actual
}

/// Whether the pod with this UID is in the namespace and has the UID or the name. Without a pod, only empty filters match.
fn is_pod(snapshot: &Snapshot, namespace: Option<&Name>, pod: Option<&Name>, uid: Option<&str>) -> bool {
    let names = uid.and_then(|uid| snapshot.owner_names.pods.get(uid));
    text(namespace).is_none_or(|namespace| names.is_some_and(|names| names.namespace == namespace))
        && text(pod).is_none_or(|pod| uid == Some(pod) || names.is_some_and(|names| names.name == pod))
}

fn text(name: Option<&Name>) -> Option<&str> {
    name.map(|Name(name)| name.as_str())
}

impl GpuName {
    pub(super) fn has(self, snapshot: &Snapshot, key: GpuKey) -> bool {
        match self {
            Self::Uuid(uuid) => key.uuid() == Some(uuid),
            Self::ShortUuid(short) => key.uuid().is_some_and(|uuid| short.is_prefix_of(uuid)),
            Self::Index(index) => snapshot.gpus.get(&key).is_some_and(|gpu| gpu.index == Some(index)),
        }
    }
}

impl OwnerSelector {
    /// Whether the selector includes an owner, by its key and the GPUs of its processes.
    pub(crate) fn has(&self, snapshot: &Snapshot, key: &OwnerKey, mut gpus: impl Iterator<Item = GpuKey>) -> bool {
        let Self { owner, namespace, pod, job, container, unit, gpu, verdict: _ } = self;
        let uid = if let OwnerKey::Pod(uid) = key { Some(uid.as_str()) } else { None };
        let by_kind = [("job", job), ("container", container), ("unit", unit)];
        owner.as_ref().is_none_or(|OwnerName(owner)| owner == key)
            && is_pod(snapshot, namespace.as_ref(), pod.as_ref(), uid)
            && by_kind
                .iter()
                .all(|(kind, name)| text(name.as_ref()).is_none_or(|name| (key.kind(), key.id()) == (*kind, name)))
            && gpu.is_none_or(|gpu| gpus.any(|key| gpu.has(snapshot, key)))
    }

    /// Owners of processes with an active verdict of the kind; `None` if no kind is selected.
    pub(crate) fn with_verdict(&self, snapshot: &Snapshot, verdicts: &Verdicts) -> Option<HashSet<OwnerKey>> {
        let processes = with_verdict(self.verdict, verdicts)?;
        let processes = snapshot.processes.iter().filter(|process| processes.contains(&process.id));
        let keys = processes.map(|process| process.owner.key());
        // Owners without separate sums are part of the others' sums.
        Some(keys.map(|key| if snapshot.owners.contains_key(&key) { key } else { OwnerKey::Other }).collect())
    }
}

impl ProcessSelector {
    /// Whether the selector includes a process, regardless of its GPUs and verdicts. An unlisted
    /// process is known by its id only.
    pub(crate) fn has_process(&self, snapshot: &Snapshot, id: ProcessId, process: Option<&Process>) -> bool {
        let Self { ids: ProcessIds { pid, uid }, owners } = self;
        let OwnerSelector { owner, namespace, pod, job, container, unit, .. } = owners;
        let process_owner = process.map(|process| &process.owner);
        let in_pod = process_owner.and_then(|owner| owner.pod.as_ref()).map(|pod| pod.uid.as_str());
        let in_job = process_owner.and_then(|owner| owner.job.as_ref()).map(|job| job.id.as_str());
        let in_container =
            process_owner.and_then(|owner| owner.container.as_ref()).map(|container| container.id.as_str());
        matches(pid.map(|UpTo(pid)| pid), Some(id.pid))
            && matches(uid.map(|UpTo(uid)| uid), process.map(|process| process.uid))
            && matches(owner.as_ref().map(|OwnerName(owner)| owner), process_owner.map(Owner::key).as_ref())
            && is_pod(snapshot, namespace.as_ref(), pod.as_ref(), in_pod)
            && matches(text(job.as_ref()), in_job)
            && matches(text(container.as_ref()), in_container)
            && matches(text(unit.as_ref()), process_owner.and_then(|owner| owner.unit.as_deref()))
    }

    /// Whether the selector includes every process, also unidentified ones.
    pub(crate) fn has_all_processes(&self) -> bool {
        let Self { ids: ProcessIds { pid, uid }, owners } = self;
        let OwnerSelector { owner, namespace, pod, job, container, unit, gpu: _, verdict } = owners;
        let is_by_id = pid.is_some() || uid.is_some();
        let texts = [namespace, pod, job, container, unit];
        let is_by_owner = owner.is_some() || texts.into_iter().any(Option::is_some);
        !is_by_id && !is_by_owner && verdict.is_none()
    }

    /// Whether the selector includes a GPU.
    pub(crate) fn has_gpu(&self, snapshot: &Snapshot, key: GpuKey) -> bool {
        self.owners.gpu.is_none_or(|gpu| gpu.has(snapshot, key))
    }

    /// Whether the selector includes a kind of verdict.
    pub(crate) fn has_verdict(&self, kind: VerdictKind) -> bool {
        self.owners.verdict.is_none_or(|VerdictName(selected)| selected == kind)
    }

    /// Whether the selector includes a listed process. `with_verdict` is that of
    /// [`Self::with_verdict`].
    pub(crate) fn has(
        &self,
        snapshot: &Snapshot,
        process: &Process,
        with_verdict: Option<&HashSet<ProcessId>>,
    ) -> bool {
        let mut gpus = process.gpus.keys().chain(process.residency.keys()).chain(process.reuse.keys());
        self.has_process(snapshot, process.id, Some(process))
            && (self.owners.gpu.is_none() || gpus.any(|key| self.has_gpu(snapshot, *key)))
            && with_verdict.is_none_or(|with| with.contains(&process.id))
    }

    /// Processes with an active verdict of the kind; `None` if no kind is selected.
    pub(crate) fn with_verdict(&self, verdicts: &Verdicts) -> Option<HashSet<ProcessId>> {
        with_verdict(self.owners.verdict, verdicts)
    }
}

fn with_verdict(selected: Option<VerdictName>, verdicts: &Verdicts) -> Option<HashSet<ProcessId>> {
    let VerdictName(selected) = selected?;
    let active = verdicts.active.iter().filter(|verdict| verdict.kind == selected);
    Some(active.map(|verdict| verdict.process).collect())
}
