//! Pods of this node, and deleted ones within the retention.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use api::owner_names::{BYTES_MAX, FORMAT, OwnerNames, PODS_MAX, Pod};
use kube::api::ResourceExt;
use model::text;

use crate::{names, pod::PodObject};

/// Pods by the UID in their cgroup.
#[derive(Debug)]
pub struct Registry {
    /// Labels that names include.
    labels: BTreeSet<String>,
    /// Retention of the names of a deleted pod.
    retention: Duration,
    entries: BTreeMap<String, Entry>,
    /// UIDs received of the list in progress; `None` without one.
    listed: Option<BTreeSet<String>>,
    generation: u64,
    /// UIDs of objects that are in the log as malformed.
    logged: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry {
    names: Pod,
    /// UID of the object, which for a static pod is not that of the cgroup; `None` of an earlier run.
    object_uid: Option<String>,
    /// Facts for policies; `None` for a deleted pod.
    object: Option<Facts>,
    deleted_at: Option<SystemTime>,
}

/// Facts about a pod that policies match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// All labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Its annotations with the prefix `uvmd.io/`.
    pub annotations: BTreeMap<String, String>,
}

/// Maximum of UIDs to remember as logged.
const LOGGED_MAX: usize = 1024;
/// Prefix of annotations that policies read.
const ANNOTATIONS: &str = "uvmd.io/";

impl Registry {
    /// Empty registry. `labels` are those that names include.
    #[must_use]
    pub const fn new(labels: BTreeSet<String>, retention: Duration) -> Self {
        Self { labels, retention, entries: BTreeMap::new(), listed: None, generation: 0, logged: BTreeSet::new() }
    }

    /// Restores the names of the previous run. Pods that the first list lacks are marked as deleted.
    pub fn restore(&mut self, former: OwnerNames, now: SystemTime) {
        self.generation = former.generation;
        for names in former.pods.into_iter().take(PODS_MAX) {
            let deleted_at = names.deleted_at.as_deref().and_then(|at| text::parse_time(at).ok());
            // A time in the future, after the clock was set back, would delay the expiry.
            let deleted_at = deleted_at.map(|at| at.min(now));
            self.entries.insert(names.uid.clone(), Entry { names, object_uid: None, object: None, deleted_at });
        }
    }

