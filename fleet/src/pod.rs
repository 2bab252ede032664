//! Pods of the API server, with the fields that names and policies need.

use std::collections::BTreeMap;

use kube::{
    Api, Client,
    core::{ApiResource, Object},
};
use serde::{Deserialize, Serialize};

/// A pod with the fields that are read here alone; a full one takes ten times the memory.
pub type PodObject = Object<Spec, Status>;

/// Desired state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Containers, without init containers and ephemeral ones.
    pub containers: Vec<Container>,
}

/// Container of the desired state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    /// Name.
    pub name: String,
}

/// Observed state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Containers.
    pub container_statuses: Vec<ContainerStatus>,
    /// Init containers, sidecars among them.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Ephemeral containers, added for debugging.
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

/// Container of the observed state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// Id, as `containerd://` and 64 digits; absent before the start.
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
    /// State before the last restart.
    pub last_state: LastState,
}

/// State before the last restart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastState {
    /// Present after a restart.
    pub terminated: Option<Terminated>,
}

/// Terminated container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Terminated {
    /// As [`ContainerStatus::container_id`].
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
}

/// Pods of all namespaces.
#[must_use]
pub fn api(client: Client) -> Api<PodObject> {
    Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()))
}

impl Status {
    /// Names of containers by id, including those before the last restart.
    #[must_use]
    pub fn containers(&self) -> BTreeMap<String, String> {
        let Self { container_statuses, init_container_statuses, ephemeral_container_statuses } = self;
        let all = container_statuses.iter().chain(init_container_statuses).chain(ephemeral_container_statuses);
        let ids = all.flat_map(|container| {
            let before =
                container.last_state.terminated.as_ref().and_then(|terminated| terminated.container_id.as_ref());
            let ids = container.container_id.iter().chain(before);
            ids.filter_map(|id| Some((id.split_once("://")?.1.to_owned(), container.name.clone())))
        });
        ids.filter(|(id, _)| api::owner_names::is_container_id(id)).collect()
    }
}
