//! Names of one pod, as the file of names has them.

use std::collections::BTreeSet;

use api::owner_names::{CONTAINERS_MAX, LABELS_MAX, Pod};
use kube::api::ResourceExt;

use crate::pod::PodObject;

/// Annotation by which the kubelet marks the object of a static pod, and the hash in its cgroup.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Hash that a static pod has in its cgroup in place of the object's UID.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Label of the hash that a Deployment gives to its `ReplicaSets` and their pods.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Names of a pod, with its labels among `allowed`.
#[must_use]
pub fn of(pod: &PodObject, allowed: &BTreeSet<String>) -> Pod {
    let containers = pod.status.as_ref().map(crate::pod::Status::containers).unwrap_or_default();
    let labels = pod.labels().iter().filter(|(key, _)| allowed.contains(*key));
    Pod {
        uid: cgroup_uid(pod),
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        workload: workload(pod),
        containers: containers.into_iter().take(CONTAINERS_MAX).collect(),
        only_container: match pod.spec.containers.as_slice() {
            [only] => Some(only.name.clone()),
            _ => None,
        },
        labels: labels.take(LABELS_MAX).map(|(key, value)| (key.clone(), value.clone())).collect(),
        deleted_at: None,
    }
}

/// UID in the pod's cgroup. That of a static pod is a hash, from an annotation. Any user may write
/// the annotation, so only 32 digits without dashes are accepted: never the UUID of another pod.
fn cgroup_uid(pod: &PodObject) -> String {
    let hash = pod.annotations().get(CONFIG_HASH).filter(|hash| {
        let is_static = pod.annotations().contains_key(MIRROR);
        let has_node = pod.owner_references().iter().any(|owner| owner.kind == "Node");
        is_static && has_node && hash.len() == 32 && api::owner_names::is_uid(hash)
    });
    hash.cloned().or_else(|| pod.uid()).unwrap_or_default()
}

/// Controller of a pod, as `KIND/NAME`. For a `ReplicaSet` it is the Deployment, whose name precedes
/// the hash.
fn workload(pod: &PodObject) -> Option<String> {
    let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let deployment = pod.labels().get(TEMPLATE_HASH).filter(|_| owner.kind == "ReplicaSet");
    let deployment = deployment.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
    Some(match deployment {
        Some(name) => format!("Deployment/{name}"),
        None => format!("{}/{}", owner.kind, owner.name),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";
    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn names(metadata: &Value, status: &Value) -> Pod {
        let spec = json!({ "containers": [{ "name": "train", "image": "x" }] });
        let pod: PodObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status,
        }))
        .unwrap();
        of(&pod, &BTreeSet::from(["team".to_owned()]))
    }

    #[test]
    fn names_are_those_of_the_object() {
        let (id, former, init) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
        let found = names(
            &json!({ "uid": UID, "namespace": "ml", "name": "llm-0", "labels": { "team": "nlp", "secret": "x" } }),
            &json!({
                "containerStatuses": [{
                    "name": "train", "containerID": format!("containerd://{id}"),
                    "lastState": { "terminated": { "containerID": format!("containerd://{former}"), "exitCode": 1 } },
                }],
                "initContainerStatuses": [{ "name": "fetch", "containerID": format!("cri-o://{init}") }],
                "ephemeralContainerStatuses": [{ "name": "debug" }],
            }),
        );
        assert_eq!((found.uid.as_str(), found.namespace.as_str(), found.name.as_str()), (UID, "ml", "llm-0"));
        let train = || "train".to_owned();
        assert_eq!(found.containers, [(id, train()), (former, train()), (init, "fetch".to_owned())].into());
        assert_eq!(found.only_container, Some(train()));
        assert_eq!(found.labels, [("team".to_owned(), "nlp".to_owned())].into());
        assert_eq!(found.workload, None);
    }

    #[test]
    fn pod_of_a_deployment_has_its_name() {
        let owner = |kind: &str, name: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": true }]);
        let workload = |owner: &Value, labels: &Value| {
            names(&json!({ "uid": UID, "name": "x", "labels": labels, "ownerReferences": owner }), &json!({})).workload
        };
        let hash = || json!({ "pod-template-hash": "7d4b9" });
        assert_eq!(workload(&owner("ReplicaSet", "llm-api-7d4b9"), &hash()).unwrap(), "Deployment/llm-api");
        assert_eq!(workload(&owner("ReplicaSet", "llm"), &hash()).unwrap(), "ReplicaSet/llm");
        assert_eq!(workload(&owner("StatefulSet", "llm-7d4b9"), &hash()).unwrap(), "StatefulSet/llm-7d4b9");
    }

    #[test]
    fn static_pod_has_the_hash_of_its_cgroup_and_no_pod_takes_the_uid_of_another() {
        let uid = |hash: &str, owner: &str| {
            let owners = json!([{ "apiVersion": "v1", "kind": owner, "name": "n", "uid": "1" }]);
            let annotations = json!({ "kubernetes.io/config.mirror": hash, "kubernetes.io/config.hash": hash });
            names(
                &json!({ "uid": UID, "name": "x", "annotations": annotations, "ownerReferences": owners }),
                &json!({}),
            )
            .uid
        };
        assert_eq!(uid(HASH, "Node"), HASH);
        assert_eq!(uid(HASH, "Job"), UID);
        assert_eq!(uid("99999999-1111-2222-3333-444444444444", "Node"), UID);
    }
}
