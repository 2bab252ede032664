//! `uvmctl sim`, without a daemon.

use std::{fs, path::PathBuf, process::Output};

use serde_json::Value;

use crate::support::{run, stderr, stdout};

const NO_DAEMON: &str = "http://192.0.2.1:1";

/// Iteration with two tensors of 96 MiB, read in turn by two kernels of 6 ms.
fn turns(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let text = r#"{"name": "turns", "tensors": [{"bytes": 100663296, "persistent": true}, {"bytes": 100663296, "persistent": true}],
        "kernels": [{"duration_ns": 6000000, "inputs": [0]}, {"duration_ns": 6000000, "inputs": [1]}]}"#;
    fs::write(&path, text).unwrap();
    path
}

fn sim(arguments: &[&str]) -> Output {
    run(NO_DAEMON, &[&["sim"], arguments].concat())
}

#[test]
fn oversubscription_costs_are_simulated() {
    let trace = turns("turns.json");
    let output = sim(&["--trace", trace.to_str().unwrap(), "--machine", "a100", "--gpu-mem", "128MiB"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..3], ["ideal", "12.0", "ms"], "{text}");
    assert_eq!((lines[2][0], lines.len()), ("driver", 3), "{text}");
    assert!(text.contains("192 MiB"), "{text}");
    assert!(stderr(&output).contains("modelled, not measured"), "{}", stderr(&output));
}

