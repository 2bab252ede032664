//! Options of all commands that show a view: form, order and repetition.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use api::{Gpus, Processes};
use model::SourceState;

use crate::support::{busy, nothing, run, serve_snapshot, snapshot, stderr, stdout, uvmctl};

fn lines(url: &str, arguments: &[&str]) -> Vec<String> {
    let output = run(url, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn names_of_one_command_are_arguments_of_others() {
    let url = serve_snapshot(busy());
    let names = lines(&url, &["ps", "--totals", "-o", "name"]);
    assert_eq!(names, ["process/41207", "process/512"]);
    for command in ["show", "explain", "heatmap"] {
        let output = run(&url, &[command, &names[0], "-o", "json"]);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", stderr(&output));
    }
    assert_eq!(lines(&url, &["show", "41207", "-o", "name"]), ["process/41207"]);
    assert_eq!(lines(&url, &["gpus", "-o", "name"]), ["gpu/GPU-abababab-abab-abab-abab-abababababab"]);
}

#[test]
fn yaml_is_the_json_in_another_form() {
    let url = serve_snapshot(busy());
    let yaml = stdout(&run(&url, &["ps", "-o", "yaml"]));
    for part in ["processes:\n- pid: 41207\n  start_ticks: 1\n", "  name: python train.py\n", "  exited_at: null\n"] {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
    let json: Gpus = serde_json::from_str(&stdout(&run(&url, &["gpus", "-o", "json"]))).unwrap();
    let yaml = stdout(&run(&url, &["gpus", "-o", "yaml"]));
    assert!(yaml.contains(&format!("uuid: {}\n", json.gpus[0].gpu.id.uuid.as_deref().unwrap())), "{yaml}");
}

#[test]
fn a_list_is_sorted_by_any_of_its_columns() {
    let url = serve_snapshot(busy());
    let pids = |by: &str| lines(&url, &["ps", "--totals", "--all", "-o", "name", "--sort-by", by]);
    assert_eq!(pids("pid"), ["process/9", "process/512", "process/41207"]);
    assert_eq!(pids("-pid"), ["process/41207", "process/512", "process/9"]);
    assert_eq!(pids("FAULTS"), ["process/41207", "process/512", "process/9"]);
    assert_eq!(pids("process"), ["process/512", "process/9", "process/41207"]);
    let rates = lines(&url, &["ps", "--interval", "0.1", "--sort-by", "h2d", "--no-headers"]);
    assert!(rates[0].starts_with("41207 ") && rates.len() == 2, "{rates:?}");
}

#[test]
fn wide_has_more_columns_and_headings_can_be_omitted() {
    let url = serve_snapshot(busy());
    let (table, wide) = (lines(&url, &["ps", "--totals"]), lines(&url, &["ps", "--totals", "-o", "wide"]));
    assert!(!table[0].contains("CGROUP") && wide[0].contains("INSTANCES") && wide[0].ends_with("CGROUP"), "{wide:?}");
    assert_eq!(lines(&url, &["ps", "--totals", "--no-headers"]), table[1..]);
}

#[test]
fn inapplicable_options_are_usage_errors_before_any_request() {
    let url = format!("http://{}", nothing());
    let order = "pid, process, owner, user, gpu, managed, resident, faults/s, h2d/s";
    for (arguments, hint) in [
        (&["ps", "--sort-by", "beauty"][..], order),
        (&["ps", "-o", "json", "--sort-by", "pid"], "--sort-by applies to --output table, wide and name"),
        (&["show", "7", "--sort-by", "pid"], "--sort-by applies to lists"),
        (&["status", "--no-headers"], "--no-headers applies to lists"),
        (&["status", "-o", "name"], "nothing here has a name"),
        (&["status", "--check", "-o", "json"], "--output does not apply to status --check"),
        (&["top", "-o", "json"], "--output does not apply to top"),
        (&["policy", "off", "--watch"], "--watch applies to commands that show something once"),
        (&["ps", "-o", "csv"], "table, wide, json, yaml, name"),
        (&["ps", "--watch=0"], "0.1 to 3600"),
    ] {
        let output = run(&url, arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{arguments:?}");
        assert!(stderr(&output).contains(hint), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_watched_list_is_appended_until_it_is_interrupted() {
    let url = serve_snapshot(busy());
    for signal in ["-INT", "-TERM"] {
        let mut child = uvmctl(&url).args(["ps", "--totals", "--watch=0.1"]).stdout(Stdio::piped()).spawn().unwrap();
        let text: Vec<String> =
            BufReader::new(child.stdout.as_mut().unwrap()).lines().take(8).map(Result::unwrap).collect();
        assert!(text[0].contains("PID") && text[3].is_empty() && text[4] == text[0] && text[5] == text[1], "{text:?}");
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_watched_list_ends_with_its_reader() {
    let url = serve_snapshot(busy());
    let mut child = uvmctl(&url).args(["gpus", "-w=0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn watched_json_is_a_sequence_of_documents() {
    let url = serve_snapshot(busy());
    let mut child = uvmctl(&url).args(["ps", "-o", "json", "--watch=0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    let stream = serde_json::Deserializer::from_reader(child.stdout.take().unwrap()).into_iter::<Processes>();
    let counts: Vec<usize> = stream.take(2).map(|document| document.unwrap().processes.len()).collect();
    assert_eq!(counts, [2, 2]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn status_check_exits_with_a_code_per_state() {
    let waiting = SourceState::Waiting { missing: vec!["the driver is not loaded".to_owned()] };
    let refused = SourceState::Refused { reason: "driver 999 is unknown".to_owned() };
    for (snapshot, code, line) in [
        (busy(), 0, "counting"),
        (snapshot(waiting), 4, "waiting: the driver is not loaded"),
        (snapshot(refused), 5, "refused: driver 999 is unknown"),
    ] {
        let output = run(&serve_snapshot(snapshot), &["status", "--check"]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(code), format!("{line}\n")));
    }
    assert_eq!(run(&format!("http://{}", nothing()), &["status", "--check"]).status.code(), Some(3));
}
