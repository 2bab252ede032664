//! `uvmctl plan`, without a daemon.

use std::{fs, path::PathBuf, process::Output};

use serde_json::Value;

use crate::support::{self, stderr, stdout};

/// Three blocks: the second is placed above the first, and the third reuses the first's place.
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
    assert_eq!((&report["steps"], &report["window"]), (&9.into(), &Value::Null));
    let compared = report["compared_bytes"].as_f64().unwrap();
    for pool in report["pools"].as_array().unwrap() {
        let saved = 100.0 * (1.0 - pool["bytes"].as_f64().unwrap() / compared);
        assert!((pool["saved_percent"].as_f64().unwrap() - saved).abs() < 1e-9, "{pool}");
    }
}

#[test]
fn errors_in_a_trace_have_their_line() {
    let trace = file("wrong.csv", "id,lower,upper,size\na,0,4,100\nb,9,3,60\n");
    let output = plan_pool(trace.to_str().unwrap(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("wrong.csv:3: "), "{}", stderr(&output));
}

#[test]
fn a_missing_trace_is_named_with_one_reason() {
    let output = plan_pool("/nowhere/trace.csv", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "uvmctl: /nowhere/trace.csv: No such file or directory (os error 2)\n");
}

#[test]
fn a_run_without_a_period_requires_an_explicit_iteration() {
    let run = "MALLOC: 0x1000 512 1\nMALLOC: 0x2000 1024 2\nFREE: 0x1000 3\nMALLOC: 0x1000 512 4\nFREE: 0x1000 5\n";
    let trace = file("run.log", run);
    let trace = trace.to_str().unwrap();
    let output = plan_pool(trace, &[]);
    assert!(stderr(&output).contains("--mallocs"), "{}", stderr(&output));
    let named = plan_pool(trace, &["--mallocs", "1", "--first-malloc", "2", "--json", "-"]);
    let report: Value = serde_json::from_str(&stdout(&named)).unwrap();
    assert_eq!((&report["bound_bytes"], &report["persistent_bytes"]), (&512.into(), &1024.into()));
    assert_eq!((&report["window"]["first_malloc"], &report["window"]["mallocs"]), (&2.into(), &1.into()));
}

#[test]
fn a_run_that_allocates_nothing_has_no_pool() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../offline/trace-sources/tests/samples/runs/mlp.json.gz");
    let output = plan_pool(run, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("allocates nothing in an iteration"), "{}", stderr(&output));
}

/// Iteration in which 10 MiB, written by the first kernel and read by the last, are idle while 20
/// MiB are used.
const IDLE: &str = r#"{"tensors": [{"name": "kept", "bytes": 10485760}, {"bytes": 20971520}], "kernels": [
    {"name": "make", "duration_ns": 1000000, "outputs": [0]}, {"duration_ns": 9000000}, {"duration_ns": 1000000, "outputs": [1]},
    {"duration_ns": 9000000}, {"duration_ns": 1000000, "inputs": [0]}]}"#;

#[test]
fn a_swap_is_planned_without_a_daemon_and_its_schedule_written() {
    let trace = file("idle.json", IDLE);
    let swap = |arguments: &[&str]| {
        let always = ["plan", "swap", "--trace", trace.to_str().unwrap()];
        support::run("http://127.0.0.1:1", &[&always, arguments].concat())
    };
    let output = swap(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("20.0 MiB (33.3 % less)"), "{text}");
    let lines =
        text.lines().filter(|line| line.contains("20.0 MiB") && line.contains("33.3 %") && line.contains("0 ns"));
    assert_eq!(lines.count(), 6, "{text}");
    let report: Value = serde_json::from_str(&stdout(&swap(&["--limit", "20MiB", "--json", "-"]))).unwrap();
    let actions = report["schedule"]["actions"].as_array().unwrap();
    let anchors: Vec<_> =
        actions.iter().map(|action| (action["begin"].clone(), action["done_before"].clone())).collect();
    assert_eq!(anchors, [(1.into(), 2.into()), (3.into(), 4.into())], "{report}");
    let (tensor, kernel) = (&report["tensors"][0], &report["kernels"][0]);
    assert_eq!((&tensor["name"], &tensor["bytes"]), (&"kept".into(), &10_485_760.into()));
    assert_eq!((&kernel["name"], &kernel["duration_ns"]), (&"make".into(), &1_000_000.into()));
    assert!(stderr(&swap(&["--limit", "19MiB"])).contains("no limit below 20.0 MiB is feasible"));
    let over = swap(&["--limit", "19MiB", "--mode", "no-overhead", "--json", "-"]);
    let report: Value = serde_json::from_str(&stdout(&over)).unwrap();
    assert_eq!(
        (&report["plans"][0]["peak_bytes"], &report["plans"][0]["overhead_ns"]),
        (&20_971_520.into(), &0.into())
    );
}

#[test]
fn a_generated_network_is_planned_without_a_file() {
    let report = |arguments: &[&str]| {
        let output =
            support::run("http://127.0.0.1:1", &[&["plan"], arguments, &["--zoo", "vgg16:1", "--json", "-"]].concat());
        serde_json::from_str::<Value>(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    let (pool, swap) =
        (report(&["pool", "--rounds", "0", "--nodes", "0"]), report(&["swap", "--machine", "h200", "--steps", "0"]));
    assert_eq!((&pool["trace"], &swap["trace"]), (&"vgg16:1".into(), &"vgg16:1".into()));
    let tensors = swap["tensors"].as_array().unwrap();
    assert_eq!(pool["steps"], swap["kernels"].as_array().unwrap().len());
    for slot in pool["slots"].as_array().unwrap() {
        let tensor = &tensors[usize::try_from(slot["source"].as_u64().unwrap()).unwrap()];
        assert_eq!(tensor["name"], slot["name"]);
    }
}

#[test]
fn blocks_without_uses_cannot_be_swapped() {
    let trace = file("no-uses.csv", BLOCKS);
    let output = support::run("http://127.0.0.1:1", &["plan", "swap", "--trace", trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("blocks without uses"), "{}", stderr(&output));
}

#[test]
fn options_for_runs_are_rejected_for_generated_iterations() {
    for option in [["--busy", "log"], ["--mallocs", "7"], ["--lives", "used"]] {
        let output = support::run("http://127.0.0.1:1", &[&["plan", "swap", "--zoo", "bert:1"], &option[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{option:?}");
        assert!(stderr(&output).contains(option[0]), "{}", stderr(&output));
    }
}
