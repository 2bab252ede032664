//! Web configuration file: TLS and users of the metrics listener, in the format of Prometheus'
//! exporter-toolkit.
//!
//! Fields of that format which uvmd does not implement are refused by name: a restriction that an
//! administrator wrote down must not be without effect.

mod document;
mod value;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use document::Document;
pub use value::{BcryptHash, TlsVersion, UserName};

use crate::error::Mistake;

/// Content of a web configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebConfig {
    /// TLS; `None` without encryption.
    pub tls: Option<Tls>,
    /// Users with their passwords; without any, every client may read.
    pub users: BTreeMap<UserName, BcryptHash>,
}

/// TLS of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Certificate and its chain, in PEM.
    pub cert_file: PathBuf,
    /// Private key, in PEM.
    pub key_file: PathBuf,
    /// Authorities of client certificates, in PEM; `None` if clients need no certificate.
    pub client_ca_file: Option<PathBuf>,
    /// Oldest version of the protocol.
    pub min_version: TlsVersion,
    /// Newest version of the protocol.
    pub max_version: TlsVersion,
}

impl WebConfig {
    /// Parses the text of a file in this folder, which its paths are relative to.
    ///
    /// # Errors
    /// First mistake in it.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Mistake> {
        Document::parse(text)?.check(text, folder)
    }

    /// Warnings about a listener on this address with this configuration, a sentence each.
    #[must_use]
    pub fn warnings(&self, listen: SocketAddr) -> Vec<String> {
        let Self { tls, users } = self;
        let has_client_ca = tls.as_ref().is_some_and(|tls| tls.client_ca_file.is_some());
        let mut warnings = Vec::new();
        if listen.ip().is_loopback() {
            return warnings;
        }
        if users.is_empty() && !has_client_ca {
            warnings.push(format!(
                "metrics.listen: {listen} is not loopback, and requires neither a password nor a client certificate \
                 (metrics.web_config_file): anyone who can reach it can read the metrics"
            ));
        }
        if !users.is_empty() && tls.is_none() {
            warnings.push(format!(
                "metrics.listen: passwords are sent in the clear to {listen}, which is not loopback: set tls_server_config in \
                 metrics.web_config_file"
            ));
        }
        warnings
    }
}
