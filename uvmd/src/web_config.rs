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

/// Contents of the files.
#[derive(Default)]
pub(crate) struct Contents {
    config: WebConfig,
    tls: Option<Tls>,
    users: Option<Users>,
}

/// Reads the files, if any are configured. May wait for a disk.
///
/// # Errors
/// If one of them is invalid, or other users may change it or know its secrets.
pub(crate) fn read(config: &Config) -> anyhow::Result<Contents> {
    let Config { metrics, auth, .. } = config;
    let Some(AbsolutePath(path)) = &metrics.web_config_file else { return Ok(Contents::default()) };
    let found = try_read(path, auth.token_file_group_readable);
    found.with_context(|| format!("metrics.web_config_file: {}", path.display()))
}

fn try_read(path: &Path, group_readable: bool) -> anyhow::Result<Contents> {
    let (text, metadata) = admin_file::read(path, BYTES_MAX)?;
    let text = String::from_utf8(text).context("it is not text in UTF-8")?;
    let config = parse(&text, path)?;
    if !config.users.is_empty() {
        admin_file::check_secret(&metadata, group_readable)?;
    }
    let tls = config.tls.as_ref().map(|tls| self::tls(tls, group_readable)).transpose()?;
    Ok(Contents { users: users(&config)?, tls, config })
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

impl Contents {
    /// Puts it into effect, and logs what may be unintended about a listener on this address.
    pub(crate) fn apply(self, config: &Config, protection: &Protection) {
        for warning in warnings(&self.config, config) {
            tracing::warn!("{warning}");
        }
        protection.change(self.tls, self.users);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::PathBuf};

    use config::load::parse as parse_config;
    use tempfile::TempDir;

    use super::*;

    const HASH: &str = "$2y$04$ABCDEFGHIJKLMNOPQRSTUu01234567890123456789012345678.u";
    const TLS: &str = "tls_server_config: { cert_file: node.crt, key_file: node.key }\n";

    /// Folder with a certificate, its key and this file.
    struct Files(TempDir);

    impl Files {
        fn new(text: &str) -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            let rcgen::CertifiedKey { cert, signing_key } =
                rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            files.write("web.yml", text, 0o600);
            files.write("node.crt", &cert.pem(), 0o644);
            files.write("node.key", &signing_key.serialize_pem(), 0o600);
            files
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &str, mode: u32) {
            fs::write(self.path(name), text).unwrap();
            self.allow(name, mode);
        }

        fn allow(&self, name: &str, mode: u32) {
            fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        }

        fn config(&self, more: &str) -> Config {
            parse_config(&format!("{more}\n[metrics]\nweb_config_file = {:?}\n", self.path("web.yml"))).unwrap()
        }

        fn error(&self) -> String {
            let config = self.config("");
            format!("{:#}", read(&config).err().unwrap())
        }
    }

    #[test]
    fn files_are_read_and_take_effect() {
        let files = Files::new(&format!("{TLS}basic_auth_users: {{ a: {HASH} }}\n"));
        let (config, protection) = (files.config(""), Protection::default());
        read(&config).unwrap().apply(&config, &protection);
        assert!(protection.has_tls());
        let config = Config::default();
        read(&config).unwrap().apply(&config, &protection);
        assert!(!protection.has_tls());
    }

    #[test]
    fn secrets_that_others_may_read_are_refused() {
        let text = format!("{TLS}basic_auth_users: {{ a: {HASH} }}\n");
        for (name, mode, group_mode) in [("web.yml", 0o644, 0o640), ("node.key", 0o644, 0o440)] {
            let files = Files::new(&text);
            files.allow(name, mode);
            assert!(files.error().contains(&format!("it has mode {mode:o}")), "{name}");
            files.allow(name, group_mode);
            assert!(files.error().contains(&format!("it has mode {group_mode:o}")), "{name}");
            assert!(read(&files.config("auth.token_file_group_readable = true")).is_ok(), "{name}");
        }
        // Without a password, there is no secret in it.
        let files = Files::new(TLS);
        files.allow("web.yml", 0o644);
        assert!(read(&files.config("")).is_ok());
        for name in ["web.yml", "node.crt"] {
            files.allow(name, 0o664);
            assert!(files.error().contains("other users may change it"), "{name}");
            files.allow(name, 0o644);
        }
    }

    #[test]
    fn invalid_files_are_refused_by_name() {
        let files = Files::new(&format!("\n{TLS}rate_limit: {{}}\n"));
        let path = |name: &str| files.path(name).display().to_string();
        let expected = "line 3: rate_limit: uvmd does not implement this field: remove it";
        assert_eq!(files.error(), format!("metrics.web_config_file: {}: {expected}", path("web.yml")));
        assert!(check(&files.config("")).unwrap_err().to_string().contains("web.yml"));
        files.write("web.yml", TLS, 0o600);
        files.write("node.key", "no key", 0o600);
        assert!(files.error().contains("no private key in PEM") && files.error().contains(&path("node.key")));
        fs::remove_file(files.path("node.crt")).unwrap();
        assert!(files.error().ends_with(&format!("{}: no such file or directory", path("node.crt"))));
        fs::remove_file(files.path("web.yml")).unwrap();
        assert!(files.error().ends_with("no such file or directory") && check(&files.config("")).is_err());
        files.write("web.yml", &"#".repeat((1 << 20) + 1), 0o600);
        assert!(files.error().ends_with("it is longer than 1048576 bytes"));
    }

    #[test]
    fn check_reports_what_may_be_unintended() {
        let files = Files::new("");
        let mut config = files.config("");
        assert!(check(&config).unwrap().is_empty());
        config.metrics.listen = Listen::On("0.0.0.0:9478".parse().unwrap());
        assert!(check(&config).unwrap()[0].contains("0.0.0.0:9478 is not loopback"));
    }
}
