//! Pods of this node, and deleted ones within the retention.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use api::owner_names::{FORMAT, OwnerNames, PODS_MAX, Pod};
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
}

#[derive(Debug)]
struct Entry {
    names: Pod,
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

/// Prefix of annotations that policies read.
const ANNOTATIONS: &str = "uvmd.io/";

impl Registry {
    /// Empty registry. `labels` are those that names include.
    #[must_use]
    pub const fn new(labels: BTreeSet<String>, retention: Duration) -> Self {
        Self { labels, retention, entries: BTreeMap::new(), listed: None, generation: 0 }
    }

    /// Restores the names of the previous run. Pods that the first list lacks are marked as deleted.
    pub fn restore(&mut self, former: OwnerNames, now: SystemTime) {
        self.generation = former.generation;
        for names in former.pods.into_iter().take(PODS_MAX) {
            let deleted_at = names.deleted_at.as_deref().and_then(|at| text::parse_time(at).ok());
            // A time in the future, after the clock was set back, would delay the expiry.
            let deleted_at = deleted_at.map(|at| at.min(now));
            self.entries.insert(names.uid.clone(), Entry { names, object: None, deleted_at });
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

    /// Adds a pod, or changes its names. Omits a pod with invalid names: uvmd would refuse the file.
    pub fn apply(&mut self, pod: &PodObject) {
        let names = names::of(pod, &self.labels);
        if let Err(refusal) = names.clone().check(0) {
            tracing::warn!(
                namespace = names.namespace,
                pod = names.name,
                "pod omitted, as uvmd would refuse its names: {refusal}"
            );
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
        let entry = Entry { names, object, deleted_at: None };
        let before = self.entries.get(&entry.names.uid);
        if before.is_none_or(|before| before.differs(&entry)) {
            self.generation += 1;
            self.entries.insert(entry.names.uid.clone(), entry);
        }
    }

    /// Marks a pod as deleted.
    pub fn delete(&mut self, pod: &PodObject, now: SystemTime) {
        let uid = names::of(pod, &self.labels).uid;
        if self.entries.get_mut(&uid).is_some_and(|entry| entry.mark_deleted(now)) {
            self.generation += 1;
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
            pods: existing.into_iter().chain(gone).take(PODS_MAX).map(names).collect(),
        }
    }
}

impl Entry {
    /// Marks the pod as deleted. Returns whether it existed.
    fn mark_deleted(&mut self, now: SystemTime) -> bool {
        self.object = None;
        let existed = self.deleted_at.is_none();
        self.deleted_at.get_or_insert(now);
        existed
    }

    fn differs(&self, other: &Self) -> bool {
        (&self.names, &self.object, self.deleted_at) != (&other.names, &other.object, other.deleted_at)
    }
}

#[cfg(test)]
mod tests {
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
