//! Compilation of policies to overrides: for each pod the selected policy, cut to its limits.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use api::{
    fleet_overrides::{ID_PREFIX, PRIORITIES},
    owner_names::Pod,
    rule,
};
use kube::api::ResourceExt;

use crate::{
    registry::Facts,
    resources::{Allowance, Budget, ClusterUvmPolicy, Directive, Key, Mode, NodeStatus, Selector, UvmPolicy},
    share::{self, Claim, Class, ROOM},
};

/// Annotation by which a pod opts out of policies. `observe` is its only value.
const OPT_OUT: &str = "uvmd.io/mode";
/// Offset subtracted from priorities, so that overrides made on the node precede those of policies.
const PRIORITY_OFFSET: i32 = 10_000;
/// Maximum priority of a policy, positive or negative: uvmd refuses the file with one beyond it.
const PRIORITY_MAX: i32 = 1_000;
/// Priority of an opt-out: that of the highest policy. No other override of this program matches a
/// pod that has opted out.
const PRIORITY_OF_OPT_OUT: i32 = PRIORITY_MAX - PRIORITY_OFFSET;
const _: () = assert!(*PRIORITIES.end() == PRIORITY_OF_OPT_OUT);
const _: () = assert!(*PRIORITIES.start() == -PRIORITY_MAX - PRIORITY_OFFSET);
/// Maximum of conflicts, and of rejected fields, in a status.
const LISTED_MAX: usize = 10;
/// Digits of a container in an id.
const ID_CONTAINER_DIGITS: usize = 12;

/// Result of a compilation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compiled {
    /// Overrides.
    pub overrides: Vec<rule::Override>,
    /// Status on this node of each policy that matches pods here.
    pub statuses: BTreeMap<Key, NodeStatus>,
    /// Pods whose overrides have no room in the file.
    pub omitted_pods: usize,
    /// Time at which the next policy expires.
    pub next_expiry: Option<SystemTime>,
}

/// Policies as the API server has them.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Of namespaces.
    pub of_namespaces: BTreeMap<Key, UvmPolicy>,
    /// Of the cluster.
    pub of_cluster: BTreeMap<Key, ClusterUvmPolicy>,
}

/// Policy that may be selected for pods.
struct Candidate<'a> {
    key: Key,
    generation: i64,
    /// Namespaces; empty for all.
    namespaces: Vec<&'a str>,
    selector: &'a Selector,
    directive: Directive,
    rejected: Vec<String>,
    /// Whether uvmd would accept its overrides. Otherwise it is never selected.
    is_valid: bool,
    expires_at: Option<SystemTime>,
}

/// Candidate that is selected for containers of a pod.
struct Selected<'a> {
    /// Position among the candidates that match the pod.
    rank: usize,
    candidate: &'a Candidate<'a>,
    /// Containers by id; `None` stands for the whole pod.
    containers: Vec<Option<&'a String>>,
}

