//! Fields of the file, as they are written.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::IgnoredAny};
use serde_saphyr::{Error, Spanned};

use super::{
    Tls, WebConfig,
    value::{BcryptHash, ClientAuth, TlsVersion, UserName},
};
use crate::{error::Mistake, load::line_at};

/// Field that is read for its place alone.
type Refused = Option<Spanned<IgnoredAny>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Document {
    tls_server_config: Option<TlsServerConfig>,
    basic_auth_users: Option<BTreeMap<UserName, BcryptHash>>,
    http_server_config: Refused,
    rate_limit: Refused,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TlsServerConfig {
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    client_auth_type: ClientAuth,
    client_ca_file: Option<PathBuf>,
    min_version: Option<TlsVersion>,
    max_version: Option<TlsVersion>,
    cert: Refused,
    key: Refused,
    client_ca: Refused,
    client_allowed_sans: Refused,
    cipher_suites: Refused,
    prefer_server_cipher_suites: Refused,
    curve_preferences: Refused,
}

impl Document {
    pub(super) fn parse(text: &str) -> Result<Self, Mistake> {
        let mut options = serde_saphyr::Options::default();
        // A message is one line.
        options.with_snippet = false;
        let document: Option<Self> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| mistake(text, &error))?;
        Ok(document.unwrap_or_default())
    }

    /// Configuration of these fields.
    pub(super) fn check(self, text: &str, folder: &Path) -> Result<WebConfig, Mistake> {
        let Self { tls_server_config, basic_auth_users, http_server_config, rate_limit } = self;
        refuse(&[("http_server_config", &http_server_config), ("rate_limit", &rate_limit)])?;
        let tls = tls_server_config.map(|tls| tls.check(text, folder)).transpose()?;
        Ok(WebConfig { tls, users: basic_auth_users.unwrap_or_default() })
    }
}

impl TlsServerConfig {
    fn check(self, text: &str, folder: &Path) -> Result<Tls, Mistake> {
        const TABLE: &str = "tls_server_config";
        let Self {
            cert_file,
            key_file,
            client_auth_type,
            client_ca_file,
            min_version,
            max_version,
            cert,
            key,
            client_ca,
            client_allowed_sans,
            cipher_suites,
            prefer_server_cipher_suites,
            curve_preferences,
        } = self;
        refuse(&[
            ("tls_server_config.cert", &cert),
            ("tls_server_config.key", &key),
            ("tls_server_config.client_ca", &client_ca),
            ("tls_server_config.client_allowed_sans", &client_allowed_sans),
            ("tls_server_config.cipher_suites", &cipher_suites),
            ("tls_server_config.prefer_server_cipher_suites", &prefer_server_cipher_suites),
            ("tls_server_config.curve_preferences", &curve_preferences),
        ])?;
        let wrong = |message: &str| {
            let line = line_at(text, text.find(TABLE).unwrap_or_default());
            Mistake { line, key: Some(TABLE.to_owned()), message: message.to_owned() }
        };
        // An empty path is the folder itself, and no file.
        let file = |path: Option<PathBuf>| path.filter(|path| path.file_name().is_some()).map(|path| folder.join(path));
        let (min_version, max_version) =
            (min_version.unwrap_or(TlsVersion::Tls12), max_version.unwrap_or(TlsVersion::Tls13));
        if min_version > max_version {
            return Err(wrong("min_version is above max_version"));
        }
        let client_ca_file = match (client_auth_type, file(client_ca_file)) {
            (ClientAuth::NoClientCert, None) => None,
            (ClientAuth::RequireAndVerifyClientCert, Some(path)) => Some(path),
            (ClientAuth::NoClientCert, Some(_)) => {
                return Err(wrong("client_ca_file has no effect without client_auth_type: RequireAndVerifyClientCert"));
            }
            (ClientAuth::RequireAndVerifyClientCert, None) => {
                return Err(wrong("client_auth_type RequireAndVerifyClientCert requires client_ca_file"));
            }
        };
        Ok(Tls {
            cert_file: file(cert_file).ok_or_else(|| wrong("it requires cert_file"))?,
            key_file: file(key_file).ok_or_else(|| wrong("it requires key_file"))?,
            client_ca_file,
            min_version,
            max_version,
        })
    }
}

/// Refuses the first of these fields that is in the file.
fn refuse(fields: &[(&str, &Refused)]) -> Result<(), Mistake> {
    let mut present = fields.iter().filter_map(|(key, field)| Some((key, field.as_ref()?)));
    present.next().map_or(Ok(()), |(key, field)| {
        let line = usize::try_from(field.referenced.line()).unwrap_or_default().max(1);
        Err(Mistake {
            line,
            key: Some((*key).to_owned()),
            message: "uvmd does not implement this field: remove it".to_owned(),
        })
    })
}

fn mistake(text: &str, error: &Error) -> Mistake {
    let line = error.location().and_then(|at| usize::try_from(at.line()).ok()).unwrap_or(1);
    let message = error.without_snippet().to_string();
    let line = line.clamp(1, 1 + text.matches('\n').count());
    Mistake { line, key: None, message: message.replace('\n', ", ") }
}
