//! Watch of policies, and the file of overrides compiled from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use futures_util::{Stream, StreamExt, stream};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, ResourceExt},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::Serialize;
use tokio::sync::watch;

use crate::{
    backoff::{NodeBackoff, WATCH_SECONDS},
    compile::{Compiled, Policies},
    file,
    registry::Registry,
    resources::{ClusterUvmPolicy, Key, Status, UvmPolicy},
    share,
    status::{DesiredStatuses, Statuses},
};

/// The driver's list of GPUs, which every user may read.
const GPUS: &str = "/proc/driver/nvidia/gpus";

/// Event of a watch, by kind of policy.
#[derive(Debug)]
pub enum Change {
    /// Of a namespace.
    OfNamespace(Event<UvmPolicy>),
    /// Of the cluster.
    OfCluster(Event<ClusterUvmPolicy>),
}

/// Interval of reads of [`GPUS`]: each may wake a GPU.
const MODELS_INTERVAL: Duration = Duration::from_mins(1);
/// Minimum interval of compilations, and so of writes: uvmd applies each of them.
const INTERVAL: Duration = Duration::from_secs(3);
/// Policies in a page of a list: with its statuses, one may have hundreds of kilobytes.
const PAGE_SIZE: u32 = 20;
/// Maximum of policies of a namespace, and of the cluster.
const POLICIES_MAX: usize = 100;
/// Maximum bytes of a policy, also where the API server has a schema without limits.
const POLICY_BYTES_MAX: usize = 64 << 10;

/// Maximum of refusals in the log between two lists.
const LOGGED_MAX: usize = 100;

/// Policies, and the file that follows them.
#[derive(Debug)]
pub struct PoliciesFile {
    path: PathBuf,
    node: String,
    /// Models of GPUs as configured; if empty, those that the driver lists.
    gpu_models: BTreeSet<String>,
    /// Models that the driver lists, and the time of the read.
    driver_models: Option<(BTreeSet<String>, SystemTime)>,
    policies: Policies,
    of_namespaces: Kind,
    of_cluster: Kind,
    /// Statuses of an earlier run, of which the first lists have this node's entries.
    former: Statuses,
    /// Input of the last compilation.
    compiled: Option<Input>,
    has_changed: bool,
    /// Text that was written last.
    written: Option<Vec<u8>>,
    statuses: watch::Sender<Option<DesiredStatuses>>,
}

/// State of a kind of policies.
#[derive(Debug, Default)]
struct Kind {
    /// Policies that the list in progress has had; `None` without one.
    listed: Option<BTreeSet<Key>>,
    /// Whether it was listed once.
    is_complete: bool,
    /// Refused policies that are in the log since the last list.
    logged: BTreeSet<Key>,
}

/// What a compilation depends on, beside the policies.
#[derive(Debug)]
struct Input {
    generation: u64,
    models: BTreeSet<String>,
    at: SystemTime,
    next_expiry: Option<SystemTime>,
}

/// Reason for which a policy is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Bytes,
    Count,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => write!(f, "more than {} KiB", POLICY_BYTES_MAX >> 10),
            Self::Count => write!(f, "more than {POLICIES_MAX} policies; delete some, and apply it anew"),
        }
    }
}

/// Changes of all policies, for ever.
pub fn changes(client: Client, node: &str) -> impl Stream<Item = watcher::Result<Change>> + use<> {
    let config = || watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE_SIZE);
    let of_namespaces = watcher(Api::<UvmPolicy>::all(client.clone()), config()).backoff(NodeBackoff::of(node));
    let of_cluster = watcher(Api::<ClusterUvmPolicy>::all(client), config()).backoff(NodeBackoff::of(node));
    stream::select(
        of_namespaces.map(|event| event.map(Change::OfNamespace)),
        of_cluster.map(|event| event.map(Change::OfCluster)),
    )
}

