//! Changes in the audit log: JSON objects beside those of decisions.

use std::time::SystemTime;

use model::{api::rule, text};
use serde::Serialize;
use web::{Grant, Peer, Requester};

/// A line about something that somebody asked for.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    #[serde(flatten)]
    change: &'a Change,
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    requester: Option<Who>,
}

impl<'a> Entry<'a> {
    /// A line of the current time.
    pub(super) fn new(change: &'a Change, requester: Option<&Requester>) -> Self {
        Self { change, time: text::time(SystemTime::now()), requester: requester.map(Who::new) }
    }
}

/// A requested change. Its line is written before the change; a second line reports a failure.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Change {
    /// An override is put in the place of the one of its name, or is new.
    OverridePut {
        id: String,
        etag_before: Option<String>,
        etag_after: Option<String>,
        r#override: Box<rule::Override>,
        #[serde(flatten)]
        result: Outcome,
    },
    /// An override is taken away.
    OverrideDelete {
        id: String,
        etag_before: Option<String>,
        etag_after: Option<String>,
        #[serde(flatten)]
        result: Outcome,
    },
    /// An override ended by itself: its time is over, or its process has ended.
    OverrideEnd { id: String, etag_before: Option<String>, reason: &'static str },
    /// All acting is stopped.
    PolicyOff {
        #[serde(flatten)]
        result: Outcome,
    },
    /// It goes on.
    PolicyOn {
        #[serde(flatten)]
        result: Outcome,
    },
    /// The file of overrides says something else.
    OverridesFileLoad {
        file: String,
        overrides: usize,
        etag_before: Option<String>,
        etag_after: Option<String>,
        #[serde(flatten)]
        result: Outcome,
    },
    /// The configuration was to be read again.
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
    /// More of them in a minute, of which only the numbers are told: of the peers with most, and of all others together.
    RequestsDenied { suppressed: u64, peers: Vec<DeniedPeer>, suppressed_of_others: u64 },
}

/// Number of refused requests of a peer without a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeniedPeer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) suppressed: u64,
}

/// Whether a change is made.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Accepted, and made next.
    Accepted,
    /// Failed, or not made.
    Failed { reason: String },
}

impl Change {
    /// The same as a failure.
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
    /// Over TCP, with the port.
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
