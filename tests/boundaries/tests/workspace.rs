//! Crates and modules of the workspace, checked against ARCHITECTURE.md.
#![cfg(test)]

use boundaries::{
    arrows,
    crates::{Crates, crates},
    cycles::cycles,
    files,
    modules::Tree,
    purity::impurities,
    root,
    table::table,
};

/// Crates that the lab's runner may link: it shares no code with the code under test. From `model`
/// it uses the registry of policies, which is a table.
const LAB_RUNNER: [&str; 7] = ["gpu", "model", "planner", "sim", "trace", "trace-sources", "zvc"];
/// Crates that `uvmctl` may link: nothing of the probes, so that it builds without their toolchain.
const UVMCTL: [&str; 11] =
    ["abi", "api", "call-ring", "config", "model", "planner", "sim", "sys", "trace", "trace-sources", "zvc"];
/// Crates that the root daemon may link: nothing of the offline toolkit, such as importers of files.
const UVMD: [&str; 15] = [
    "abi",
    "actuator",
    "api",
    "call-ring",
    "collector",
    "config",
    "followers",
    "model",
    "planner",
    "plans",
    "policy",
    "recorder",
    "sys",
    "trace",
    "web",
];
/// Crates that `uvmd-fleet` may link: it has credentials, and nothing of the node.
const FLEET: [&str; 2] = ["api", "model"];
/// Crates without input, output and clock.
const PURE: [&str; 5] = ["api", "model", "planner", "policy", "trace"];

fn all() -> Crates {
    crates(&root()).unwrap()
}

#[test]
fn arrows_between_crates_match_the_table_and_lead_down() {
    let document = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert_eq!(arrows::differences(&all(), &table(&document).unwrap()), [""; 0]);
}

#[test]
fn lab_runner_links_no_code_under_test() {
    assert_eq!(arrows::not_allowed(&all(), "lab-runner", &LAB_RUNNER), [""; 0]);
}

#[test]
fn uvmctl_links_no_crate_that_needs_the_probe_toolchain() {
    assert_eq!(arrows::not_allowed(&all(), "uvmctl", &UVMCTL), [""; 0]);
}

#[test]
fn uvmd_links_nothing_of_the_offline_toolkit() {
    assert_eq!(arrows::not_allowed(&all(), "uvmd", &UVMD), [""; 0]);
}

#[test]
fn fleet_links_nothing_of_the_node() {
    assert_eq!(arrows::not_allowed(&all(), "fleet", &FLEET), [""; 0]);
}

#[test]
fn modules_of_a_crate_form_no_cycle() {
    let mut found = Vec::new();
    for (name, each) in all() {
        for cycle in each.roots.iter().flat_map(|root| cycles(&Tree::read(root).unwrap())) {
            found.push(format!("{name}: {}\n  {}", cycle.members.join(", "), cycle.arrows.join("\n  ")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn pure_crates_have_no_input_no_output_and_no_clock() {
    let all = all();
    for name in PURE {
        for root in &all[name].roots {
            assert_eq!(impurities(&Tree::read(root).unwrap()), [""; 0], "{name}");
        }
    }
}

#[test]
fn modules_are_in_the_files_of_their_names() {
    let sources = files::sources(&root()).unwrap();
    assert!(sources.len() > 500, "{} sources", sources.len());
    // A model compiles a module of its crate with loom's atomics.
    let (models, others): (Vec<_>, Vec<_>) =
        sources.into_iter().partition(|source| source.ends_with("helper/hooks/tests/gate.rs"));
    assert_eq!(models.len(), 1);
    assert_eq!(files::elsewhere(&others).unwrap(), [""; 0]);
}
