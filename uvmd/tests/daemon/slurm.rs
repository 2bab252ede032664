//! Overrides that Slurm's Prolog makes from templates.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
};

use crate::support::{Node, UVMD};

/// The shipped Prolog for job 4711 of partition `gpu` with this template. Returns the files of the
/// folder of overrides, with their text, and the messages.
fn prolog(node: &Node, template: &str) -> (Vec<(String, String)>, String) {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/slurm/prolog");
    let (programs, templates, overrides) = (node.path("bin"), node.path("slurm.d"), node.path("overrides.d"));
    for folder in [&programs, &templates, &overrides] {
        fs::create_dir_all(folder).unwrap();
    }
    if !programs.join("uvmd").exists() {
        symlink(UVMD, programs.join("uvmd")).unwrap();
        fs::write(programs.join("logger"), "#!/bin/sh\ncat\n").unwrap();
        fs::set_permissions(programs.join("logger"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(templates.join("partition-gpu.toml"), template).unwrap();
    // The script sets its own PATH.
    let path = format!("PATH={}:", programs.display());
    let text = fs::read_to_string(shipped).unwrap().replacen("PATH=", &path, 1);
    let output = Command::new("sh")
        .args(["-c", &text])
        .env_clear()
        .envs([("SLURM_JOB_ID", "4711"), ("SLURM_JOB_SLUID", "sEKNKTV3WPV500"), ("SLURM_JOB_PARTITION", "gpu")])
        .envs([("UVMD_TEMPLATES", templates), ("UVMD_OVERRIDES", overrides.clone())])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(0), ""));
    let mut files: Vec<_> = fs::read_dir(overrides)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect();
    files.sort();
    (files, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn valid_template_makes_an_override_for_both_ids_of_the_job() {
    let (files, messages) =
        prolog(&Node::new(), "# A comment.\nmode = \"shadow\"\npolicy = \"auto-live\"\nmatch = {}\n");
    let text = "[[override]]\nid = \"slurm-4711\"\nmatch = { job = \"4711\" }\nmode = \"shadow\"\npolicy = \"auto-live\"\n\
                [[override]]\nid = \"slurm-sEKNKTV3WPV500\"\nmatch = { job = \"sEKNKTV3WPV500\" }\nmode = \"shadow\"\npolicy = \"auto-live\"\n";
    assert_eq!((files, messages.as_str()), (vec![("slurm-job-4711.toml".to_owned(), text.to_owned())], ""));
}

#[test]
fn invalid_template_makes_no_override_and_is_named() {
    let node = Node::new();
    // Also none of an earlier run of the job.
    prolog(&node, "mode = \"shadow\"\n");
    let (files, messages) = prolog(&node, "mode = \"maybe\"\n");
    assert_eq!(files, []);
    let template = node.path("slurm.d/partition-gpu.toml");
    let beginning = format!("job 4711 has no override by {}: uvmd: ", template.display());
    assert!(messages.starts_with(&beginning), "{messages}");
    assert!(messages.contains("override.mode: expected \"observe\", \"shadow\" or \"act\""), "{messages}");
}
