//! Policies compiled to overrides: for each pod the one that is selected, within what is allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use api::{fleet_overrides::ID_PREFIX, owner_names::Pod, rule};
use kube::api::ResourceExt;

use crate::{
    registry::Facts,
    resources::{Allowance, Budget, ClusterUvmPolicy, Directive, Mode, NodeStatus, Selector, UvmPolicy},
};

/// Annotation by which a pod opts out: the only value is `observe`.
const OPT_OUT: &str = "uvmd.io/mode";
/// Subtracted from priorities, so that overrides of the node come before those of the cluster.
const PRIORITY_OFFSET: i32 = 10_000;
/// Most of a policy, either way: uvmd refuses the file with one beyond it.
const PRIORITY_MAX: i32 = 1_000;
/// That of the highest policy. No other override of this program matches a pod that has opted out.
const PRIORITY_OF_OPT_OUT: i32 = PRIORITY_MAX - PRIORITY_OFFSET;
/// Most conflicts and rejected fields of a status.
const LISTED_MAX: usize = 10;
/// Most overrides: uvmd reads files of 1 MiB.
const OVERRIDES_MAX: usize = 2_000;
/// Bytes of an id before its hash.
const ID_NAME_BYTES: usize = 40;

/// A policy, by kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; `None` for a `ClusterUvmPolicy`.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Result of a compilation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// Overrides.
    pub overrides: Vec<rule::Override>,
    /// Status on this node of each policy that matches pods or has rejected fields.
    pub statuses: BTreeMap<Key, NodeStatus>,
}

/// Policies as the API server has them.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Of namespaces, by namespace and name.
    pub of_namespaces: BTreeMap<(String, String), UvmPolicy>,
    /// Of the cluster, by name.
    pub of_cluster: BTreeMap<String, ClusterUvmPolicy>,
}

/// Candidate for pods.
struct Candidate<'a> {
    key: Key,
    generation: i64,
    /// Namespaces; empty for all.
    namespaces: Vec<&'a str>,
    selector: &'a Selector,
    directive: Directive,
    rejected: Vec<String>,
    /// Whether it can be selected.
    is_valid: bool,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "UvmPolicy {namespace}/{}", self.name),
            None => write!(f, "ClusterUvmPolicy {}", self.name),
        }
    }
}