#[test]
fn an_unreadable_token_does_not_matter_without_uvmd() {
    let trace = turns("turns3.json");
    let arguments = ["--trace", trace.to_str().unwrap(), "--machine", "a100", "--token-file", "/nonexistent/token"];
    let output = sim(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn output_json_is_the_report_on_standard_output() {
    let trace = turns("turns4.json");
    let arguments = ["--trace", trace.to_str().unwrap(), "--machine", "a100", "-o"];
    let report: Value = serde_json::from_str(&stdout(&sim(&[&arguments[..], &["json"]].concat()))).unwrap();
    assert_eq!(report["machine"], "a100");
    assert_eq!(sim(&[&arguments[..], &["yaml"]].concat()).status.code(), Some(2));
    assert_eq!(sim(&[&arguments[..], &["json", "--json", "/dev/null"]].concat()).status.code(), Some(2));
}

#[test]
fn an_unknown_trace_is_refused_with_the_known_kinds() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("unknown.txt");
    fs::write(&path, "something else\n").unwrap();
    let message = stderr(&sim(&["--trace", path.to_str().unwrap(), "--machine", "a100"]));
    for kind in ["PyTorch", "G10", "SINGA", "MiniMalloc", "docs/traces.md"] {
        assert!(message.contains(kind), "{message}");
    }
    let message = stderr(&sim(&["--trace", "/nonexistent", "--machine", "a100"])).to_lowercase();
    assert_eq!(message.matches("no such file or directory").count(), 1, "{message}");
}

#[test]
fn json_has_every_figure_of_each_policy_in_the_order_asked_for() {
    let (trace, file) = (turns("turns2.json"), PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("figures.json"));
    let arguments = ["--trace", trace.to_str().unwrap(), "--machine", "h200", "--gpu-mem", "128MiB"];
    let printed = sim(&[&arguments[..], &["--policy", "driver,ideal", "--json", "-"]].concat());
    let written = sim(&[&arguments[..], &["--policy", "driver,ideal", "--json", file.to_str().unwrap()]].concat());
    assert!(stdout(&written).contains("POLICY"));
    let report: Value = serde_json::from_str(&stdout(&printed)).unwrap();
    // Planning time is measured, and differs.
    let without_time = |mut report: Value| {
        for policy in report["policies"].as_array_mut().unwrap() {
            policy["plan_cpu_s"].take();
        }
        report
    };
    let in_file: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(without_time(report.clone()), without_time(in_file));
    assert_eq!((&report["modelled"], &report["gpu_bytes"]), (&Value::Bool(true), &Value::from(128 << 20)));
    let policies = report["policies"].as_array().unwrap();
    assert_eq!(policies.iter().map(|policy| &policy["policy"]).collect::<Vec<_>>(), ["driver", "ideal"]);
    for field in [
        "time_s",
        "ideal_s",
        "share_of_ideal",
        "stall_s",
        "bytes_htod",
        "bytes_dtoh",
        "bytes_ssd_read",
        "bytes_ssd_written",
        "faults",
        "peak_bytes",
        "plan_cpu_s",
    ] {
        assert!(policies.iter().all(|policy| policy[field].is_number()), "{field}");
    }
    assert_eq!(policies[0]["bytes_htod"], 192 << 20);
    // Of both tensors in turn, what exceeds the memory crosses the link.
    assert_eq!((&report["bound_bytes_htod"], &report["bound_bytes_dtoh"]), (&(64 << 20).into(), &(64 << 20).into()));
}

#[test]
fn planners_run_beside_the_driver_and_failures_are_separate() {
    let trace = turns("turns9.json");
    let arguments = ["--trace", trace.to_str().unwrap(), "--machine", "a100", "--policy", "driver,autoswap"];
    let report = |gpu_mem| {
        let output = sim(&[&arguments[..], &["--gpu-mem", gpu_mem, "--json", "-"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).unwrap()
    };
    let enough = report("400MiB");
    assert_eq!(enough["policies"][1]["policy"], "autoswap");
    assert_eq!(enough["failed"], Value::Array(Vec::new()));
    // A kernel's tensor exceeds the memory available to planners.
    let too_little = report("96MiB");
    assert_eq!(too_little["policies"].as_array().unwrap().len(), 1);
    assert_eq!(too_little["failed"][0]["policy"], "autoswap");
    let shown = sim(&[&arguments[..], &["--gpu-mem", "96MiB"]].concat());
    assert!(stderr(&shown).contains("autoswap cannot run there: "), "{}", stderr(&shown));
}

#[test]
fn a_page_shows_every_policy_and_is_self_contained() {
    let (trace, file) = (turns("turns5.json"), PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("picture.html"));
    let text = fs::read_to_string(&trace).unwrap().replace("turns\"", "turns <&>\"");
    fs::write(&trace, text).unwrap();
    let path = file.to_str().unwrap();
    let output = sim(&["--trace", trace.to_str().unwrap(), "--machine", "a100", "--gpu-mem", "128MiB", "--html", path]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("POLICY") && !stderr(&output).contains("kernel 1 of"), "{}", stderr(&output));
    let page = fs::read_to_string(&file).unwrap();
    assert!(
        page.contains("<h2>ideal</h2>") && page.contains("<h2>driver</h2>") && page.contains("turns &lt;&amp;&gt;")
    );
    assert_eq!(page.matches("<svg").count(), 1, "nothing moves in the other");
    assert!(page.contains("class=\"in\"") && page.contains("class=\"out\""));
    assert!(!page.contains("http") && !page.contains("<script") && page.contains("prefers-color-scheme: dark"));
}

#[test]
fn a_generated_network_needs_no_file() {
    let output = sim(&["--zoo", "bert:2", "--machine", "gtx1080ti", "--gpu-mem", "1GiB"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let unknown = sim(&["--zoo", "bert:2", "--machine", "rtx5090"]);
    assert!(stderr(&unknown).contains("the compute rate of rtx5090 is unknown"), "{}", stderr(&unknown));
}

/// Run that repeatedly allocates, writes, reads and frees two blocks.
fn run_of_two_blocks(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut ops = Vec::new();
    for block in (0..8).step_by(2) {
        for (kind, of) in
            [("malloc", 0), ("write", 0), ("malloc", 1), ("write", 1), ("read", 0), ("free", 0), ("free", 1)]
        {
            let time_ns = ops.len() * 1_000_000;
            ops.push(serde_json::json!({ "time_ns": time_ns, kind: block + of }));
        }
    }
    let blocks = vec![serde_json::json!({ "bytes": 48 << 20 }); 8];
    fs::write(&path, serde_json::json!({ "blocks": blocks, "ops": ops }).to_string()).unwrap();
    path
}

#[test]
fn an_iteration_of_a_run_is_modelled_as_well() {
    let run = run_of_two_blocks("run2.json");
    let window = ["--mallocs", "2", "--first-malloc", "4"];
    let arguments = ["--trace", run.to_str().unwrap(), "--machine", "a100", "--gpu-mem", "128MiB"];
    let output = sim(&[&arguments[..], &window, &["--json", "-"]].concat());
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&report["window"]["first_malloc"], &report["window"]["mallocs"]), (&4.into(), &2.into()));
    assert_eq!(report["policies"][0]["peak_bytes"], 96 << 20);
    let shown = sim(&[&arguments[..], &window].concat());
    assert!(stderr(&shown).contains("of the run: 2 mallocs from number 4 on"), "{}", stderr(&shown));
}

#[test]
fn an_iteration_of_a_program_that_allocates_nothing_is_counted_in_launches() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../offline/trace-sources/tests/samples/runs/mlp.json.gz");
    let arguments = ["--trace", run, "--machine", "a100", "--gpu-mem", "64MiB"];
    let report: Value = serde_json::from_str(&stdout(&sim(&[&arguments[..], &["--json", "-"]].concat()))).unwrap();
    assert_eq!(report["window"], serde_json::json!({ "first_launch": 81, "launches": 21 }));
    let shown = stderr(&sim(&arguments));
    assert!(shown.contains("of the run: 21 launches from number 81 on"), "{shown}");
}

#[test]
fn it_fails_where_no_policy_can_run() {
    let trace = turns("turns7.json");
    let arguments = ["--trace", trace.to_str().unwrap(), "--machine", "a100", "--gpu-mem", "96MiB", "--policy"];
    for (policies, code) in [("autoswap", 1), ("autoswap,driver", 0)] {
        assert_eq!(sim(&[&arguments[..], &[policies]].concat()).status.code(), Some(code), "{policies}");
        assert_eq!(sim(&[&arguments[..], &[policies, "--json", "-"]].concat()).status.code(), Some(code), "{policies}");
    }
}

#[test]
fn conditions_are_reported_with_the_figures() {
    let trace = turns("turns8.json");
    let page = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("conditions.html");
    let arguments = ["--trace", trace.to_str().unwrap(), "--machine", "a100", "--html", page.to_str().unwrap()];
    let plain = sim(&[&arguments[..], &["--gpu-mem", "160MiB", "--policy", "vdnn"]].concat());
    assert!(stdout(&plain).contains("vdnn-dyn"), "{}", stderr(&plain));
    assert!(!stderr(&plain).contains("compression") && !stderr(&plain).contains("launches"), "{}", stderr(&plain));
    let with = ["--gpu-mem", "50GiB", "--policy", "driver,pump", "--packing", "2.5", "--launch-lead", "3ms"];
    let output = sim(&[&arguments[..], &with].concat());
    let page = fs::read_to_string(&page).unwrap();
    for text in [stderr(&output), page] {
        assert!(text.contains("compression ratio on the link: 2.5"), "{text}");
        assert!(text.contains("pump: launches lead by 3.0 ms"), "{text}");
    }
    assert!(stderr(&output).contains("has 40.0 GiB only"), "{}", stderr(&output));
}

#[test]
fn a_file_can_describe_a_machine() {
    let trace = turns("turns6.json");
    let own = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("own.toml");
    let a100 = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../offline/machines/a100.toml")).unwrap();
    let run = |text: &str| {
        fs::write(&own, text).unwrap();
        let machine = own.to_str().unwrap();
        sim(&["--trace", trace.to_str().unwrap(), "--machine", machine, "--gpu-mem", "128MiB", "--json", "-"])
    };
    let time_s = |text: &str| {
        let report: Value = serde_json::from_str(&stdout(&run(text))).unwrap();
        report["policies"][1]["time_s"].as_f64().unwrap()
    };
    let slower = a100.replace("value = 24.8e9", "value = 2.48e9");
    assert!(time_s(&slower) > 3.0 * time_s(&a100));
    let wrong = run(&a100.replace("[memory]", "[memories]"));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("own.toml describes no machine"), "{}", stderr(&wrong));
}

#[test]
fn an_impossible_simulation_is_exit_code_1_with_a_reason() {
    let trace = turns("turns3.json");
    let trace = trace.to_str().unwrap();
    let run = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("run.json");
    fs::write(&run, r#"{"blocks": [], "ops": []}"#).unwrap();
    for (arguments, message) in [
        (vec!["--trace", trace, "--machine", "tpu"], "no machine \"tpu\"; there are gtx1080ti"),
        (vec!["--trace", trace, "--machine", "a100", "--gpu-mem", "1MiB"], "too few"),
        (vec!["--trace", "/nowhere.json", "--machine", "a100"], "/nowhere.json"),
        (vec!["--trace", run.to_str().unwrap(), "--machine", "a100"], "no period found"),
    ] {
        let output = sim(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    for arguments in [vec!["--machine", "a100"], vec!["--trace", trace, "--machine", "a100", "--gpu-mem", "lots"]] {
        assert_eq!(sim(&arguments).status.code(), Some(2), "{arguments:?}");
    }
}