impl PoliciesFile {
    /// File at this path, on this node. Statuses go to `statuses`.
    #[must_use]
    pub fn new(
        path: PathBuf,
        node: String,
        gpu_models: BTreeSet<String>,
        statuses: watch::Sender<Option<DesiredStatuses>>,
    ) -> Self {
        Self {
            path,
            node,
            gpu_models,
            driver_models: None,
            policies: Policies::default(),
            of_namespaces: Kind::default(),
            of_cluster: Kind::default(),
            former: Statuses::new(),
            compiled: None,
            has_changed: false,
            written: None,
            statuses,
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        let Self { policies, of_namespaces, of_cluster, former, node, .. } = self;
        let has_changed = match change {
            Change::OfNamespace(event) => {
                let event = event.modify(|policy| note_former(former, node, key_of(policy), policy.status.take()));
                of_namespaces.take(event, &mut policies.of_namespaces, key_of, |one, other| one.spec == other.spec)
            }
            Change::OfCluster(event) => {
                let event = event.modify(|policy| note_former(former, node, key_of(policy), policy.status.take()));
                of_cluster.take(event, &mut policies.of_cluster, key_of, |one, other| one.spec == other.spec)
            }
        };
        self.has_changed |= has_changed;
    }

    /// Compiles the policies after a change, and writes the overrides if they differ. Until both kinds
    /// have been listed, the file of the previous run stays: an incomplete list may lack a restriction.
    ///
    /// # Errors
    /// If the file cannot be written; the next call tries again.
    pub fn update(&mut self, registry: &Registry, now: SystemTime) -> anyhow::Result<()> {
        // After the clock was set back, a compilation is due.
        let is_recent = |input: &Input| now.duration_since(input.at).is_ok_and(|age| age < INTERVAL);
        let is_complete = self.of_namespaces.is_complete && self.of_cluster.is_complete;
        if !is_complete || self.compiled.as_ref().is_some_and(is_recent) {
            return Ok(());
        }
        let models = self.models(now);
        let is_current = self.compiled.as_ref().is_some_and(|input| {
            !self.has_changed
                && input.generation == registry.generation()
                && input.models == models
                && input.at <= now
                && input.next_expiry.is_none_or(|at| now < at)
        });
        if is_current {
            return Ok(());
        }
        let Compiled { overrides, statuses, omitted_pods, next_expiry } =
            self.policies.compile(&self.node, registry.pods(), &models, now)?;
        self.statuses.send_replace(Some(DesiredStatuses { statuses, former: self.former.clone() }));
        let text = share::text(&overrides)?;
        if self.written.as_ref() != Some(&text) {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            }
            file::replace(&self.path, &text).with_context(|| format!("cannot write {}", self.path.display()))?;
            tracing::info!("{} overrides are written", overrides.len());
            if omitted_pods > 0 {
                tracing::warn!("{omitted_pods} pods have no override: the file has no room for more");
            }
            self.written = Some(text);
        }
        self.compiled = Some(Input { generation: registry.generation(), models, at: now, next_expiry });
        self.has_changed = false;
        Ok(())
    }
}

impl PoliciesFile {
    /// Models of the node's GPUs, if a policy selects by them.
    fn models(&mut self, now: SystemTime) -> BTreeSet<String> {
        if !self.gpu_models.is_empty() || !self.policies.select_models() {
            return self.gpu_models.clone();
        }
        // After the clock was set back, a read is due.
        let is_recent = |at: &SystemTime| now.duration_since(*at).is_ok_and(|age| age < MODELS_INTERVAL);
        match &self.driver_models {
            Some((models, at)) if is_recent(at) => models.clone(),
            _ => self.driver_models.insert((driver_models(), now)).0.clone(),
        }
    }
}

impl Kind {
    /// Takes an event over. Returns whether the policies differ from before.
    fn take<P: Resource<DynamicType = ()> + Serialize>(
        &mut self,
        event: Event<P>,
        all: &mut BTreeMap<Key, P>,
        key: impl Fn(&P) -> Key,
        is_same: impl Fn(&P, &P) -> bool,
    ) -> bool {
        match event {
            Event::Init => {
                *self = Self { listed: Some(BTreeSet::new()), is_complete: self.is_complete, ..Self::default() };
                false
            }
            Event::InitApply(mut policy) | Event::Apply(mut policy) => {
                let key = key(&policy);
                let before = all.get(&key);
                let own_meta = ObjectMeta {
                    name: policy.meta_mut().name.take(),
                    namespace: policy.meta_mut().namespace.take(),
                    generation: policy.meta().generation,
                    ..ObjectMeta::default()
                };
                // Without managed fields.
                *policy.meta_mut() = own_meta;
                if before.is_some_and(|before| {
                    before.meta().generation == policy.meta().generation && is_same(before, &policy)
                }) {
                    self.listed.as_mut().map(|listed| listed.insert(key));
                    return false;
                }
                if let Err(refusal) = self.check(&key, &policy, all) {
                    if self.logged.len() < LOGGED_MAX && self.logged.insert(key.clone()) {
                        tracing::warn!("{key} has no effect: {refusal}");
                    }
                    return all.remove(&key).is_some();
                }
                self.listed.as_mut().map(|listed| listed.insert(key.clone()));
                all.insert(key, policy);
                true
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let before = all.len();
                all.retain(|key, _| listed.contains(key));
                let was_complete = std::mem::replace(&mut self.is_complete, true);
                !was_complete || all.len() != before
            }
            Event::Delete(policy) => all.remove(&key(&policy)).is_some(),
        }
    }