impl Policies {
    /// Compiles them for the pods of this node, which has GPUs of these models.
    #[must_use]
    pub fn compile<'a>(
        &self,
        node: &str,
        pods: impl Iterator<Item = (&'a Pod, &'a Facts)>,
        gpu_models: &BTreeSet<String>,
    ) -> Compiled {
        let mut candidates = self.candidates();
        candidates.sort_by(|one, other| one.rank().cmp(&other.rank()));
        let mut compiled = Compiled::default();
        for candidate in candidates.iter().filter(|candidate| !candidate.rejected.is_empty()) {
            compiled.statuses.insert(candidate.key.clone(), candidate.status(node));
        }
        for (pod, facts) in pods {
            let has_opted_out = facts.annotations.get(OPT_OUT).is_some_and(|mode| mode == Mode::Observe.name());
            let matching: Vec<&Candidate<'_>> =
                candidates.iter().filter(|candidate| candidate.matches(pod, facts, gpu_models)).collect();
            let selected = matching.iter().find(|candidate| candidate.is_valid).filter(|_| !has_opted_out);
            for candidate in &matching {
                let status = compiled.statuses.entry(candidate.key.clone()).or_insert_with(|| candidate.status(node));
                status.matched_pods += 1;
                match selected {
                    Some(selected) if selected.key == candidate.key => status.selected_pods += 1,
                    Some(selected) => note(&mut status.conflicts, selected.key.to_string()),
                    None if has_opted_out => {
                        note(&mut status.conflicts, format!("annotation {OPT_OUT} of {}/{}", pod.namespace, pod.name));
                    }
                    None => {}
                }
            }
            if has_opted_out {
                compiled.overrides.push(opt_out(pod));
            } else if let Some(selected) = selected {
                compiled.overrides.extend(selected.overrides(pod));
            }
        }
        compiled.overrides.truncate(OVERRIDES_MAX);
        compiled
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let of_cluster = self.of_cluster.iter().filter_map(|(name, policy)| {
            let key = Key { namespace: None, name: name.clone() };
            let namespaces = policy.spec.namespaces.iter().map(String::as_str).collect();
            let directive = policy.spec.directive.clone()?;
            Some(Candidate::new(
                key,
                policy.metadata.generation,
                namespaces,
                &policy.spec.selector,
                directive,
                Vec::new(),
            ))
        });
        let of_namespaces = self.of_namespaces.iter().map(|((namespace, name), policy)| {
            let key = Key { namespace: Some(namespace.clone()), name: name.clone() };
            let (directive, rejected) = within(policy.spec.directive.clone(), &self.allowance(namespace));
            let namespaces = vec![namespace.as_str()];
            Candidate::new(key, policy.metadata.generation, namespaces, &policy.spec.selector, directive, rejected)
        });
        of_cluster.chain(of_namespaces).collect()
    }

    /// What the policies of a namespace may ask for: observe, unless a policy of the cluster allows more.
    fn allowance(&self, namespace: &str) -> Allowance {
        let allowing = self.of_cluster.values().filter(|policy| {
            let namespaces = &policy.spec.namespaces;
            policy.spec.allow.is_some() && (namespaces.is_empty() || namespaces.iter().any(|each| each == namespace))
        });
        let first = allowing.min_by_key(|policy| (-policy.spec.priority, policy.name_any()));
        first.and_then(|policy| policy.spec.allow.clone()).unwrap_or_default()
    }
}

/// A directive cut to what is allowed, with the fields that were.
fn within(mut directive: Directive, allowed: &Allowance) -> (Directive, Vec<String>) {
    let mut rejected = Vec::new();
    if directive.mode > allowed.mode {
        rejected.push(format!(
            "spec.mode: {} is not allowed in this namespace, at most {} by its ClusterUvmPolicy",
            directive.mode.name(),
            allowed.mode.name()
        ));
        directive.mode = allowed.mode;
    }
    let mut cut = |field: &str, given: Option<i64>, most: Option<i64>| match (given, most) {
        (Some(given), Some(most)) if given > most => {
            rejected.push(format!("spec.budget.{field}: {given} is not allowed in this namespace, at most {most}"));
            Some(most)
        }
        (given, most) => given.or(most),
    };
    directive.budget = Budget {
        bytes_per_second: cut("bytesPerSecond", directive.budget.bytes_per_second, allowed.budget.bytes_per_second),
        bytes: cut("bytes", directive.budget.bytes, allowed.budget.bytes),
    };
    (directive, rejected)
}

impl<'a> Candidate<'a> {
    fn new(
        key: Key,
        generation: Option<i64>,
        namespaces: Vec<&'a str>,
        selector: &'a Selector,
        directive: Directive,
        mut rejected: Vec<String>,
    ) -> Self {
        let mut candidate = Self {
            key,
            generation: generation.unwrap_or_default(),
            namespaces,
            selector,
            directive,
            rejected: Vec::new(),
            is_valid: true,
        };
        // As uvmd reads it: one that it refuses would keep all others out.
        let given = candidate.to_override("check".to_owned(), model::Selector::default());
        let checked =
            model::Override::try_from(given).and_then(|rule| rule::check_parameters(&rule.policy, &rule.parameters));
        if let Err(rule::Invalid { field, detail }) = checked {
            rejected.push(format!("spec.{}: {detail}", camel(&field)));
            candidate.is_valid = false;
        }
        rejected.truncate(LISTED_MAX);
        candidate.rejected = rejected;
        candidate
    }

    /// Order of precedence: priority, then policies of namespaces, then names.
    fn rank(&self) -> (i32, bool, &Key) {
        (-self.directive.priority, self.key.namespace.is_none(), &self.key)
    }

