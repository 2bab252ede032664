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
    contact::report,
    hash::hash,
    resources::{ClusterUvmPolicy, Key, NodeStatus, UvmPolicy},
};

/// Statuses of policies on this node.
pub type Statuses = BTreeMap<Key, NodeStatus>;

/// Minimum interval of rounds: it limits the requests while pods change often.
const INTERVAL: Duration = Duration::from_secs(5);
/// Maximum of requests of a round: each makes the API server inform every node.
const REQUESTS_MAX: usize = 10;
/// Maximum bytes of a field manager at the API server.
const MANAGER_BYTES_MAX: usize = 128;

/// Statuses to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredStatuses {
    /// Statuses on this node.
    pub statuses: Statuses,
    /// Statuses that the API server had at the start, from an earlier run.
    pub former: Statuses,
}

/// Applies statuses as they change, for ever. A request that fails is repeated in a later round.
/// Rounds of nodes are spread over the interval.
pub async fn follow(client: Client, node: String, updates: watch::Receiver<Option<DesiredStatuses>>) {
    let mut applied: Option<Statuses> = None;
    let mut last: Option<Key> = None;
    let offset = Duration::from_millis(hash(&node) % u64::try_from(INTERVAL.as_millis()).unwrap_or(1));
    let mut rounds = time::interval_at(time::Instant::now() + offset, INTERVAL);
    rounds.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let (applied, requests) = {
            let desired = updates.borrow();
            let Some(DesiredStatuses { statuses, former }) = &*desired else { continue };
            let applied = applied.get_or_insert_with(|| former.clone());
            let requests = round(statuses, applied, last.as_ref());
            (applied, requests)
        };
        for (key, status) in requests {
            last = Some(key.clone());
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

/// Requests of a round: statuses that differ, and `None` for those that are gone. It begins after the
/// last request, so that one that fails again and again holds up no other.
fn round(statuses: &Statuses, applied: &Statuses, last: Option<&Key>) -> Vec<(Key, Option<NodeStatus>)> {
    let gone = applied.keys().filter(|key| !statuses.contains_key(*key)).map(|key| (key.clone(), None));
    let changed = statuses.iter().filter(|(key, status)| applied.get(*key) != Some(*status));
    let changed = changed.map(|(key, status)| (key.clone(), Some(status.clone())));
    let mut requests: Vec<_> = changed.chain(gone).collect();
    requests.sort_by(|(one, _), (other, _)| (Some(one) <= last, one).cmp(&(Some(other) <= last, other)));
    requests.truncate(REQUESTS_MAX);
    requests
}

/// Field manager of a node: unique, also where the node's name exceeds the limit.
fn manager(node: &str) -> String {
    let mut manager = format!("uvmd-fleet/{node}");
    if manager.len() > MANAGER_BYTES_MAX {
        let hash = format!("-{:016x}", hash(node));
        // Names of nodes are ASCII.
        manager.truncate(MANAGER_BYTES_MAX - hash.len());
        manager += &hash;
    }
    manager
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
    let parameters = PatchParams::apply(&manager(node)).force();
    let patch = Patch::Apply(&body);
    if let Some(namespace) = &key.namespace {
        let api: Api<UvmPolicy> = Api::namespaced(client.clone(), namespace);
        api.patch_status(&key.name, &parameters, &patch).await.map(drop)
    } else {
        let api: Api<ClusterUvmPolicy> = Api::all(client.clone());
        api.patch_status(&key.name, &parameters, &patch).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key { namespace: Some("ml".to_owned()), name: format!("{number:03}") }
    }

    fn statuses(numbers: std::ops::Range<usize>) -> Statuses {
        numbers.map(|number| (key(number), NodeStatus::default())).collect()
    }

    fn names(requests: Vec<(Key, Option<NodeStatus>)>) -> Vec<(String, bool)> {
        requests.into_iter().map(|(key, status)| (key.name, status.is_some())).collect()
    }

    #[test]
    fn round_has_few_requests_and_the_next_one_goes_on() {
        let wanted = statuses(0..25);
        let first = round(&wanted, &Statuses::new(), None);
        assert_eq!((first.len(), first.last().unwrap().0.clone()), (10, key(9)));
        let second = round(&wanted, &Statuses::new(), Some(&key(9)));
        assert_eq!((second[0].0.clone(), second.len()), (key(10), 10));
        let third = round(&wanted, &Statuses::new(), Some(&key(19)));
        assert_eq!((third[0].0.clone(), third[5].0.clone()), (key(20), key(0)));
    }

    #[test]
    fn entry_of_an_earlier_run_is_removed_and_an_equal_one_is_not_written_again() {
        let requests = round(&statuses(1..3), &statuses(0..2), None);
        assert_eq!(names(requests), [("000".to_owned(), false), ("002".to_owned(), true)]);
    }

    #[test]
    fn field_manager_of_a_long_name_is_unique_and_within_the_limit() {
        assert_eq!(manager("gpu-1"), "uvmd-fleet/gpu-1");
        let (one, other) = (manager(&("a".repeat(252) + "1")), manager(&("a".repeat(252) + "2")));
        assert_eq!(one.len(), 128);
        assert_ne!(one, other);
    }
}
