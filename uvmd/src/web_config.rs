//! Web configuration file of the metrics listener, with the certificates and keys that it names.

use std::{fs, path::Path};

use anyhow::{Context, anyhow};
use config::{
    BcryptHash, Config, UserName, WebConfig,
    value::{AbsolutePath, Listen},
};
use sys::reason;
use web::{Protection, Tls, TlsFiles, TlsVersion, Users};

use crate::admin_file;

/// Maximum bytes of one file, which no chain of certificates reaches.
const BYTES_MAX: u64 = 1 << 20;

/// Protection of the files.
#[derive(Default)]
pub(crate) struct Found {
    config: WebConfig,
    tls: Option<Tls>,
    users: Option<Users>,
}

/// Reads the files, if any are configured. May wait for a disk.
///
/// # Errors
/// If one of them is invalid, or other users may change it or know its secrets.
pub(crate) fn read(config: &Config) -> anyhow::Result<Found> {
    let Config { metrics, auth, .. } = config;
    let Some(AbsolutePath(path)) = &metrics.web_config_file else { return Ok(Found::default()) };
    let found = try_read(path, auth.token_file_group_readable);
    found.with_context(|| format!("metrics.web_config_file: {}", path.display()))
}

fn try_read(path: &Path, group_readable: bool) -> anyhow::Result<Found> {
    let (text, metadata) = admin_file::read(path, BYTES_MAX)?;
    let text = String::from_utf8(text).context("it is not text in UTF-8")?;
    let config = parse(&text, path)?;
    if !config.users.is_empty() {
        admin_file::check_secret(&metadata, group_readable)?;
    }
    let tls = config.tls.as_ref().map(|tls| self::tls(tls, group_readable)).transpose()?;
    Ok(Found { users: users(&config)?, tls, config })
}

fn tls(tls: &config::Tls, group_readable: bool) -> anyhow::Result<Tls> {
    let config::Tls { cert_file, key_file, client_ca_file, min_version, max_version } = tls;
    let of = |path: &Path| path.display().to_string();
    let public = |path: &Path| admin_file::read(path, BYTES_MAX).map(|(text, _)| text).with_context(|| of(path));
    let certificates = public(cert_file)?;
    let key = admin_file::read_secret(key_file, BYTES_MAX, group_readable).with_context(|| of(key_file))?;
    let authorities = client_ca_file.as_deref().map(public).transpose()?;
    let files = TlsFiles { certificates: &certificates, key: &key, client_authorities: authorities.as_deref() };
    let versions = [(config::TlsVersion::Tls12, TlsVersion::Tls12), (config::TlsVersion::Tls13, TlsVersion::Tls13)];
    let versions = versions.into_iter().filter(|(version, _)| (min_version..=max_version).contains(&version));
    let versions: Vec<_> = versions.map(|(_, version)| version).collect();
    let names = [Some(cert_file), Some(key_file), client_ca_file.as_ref()].into_iter().flatten();
    let names = names.map(|path| of(path)).collect::<Vec<_>>().join(", ");
    Tls::new(files, &versions).context(names)
}

fn users(config: &WebConfig) -> anyhow::Result<Option<Users>> {
    let pair = |(name, hash): (&UserName, &BcryptHash)| (name.as_str().to_owned(), hash.as_str().to_owned());
    // A list without users requires none, as in exporters.
    let users = (!config.users.is_empty()).then(|| Users::new(config.users.iter().map(pair)));
    users.transpose().map_err(Into::into)
}

/// Warnings about the file, without those that it names, for an administrator who may not own them.
///
/// # Errors
/// If it is invalid.
pub(crate) fn check(config: &Config) -> anyhow::Result<Vec<String>> {
    let found = match &config.metrics.web_config_file {
        None => WebConfig::default(),
        Some(AbsolutePath(path)) => {
            let context = || format!("metrics.web_config_file: {}", path.display());
            let text = fs::read_to_string(path).map_err(|error| anyhow!("{}", reason(&error))).with_context(context)?;
            parse(&text, path).with_context(context)?
        }
    };
    Ok(warnings(&found, config))
}

fn parse(text: &str, path: &Path) -> anyhow::Result<WebConfig> {
    WebConfig::parse(text, path.parent().unwrap_or(path)).map_err(|mistake| anyhow!("line {mistake}"))
}

fn warnings(found: &WebConfig, config: &Config) -> Vec<String> {
    match config.metrics.listen {
        Listen::None => Vec::new(),
        Listen::On(address) => found.warnings(address),
    }
}

impl Found {
    /// Puts it into effect, and logs what may be unintended about a listener on this address.
    pub(crate) fn apply(self, config: &Config, protection: &Protection) {
        for warning in warnings(&self.config, config) {
            tracing::warn!("{warning}");
        }
        protection.change(self.tls, self.users);
    }
}
