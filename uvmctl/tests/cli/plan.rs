//! `uvmctl plan`, with no daemon anywhere.

use std::{fs, path::PathBuf, process::Output};

use serde_json::Value;

use crate::support::{self, stderr, stdout};

/// Three blocks: the second lies on the first, and the third where the first was.
const BLOCKS: &str = "id,lower,upper,size\na,0,4,100\nb,3,9,60\nc,5,7,40\n";

fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("plan-{}-{name}", std::process::id()));
    fs::write(&path, text).unwrap();
    path
}

fn plan_pool(trace: &str, arguments: &[&str]) -> Output {
    support::run("http://127.0.0.1:1", &[&["plan", "pool", "--trace", trace], arguments].concat())
}

#[test]
fn a_pool_is_planned_without_a_daemon() {
    let trace = file("blocks.csv", BLOCKS);
    let output = plan_pool(trace.to_str().unwrap(), &["--align", "none", "--own-pool", "320"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    let last = words(text.lines().last().unwrap());
    assert_eq!(last, "optimal proven 160 B 1.0000 160 B 50.00 %", "{text}");
}

#[test]
fn the_placement_is_written_as_json_into_a_file_or_to_standard_output() {
    let trace = file("json.csv", BLOCKS);
    let to = file("out.json", "");
    let (trace, to) = (trace.to_str().unwrap(), to.to_str().unwrap());
    assert!(plan_pool(trace, &["--align", "none", "--json", to]).status.success());
    let written = fs::read_to_string(to).unwrap();
    assert_eq!(written, stdout(&plan_pool(trace, &["--align", "none", "--json", "-"])));
    let report: Value = serde_json::from_str(&written).unwrap();
    let offsets: Vec<_> = report["slots"].as_array().unwrap().iter().map(|slot| slot["offset"].clone()).collect();
    assert_eq!((offsets, &report["pool_bytes"]), (vec![0.into(), 100.into(), 0.into()], &160.into()));
}

#[test]
fn what_is_wrong_with_a_trace_is_said_with_its_line() {
    let trace = file("wrong.csv", "id,lower,upper,size\na,0,4,100\nb,9,3,60\n");
    let output = plan_pool(trace.to_str().unwrap(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("wrong.csv:3: "), "{}", stderr(&output));
}

#[test]
fn of_a_run_that_does_not_repeat_the_iteration_must_be_named() {
    let run = "MALLOC: 0x1000 512 1\nMALLOC: 0x2000 1024 2\nFREE: 0x1000 3\nMALLOC: 0x1000 512 4\nFREE: 0x1000 5\n";
    let trace = file("run.log", run);
    let trace = trace.to_str().unwrap();
    let output = plan_pool(trace, &[]);
    assert!(stderr(&output).contains("--mallocs"), "{}", stderr(&output));
    let named = plan_pool(trace, &["--mallocs", "1", "--first-malloc", "2", "--json", "-"]);
    let report: Value = serde_json::from_str(&stdout(&named)).unwrap();
    assert_eq!((&report["bound_bytes"], &report["persistent_bytes"]), (&512.into(), &1024.into()));
}