impl Policies {
    /// Compiles the policies for the pods of this node. `gpu_models` are those of its GPUs.
    ///
    /// # Errors
    /// If an override cannot be written.
    pub fn compile<'a>(
        &self,
        node: &str,
        pods: impl Iterator<Item = (&'a Pod, &'a Facts)>,
        gpu_models: &BTreeSet<String>,
        now: SystemTime,
    ) -> serde_json::Result<Compiled> {
        let mut candidates = self.candidates(now);
        candidates.sort_by(|one, other| one.rank().cmp(&other.rank()));
        let expiries = candidates.iter().filter_map(|candidate| candidate.expires_at);
        let next_expiry = expiries.filter(|at| *at > now).min();
        let mut statuses = BTreeMap::new();
        let mut claims = Vec::new();
        for (pod, facts) in pods {
            let matching: Vec<&Candidate<'_>> =
                candidates.iter().filter(|candidate| candidate.matches(pod, facts, gpu_models)).collect();
            let has_opted_out = facts.annotations.get(OPT_OUT).is_some_and(|mode| mode == Mode::Observe.name());
            let selection = if has_opted_out { Vec::new() } else { select(&matching, pod) };
            for (rank, candidate) in matching.iter().enumerate() {
                let status: &mut NodeStatus =
                    statuses.entry(candidate.key.clone()).or_insert_with(|| candidate.status(node));
                status.matched_pods += 1;
                let is_selected = selection.iter().any(|selected| selected.rank == rank);
                status.selected_pods += i64::from(is_selected);
                let others = selection.iter().filter(|selected| selected.rank < rank || !is_selected);
                for other in others.filter(|other| other.candidate.overlaps(candidate)) {
                    note(&mut status.conflicts, other.candidate.key.to_string());
                }
                if has_opted_out {
                    note(&mut status.conflicts, format!("annotation {OPT_OUT} of {}/{}", pod.namespace, pod.name));
                }
            }
            claims.extend(if has_opted_out { Some(opt_out(pod)) } else { claim(pod, &selection) });
        }
        let (placed, omitted) = share::divide(claims, ROOM)?;
        for key in omitted.iter().flat_map(|claim| &claim.selected) {
            if let Some(status) = statuses.get_mut(key) {
                status.omitted_pods += 1;
            }
        }
        let overrides = placed.into_iter().flat_map(|claim| claim.overrides).collect();
        Ok(Compiled { overrides, statuses, omitted_pods: omitted.len(), next_expiry })
    }

    /// Whether any policy selects by models of GPUs.
    #[must_use]
    pub fn select_models(&self) -> bool {
        let of_namespaces = self.of_namespaces.values().map(|policy| &policy.spec.selector);
        let of_cluster = self.of_cluster.values().map(|policy| &policy.spec.selector);
        of_namespaces.chain(of_cluster).any(|selector| !selector.gpu_models.is_empty())
    }

    fn candidates(&self, now: SystemTime) -> Vec<Candidate<'_>> {
        let of_cluster = self.of_cluster.iter().filter_map(|(key, policy)| {
            let namespaces = policy.spec.namespaces.iter().map(String::as_str).collect();
            let directive = policy.spec.directive.clone()?;
            Some(Candidate::new(
                key.clone(),
                policy.metadata.generation,
                namespaces,
                &policy.spec.selector,
                directive,
                Vec::new(),
                now,
            ))
        });
        let of_namespaces = self.of_namespaces.iter().map(|(key, policy)| {
            let namespace = key.namespace.as_deref().unwrap_or_default();
            let (directive, rejected) = within(policy.spec.directive.clone(), &self.allowance(namespace));
            let namespaces = vec![namespace];
            Candidate::new(
                key.clone(),
                policy.metadata.generation,
                namespaces,
                &policy.spec.selector,
                directive,
                rejected,
                now,
            )
        });
        of_cluster.chain(of_namespaces).collect()
    }

    /// Limits of the policies of a namespace: mode `observe`, unless a policy of the cluster allows more.
    fn allowance(&self, namespace: &str) -> Allowance {
        let allowing = self.of_cluster.values().filter(|policy| {
            let namespaces = &policy.spec.namespaces;
            policy.spec.allow.is_some() && (namespaces.is_empty() || namespaces.iter().any(|each| each == namespace))
        });
        let first = allowing.min_by_key(|policy| (Reverse(policy.spec.priority), policy.name_any()));
        first.and_then(|policy| policy.spec.allow.clone()).unwrap_or_default()
    }
}

