//! Custom resources: policies of a namespace, and of the cluster. They have the fields of an override
//! ([`api::rule::Override`]), with a selector of pods.

use std::{borrow::Cow, collections::BTreeMap};

use kube::{CustomResource, CustomResourceExt};
use model::policy::{CHOOSER, Choice, POLICIES};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Key of a policy: its kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Namespace; `None` for a `ClusterUvmPolicy`.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "UvmPolicy {namespace}/{}", self.name),
            None => write!(f, "ClusterUvmPolicy {}", self.name),
        }
    }
}

/// Policy of the pods of its namespace, within the limits of a `ClusterUvmPolicy`; without one, mode `observe` alone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "uvmd.io",
    version = "v1alpha1",
    kind = "UvmPolicy",
    namespaced,
    status = "Status",
    shortname = "uvmpol",
    doc = "Mode, policy and budget of the pods of a namespace, as an override of uvmd.",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.mode"}"#,
    printcolumn = r#"{"name": "Policy", "type": "string", "jsonPath": ".spec.policy"}"#,
    printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"}"#,
    printcolumn = r#"{"name": "Expires", "type": "string", "jsonPath": ".spec.expiresAt"}"#,
    printcolumn = r#"{"name": "Nodes", "type": "string", "jsonPath": ".status.nodes[*].node", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct UvmPolicySpec {
    /// Pods that the policy applies to; all of the namespace by default.
    #[serde(default)]
    pub selector: Selector,
    /// Directive for their processes.
    #[serde(flatten)]
    pub directive: Directive,
}

/// Policy of pods of the cluster, and limits of the policies of namespaces.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "uvmd.io",
    version = "v1alpha1",
    kind = "ClusterUvmPolicy",
    status = "Status",
    shortname = "cuvmpol",
    doc = "Mode, policy and budget of pods of the cluster, and limits of the UvmPolicy objects of their namespaces.",
    printcolumn = r#"{"name": "Mode", "type": "string", "jsonPath": ".spec.directive.mode"}"#,
    printcolumn = r#"{"name": "Allows", "type": "string", "jsonPath": ".spec.allow.mode"}"#,
    printcolumn = r#"{"name": "Policy", "type": "string", "jsonPath": ".spec.directive.policy"}"#,
    printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority"}"#,
    printcolumn = r#"{"name": "Nodes", "type": "string", "jsonPath": ".status.nodes[*].node", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUvmPolicySpec {
    /// Namespaces by name; all by default.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub namespaces: Vec<String>,
    /// Pods of those namespaces that the directive applies to; all by default.
    #[serde(default)]
    pub selector: Selector,
    /// Directive for their processes; none by default.
    #[serde(default)]
    pub directive: Option<Directive>,
    /// Limits of the `UvmPolicy` objects of those namespaces. If several `ClusterUvmPolicy` objects set limits, those
    /// of the highest priority apply.
    #[serde(default)]
    pub allow: Option<Allowance>,
    /// Precedence among `ClusterUvmPolicy` objects that set limits. A directive has a priority of its own.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
}

/// Selector of pods. All given fields must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Labels that a pod must have.
    #[serde(default)]
    #[schemars(schema_with = "texts::<64>")]
    pub match_labels: BTreeMap<String, String>,
    /// Containers by name; all by default.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(max = 253)))]
    pub containers: Vec<String>,
    /// Models of GPUs, such as `NVIDIA H200`: nodes with one of them; all by default.
    #[serde(default)]
    #[schemars(length(max = 32), inner(length(max = 253)))]
    pub gpu_models: Vec<String>,
}

/// Mode, policy and limits, as an override has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Directive {
    /// Mode: `observe` does nothing, `shadow` reports what `act` would do, `act` does it.
    pub mode: Mode,
    /// Name of the policy.
    #[serde(default = "chooser")]
    #[schemars(schema_with = "policies")]
    pub policy: String,
    /// Parameters of the policy, by name.
    #[serde(default)]
    #[schemars(schema_with = "texts::<16>")]
    pub parameters: BTreeMap<String, String>,
    /// Limits of migration.
    #[serde(default)]
    pub budget: Budget,
    /// Precedence: of the policies that match a pod, the highest is selected, then that of the namespace, then the first name.
    /// Overrides that are made on the node precede all of them.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// Time of expiry, in RFC 3339; never by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), extend("format" = "date-time"))]
    pub expires_at: Option<String>,
}

/// Limits of the `UvmPolicy` objects of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allowance {
    /// Highest mode.
    pub mode: Mode,
    /// Limits of migration of a process.
    #[serde(default)]
    pub budget: Budget,
}

/// Mode of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Does nothing.
    #[default]
    Observe,
    /// Reports what `act` would do.
    Shadow,
    /// Acts.
    Act,
}

/// Limits of migration, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes_per_second: Option<i64>,
    /// Bytes in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bytes: Option<i64>,
}

/// Result of a policy, by node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Nodes with matching pods. Each node writes its own entry.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub nodes: Vec<NodeStatus>,
}

/// Result of a policy on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Name of the node.
    pub node: String,
    /// Generation of the policy that this entry describes.
    pub observed_generation: i64,
    /// Matching pods.
    pub matched_pods: i64,
    /// Pods for which it is selected.
    pub selected_pods: i64,
    /// Matching pods without an override, as the node's file has no room for more.
    #[serde(default)]
    pub omitted_pods: i64,
    /// Policies, or opt-outs, that are selected for matching pods instead; ten at most.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// Fields that are cut to a limit or invalid, with the reason; ten at most. An invalid policy is never selected.
    #[serde(default)]
    pub rejected: Vec<String>,
}

impl Mode {
    /// Name in an override.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Shadow => "shadow",
            Self::Act => "act",
        }
    }
}

fn chooser() -> String {
    CHOOSER.to_owned()
}

/// Schema of texts by name, with a maximum of them.
fn texts<const MAX: usize>(_: &mut SchemaGenerator) -> Schema {
    let text = json_schema!({ "type": "string", "maxLength": 253 });
    json_schema!({ "type": "object", "additionalProperties": text, "maxProperties": MAX, "default": {} })
}

/// Schema of the name of a policy.
fn policies(_: &mut SchemaGenerator) -> Schema {
    let permitted = POLICIES.iter().filter(|policy| policy.choice != Choice::Control);
    let names: Vec<Cow<'_, str>> = permitted.map(|policy| policy.name.into()).collect();
    json_schema!({ "type": "string", "enum": names, "default": CHOOSER })
}

/// Custom resource definitions of both kinds, in YAML.
///
/// # Errors
/// If they cannot be written as YAML.
pub fn definitions() -> anyhow::Result<String> {
    let mut text = "# Generated by `uvmd-fleet crds`.\n".to_owned();
    for definition in [ClusterUvmPolicy::crd(), UvmPolicy::crd()] {
        // Without the nulls that the types have for absent fields.
        let mut value = serde_json::to_value(definition)?;
        prune(&mut value);
        text += "---\n";
        text += &serde_saphyr::to_string(&value)?;
    }
    Ok(text)
}

/// Removes absent fields.
pub(crate) fn prune(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}
