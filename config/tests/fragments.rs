//! Fragments: `conf.d` beside the configuration, `overrides.d` beside the overrides.
#![cfg(test)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use config::{ConfigError, Loaded, load, overrides, state_dir};
use tempfile::TempDir;

/// Folder with these files at their paths.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    folder
}

fn configuration(folder: &TempDir) -> Result<Loaded, ConfigError> {
    load(Some(&folder.path().join("uvmd.toml")), &[])
}

/// Ids of the overrides, or the mistake.
fn ids(folder: &TempDir) -> Result<Vec<String>, String> {
    let overrides = overrides::load(&folder.path().join("overrides.toml"))
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))?;
    Ok(overrides.into_iter().map(|each| each.id).collect())
}

// === conf.d ===

#[test]
fn fragments_override_the_file_and_each_other_in_the_order_of_their_names() {
    let folder = folder(&[
        ("uvmd.toml", "hostname = \"a\"\nhttp.hosts = [\"a\"]\n[log]\nfilter = \"warn\"\n"),
        ("conf.d/20-b.toml", "hostname = \"c\"\nhttp.hosts = [\"c\"]\n"),
        ("conf.d/10-a.toml", "hostname = \"b\"\n[log]\nformat = \"json\"\n"),
    ]);
    let Loaded { config, fragments, .. } = configuration(&folder).unwrap();
    assert_eq!(config.hostname.unwrap().0, "c");
    assert_eq!(config.http.hosts.unwrap().0, ["c"], "a list takes the place of the list before");
    assert_eq!(serde_json::to_value(&config.log).unwrap()["filter"], "warn");
    assert_eq!(serde_json::to_value(&config.log).unwrap()["format"], "json");
    assert_eq!(fragments, ["conf.d/10-a.toml", "conf.d/20-b.toml"].map(|name| folder.path().join(name)));
    let setting = "hostname=d".parse().unwrap();
    let config = load(Some(&folder.path().join("uvmd.toml")), &[setting]).unwrap().config;
    assert_eq!(config.hostname.unwrap().0, "d");
}

#[test]
fn other_files_are_not_read() {
    let files = ["conf.d/a.toml~", "conf.d/.a.toml", "conf.d/a.toml.dpkg-new", "conf.d/README", "conf.d/a.json"];
    let files: Vec<_> = [("uvmd.toml", "")].into_iter().chain(files.map(|name| (name, "nonsense"))).collect();
    assert!(configuration(&folder(&files)).unwrap().fragments.is_empty());
}

#[test]
fn a_mistake_in_a_fragment_is_named_by_its_file_and_line() {
    let folder = folder(&[("uvmd.toml", ""), ("conf.d/a.toml", "\n[log]\nformat = \"xml\"\n")]);
    let error = configuration(&folder).unwrap_err().to_string();
    let place = folder.path().join("conf.d/a.toml");
    assert!(error.starts_with(&format!("{}:3: log.format: invalid value", place.display())), "{error}");
}

#[test]
fn state_folder_may_be_set_by_a_fragment() {
    let file = |folder: &TempDir| folder.path().join("uvmd.toml");
    let folder = folder(&[
        ("uvmd.toml", "[policy]\nstate_dir = \"/a\"\n"),
        ("conf.d/a.toml", "policy.state_dir = \"/b\"\nlisten = 5\n"),
    ]);
    assert_eq!(state_dir(Some(&file(&folder)), &[]).unwrap(), Path::new("/b"));
    fs::write(folder.path().join("conf.d/b.toml"), "no TOML").unwrap();
    assert!(state_dir(Some(&file(&folder)), &[]).is_err(), "it might name another");
}