    /// Begins a list of all pods.
    pub fn begin_list(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// Ends the list, and marks pods that it lacks as deleted.
    pub fn end_list(&mut self, now: SystemTime) {
        let Some(listed) = self.listed.take() else { return };
        for (uid, entry) in &mut self.entries {
            if !listed.contains(uid) && entry.mark_deleted(now) {
                self.generation += 1;
            }
        }
    }

    /// Adds a pod, or changes its names. Malformed names are omitted: uvmd would refuse the file.
    pub fn apply(&mut self, pod: &PodObject) {
        let object_uid = pod.uid().unwrap_or_default();
        let (names, malformed) = names::of(pod, &self.labels).without_malformed();
        if let Err(refusal) = names.clone().check(0) {
            self.warn_once(&object_uid, &names, &format!("pod omitted, as uvmd would refuse it: {refusal}"));
            return;
        }
        if !malformed.is_empty() {
            self.warn_once(&object_uid, &names, &format!("omitted as malformed: {}", malformed.join(", ")));
        }
        let before = self.entries.get(&names.uid);
        // Any user may write the annotation with the hash of a static pod. A pod of the same name is the
        // next one: the API server has one at a time.
        if before.is_some_and(|before| !before.has_name_of(&names)) {
            self.warn_once(&object_uid, &names, "pod omitted: it has the hash of another static pod");
            return;
        }
        if let Some(listed) = &mut self.listed {
            listed.insert(names.uid.clone());
        }
        let annotations = pod.annotations().iter().filter(|(key, _)| key.starts_with(ANNOTATIONS));
        let object = Some(Facts {
            labels: pod.labels().clone(),
            annotations: annotations.map(|(key, value)| (key.clone(), value.clone())).collect(),
        });
        let has_changed = before.is_none_or(|before| before.differs(&names, object.as_ref()));
        self.generation += u64::from(has_changed);
        let entry = Entry { names, object_uid: Some(object_uid), object, deleted_at: None };
        self.entries.insert(entry.names.uid.clone(), entry);
    }

    /// Marks a pod as deleted.
    pub fn delete(&mut self, pod: &PodObject, now: SystemTime) {
        let names = names::of(pod, &self.labels);
        let object_uid = pod.uid();
        self.logged.remove(object_uid.as_deref().unwrap_or_default());
        let entry = self.entries.get_mut(&names.uid).filter(|entry| {
            entry.has_name_of(&names) && (entry.object_uid.is_none() || entry.object_uid == object_uid)
        });
        if entry.is_some_and(|entry| entry.mark_deleted(now)) {
            self.generation += 1;
        }
    }

    fn warn_once(&mut self, object_uid: &str, names: &Pod, text: &str) {
        // Users who make ever new pods must not fill memory.
        if self.logged.len() >= LOGGED_MAX {
            self.logged.clear();
        }
        if self.logged.insert(object_uid.to_owned()) {
            tracing::warn!(namespace = names.namespace, pod = names.name, "{text}");
        }
    }

    /// Removes deleted pods after the retention, and those deleted first beyond the maximum.
    pub fn expire(&mut self, now: SystemTime) {
        let retention = self.retention;
        let before = self.entries.len();
        self.entries.retain(|_, entry| {
            entry.deleted_at.is_none_or(|at| now.duration_since(at).unwrap_or_default() < retention)
        });
        if self.entries.len() > PODS_MAX {
            let mut gone: Vec<_> =
                self.entries.iter().filter_map(|(uid, entry)| Some((entry.deleted_at?, uid.clone()))).collect();
            gone.sort();
            for (_, uid) in gone.into_iter().take(self.entries.len() - PODS_MAX) {
                self.entries.remove(&uid);
            }
        }
        if self.entries.len() != before {
            self.generation += 1;
        }
    }

    /// Generation: grows with each change of names or facts.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Existing pods, with the facts that policies match.
    pub fn pods(&self) -> impl Iterator<Item = (&Pod, &Facts)> {
        self.entries.values().filter_map(|entry| Some((&entry.names, entry.object.as_ref()?)))
    }

    /// Content of the file of names.
    #[must_use]
    pub fn document(&self, now: SystemTime, contacted_at: Option<SystemTime>) -> OwnerNames {
        let names = |entry: &Entry| Pod { deleted_at: entry.deleted_at.map(text::time), ..entry.names.clone() };
        // Existing ones first.
        let (gone, existing): (Vec<_>, Vec<_>) = self.entries.values().partition(|entry| entry.deleted_at.is_some());
        OwnerNames {
            format: FORMAT,
            generation: self.generation,
            written_at: text::time(now),
            contacted_at: contacted_at.map(text::time),
            pods: within_room(existing.into_iter().chain(gone).map(names)),
        }
    }
}

/// First pods for which uvmd's limits of the file have room.
fn within_room(pods: impl Iterator<Item = Pod>) -> Vec<Pod> {
    let mut bytes = 0;
    let has_room = |pod: &Pod| {
        // With a comma. The fields beside the pods take less than 4 KiB.
        bytes += serde_json::to_vec(pod).map_or(usize::MAX / PODS_MAX, |text| text.len() + 1) as u64;
        bytes < BYTES_MAX - 4096
    };
    pods.take(PODS_MAX).take_while(has_room).collect()
}

impl Entry {
    /// Marks the pod as deleted. Returns whether it existed.
    fn mark_deleted(&mut self, now: SystemTime) -> bool {
        self.object = None;
        let existed = self.deleted_at.is_none();
        self.deleted_at.get_or_insert(now);
        existed
    }

    fn has_name_of(&self, names: &Pod) -> bool {
        (&self.names.namespace, &self.names.name) == (&names.namespace, &names.name)
    }