    fn matches(&self, pod: &Pod, facts: &Facts, gpu_models: &BTreeSet<String>) -> bool {
        let Selector { match_labels, containers, gpu_models: wanted } = self.selector;
        (self.namespaces.is_empty() || self.namespaces.contains(&pod.namespace.as_str()))
            && match_labels.iter().all(|(key, value)| facts.labels.get(key) == Some(value))
            && (wanted.is_empty() || wanted.iter().any(|model| gpu_models.contains(model)))
            && (containers.is_empty() || pod.containers.values().any(|name| containers.contains(name)))
    }

    fn status(&self, node: &str) -> NodeStatus {
        NodeStatus {
            node: node.to_owned(),
            observed_generation: self.generation,
            rejected: self.rejected.clone(),
            ..NodeStatus::default()
        }
    }

    /// Overrides for a pod: one, or one for each container that the selector names.
    fn overrides(&self, pod: &Pod) -> Vec<rule::Override> {
        let all = self.selector.containers.is_empty().then_some(None);
        let named = pod.containers.iter().filter(|(_, name)| self.selector.containers.contains(name));
        let containers = all.into_iter().chain(named.map(|(id, _)| Some(id)));
        containers
            .map(|container| {
                let selector = model::Selector {
                    pod: Some(pod.uid.clone()),
                    container: container.cloned(),
                    ..model::Selector::default()
                };
                let scope = self.key.namespace.as_deref().unwrap_or("cluster");
                self.to_override(id(scope, &self.key.name, &(&self.key.namespace, &pod.uid, container)), selector)
            })
            .collect()
    }

    fn to_override(&self, id: String, selector: model::Selector) -> rule::Override {
        let Directive { mode, policy, parameters, budget, priority, expires_at } = &self.directive;
        let bytes = |bytes: Option<i64>| bytes.and_then(|bytes| u64::try_from(bytes).ok());
        rule::Override {
            id: Some(id),
            selector,
            mode: mode.name().to_owned(),
            policy: Some(policy.clone()),
            parameters: parameters.clone(),
            budget: model::Budget { bytes_per_second: bytes(budget.bytes_per_second), bytes: bytes(budget.bytes) },
            priority: priority.clamp(&-PRIORITY_MAX, &PRIORITY_MAX) - PRIORITY_OFFSET,
            expires_at: expires_at.clone(),
        }
    }
}

fn opt_out(pod: &Pod) -> rule::Override {
    rule::Override {
        id: Some(id("opt-out", &pod.namespace, &pod.uid)),
        selector: model::Selector { pod: Some(pod.uid.clone()), ..model::Selector::default() },
        mode: Mode::Observe.name().to_owned(),
        priority: PRIORITY_OF_OPT_OUT,
        ..rule::Override::default()
    }
}

/// Id of an override: readable as far as there is room, and unique by a hash.
fn id(scope: &str, name: &str, of: &impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    (scope, name).hash(&mut hasher);
    of.hash(&mut hasher);
    let mut readable = format!("{scope}.{name}");
    // Names of Kubernetes are ASCII.
    readable.truncate(ID_NAME_BYTES);
    format!("{ID_PREFIX}{readable}.{:016x}", hasher.finish())
}

fn note(list: &mut Vec<String>, text: String) {
    if list.len() < LISTED_MAX && !list.contains(&text) {
        list.push(text);
    }
}

