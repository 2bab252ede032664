//! Status of policies at the API server. Each node applies one entry, as a field manager of its own,
//! so that no node overwrites the entry of another.

use std::{collections::BTreeMap, time::Duration};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time};

use crate::{
    compile::Key,
    contact::report,
    resources::{ClusterUvmPolicy, NodeStatus, UvmPolicy},
};

/// Statuses of policies on this node.
pub type Statuses = BTreeMap<Key, NodeStatus>;

/// Minimum interval of rounds: it limits the requests while pods change often.
const INTERVAL: Duration = Duration::from_secs(5);

/// Applies statuses as they change, for ever. A request that fails is repeated in the next round.
pub async fn follow(client: Client, node: String, mut updates: watch::Receiver<Statuses>) {
    let mut applied = Statuses::new();
    let mut rounds = time::interval(INTERVAL);
    rounds.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let statuses = updates.borrow_and_update().clone();
        let gone: Vec<Key> = applied.keys().filter(|key| !statuses.contains_key(*key)).cloned().collect();
        let changed = statuses.iter().filter(|(key, status)| applied.get(*key) != Some(*status));
        let changed: Vec<(Key, Option<NodeStatus>)> =
            changed.map(|(key, status)| (key.clone(), Some(status.clone()))).collect();
        for (key, status) in changed.into_iter().chain(gone.into_iter().map(|key| (key, None))) {
            match apply(&client, &node, &key, status.as_ref()).await {
                Ok(()) => {}
                // A deleted policy has no status.
                Err(kube::Error::Api(error)) if error.code == 404 => {}
                Err(error) => {
                    tracing::warn!("the status of {key} was not written: {}", report(&error));
                    continue;
                }
            }
            match status {
                Some(status) => applied.insert(key, status),
                None => applied.remove(&key),
            };
        }
    }
}

async fn apply(client: &Client, node: &str, key: &Key, status: Option<&NodeStatus>) -> kube::Result<()> {
    let kind = if key.namespace.is_some() { "UvmPolicy" } else { "ClusterUvmPolicy" };
    // An empty list withdraws the entry that the node applied before.
    let nodes: Vec<_> = status.into_iter().collect();
    let body = json!({
        "apiVersion": "uvmd.io/v1alpha1",
        "kind": kind,
        "metadata": { "name": key.name },
        "status": { "nodes": nodes },
    });
    let parameters = PatchParams::apply(&format!("uvmd-fleet/{node}")).force();
    let patch = Patch::Apply(&body);
    if let Some(namespace) = &key.namespace {
        let api: Api<UvmPolicy> = Api::namespaced(client.clone(), namespace);
        api.patch_status(&key.name, &parameters, &patch).await.map(drop)
    } else {
        let api: Api<ClusterUvmPolicy> = Api::all(client.clone());
        api.patch_status(&key.name, &parameters, &patch).await.map(drop)
    }
}
