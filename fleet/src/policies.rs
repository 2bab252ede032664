//! Watch of policies, and the file of overrides compiled from them.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::Context;
use futures_util::{Stream, StreamExt, stream};
use kube::{
    Api, Client,
    api::ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::watch;

use crate::{
    compile::{Compiled, Policies},
    file,
    pause::{Pauses, WATCH_SECONDS},
    registry::Registry,
    resources::{ClusterUvmPolicy, UvmPolicy},
    status::Statuses,
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

/// Policies, and the file that follows them.
#[derive(Debug)]
pub struct PoliciesFile {
    path: PathBuf,
    node: String,
    /// Models of GPUs as configured; if empty, those that the driver lists.
    gpu_models: BTreeSet<String>,
    policies: Policies,
    listed: Listed,
    /// Text that was written last.
    written: Option<Vec<u8>>,
    statuses: watch::Sender<Statuses>,
    /// Whether both kinds were listed once.
    is_complete: (bool, bool),
}

/// Lists in progress.
#[derive(Debug, Default)]
struct Listed {
    of_namespaces: BTreeSet<(String, String)>,
    of_cluster: BTreeSet<String>,
}

/// Changes of all policies, for ever.
pub fn changes(client: Client, node: &str) -> impl Stream<Item = watcher::Result<Change>> + use<> {
    let config = || watcher::Config::default().timeout(WATCH_SECONDS);
    let of_namespaces = watcher(Api::<UvmPolicy>::all(client.clone()), config()).backoff(Pauses::of(node));
    let of_cluster = watcher(Api::<ClusterUvmPolicy>::all(client), config()).backoff(Pauses::of(node));
    stream::select(
        of_namespaces.map(|event| event.map(Change::OfNamespace)),
        of_cluster.map(|event| event.map(Change::OfCluster)),
    )
}

impl PoliciesFile {
    /// File at this path, on this node. Statuses go to `statuses`.
    #[must_use]
    pub fn new(path: PathBuf, node: String, gpu_models: BTreeSet<String>, statuses: watch::Sender<Statuses>) -> Self {
        Self {
            path,
            node,
            gpu_models,
            policies: Policies::default(),
            listed: Listed::default(),
            written: None,
            statuses,
            is_complete: (false, false),
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        let Self { policies, listed, is_complete, .. } = self;
        match change {
            Change::OfNamespace(event) => {
                let key = |policy: &UvmPolicy| (policy.namespace().unwrap_or_default(), policy.name_any());
                let (all, listed) = (&mut policies.of_namespaces, &mut listed.of_namespaces);
                match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(policy) => {
                        listed.insert(key(&policy));
                        all.insert(key(&policy), policy);
                    }
                    Event::InitDone => {
                        all.retain(|key, _| listed.contains(key));
                        is_complete.0 = true;
                    }
                    Event::Apply(policy) => drop(all.insert(key(&policy), policy)),
                    Event::Delete(policy) => drop(all.remove(&key(&policy))),
                }
            }
            Change::OfCluster(event) => {
                let (all, listed) = (&mut policies.of_cluster, &mut listed.of_cluster);
                match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(policy) => {
                        listed.insert(policy.name_any());
                        all.insert(policy.name_any(), policy);
                    }
                    Event::InitDone => {
                        all.retain(|name, _| listed.contains(name));
                        is_complete.1 = true;
                    }
                    Event::Apply(policy) => drop(all.insert(policy.name_any(), policy)),
                    Event::Delete(policy) => drop(all.remove(&policy.name_any())),
                }
            }
        }
    }

    /// Compiles the policies, and writes the overrides if they have changed. Until both kinds have
    /// been listed, the file of the previous run stays: an incomplete list may lack a restriction.
    ///
    /// # Errors
    /// If the file cannot be written; the next call tries again.
    pub fn update(&mut self, registry: &Registry) -> anyhow::Result<()> {
        if self.is_complete != (true, true) {
            return Ok(());
        }
        let models = if self.gpu_models.is_empty() { driver_models() } else { self.gpu_models.clone() };
        let Compiled { overrides, statuses } = self.policies.compile(&self.node, registry.pods(), &models);
        self.statuses.send_if_modified(|known| {
            let has_changed = *known != statuses;
            *known = statuses;
            has_changed
        });
        let text = serde_json::to_vec_pretty(&overrides)?;
        if self.written.as_ref() == Some(&text) {
            return Ok(());
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        file::replace(&self.path, &text).with_context(|| format!("cannot write {}", self.path.display()))?;
        tracing::info!("wrote {} overrides", overrides.len());
        self.written = Some(text);
        Ok(())
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
    use super::*;

    #[test]
    fn model_of_a_gpu_is_that_of_the_driver() {
        assert_eq!(model_of("Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\n"), Some("NVIDIA H200".to_owned()));
        assert_eq!(model_of("IRQ: 16\n"), None);
    }
}