/// Directive cut to its limits, and the reasons of the cuts.
fn within(mut directive: Directive, allowed: &Allowance) -> (Directive, Vec<String>) {
    let mut rejected = Vec::new();
    if directive.mode > allowed.mode {
        rejected.push(format!(
            "spec.mode: {} is not allowed in this namespace, at most {}, by a ClusterUvmPolicy or by default",
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
        now: SystemTime,
    ) -> Self {
        let mut candidate = Self {
            key,
            generation: generation.unwrap_or_default(),
            namespaces,
            selector,
            directive,
            rejected: Vec::new(),
            is_valid: true,
            expires_at: None,
        };
        // The check of uvmd, which refuses a file as a whole if one override is invalid.
        let given = candidate.to_override("check".to_owned(), model::Selector::default());
        let checked = model::Override::try_from(given).and_then(|rule| {
            rule::check_parameters(&rule.policy, &rule.parameters)?;
            Ok(rule.expires_at)
        });
        match checked {
            Ok(expires_at) => {
                candidate.expires_at = expires_at;
                if expires_at.is_some_and(|at| at <= now) {
                    rejected.insert(0, "spec.expiresAt: expired".to_owned());
                    candidate.is_valid = false;
                }
            }
            Err(rule::Invalid { field, detail }) => {
                rejected.push(format!("spec.{}: {detail}", camel(&field)));
                candidate.is_valid = false;
            }
        }
        rejected.truncate(LISTED_MAX);
        candidate.rejected = rejected;
        candidate
    }

    /// Order of precedence: priority, then policies of namespaces, then names.
    fn rank(&self) -> (Reverse<i32>, bool, &Key) {
        (Reverse(self.directive.priority), self.key.namespace.is_none(), &self.key)
    }

    fn matches(&self, pod: &Pod, facts: &Facts, gpu_models: &BTreeSet<String>) -> bool {
        let Selector { match_labels, containers, gpu_models: wanted } = self.selector;
        // Whoever creates a pod may write the hash of a static pod: no right of a namespace reaches that far.
        (self.key.namespace.is_none() || !is_static(pod))
            && (self.namespaces.is_empty() || self.namespaces.contains(&pod.namespace.as_str()))
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

    /// Whether a container can be one of both.
    fn overlaps(&self, other: &Self) -> bool {
        let (own, others) = (&self.selector.containers, &other.selector.containers);
        own.is_empty() || others.is_empty() || own.iter().any(|name| others.contains(name))
    }

    fn to_override(&self, id: String, selector: model::Selector) -> rule::Override {
        let Directive { mode, policy, parameters, budget, priority, expires_at } = &self.directive;
        // A budget below 0 must not become unlimited: 0 is refused.
        let bytes = |bytes: Option<i64>| bytes.map(|bytes| u64::try_from(bytes).unwrap_or(0));
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

/// Selection for the containers of a pod: each has the first valid candidate that selects it.
fn select<'a>(matching: &[&'a Candidate<'a>], pod: &'a Pod) -> Vec<Selected<'a>> {
    let mut selection = Vec::new();
    let mut rest = pod.containers.clone();
    for (rank, candidate) in matching.iter().copied().enumerate().filter(|(_, candidate)| candidate.is_valid) {
        let names = &candidate.selector.containers;
        if names.is_empty() {
            // Also for containers that start later.
            selection.push(Selected { rank, candidate, containers: vec![None] });
            break;
        }
        let own = pod.containers.keys().filter(|id| rest.get(*id).is_some_and(|name| names.contains(name)));
        let own: Vec<_> = own.map(Some).collect();
        rest.retain(|_, name| !names.contains(name));
        if !own.is_empty() {
            selection.push(Selected { rank, candidate, containers: own });
        }
    }
    selection
}

/// Overrides of the selected candidates of a pod; `None` without any.
fn claim(pod: &Pod, selection: &[Selected<'_>]) -> Option<Claim> {
    let mut ids = BTreeSet::new();
    let mut overrides = Vec::new();
    for Selected { rank: _, candidate, containers } in selection {
        for container in containers {
            let id = id(pod, *container, &candidate.key.name);
            if !ids.insert(id.clone()) {
                tracing::warn!("{id} is omitted: another container of the pod has this id");
                continue;
            }
            let selector = model::Selector {
                pod: Some(pod.uid.clone()),
                container: container.cloned(),
                ..model::Selector::default()
            };
            overrides.push(candidate.to_override(id, selector));
        }
    }
    let only_observes = overrides.iter().all(|rule| rule.mode == Mode::Observe.name());
    (!overrides.is_empty()).then(|| Claim {
        namespace: pod.namespace.clone(),
        class: if only_observes { Class::Observe } else { Class::Other },
        selected: selection.iter().map(|selected| selected.candidate.key.clone()).collect(),
        overrides,
    })
}

fn opt_out(pod: &Pod) -> Claim {
    let rule = rule::Override {
        id: Some(id(pod, None, "opt-out")),
        selector: model::Selector { pod: Some(pod.uid.clone()), ..model::Selector::default() },
        mode: Mode::Observe.name().to_owned(),
        priority: PRIORITY_OF_OPT_OUT,
        ..rule::Override::default()
    };
    Claim { namespace: pod.namespace.clone(), class: Class::OptOut, selected: Vec::new(), overrides: vec![rule] }
}

/// Whether a hash stands in place of the UID.
fn is_static(pod: &Pod) -> bool {
    !pod.uid.contains('-')
}

/// Id of an override: the pod and the container, which make it unique, and the beginning of the
/// policy's name.
fn id(pod: &Pod, container: Option<&String>, name: &str) -> String {
    let mut id = format!("{ID_PREFIX}{}", pod.uid);
    if let Some(container) = container {
        id.push('-');
        id.extend(container.chars().take(ID_CONTAINER_DIGITS));
    }
    id.push('.');
    // Names of Kubernetes are ASCII.
    id.extend(name.chars().take(rule::ID_MAX_BYTES.saturating_sub(id.len())));
    id
}

fn note(list: &mut Vec<String>, text: String) {
    if list.len() < LISTED_MAX && !list.contains(&text) {
        list.push(text);
    }
}

/// `expires_at` as `expiresAt`. Names of parameters stay as they are.
fn camel(field: &str) -> String {
    if field.starts_with("parameters.") {
        return field.to_owned();
    }
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

    fn key(namespace: Option<&str>, name: &str) -> Key {
        Key { namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    fn policies(namespaced: &[(&str, &str, Value)], cluster: &[(&str, Value)]) -> Policies {
        let mut policies = Policies::default();
        for (namespace, name, spec) in namespaced {
            let policy = UvmPolicy::new(name, serde_json::from_value(spec.clone()).unwrap());
            policies.of_namespaces.insert(key(Some(namespace), name), policy);
        }
        for (name, spec) in cluster {
            let policy = ClusterUvmPolicy::new(name, serde_json::from_value(spec.clone()).unwrap());
            policies.of_cluster.insert(key(None, name), policy);
        }
        policies
    }

    fn compile(policies: &Policies, pod: &(Pod, Facts)) -> Compiled {
        compile_all(policies, std::slice::from_ref(pod), NOW)
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn compile_all(policies: &Policies, pods: &[(Pod, Facts)], now: SystemTime) -> Compiled {
        let models = BTreeSet::from(["NVIDIA H200".to_owned()]);
        policies.compile("gpu-1", pods.iter().map(|(pod, facts)| (pod, facts)), &models, now).unwrap()
    }

    /// Mode, policy and budget of the only override.
    fn only(compiled: &Compiled) -> (&str, &str, Option<u64>) {
        let [one] = compiled.overrides.as_slice() else { panic!("{:?}", compiled.overrides) };
        api::fleet_overrides::check(compiled.overrides.clone()).unwrap();
        assert_eq!(one.selector.pod.as_deref(), Some(UID));
        assert!((-11_000..=-9_000).contains(&one.priority), "overrides of the node come first");
        assert!(one.id.as_ref().unwrap().starts_with("fleet-3f2a9c1e-1111-2222-3333-444444444444"));
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
        // The schema refuses it, unless it is an old one.
        let below = json!({ "mode": "observe", "budget": { "bytes": -1 }, "priority": 9 });
        let good = json!({ "mode": "observe", "policy": "tenants" });
        let compiled = compile(
            &policies(&[("ml", "odd", odd), ("ml", "late", late), ("ml", "below", below), ("ml", "good", good)], &[]),
            &pod("ml", json!({}), json!({})),
        );
        assert_eq!(only(&compiled).1, "tenants");
        assert!(status(&compiled, "odd").rejected[0].starts_with("spec.parameters.rest: expected \"stream\""));
        assert!(status(&compiled, "late").rejected[0].starts_with("spec.expiresAt: "));
        assert!(status(&compiled, "below").rejected[0].starts_with("spec.budget"), "no unlimited one");
    }

    #[test]
    fn policy_without_pods_on_this_node_has_no_status_here() {
        let act = json!({ "mode": "act", "selector": { "matchLabels": { "app": "other" } } });
        let compiled = compile(&policies(&[("ml", "mine", act)], &[]), &pod("ml", json!({}), json!({})));
        assert_eq!(compiled, Compiled::default());
    }

    #[test]
    fn expired_policy_gives_way_to_the_next() {
        let late = json!({ "mode": "shadow", "priority": 9, "expiresAt": "1970-01-01T00:01:00Z" });
        let policies = policies(
            &[("ml", "late", late), ("ml", "next", json!({ "mode": "observe" }))],
            &[("all", json!({ "allow": { "mode": "act" } }))],
        );
        let ml = [pod("ml", json!({}), json!({}))];
        let expiry = NOW + std::time::Duration::from_mins(1);
        let compiled = compile_all(&policies, &ml, NOW);
        assert_eq!((only(&compiled).0, compiled.next_expiry), ("shadow", Some(expiry)));
        let compiled = compile_all(&policies, &ml, expiry);
        assert_eq!((only(&compiled).0, compiled.next_expiry), ("observe", None));
        assert_eq!(status(&compiled, "late").rejected, ["spec.expiresAt: expired"]);
        assert_eq!(status(&compiled, "late").conflicts, ["UvmPolicy ml/next"]);
    }

    #[test]
    fn container_that_a_policy_does_not_select_has_the_next_policy() {
        let policies = policies(
            &[
                ("ml", "train", json!({ "mode": "act", "priority": 9, "selector": { "containers": ["train"] } })),
                ("ml", "rest", json!({ "mode": "shadow" })),
                ("ml", "last", json!({ "mode": "observe", "priority": -1 })),
            ],
            &[("all", json!({ "allow": { "mode": "act" } }))],
        );
        let compiled = compile(&policies, &pod("ml", json!({}), json!({})));
        let found: Vec<_> = compiled
            .overrides
            .iter()
            .map(|each| (each.selector.container.as_deref().map(|id| &id[..1]), each.mode.as_str(), each.priority))
            .collect();
        assert_eq!(found, [(Some("a"), "act", -9_991), (None, "shadow", -10_000)]);
        assert_eq!(status(&compiled, "train").conflicts, [""; 0]);
        assert_eq!(
            (status(&compiled, "rest").selected_pods, &status(&compiled, "rest").conflicts[0][..]),
            (1, "UvmPolicy ml/train")
        );
        assert_eq!(status(&compiled, "last").selected_pods, 0);
    }

    #[test]
    fn static_pod_has_policies_of_the_cluster_alone() {
        let mut ml = pod("ml", json!({}), json!({}));
        ml.0.uid = "0123456789abcdef0123456789abcdef".to_owned();
        let own = [("ml", "mine", json!({ "mode": "observe" }))];
        assert_eq!(compile(&policies(&own, &[]), &ml), Compiled::default());
        let base = [("base", json!({ "directive": { "mode": "shadow", "priority": -9 } }))];
        assert_eq!(compile(&policies(&own, &base), &ml).overrides[0].mode, "shadow");
    }

    #[test]
    fn ids_are_unique_by_pod_and_container_and_valid_for_the_longest_names() {
        let long = "n".repeat(253);
        let of = |selector: Value| {
            let policies = policies(&[("ml", &long, json!({ "mode": "observe", "selector": selector }))], &[]);
            let overrides = compile(&policies, &pod("ml", json!({}), json!({}))).overrides;
            overrides.into_iter().map(|each| model::Override::try_from(each).unwrap().id).collect::<Vec<_>>()
        };
        assert_eq!(of(json!({})), [format!("fleet-{UID}.{}", "n".repeat(21))]);
        let of_containers = of(json!({ "containers": ["train", "log"] }));
        assert_eq!(
            of_containers,
            [format!("fleet-{UID}-{}.nnnnnnnn", "a".repeat(12)), format!("fleet-{UID}-{}.nnnnnnnn", "b".repeat(12))]
        );
    }

    #[test]
    fn opt_out_holds_on_a_node_with_too_many_pods() {
        let policies =
            policies(&[("ml", "mine", json!({ "mode": "shadow" }))], &[("all", json!({ "allow": { "mode": "act" } }))]);
        let mut pods: Vec<_> = (0..2_100)
            .map(|number| {
                let mut each = pod("ml", json!({}), json!({}));
                each.0.uid = format!("3f2a9c1e-1111-2222-3333-{number:012}");
                each
            })
            .collect();
        pods.last_mut().unwrap().1.annotations.insert(OPT_OUT.to_owned(), "observe".to_owned());
        let compiled = compile_all(&policies, &pods, NOW);
        assert_eq!((compiled.overrides.len(), compiled.omitted_pods), (2_000, 100));
        assert_eq!(compiled.overrides[0].mode, "observe");
        assert_eq!(status(&compiled, "mine").omitted_pods, 100);
    }
}
