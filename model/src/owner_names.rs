//! Names of pods, by the UIDs in cgroups. Another program reads them from the cluster: each is a claim.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use crate::{Owner, OwnerKey};

/// Names of the pods of this node, and of deleted ones within the retention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNames {
    /// By the UID in the pod's cgroup.
    pub pods: HashMap<String, Arc<PodNames>>,
    /// State of their file; `None` if none is configured.
    pub source: Option<NamesSource>,
}

/// State of the file of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesSource {
    /// Whether the names are those of the file as last checked. Otherwise they are of an earlier file, or there are none.
    pub is_current: bool,
    /// Last contact with the cluster, as the file has it.
    pub contacted_at: Option<SystemTime>,
}

/// Names of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNames {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its controller, as `Deployment/llm`; none for a pod without one.
    pub workload: Option<String>,
    /// Names of its containers, by id.
    pub containers: BTreeMap<String, String>,
    /// Name of its only container; `None` where there are several.
    pub only_container: Option<String>,
    /// Its labels that the writer includes.
    pub labels: BTreeMap<String, String>,
}

impl OwnerNames {
    /// Names of an owner; `None` for an unknown pod, and for other kinds of owners.
    #[must_use]
    pub fn of(&self, key: &OwnerKey) -> Option<&PodNames> {
        match key {
            OwnerKey::Pod(uid) => self.pods.get(uid).map(Arc::as_ref),
            _ => None,
        }
    }

    /// Short name of an owner: `ml/llm-7b-0` of a pod with names, otherwise [`OwnerKey::label`].
    #[must_use]
    pub fn label(&self, key: &OwnerKey) -> String {
        self.of(key).map_or_else(|| key.label(), PodNames::label)
    }
}

impl PodNames {
    /// `namespace/name`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Name of the container of a process of the pod; that of the only container while its id is unknown.
    #[must_use]
    pub fn container(&self, owner: &Owner) -> Option<&str> {
        let by_id = owner.container.as_ref().and_then(|container| self.containers.get(&container.id));
        by_id.or(self.only_container.as_ref()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Container, Pod};

    #[test]
    fn a_pod_without_names_has_the_short_name_of_its_uid() {
        let pod = PodNames { namespace: "ml".to_owned(), name: "llm-0".to_owned(), ..PodNames::default() };
        let names = OwnerNames { pods: HashMap::from([("12-34".to_owned(), Arc::new(pod))]), source: None };
        assert_eq!(names.label(&OwnerKey::Pod("12-34".to_owned())), "ml/llm-0");
        assert_eq!(names.label(&OwnerKey::Pod("56-78".to_owned())), "pod 56");
        assert_eq!(names.label(&OwnerKey::Job("12-34".to_owned())), "job 12-34");
        assert_eq!(names.of(&OwnerKey::Container("12-34".to_owned())), None);
    }

    #[test]
    fn a_container_has_the_name_of_its_id_or_of_the_only_one() {
        let containers = BTreeMap::from([("c1".to_owned(), "train".to_owned())]);
        let pod = PodNames { containers, ..PodNames::default() };
        let at = |id: &str| Owner {
            container: Some(Container { runtime: None, id: id.to_owned() }),
            pod: Some(Pod { uid: "12-34".to_owned() }),
            ..Owner::default()
        };
        assert_eq!(pod.container(&at("c1")), Some("train"));
        assert_eq!(pod.container(&at("c2")), None);
        let alone = PodNames { only_container: Some("train".to_owned()), ..PodNames::default() };
        assert_eq!(alone.container(&at("c2")), Some("train"));
    }
}
