//! Web configuration file: what it accepts, and one message for each mistake.
#![cfg(test)]

use std::path::{Path, PathBuf};

use config::{Tls, TlsVersion, WebConfig};

const HASH: &str = "$2y$10$ABCDEFGHIJKLMNOPQRSTUu01234567890123456789012345678.u";
const TLS: &str = "tls_server_config:\n  cert_file: node.crt\n  key_file: node.key\n";

fn parse(text: &str) -> Result<WebConfig, String> {
    WebConfig::parse(text, Path::new("/etc/uvmd")).map_err(|mistake| {
        let message = mistake.to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    })
}

fn tls(text: &str) -> Tls {
    parse(text).unwrap().tls.unwrap()
}

#[test]
fn file_of_an_exporter_is_accepted() {
    let text = format!("# remark\n{TLS}basic_auth_users:\n  prometheus: {HASH}\n  grafana: \"{HASH}\"\n");
    let WebConfig { tls, users } = parse(&text).unwrap();
    let names: Vec<_> = users.keys().map(config::UserName::as_str).collect();
    assert_eq!(names, ["grafana", "prometheus"]);
    assert!(users.values().all(|hash| hash.as_str() == HASH));
    let expected = Tls {
        cert_file: "/etc/uvmd/node.crt".into(),
        key_file: "/etc/uvmd/node.key".into(),
        client_ca_file: None,
        min_version: TlsVersion::Tls12,
        max_version: TlsVersion::Tls13,
    };
    assert_eq!(tls, Some(expected));
}

#[test]
fn absolute_paths_and_client_certificates_are_accepted() {
    let tls = tls(
        "tls_server_config:\n  cert_file: /a/b\n  key_file: ../c\n  client_auth_type: RequireAndVerifyClientCert\n  \
         client_ca_file: ca\n  min_version: TLS13\n  max_version: TLS13\n",
    );
    let paths = [tls.cert_file, tls.key_file, tls.client_ca_file.unwrap()];
    assert_eq!(paths, ["/a/b", "/etc/uvmd/../c", "/etc/uvmd/ca"].map(PathBuf::from));
    assert_eq!((tls.min_version, tls.max_version), (TlsVersion::Tls13, TlsVersion::Tls13));
    assert!(parse(&format!("{TLS}  client_auth_type: NoClientCert\n")).is_ok());
}

#[test]
fn empty_file_requires_nothing() {
    for text in ["", "# remark\n", "{}\n", "---\n", "basic_auth_users: {}\n", "basic_auth_users:\ntls_server_config:\n"]
    {
        assert_eq!(parse(text), Ok(WebConfig::default()), "{text:?}");
    }
}

#[test]
fn fields_that_are_not_implemented_are_refused_by_name() {
    for field in ["http_server_config:\n  http2: true\n", "rate_limit:\n  burst: 1\n"] {
        let (name, _) = field.split_once(':').unwrap();
        assert_eq!(
            parse(&format!("{TLS}{field}")).unwrap_err(),
            format!("{line}: {name}: uvmd does not implement this field: remove it", line = parse_line(field))
        );
    }
    for field in [
        "cipher_suites: [TLS_AES_128_GCM_SHA256]",
        "curve_preferences:\n  - X25519",
        "prefer_server_cipher_suites: false",
        "client_allowed_sans: [a]",
        "cert: text",
        "key: text",
        "client_ca: text",
    ] {
        let (name, _) = field.split_once(':').unwrap();
        let error = parse(&format!("{TLS}  {field}\n")).unwrap_err();
        let expected = format!("tls_server_config.{name}: uvmd does not implement this field: remove it");
        assert!(error.ends_with(&expected), "{error}");
    }
}

/// Line of the value of a field after [`TLS`].
fn parse_line(field: &str) -> usize {
    3 + field.lines().count()
}

#[test]
fn unknown_fields_are_refused_by_name() {
    for text in ["basic_auth_user: {}\n", &format!("{TLS}  cert_fil: a\n")] {
        let error = parse(text).unwrap_err();
        assert!(
            error.contains("unknown field") && (error.contains("basic_auth_user") || error.contains("cert_fil")),
            "{error}"
        );
    }
}

