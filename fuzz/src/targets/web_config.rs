//! `config::WebConfig`: the web configuration file of the metrics listener, in YAML.
//!
//! Input: a file. A mistake is one line with a place in the file, hashes are not printed, and paths
//! are below the folder of the file or absolute.

use std::path::Path;

use config::WebConfig;

const FOLDER: &str = "/etc/uvmd";

pub(super) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let config = match WebConfig::parse(text, Path::new(FOLDER)) {
        Ok(config) => config,
        Err(mistake) => return super::check_mistake(text, &mistake),
    };
    let shown = format!("{config:?}");
    assert!(config.users.values().all(|hash| !shown.contains(hash.as_str())), "{shown}");
    if let Some(tls) = &config.tls {
        let files = [Some(&tls.cert_file), Some(&tls.key_file), tls.client_ca_file.as_ref()];
        assert!(files.into_iter().flatten().all(|path| path.is_absolute()), "{tls:?}");
        assert!(tls.min_version <= tls.max_version, "{tls:?}");
    }
    let warnings = config.warnings(([0, 0, 0, 0], 9478).into());
    assert!(warnings.iter().all(|warning| !warning.contains('\n')), "{warnings:?}");
}
