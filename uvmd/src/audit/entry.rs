//! Changes in the audit log: JSON objects, in addition to those of decisions.

#[cfg(test)]
mod tests;

use std::time::SystemTime;

use api::rule;
use model::text;
use serde::Serialize;
use web::{Grant, Peer, Requester};

/// Line of a requested change.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    #[serde(flatten)]
    change: &'a Change,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    requester: Option<Who>,
}

impl<'a> Entry<'a> {
    /// Line of the current time.
    pub(super) fn new(change: &'a Change, requester: Option<&Requester>) -> Self {
        Self { change, time: text::time(SystemTime::now()), requester: requester.map(Who::new) }
    }
}

/// A requested change. Its line is written before the change; a second line reports a failure.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Change {
    /// Creation or replacement of an override.
    OverridePut {
        id: String,
        etag_before: Option<String>,
        etag_after: Option<String>,
        r#override: Box<rule::Override>,
        #[serde(flatten)]
        result: Outcome,
    },
    /// Deletion of an override.
    OverrideDelete {
        id: String,
        etag_before: Option<String>,
        etag_after: Option<String>,
        #[serde(flatten)]
        result: Outcome,
    },
    /// End of an override: it has expired, or its process has exited.
    OverrideEnd { id: String, etag_before: Option<String>, reason: &'static str },
    /// Stop of all acting.
    PolicyOff {
        #[serde(flatten)]
        result: Outcome,
    },
    /// Resumption of acting.
    PolicyOn {
        #[serde(flatten)]
        result: Outcome,
    },
    /// Load of a changed file of overrides.
    OverridesFileLoad {
        file: String,
        overrides: usize,
        etag_before: Option<String>,
        etag_after: Option<String>,
        #[serde(flatten)]
        result: Outcome,
    },
    /// Reload of the configuration.
    ConfigurationReload {
        file: Option<String>,
        changed: Vec<String>,
        restart_required: Vec<String>,
        etag_before: String,
        etag_after: String,
        #[serde(flatten)]
        result: Outcome,
    },
    /// A request was refused for lack of permission.
    RequestDenied { method: String, path: String, status: u16 },
    /// Summary of further denials in a minute: the peers with most, and all others together.
    RequestsDenied { suppressed: u64, peers: Vec<DeniedPeer>, suppressed_of_others: u64 },
}

/// Denied requests of a peer without a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeniedPeer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) suppressed: u64,
}

/// Result of a change.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Accepted; the change follows.
    Accepted,
    /// Failed, or not made.
    Failed { reason: String },
}

impl Change {
    /// The same change as a failure.
    pub(super) fn failed(mut self, reason: String) -> Self {
        match &mut self {
            Self::OverridePut { result, .. }
            | Self::OverrideDelete { result, .. }
            | Self::PolicyOff { result }
            | Self::PolicyOn { result }
            | Self::OverridesFileLoad { result, .. }
            | Self::ConfigurationReload { result, .. } => *result = Outcome::Failed { reason },
            Self::OverrideEnd { .. } | Self::RequestDenied { .. } | Self::RequestsDenied { .. } => {}
        }
        self
    }
}

/// Actor, as far as known.
#[derive(Debug, Serialize)]
struct Who {
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Address over TCP, with the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    credential: &'static str,
    /// Permission by the peer's credentials on the socket: `read` or `write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<&'static str>,
}

impl Who {
    fn new(Requester { peer, credential }: &Requester) -> Self {
        let grant = match *peer {
            Peer::Local { grant, .. } => grant.map(Grant::name),
            Peer::Remote(_) | Peer::Unknown => None,
        };
        let (uid, pid, address) = match *peer {
            Peer::Local { uid, pid, .. } => (Some(uid), pid, None),
            Peer::Remote(address) => (None, None, Some(address.to_string())),
            Peer::Unknown => (None, None, None),
        };
        Self { uid, pid, address, credential: credential.name(), grant }
    }
}