#[test]
fn fragment_has_no_more_writers_than_the_file() {
    let set = |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let fragments = folder(&[("uvmd.toml", ""), ("conf.d/a.toml", "")]);
    set(fragments.path().join("conf.d/a.toml"), 0o666);
    let error = configuration(&fragments).unwrap_err().to_string();
    assert!(error.ends_with("conf.d/a.toml: others may change it: chmod go-w, it has mode 666"), "{error}");
    set(fragments.path().join("conf.d/a.toml"), 0o644);
    set(fragments.path().join("conf.d"), 0o777);
    let error = configuration(&fragments).unwrap_err().to_string();
    assert!(error.ends_with("conf.d: others may change it: chmod go-w, it has mode 777"), "{error}");
    set(fragments.path().join("uvmd.toml"), 0o666);
    assert!(configuration(&fragments).is_ok(), "the file is as open");
}

#[test]
fn a_fragment_is_a_regular_file_or_a_link_to_one() {
    let folder = folder(&[("uvmd.toml", ""), ("conf.d/..data/x", "hostname = \"linked\"")]);
    let fragments = folder.path().join("conf.d");
    symlink(fragments.join("..data/x"), fragments.join("a.toml")).unwrap();
    assert_eq!(configuration(&folder).unwrap().config.hostname.unwrap().0, "linked");
    fs::create_dir(fragments.join("b.toml")).unwrap();
    let error = configuration(&folder).unwrap_err().to_string();
    assert!(error.ends_with("b.toml: it is not a regular file"), "{error}");
    fs::remove_dir(fragments.join("b.toml")).unwrap();
    symlink("/nonexistent", fragments.join("b.toml")).unwrap();
    assert!(configuration(&folder).is_err(), "a link that leads nowhere");
}

#[test]
fn fragments_are_bounded_in_number_and_size() {
    let folder = folder(&[("uvmd.toml", "#".repeat(600 << 10).as_str()), ("conf.d/a.toml", &"#".repeat(500 << 10))]);
    let error = configuration(&folder).unwrap_err().to_string();
    assert!(error.ends_with("it and the files before it are longer than 1048576 bytes"), "{error}");
    fs::write(folder.path().join("conf.d/a.toml"), "").unwrap();
    for number in 0..1000 {
        fs::write(folder.path().join(format!("conf.d/{number}.toml")), "").unwrap();
    }
    let error = configuration(&folder).unwrap_err().to_string();
    assert!(error.ends_with("it has more than 1000 files"), "{error}");
}

// === overrides.d ===

#[test]
fn overrides_of_all_files_are_in_effect_in_either_form() {
    let folder = folder(&[
        ("overrides.toml", "[[override]]\nid = \"a\"\nmode = \"act\"\n"),
        ("overrides.d/20.toml", "[[override]]\nid = \"c\"\nmode = \"act\"\n"),
        ("overrides.d/10.json", "[{\"id\": \"b\", \"mode\": \"act\"}]"),
        ("overrides.d/README", "nonsense"),
    ]);
    assert_eq!(ids(&folder).unwrap(), ["a", "b", "c"]);
    fs::remove_file(folder.path().join("overrides.toml")).unwrap();
    assert_eq!(ids(&folder).unwrap(), ["b", "c"], "no file is needed beside the folder");
}

#[test]
fn duplicate_id_in_two_files_is_a_mistake() {
    let folder = folder(&[
        ("overrides.toml", "[[override]]\nid = \"a\"\nmode = \"act\"\n"),
        ("overrides.d/a.toml", "[[override]]\nmode = \"observe\"\nid = \"a\"\n"),
    ]);
    let error = ids(&folder).unwrap_err();
    assert_eq!(error, "overrides.d/a.toml:3: override.id: overrides.toml has another override \"a\"");
}

#[test]
fn mistake_in_any_file_rejects_all_files() {
    let folder = folder(&[
        ("overrides.toml", "[[override]]\nid = \"a\"\nmode = \"act\"\n"),
        ("overrides.d/a.json", "{\"id\": \"b\",\n\"mode\": \"on\"}"),
    ]);
    assert!(ids(&folder).unwrap_err().starts_with("overrides.d/a.json:2: override.mode: expected"));
    fs::set_permissions(folder.path().join("overrides.d/a.json"), Permissions::from_mode(0o666)).unwrap();
    assert!(ids(&folder).unwrap_err().contains("others may change it"));
}
