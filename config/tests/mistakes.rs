//! Mistakes: one message each, with the place and the allowed values.
#![cfg(test)]

use std::fs;

use config::{Config, ConfigError, Loaded, Setting, load, load::parse, state_dir, value::Listen};

fn message(text: &str) -> String {
    let message = parse(text).unwrap_err().to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

fn load_text(text: impl AsRef<[u8]>, settings: &[&str]) -> Result<Loaded, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, text).unwrap();
    let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
    load(Some(file.path()), &settings)
}

#[test]
fn invalid_value_is_reported_with_the_allowed_ones() {
    assert_eq!(
        message("# a remark\n\n[collector]\ninterval = \"0s\"\n"),
        "4: collector.interval: invalid value: string \"0s\", expected a time from 100ms to 1h, such as \"1s\""
    );
    assert_eq!(
        message("listen = \"localhost\""),
        "1: listen: invalid value: string \"localhost\", expected an address and a port, such as \"127.0.0.1:9477\" or \"[::1]:9477\", or \"none\" for no TCP"
    );
    assert_eq!(
        message("http.hosts = [\"node7:9477\"]"),
        "1: http.hosts: invalid value: sequence, expected names of hosts without ports, such as [\"node7.example.org\"]"
    );
    assert_eq!(
        message("[collector]\ntools_level = \"all\""),
        "2: collector.tools_level: invalid value: string \"all\", expected \"counters\", \"kinds\", \"moves\" or \"faults\""
    );
    assert_eq!(
        message("[collector]\ncrosscheck = true"),
        "2: collector.crosscheck: invalid value: boolean `true`, expected \"off\" or \"sampled\""
    );
    assert_eq!(
        message("[collector]\nmax_ended = -1"),
        "2: collector.max_ended: invalid value: integer `-1`, expected a whole number from 0 to 100000"
    );
    assert_eq!(
        message("[policy]\nactuator = \"driver\""),
        "2: policy.actuator: invalid value: string \"driver\", expected \"auto\", \"ioctl\" or \"helper\""
    );
    assert_eq!(
        message("records.ring_size = \"3 MiB\""),
        "1: records.ring_size: invalid value: string \"3 MiB\", expected a power of two from \"64 KiB\" to \"256 MiB\", such as \"4 MiB\""
    );
}

#[test]
fn value_of_another_type_is_reported_with_the_allowed_ones() {
    assert_eq!(
        message("collector = { interval = 5 }"),
        "1: collector.interval: invalid value: integer `5`, expected a time from 100ms to 1h, such as \"1s\""
    );
    assert_eq!(
        message("[metrics]\nper_process = \"yes\""),
        "2: metrics.per_process: invalid value: string \"yes\", expected true or false"
    );
    assert_eq!(
        message("[log]\nfile = [\"/a\", \"/b\"]"),
        "2: log.file: invalid value: sequence, expected a path from the root, such as \"/var/log/uvmd.log\""
    );
    assert_eq!(message("log = \"info\""), "1: log: invalid type: string \"info\", expected a table");
    assert!(message("[collector]\nmax_ended = 1.5").contains("expected a whole number"));
    assert!(message("hostname = 2026-11-21").contains("expected a name"));
}

#[test]
fn unknown_key_is_reported_with_the_known_ones() {
    assert_eq!(
        message("[log]\nfilter = \"info\"\nformats = \"json\""),
        "3: log.formats: unknown key `formats`, expected one of `filter`, `format`, `file`"
    );
    assert!(message("[metric]\nper_process = true").starts_with("1: metric: unknown key `metric`, expected one of"));
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    for (text, start) in [
        ("listen = \"127.0.0.1:9477\"\nhostname = \n", "2: "),
        ("listen = \"127.0.0.1:9477\"\nlisten = \"127.0.0.1:1\"\n", "2: "),
        ("[log\n", "1: "),
        ("[log]\nfilter = \"info\n", "2: "),
        ("\n\nyes\n", "3: "),
        ("x = 99999999999999999999", "1: "),
    ] {
        let message = message(text);
        assert!(message.starts_with(start) && message.len() > 8, "{message}");
    }
}

#[test]
fn unreadable_file_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.toml");
    let error = |path| load(Some(path), &[]).unwrap_err().to_string();
    assert_eq!(
        error(&missing),
        format!("cannot read the configuration {}: no such file or directory", missing.display())
    );
    assert!(error(folder.path()).ends_with("is a directory"));
    assert!(load_text([0xff, 0xfe], &[]).unwrap_err().to_string().ends_with("it is not text in UTF-8"));
    assert!(load_text("#".repeat((1 << 20) + 1), &[]).unwrap_err().to_string().contains("longer than"));
}

#[test]
fn message_has_the_file_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "\nx = 1\n").unwrap();
    let message = load(Some(file.path()), &[]).unwrap_err().to_string();
    assert!(message.starts_with(&format!("{}:2: x: unknown key", file.path().display())), "{message}");
}