    fn differs(&self, names: &Pod, object: Option<&Facts>) -> bool {
        (&self.names, self.object.as_ref(), self.deleted_at) != (names, object, None)
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use serde_json::json;

    use super::*;

    const START: SystemTime = SystemTime::UNIX_EPOCH;
    const HOUR: Duration = Duration::from_hours(1);

    fn pod(number: u32) -> PodObject {
        let uid = format!("3f2a9c1e-1111-2222-3333-{number:012}");
        let metadata = json!({ "uid": uid, "namespace": "ml", "name": format!("llm-{number}") });
        let spec = json!({ "containers": [{ "name": "train" }] });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }))
            .unwrap()
    }

    fn registry() -> Registry {
        Registry::new(BTreeSet::new(), HOUR)
    }

    fn list(registry: &mut Registry, numbers: &[u32], now: SystemTime) {
        registry.begin_list();
        for number in numbers {
            registry.apply(&pod(*number));
        }
        registry.end_list(now);
    }

    fn shown(registry: &Registry) -> Vec<String> {
        let pods = registry.document(START, None).pods;
        pods.iter().map(|pod| pod.name.clone() + if pod.deleted_at.is_some() { " gone" } else { "" }).collect()
    }

    #[test]
    fn generation_stays_without_a_change() {
        let mut registry = registry();
        list(&mut registry, &[1, 2], START);
        let generation = registry.generation();
        list(&mut registry, &[2, 1], START + HOUR);
        registry.apply(&pod(1));
        registry.expire(START + HOUR);
        assert_eq!(registry.generation(), generation);
        let mut labelled = pod(1);
        labelled.labels_mut().insert("team".to_owned(), "nlp".to_owned());
        registry.apply(&labelled);
        assert!(registry.generation() > generation, "policies match labels that names do not include");
    }

    #[test]
    fn names_of_a_deleted_pod_stay_for_the_retention() {
        let mut registry = registry();
        list(&mut registry, &[1, 2, 3], START);
        registry.delete(&pod(2), START);
        // During an interruption of the watch.
        list(&mut registry, &[1], START + HOUR / 2);
        assert_eq!(shown(&registry), ["llm-1", "llm-2 gone", "llm-3 gone"]);
        registry.expire(START + HOUR);
        assert_eq!(shown(&registry), ["llm-1", "llm-3 gone"]);
        registry.expire(START + HOUR * 3 / 2);
        assert_eq!((shown(&registry), registry.pods().count()), (vec!["llm-1".to_owned()], 1));
    }

    #[test]
    fn names_outlive_a_restart_and_the_generation_grows() {
        let mut first = registry();
        list(&mut first, &[1, 2], START);
        let mut second = registry();
        second.restore(first.document(START, None), START);
        assert_eq!((shown(&second), second.pods().count()), (vec!["llm-1".to_owned(), "llm-2".to_owned()], 0));
        list(&mut second, &[1], START);
        assert_eq!(shown(&second), ["llm-1", "llm-2 gone"]);
        assert!(second.generation() > first.generation());
    }

    #[test]
    fn pod_that_uvmd_would_refuse_is_omitted() {
        let mut registry = registry();
        let mut odd = pod(2);
        odd.metadata.name = Some("Up\n".to_owned());
        registry.apply(&odd);
        registry.apply(&pod(1));
        assert_eq!(shown(&registry), ["llm-1"]);
    }

    #[test]
    fn malformed_part_is_left_out_and_the_pod_stays() {
        let mut registry = registry();
        let mut odd = pod(1);
        let owner = json!([{ "apiVersion": "v1", "kind": "Job", "name": "a:b", "uid": "1", "controller": true }]);
        odd.metadata.owner_references = serde_json::from_value(owner).unwrap();
        odd.labels_mut().insert("app".to_owned(), "llm".to_owned());
        registry.apply(&odd);
        odd.labels_mut().insert("app".to_owned(), "web".to_owned());
        registry.apply(&odd);
        let (names, facts) = registry.pods().next().unwrap();
        assert_eq!((names.name.as_str(), &names.workload, facts.labels["app"].as_str()), ("llm-1", &None, "web"));
        assert_eq!(registry.logged.len(), 1);
    }

    #[test]
    fn pod_with_the_hash_of_a_static_pod_takes_no_name_of_it() {
        let hash = "0123456789abcdef0123456789abcdef";
        let with_hash = |number: u32, namespace: &str, name: &str| {
            let mut pod = pod(number);
            pod.metadata.namespace = Some(namespace.to_owned());
            pod.metadata.name = Some(name.to_owned());
            for key in ["kubernetes.io/config.mirror", "kubernetes.io/config.hash"] {
                pod.annotations_mut().insert(key.to_owned(), hash.to_owned());
            }
            let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1" }]);
            pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
            pod
        };
        let (own, foreign) = (with_hash(1, "kube-system", "etcd"), with_hash(2, "ml", "mine"));
        let mut registry = registry();
        registry.apply(&own);
        registry.apply(&foreign);
        registry.delete(&foreign, START);
        assert_eq!(shown(&registry), ["etcd"]);
        registry.delete(&with_hash(3, "kube-system", "etcd"), START);
        assert_eq!(shown(&registry), ["etcd"], "another object");
        // The kubelet makes it anew.
        registry.apply(&with_hash(4, "kube-system", "etcd"));
        registry.delete(&own, START);
        assert_eq!(shown(&registry), ["etcd"]);
        registry.begin_list();
        registry.apply(&foreign);
        registry.end_list(START);
        assert_eq!(shown(&registry), ["etcd gone"], "no other pod is listed in its place");
    }

    #[test]
    fn file_has_the_pods_for_which_uvmd_has_room() {
        let containers = (0..64).map(|at| (format!("{at:064x}"), format!("{at:060}"))).collect();
        let large = Pod { containers, ..names::of(&pod(1), &BTreeSet::new()) };
        let listed = within_room(iter::repeat_n(large, PODS_MAX));
        let bytes = serde_json::to_vec(&listed).unwrap().len() as u64;
        assert!(listed.len() < PODS_MAX && (BYTES_MAX / 2..BYTES_MAX).contains(&bytes), "{} {bytes}", listed.len());
        let small = names::of(&pod(1), &BTreeSet::new());
        assert_eq!(within_room(iter::repeat_n(small, PODS_MAX + 1)).len(), PODS_MAX);
    }

    #[test]
    fn pods_deleted_first_are_removed_beyond_the_maximum() {
        let mut registry = Registry::new(BTreeSet::new(), HOUR * 24);
        let count = u32::try_from(PODS_MAX).unwrap();
        for number in 0..count + 2 {
            registry.apply(&pod(number));
        }
        registry.delete(&pod(7), START + HOUR);
        registry.delete(&pod(8), START);
        registry.delete(&pod(9), START + HOUR * 2);
        registry.expire(START + HOUR * 3);
        let shown = shown(&registry);
        assert_eq!(shown.len(), PODS_MAX);
        assert_eq!(shown.iter().filter(|name| name.ends_with("gone")).collect::<Vec<_>>(), ["llm-9 gone"]);
    }
}