    /// Whether there is room for a policy. During a list, those that it lacks so far take none.
    fn check<P: Serialize>(&self, key: &Key, policy: &P, all: &BTreeMap<Key, P>) -> Result<(), Refusal> {
        let bytes = serde_json::to_vec(policy).map_or(usize::MAX, |text| text.len());
        if bytes > POLICY_BYTES_MAX {
            return Err(Refusal::Bytes);
        }
        let first = Key { name: String::new(), ..key.clone() };
        let is_other = |other: &&Key| *other != key;
        let is_beside = |other: &&Key| other.namespace == key.namespace;
        let count = match &self.listed {
            Some(listed) => listed.range(&first..).take_while(is_beside).filter(is_other).count(),
            None => all.range(&first..).map(|(key, _)| key).take_while(is_beside).filter(is_other).count(),
        };
        if count < POLICIES_MAX { Ok(()) } else { Err(Refusal::Count) }
    }
}

fn key_of<P: Resource>(policy: &P) -> Key {
    Key { namespace: policy.namespace(), name: policy.name_any() }
}

/// Notes the entry of this node in a status that an earlier run has written.
fn note_former(former: &mut Statuses, node: &str, key: Key, status: Option<Status>) {
    let own = status.and_then(|status| status.nodes.into_iter().find(|entry| entry.node == node));
    match own {
        Some(own) => drop(former.insert(key, own)),
        None => drop(former.remove(&key)),
    }
}

/// Models of the GPUs that the driver lists; none without it.
fn driver_models() -> BTreeSet<String> {
    let folders = fs::read_dir(GPUS).into_iter().flatten().flatten();
    let texts = folders.filter_map(|folder| fs::read_to_string(folder.path().join("information")).ok());
    texts.filter_map(|text| model_of(&text)).collect()
}