#[test]
fn settings_override_the_file_which_overrides_the_defaults() {
    let Loaded { config, file, fragments } = load_text(
        "listen = \"127.0.0.1:1\"\n[log]\nformat = \"json\"\nfilter = \"warn\"",
        &["log.format=text", "metrics.per_process=true", "collector.interval=2s", "collector.interval=\"3s\""],
    )
    .unwrap();
    assert!(file.is_some() && fragments.is_empty());
    let mut expected =
        parse("listen = \"127.0.0.1:1\"\nlog = { filter = \"warn\", format = \"text\" }\ncollector.interval = \"3s\"")
            .unwrap();
    expected.metrics.per_process = true;
    assert_eq!(config, expected);
}

#[test]
fn list_setting_is_as_in_the_file_or_a_single_text() {
    for (setting, hosts) in [("http.hosts=[\"a\", \"b.c\"]", vec!["a", "b.c"]), ("http.hosts=a", vec!["a"])] {
        let names = load_text("", &[setting]).unwrap().config.http.hosts.unwrap();
        assert_eq!(names.0, hosts, "{setting}");
    }
}

#[test]
fn text_in_a_setting_needs_no_quotes() {
    let set = |text: &str| load_text("", &[text]).unwrap().config;
    for text in ["listen=[::1]:1", "listen=\"[::1]:1\""] {
        assert_eq!(set(text).listen, Listen::On("[::1]:1".parse().unwrap()), "{text}");
    }
    for (text, name) in
        [("hostname=17", "17"), ("hostname=true", "true"), ("hostname=a#b", "a#b"), ("hostname=\"", "\"")]
    {
        assert_eq!(set(text).hostname.unwrap().0, name, "{text}");
    }
}

#[test]
fn invalid_setting_is_reported_with_the_allowed_values() {
    let error = |text: &str| text.parse::<Setting>().unwrap_err().to_string();
    assert_eq!(error("log.format=yaml"), "invalid value: string \"yaml\", expected \"auto\", \"text\" or \"json\"");
    assert!(error("log.formats=json").starts_with("unknown key `formats`"));
    assert_eq!(error("log.format"), "expected KEY=VALUE, with a key as in the file, such as log.format");
    assert!(error("hostname=a b").starts_with("invalid value: string \"a b\", expected a name"));
    assert!(error("collector.max_ended=-1").starts_with("invalid value: integer `-1`, expected a whole number"));
    for bad in
        ["=1", "[log]\nformat=\"json\"", "log.format=\"json\"\nlog.filter=\"off\"", "a b=1", "#=1", "log.=1", "[log]=1"]
    {
        assert!(error(bad).starts_with("expected KEY=VALUE"), "{bad}");
    }
}

#[test]
fn missing_file_means_defaults() {
    // Unless this machine has one, which is then valid.
    let loaded = load(None, &[]).unwrap();
    assert!(loaded.file.is_some() || loaded.config == Config::default());
}

#[test]
fn truncated_or_damaged_file_is_valid_or_one_message() {
    let text = "listen = \"127.0.0.1:1\"\nlog = { filter = \"info\", file = '/é' }\n[collector]\nmax_ended = 0x10\n\"interval\" = \"\"\"1s\"\"\"\n\
                [records] # 名前\nenabled = true\nring_size = \"4\\u0020MiB\"\n";
    assert!(parse(text).is_ok());
    let check = |text: &str| {
        if let Err(mistake) = parse(text) {
            let message = mistake.to_string();
            assert_eq!(message.lines().count(), 1, "{message}");
            assert!(mistake.line <= 1 + text.lines().count(), "{message}");
        }
    };
    for (at, character) in text.char_indices() {
        check(&text[..at]);
        for other in ["", "\n", "\"", "[", "=", ".", "9", "\u{0}", "é"] {
            check(&[&text[..at], other, &text[at + character.len_utf8()..]].concat());
        }
    }
}

#[test]
fn state_folder_is_known_despite_mistakes_in_other_options() {
    let state = |text: &str, settings: &[&str]| {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
        state_dir(Some(file.path()), &settings).map_err(|error| error.to_string())
    };
    let usual = Config::default().policy.state_dir.0;
    let set = ["policy.state_dir=/set"];
    for (text, settings, expected) in [
        ("", &[][..], usual.clone()),
        ("[policy]\nstate_dir = \"/here\"", &[], "/here".into()),
        ("[policy]\nstate_dir = \"/here\"\nmode = \"wild\"\n[no.such]\ntable = 1", &[], "/here".into()),
        ("listen = 5", &[], usual),
        ("[policy]\nstate_dir = \"/here\"", &set, "/set".into()),
        ("no TOML", &set, "/set".into()),
        ("[policy]\nstate_dir = 7", &set, "/set".into()),
    ] {
        assert_eq!(state(text, settings), Ok(expected), "{text}");
    }
    // The folder is unknown.
    for text in ["no TOML", "[policy]\nstate_dir = 7", "[policy]\nstate_dir = \"here\""] {
        assert!(state(text, &[]).is_err(), "{text}");
    }
    assert!(state_dir(Some("/nowhere/uvmd.toml".as_ref()), &[]).is_err());
    let setting = "policy.state_dir=/set".parse().unwrap();
    assert_eq!(state_dir(Some("/nowhere/uvmd.toml".as_ref()), &[setting]).unwrap(), std::path::Path::new("/set"));
}
