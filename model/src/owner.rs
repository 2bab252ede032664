//! Owners of processes: container, pod, batch job or service.

use std::{collections::BTreeMap, fmt, time::SystemTime};

use serde::{Deserialize, Serialize};

use crate::{Counters, GpuKey, Reuse};

/// Owner of a process, by its cgroup. Empty where the cgroup names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The container it runs in.
    pub container: Option<Container>,
    /// The Kubernetes pod of that container.
    pub pod: Option<Pod>,
    /// The batch job it is part of.
    pub job: Option<Job>,
    /// The systemd service or scope; a user's own after its manager's name, as in `user@1000.service/train.service`.
    pub unit: Option<String>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    /// Container runtime: `containerd`, `cri-o`, `docker`, `podman`; `None` where the path does not name it.
    pub runtime: Option<&'static str>,
    /// Its id, as that runtime gives it: 64 hexadecimal digits.
    pub id: String,
}

/// A Kubernetes pod. The cgroup names it by its UID alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Its UID, with dashes; a static pod's is a hash without.
    pub uid: String,
}

/// A Slurm job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job {
    /// The job's id: a number, or from Slurm 26.05 on its SLUID.
    pub id: String,
    /// The step within it, such as `0` or `batch`.
    pub step: Option<String>,
}

/// Key of sums that outlive processes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OwnerKey {
    /// A pod, by UID.
    Pod(String),
    /// A Slurm job, by id.
    Job(String),
    /// A container that is in no pod, by id.
    Container(String),
    /// A systemd unit.
    Unit(String),
    /// All whose series found no room, and processes with no owner that is known.
    Other,
}

impl OwnerKey {
    /// Names of all kinds.
    pub const KINDS: [&'static str; 5] = ["pod", "job", "container", "unit", "other"];

    /// The name of its kind in labels and JSON.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Pod(_) => "pod",
            Self::Job(_) => "job",
            Self::Container(_) => "container",
            Self::Unit(_) => "unit",
            Self::Other => "other",
        }
    }

    /// Owner of this kind and id; `None` for an unknown kind, and for an id where there is none or none where there is one.
    #[must_use]
    pub fn parse(kind: &str, id: &str) -> Option<Self> {
        let of = |key: fn(String) -> Self| (!id.is_empty()).then(|| key(id.to_owned()));
        match kind {
            "pod" => of(Self::Pod),
            "job" => of(Self::Job),
            "container" => of(Self::Container),
            "unit" => of(Self::Unit),
            "other" => id.is_empty().then_some(Self::Other),
            _ => None,
        }
    }

    /// Short name that still identifies it: `pod 3f2a9c1e`, `job 4711`, `unit train.service`; empty for [`Self::Other`].
    #[must_use]
    pub fn label(&self) -> String {
        let shortened = match self {
            // The first part of a UUID.
            Self::Pod(uid) => uid.split('-').next().unwrap_or_default(),
            // Length of ids in the listings of container runtimes.
            Self::Container(id) => id.get(..12).unwrap_or(id),
            // Without the user's service manager in front.
            Self::Unit(name) => name.rsplit('/').next().unwrap_or_default(),
            Self::Job(id) => id,
            Self::Other => "",
        };
        if shortened.is_empty() { String::new() } else { format!("{} {shortened}", self.kind()) }
    }

    /// Name within its kind; empty for [`Self::Other`].
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Pod(id) | Self::Job(id) | Self::Container(id) | Self::Unit(id) => id,
            Self::Other => "",
        }
    }
}

impl fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            key => write!(f, "{} {}", key.kind(), key.id()),
        }
    }
}

impl Owner {
    /// Key of its sums: the outermost owner that an operator would name.
    #[must_use]
    pub fn key(&self) -> OwnerKey {
        let Self { container, pod, job, unit } = self;
        pod.as_ref()
            .map(|pod| OwnerKey::Pod(pod.uid.clone()))
            .or_else(|| job.as_ref().map(|job| OwnerKey::Job(job.id.clone())))
            .or_else(|| container.as_ref().map(|container| OwnerKey::Container(container.id.clone())))
            .or_else(|| unit.clone().map(OwnerKey::Unit))
            .unwrap_or(OwnerKey::Other)
    }
}

/// Sums over all processes of an owner, those that have ended among them. They only grow for as long as the owner is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTotals {
    /// CPU faults.
    pub host: Counters,
    /// By GPU.
    pub gpus: BTreeMap<GpuKey, Counters>,
    /// Reuse of the traffic, by GPU.
    pub reuse: BTreeMap<GpuKey, Reuse>,
    /// Its processes that live.
    pub processes: u64,
    /// Time of its last count.
    pub last_active_at: SystemTime,
}

/// Owner of a process in a few words: its [`OwnerKey::label`], or `user alice` where that is empty.
#[must_use]
pub fn label_or_user(label: &str, user: Option<&str>, uid: u32) -> String {
    match (label, user) {
        ("", Some(user)) => format!("user {user}"),
        ("", None) => format!("user {uid}"),
        (label, _) => label.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_as_its_kind_and_id_are_written() {
        let owners = [
            OwnerKey::Pod("1234".to_owned()),
            OwnerKey::Job("7".to_owned()),
            OwnerKey::Container("c0ffee".to_owned()),
            OwnerKey::Unit("user@1000.service/train.service".to_owned()),
            OwnerKey::Other,
        ];
        for owner in owners {
            assert_eq!(OwnerKey::parse(owner.kind(), owner.id()), Some(owner));
        }
        for (kind, id) in [("pod", ""), ("other", "x"), ("node", "x"), ("", "")] {
            assert_eq!(OwnerKey::parse(kind, id), None, "{kind} {id}");
        }
    }

    #[test]
    fn sums_are_kept_by_the_outermost_owner_that_is_known() {
        let container = Some(Container { runtime: None, id: "c0ffee".to_owned() });
        let unit = Some("cri-containerd-c0ffee.scope".to_owned());
        let pod = Some(Pod { uid: "1234".to_owned() });
        let owner = Owner { container, pod, job: None, unit };
        assert_eq!(owner.key(), OwnerKey::Pod("1234".to_owned()));
        assert_eq!(Owner { pod: None, ..owner.clone() }.key(), OwnerKey::Container("c0ffee".to_owned()));
        assert_eq!(Owner::default().key(), OwnerKey::Other);
    }

    #[test]
    fn owners_have_short_names() {
        let label = |kind: &str, id: &str| OwnerKey::parse(kind, id).unwrap().label();
        assert_eq!(label("pod", "3f2a9c1e-1111-2222-3333-444444444444"), "pod 3f2a9c1e");
        assert_eq!(label("container", &"c0ffee".repeat(10)), "container c0ffeec0ffee");
        assert_eq!(label("job", "4711"), "job 4711");
        assert_eq!(label("unit", "train.service"), "unit train.service");
        assert_eq!(label("unit", "user@1000.service/train.service"), "unit train.service");
        assert_eq!(label("other", ""), "");
    }
}