/// `expires_at` as `expiresAt`.
fn camel(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |all, word| {
        let (head, rest) = word.split_at(word.len().min(1));
        all + &head.to_ascii_uppercase() + rest
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";

    fn pod(namespace: &str, labels: Value, annotations: Value) -> (Pod, Facts) {
        let containers = BTreeMap::from([("a".repeat(64), "train".to_owned()), ("b".repeat(64), "log".to_owned())]);
        let names = Pod {
            uid: UID.to_owned(),
            namespace: namespace.to_owned(),
            name: "llm-0".to_owned(),
            containers,
            ..Pod::default()
        };
        let map = |value: Value| serde_json::from_value(value).unwrap();
        (names, Facts { labels: map(labels), annotations: map(annotations) })
    }

    fn policies(namespaced: &[(&str, &str, Value)], cluster: &[(&str, Value)]) -> Policies {
        let mut policies = Policies::default();
        for (namespace, name, spec) in namespaced {
            let policy = UvmPolicy::new(name, serde_json::from_value(spec.clone()).unwrap());
            policies.of_namespaces.insert(((*namespace).to_owned(), (*name).to_owned()), policy);
        }
        for (name, spec) in cluster {
            let policy = ClusterUvmPolicy::new(name, serde_json::from_value(spec.clone()).unwrap());
            policies.of_cluster.insert((*name).to_owned(), policy);
        }
        policies
    }

    fn compile(policies: &Policies, pod: &(Pod, Facts)) -> Compiled {
        policies.compile("gpu-1", [(&pod.0, &pod.1)].into_iter(), &BTreeSet::from(["NVIDIA H200".to_owned()]))
    }

    /// Mode, policy and budget of the only override.
    fn only(compiled: &Compiled) -> (&str, &str, Option<u64>) {
        let [one] = compiled.overrides.as_slice() else { panic!("{:?}", compiled.overrides) };
        api::fleet_overrides::check(compiled.overrides.clone()).unwrap();
        assert_eq!(one.selector.pod.as_deref(), Some(UID));
        assert!(one.priority < 0, "overrides of the node come first");
        (&one.mode, one.policy.as_deref().unwrap_or_default(), one.budget.bytes_per_second)
    }

    fn status<'a>(compiled: &'a Compiled, name: &str) -> &'a NodeStatus {
        compiled.statuses.iter().find(|(key, _)| key.name == name).unwrap().1
    }

    #[test]
    fn policy_of_a_namespace_is_cut_to_what_the_cluster_allows() {
        let act = json!({ "mode": "act", "policy": "cycle", "budget": { "bytesPerSecond": 9 } });
        let ml = pod("ml", json!({}), json!({}));
        let alone = policies(&[("ml", "mine", act.clone())], &[]);
        let compiled = compile(&alone, &ml);
        assert_eq!(only(&compiled), ("observe", "cycle", Some(9)));
        assert!(status(&compiled, "mine").rejected[0].starts_with("spec.mode: act is not allowed"));

        let grant = json!({ "namespaces": ["ml"], "allow": { "mode": "act", "budget": { "bytesPerSecond": 5 } } });
        let compiled = compile(&policies(&[("ml", "mine", act.clone())], &[("grant", grant.clone())]), &ml);
        assert_eq!(only(&compiled), ("act", "cycle", Some(5)));
        assert!(status(&compiled, "mine").rejected[0].starts_with("spec.budget.bytesPerSecond: 9 is not allowed"));
        let without = json!({ "mode": "act" });
        let compiled = compile(&policies(&[("ml", "mine", without)], &[("grant", grant.clone())]), &ml);
        assert_eq!(only(&compiled), ("act", "auto-live", Some(5)), "no budget is not an unlimited one");
        let strict = json!({ "priority": 1, "allow": { "mode": "shadow" } });
        let compiled = compile(&policies(&[("ml", "mine", act)], &[("grant", grant), ("strict", strict)]), &ml);
        assert_eq!(only(&compiled).0, "shadow");
    }

    #[test]
    fn policy_of_a_namespace_reaches_no_pod_of_another() {
        let everywhere = json!({ "allow": { "mode": "act" } });
        let policies = policies(&[("ml", "mine", json!({ "mode": "act" }))], &[("all", everywhere)]);
        assert_eq!(compile(&policies, &pod("other", json!({}), json!({}))), Compiled::default());
    }

    #[test]
    fn selectors_match_labels_containers_and_gpu_models() {
        let of = |selector: Value| {
            let policies = policies(&[("ml", "mine", json!({ "mode": "observe", "selector": selector }))], &[]);
            compile(&policies, &pod("ml", json!({ "app": "llm" }), json!({}))).overrides
        };
        assert_eq!(of(json!({ "matchLabels": { "app": "llm" } })).len(), 1);
        assert_eq!(of(json!({ "matchLabels": { "app": "llm", "tier": "a" } })).len(), 0);
        assert_eq!(of(json!({ "gpuModels": ["NVIDIA H200", "NVIDIA L4"] })).len(), 1);
        assert_eq!(of(json!({ "gpuModels": ["NVIDIA L4"] })).len(), 0);
        let container = of(json!({ "containers": ["train"] }));
        assert_eq!(container[0].selector.container.as_deref(), Some("a".repeat(64).as_str()));
        assert_eq!(of(json!({ "containers": ["train", "log"] })).len(), 2);
        assert_eq!(of(json!({ "containers": ["none"] })).len(), 0);
    }

    #[test]
    fn one_policy_is_selected_and_the_others_name_it() {
        let spec = |mode: &str, priority: i32| json!({ "mode": mode, "priority": priority });
        let cluster = |priority| json!({ "directive": spec("shadow", priority), "allow": { "mode": "act" } });
        let ml = pod("ml", json!({}), json!({}));
        let both = [("ml", "a", spec("act", 0)), ("ml", "b", spec("observe", 0))];
        let compiled = compile(&policies(&both, &[("base", cluster(0))]), &ml);
        assert_eq!(only(&compiled).0, "act");
        assert_eq!((status(&compiled, "a").matched_pods, status(&compiled, "a").selected_pods), (1, 1));
        assert_eq!(
            (status(&compiled, "b").selected_pods, &status(&compiled, "b").conflicts[..]),
            (0, &["UvmPolicy ml/a".to_owned()][..])
        );
        assert_eq!(status(&compiled, "base").conflicts, ["UvmPolicy ml/a"]);
        let compiled = compile(&policies(&both, &[("base", cluster(1))]), &ml);
        assert_eq!(only(&compiled).0, "shadow");
    }

    #[test]
    fn annotation_opts_out_and_nothing_else() {
        let grant = [("grant", json!({ "allow": { "mode": "act" } }))];
        let with = |mode: &str| {
            let policies = policies(&[("ml", "mine", json!({ "mode": "shadow" }))], &grant);
            compile(&policies, &pod("ml", json!({}), json!({ "uvmd.io/mode": mode })))
        };
        let compiled = with("observe");
        assert_eq!(only(&compiled).0, "observe");
        assert_eq!(status(&compiled, "mine").conflicts, ["annotation uvmd.io/mode of ml/llm-0"]);
        assert_eq!(only(&with("act")).0, "shadow");
        let alone = compile(&Policies::default(), &pod("ml", json!({}), json!({ "uvmd.io/mode": "observe" })));
        assert_eq!(only(&alone).0, "observe", "also where the node's default is to act");
    }

    #[test]
    fn policy_that_uvmd_would_refuse_is_rejected_by_field_and_does_not_stop_others() {
        let odd = json!({ "mode": "observe", "policy": "cycle", "parameters": { "rest": "remot" }, "priority": 9 });
        let late = json!({ "mode": "observe", "expiresAt": "soon", "priority": 9 });
        let good = json!({ "mode": "observe", "policy": "tenants" });
        let compiled = compile(
            &policies(&[("ml", "odd", odd), ("ml", "late", late), ("ml", "good", good)], &[]),
            &pod("ml", json!({}), json!({})),
        );
        assert_eq!(only(&compiled).1, "tenants");
        assert!(status(&compiled, "odd").rejected[0].starts_with("spec.parameters.rest: expected \"stream\""));
        assert!(status(&compiled, "late").rejected[0].starts_with("spec.expiresAt: "));
    }
}