fn model_of(text: &str) -> Option<String> {
    let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim();
    (!model.is_empty()).then(|| model.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{pod::PodObject, resources::NodeStatus};

    const START: SystemTime = SystemTime::UNIX_EPOCH;
    const SECOND: Duration = Duration::from_secs(1);
    const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";

    fn policy(name: &str, mode: &str) -> UvmPolicy {
        let mut policy = UvmPolicy::new(name, serde_json::from_value(json!({ "mode": mode })).unwrap());
        policy.metadata.namespace = Some("ml".to_owned());
        policy.metadata.managed_fields = Some(Vec::new());
        policy
    }

    fn pods() -> Registry {
        let mut registry = Registry::new(BTreeSet::new(), SECOND);
        registry.apply(&pod("llm-0", UID));
        registry
    }

    fn pod(name: &str, uid: &str) -> PodObject {
        let metadata = json!({ "uid": uid, "namespace": "ml", "name": name });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {} })).unwrap()
    }

    fn listed(path: PathBuf, policies: &[UvmPolicy]) -> (PoliciesFile, watch::Receiver<Option<DesiredStatuses>>) {
        let (statuses, wanted) = watch::channel(None);
        let mut file = PoliciesFile::new(path, "gpu-1".to_owned(), ["NVIDIA H200".to_owned()].into(), statuses);
        file.apply(Change::OfCluster(Event::Init));
        file.apply(Change::OfCluster(Event::InitDone));
        file.apply(Change::OfNamespace(Event::Init));
        for policy in policies {
            file.apply(Change::OfNamespace(Event::InitApply(policy.clone())));
        }
        file.apply(Change::OfNamespace(Event::InitDone));
        (file, wanted)
    }

    #[test]
    fn writes_have_an_interval_and_follow_changes_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/overrides.json");
        let (mut file, _wanted) = listed(path.clone(), &[policy("mine", "observe")]);
        let mut registry = pods();
        let count = || serde_json::from_slice::<Vec<Value>>(&fs::read(&path).unwrap()).unwrap().len();
        file.update(&registry, START).unwrap();
        assert_eq!(count(), 1);
        registry.apply(&pod("llm-1", "3f2a9c1e-1111-2222-3333-555555555555"));
        file.update(&registry, START + SECOND * 2).unwrap();
        assert_eq!(count(), 1, "within the interval");
        file.update(&registry, START + SECOND * 3).unwrap();
        assert_eq!(count(), 2);
        let compiled_at = |file: &PoliciesFile| file.compiled.as_ref().unwrap().at;
        let mut same = policy("mine", "observe");
        same.status = Some(Status::default());
        same.metadata.resource_version = Some("7".to_owned());
        file.apply(Change::OfNamespace(Event::Apply(same)));
        file.update(&registry, START + SECOND * 9).unwrap();
        assert_eq!(compiled_at(&file), START + SECOND * 3, "a status is no change");
        file.apply(Change::OfNamespace(Event::Delete(policy("mine", "observe"))));
        file.update(&registry, START + SECOND * 9).unwrap();
        assert_eq!(count(), 0);
    }

    #[test]
    fn policies_beyond_the_maximum_of_a_namespace_have_no_effect() {
        let folder = tempfile::tempdir().unwrap();
        let many: Vec<_> = (0..POLICIES_MAX + 5).map(|number| policy(&format!("{number:03}"), "observe")).collect();
        let (mut file, _wanted) = listed(folder.path().join("overrides.json"), &many);
        assert_eq!(file.policies.of_namespaces.len(), POLICIES_MAX);
        assert_eq!(file.of_namespaces.logged.len(), 5);
        file.apply(Change::OfNamespace(Event::Apply(policy("one", "observe"))));
        assert_eq!(file.policies.of_namespaces.len(), POLICIES_MAX);
        file.apply(Change::OfNamespace(Event::Delete(policy("000", "observe"))));
        file.apply(Change::OfNamespace(Event::Apply(policy("one", "observe"))));
        assert!(file.policies.of_namespaces.keys().any(|key| key.name == "one"));
        // A list that lacks the earlier ones has room from its beginning.
        file.apply(Change::OfNamespace(Event::Init));
        file.apply(Change::OfNamespace(Event::InitApply(policy("two", "observe"))));
        file.apply(Change::OfNamespace(Event::InitDone));
        assert_eq!(file.policies.of_namespaces.keys().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn policy_of_too_many_bytes_has_no_effect() {
        let folder = tempfile::tempdir().unwrap();
        let mut large = policy("large", "observe");
        large.spec.selector.match_labels.insert("x".repeat(POLICY_BYTES_MAX), String::new());
        let (file, _wanted) = listed(folder.path().join("overrides.json"), &[large]);
        assert!(file.policies.of_namespaces.is_empty());
    }

    #[test]
    fn policies_are_stored_without_status_and_the_entry_of_an_earlier_run_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut former = policy("mine", "observe");
        let entry = |node: &str| NodeStatus { node: node.to_owned(), ..NodeStatus::default() };
        former.status = Some(Status { nodes: vec![entry("gpu-2"), entry("gpu-1")] });
        let (mut file, wanted) = listed(folder.path().join("overrides.json"), &[former]);
        let stored = file.policies.of_namespaces.values().next().unwrap();
        assert!(stored.status.is_none() && stored.metadata.managed_fields.is_none());
        file.update(&Registry::new(BTreeSet::new(), SECOND), START).unwrap();
        let wanted = wanted.borrow().clone().unwrap();
        assert!(wanted.statuses.is_empty());
        assert_eq!(wanted.former.values().collect::<Vec<_>>(), [&entry("gpu-1")]);
    }

    #[test]
    fn model_of_a_gpu_is_that_of_the_driver() {
        assert_eq!(model_of("Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\n"), Some("NVIDIA H200".to_owned()));
        assert_eq!(model_of("IRQ: 16\n"), None);
    }
}