#[test]
fn invalid_values_are_refused_with_the_allowed_ones() {
    for (text, line, message) in [
        ("tls_server_config: {}\n", 1, "tls_server_config: it requires cert_file"),
        ("\ntls_server_config:\n  cert_file: a\n", 2, "tls_server_config: it requires key_file"),
        ("tls_server_config:\n  cert_file: \"\"\n  key_file: a\n", 1, "tls_server_config: it requires cert_file"),
        (&format!("{TLS}  client_ca_file: ca\n"), 1, "client_ca_file has no effect without client_auth_type"),
        (&format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n"), 1, "requires client_ca_file"),
        (
            &format!("{TLS}  client_auth_type: VerifyClientCertIfGiven\n"),
            4,
            "uvmd does not implement VerifyClientCertIfGiven",
        ),
        (&format!("{TLS}  client_auth_type: yes\n"), 4, "expected NoClientCert or RequireAndVerifyClientCert"),
        (&format!("{TLS}  min_version: TLS13\n  max_version: TLS12\n"), 1, "min_version is above max_version"),
        (&format!("{TLS}  min_version: TLS10\n"), 4, "uvmd does not implement TLS10, which is insecure"),
        (&format!("{TLS}  min_version: SSL30\n"), 4, "expected TLS12 or TLS13"),
        ("basic_auth_users:\n  a: secret\n", 2, "expected a hash by bcrypt, as `htpasswd -nBC 10 \"\"` prints"),
        (
            &format!("basic_auth_users:\n  a: {}\n", HASH.replace("10", "17")),
            2,
            "the hash has cost 17, expected one from 4 to 14",
        ),
        (&format!("basic_auth_users:\n  \"a:b\": {HASH}\n"), 2, "expected the name of a user"),
        (&format!("basic_auth_users:\n  a: {HASH}\n  a: {HASH}\n"), 3, "duplicate"),
        ("basic_auth_users: [a]\n", 1, ""),
        ("tls_server_config\n", 1, ""),
        ("{\n", 0, ""),
        ("a: &a [*a, *a]\n", 1, ""),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(message), "{error}");
        assert!(line == 0 || error.starts_with(&format!("{line}: ")), "{line}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn listener_that_others_can_read_or_overhear_is_warned_of() {
    let of = |text: &str, listen: &str| parse(text).unwrap().warnings(listen.parse().unwrap());
    let users = format!("basic_auth_users:\n  a: {HASH}\n");
    let client_ca = format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca\n");
    for (text, expected) in [
        ("", Some("anyone who can reach it can read the metrics")),
        (TLS, Some("anyone who can reach it can read the metrics")),
        (&users, Some("passwords are sent in the clear to 0.0.0.0:9478")),
        (&format!("{TLS}{users}"), None),
        (&client_ca, None),
    ] {
        let warnings = of(text, "0.0.0.0:9478");
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        assert!(expected.is_none_or(|expected| warnings[0].contains(expected)), "{warnings:?}");
        assert!(of(text, "127.0.0.1:9478").is_empty() && of(text, "[::1]:9478").is_empty());
    }
}

#[test]
fn options_that_contradict_each_other_are_warned_of() {
    let warnings = |text: &str| config::load::parse(text).unwrap().warnings();
    for (text, expected) in [
        ("metrics.web_config_file = \"/a\"", Some("metrics.web_config_file has no effect without metrics.listen")),
        (
            "metrics.listen = \"127.0.0.1:9477\"",
            Some("metrics.listen cannot be served: listen has the same address, 127.0.0.1:9477"),
        ),
        (
            "listen = \"none\"\nsocket.enabled = false\nmetrics.listen = \"127.0.0.1:1\"",
            Some("nobody can read anything but metrics"),
        ),
        ("listen = \"127.0.0.1:0\"\nmetrics.listen = \"127.0.0.1:0\"", None),
        ("metrics = { listen = \"0.0.0.0:9478\", web_config_file = \"/a\" }", None),
    ] {
        let warnings = warnings(text);
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        assert!(expected.is_none_or(|expected| warnings[0].contains(expected)), "{warnings:?}");
    }
}
