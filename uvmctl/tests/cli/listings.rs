//! Output of `ps` and `status`.

use std::{
    collections::BTreeMap,
    io::Read,
    process::{Command, Stdio},
};

use api::{Counts, Diagnosis, Evictor, OwnerTotals, Owners, Process, Processes, Verdict, VerdictSummary, Verdicts};
use model::{CheckedFigure, ComparisonResult, Counters, Crosschecks, ProcessId, RecordFigures, SourceState};

use crate::support::{Canned, busy, counting, process, run, serve_snapshot, snapshot, stderr, stdout, uvmctl};

#[test]
fn ps_lists_running_processes_busiest_first_in_aligned_columns() {
    let output = run(&serve_snapshot(busy()), &["ps", "--totals"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "  \
  PID  PROCESS          OWNER       GPU   MANAGED  RESIDENT  FAULTS       H2D      D2H  EVICTED  INDUCED  VERDICT
41207  python train.py  user alice  0    64.0 MiB       0 B   18.4k  12.3 MiB  5.0 GiB  5.0 GiB  4.0 KiB  -
  512  idle             user alice  0    64.0 MiB       0 B       0       0 B      0 B      0 B      0 B  -
";
    assert_eq!(stdout(&output), expected);
    assert_eq!(stderr(&output), "uvmctl: acting: off (see uvmctl policy show)\n");
}

#[test]
fn filters_are_those_of_the_api() {
    let url = serve_snapshot(busy());
    let text = |arguments: &[&str]| {
        let output = run(&url, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output) + &stderr(&output)
    };
    for (arguments, is_listed) in [
        (&["--user", "1000"][..], true),
        (&["--user", "1001"], false),
        (&["--gpu", "0"], true),
        (&["--gpu", "7"], false),
        (&["--pod", "7c1f"], false),
        (&["--job", "4711"], false),
        (&["--verdict", "streaming"], false),
        (&["--owner", "other"], true),
    ] {
        let all = text(&[&["ps", "--totals"], arguments].concat());
        assert_eq!(all.contains("41207"), is_listed, "{arguments:?}: {all}");
        assert_eq!(all.contains("no process matches the filter"), !is_listed, "{arguments:?}: {all}");
    }
    assert_eq!(run(&url, &["ps", "--owner", "node:1"]).status.code(), Some(1));
}

#[test]
fn owners_and_verdicts_are_listed() {
    let totals = |kind: &str, id: &str, bytes_htod| OwnerTotals {
        kind: kind.to_owned(),
        id: id.to_owned(),
        label: if id.is_empty() { String::new() } else { format!("{kind} {id}") },
        processes: 2,
        last_active_at: time(1),
        counts: Counts { bytes_htod, ..Counts::default() },
        ..OwnerTotals::default()
    };
    let owners = vec![totals("other", "", 0), totals("job", "4711", 1 << 30)];
    let verdict = |pid, ended_at| Verdict {
        pid,
        name: "python".to_owned(),
        label: "capacity thrash".to_owned(),
        reason: "it fetched".to_owned(),
        started_at: time(1),
        ended_at,
        ..Verdict::default()
    };
    let (active, ended) = (vec![verdict(7, None)], vec![verdict(8, Some(time(3)))]);
    let daemon = Canned::default()
        .with("/api/v1/owners", &Owners { time: time(5), owners, ..Owners::default() })
        .with("/api/v1/verdicts", &Verdicts { time: time(5), active, ended, ..Verdicts::default() });
    let url = daemon.serve();
    let text = stdout(&run(&url, &["owners", "--job", "4711"]));
    let cells: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[1][..5], ["job", "4711", "2", "0", "1.0"], "{text}");
    assert_eq!(cells[2][..2], ["other", "2"], "{text}");
    let text = stdout(&run(&url, &["verdicts", "--all", "--user", "1000"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].contains("capacity thrash  00:00:04  -"), "{text}");
    assert!(lines[2].contains("00:00:04  00:00:02"), "{text}");
    run(&url, &["verdicts"]);
    let requests = daemon.requests();
    assert!(requests[0].starts_with("GET /api/v1/owners?order=id&limit=1000&job=4711 "), "{}", requests[0]);
    assert!(requests[1].starts_with("GET /api/v1/verdicts?order=id&limit=1000&uid=1000 "), "{}", requests[1]);
    assert!(requests[2].starts_with("GET /api/v1/verdicts?order=id&limit=1000&state=active "), "{}", requests[2]);
}

/// Listing at this second: rates of 1.0 GiB and 100 faults per second, and a verdict since second
/// 10.
fn listing(second: u64) -> Processes {
    let counts = Counts { fault_entries: second * 100, bytes_htod: second << 30, ..Counts::default() };
    let wrong =
        VerdictSummary { kind: "capacity_thrash".to_owned(), started_at: time(10), ..VerdictSummary::default() };
    let diagnosis = |kind: &str, label: &str, verdict, evictor| {
        let (kind, label) = (kind.to_owned(), label.to_owned());
        Some(Diagnosis { kind, label, verdict, evictor, ..Diagnosis::default() })
    };
    let process =
        |pid: u32, counts: &Counts| Process { pid, name: "p".to_owned(), counts: counts.clone(), ..Process::default() };
    let thrasher =
        Process { diagnosis: diagnosis("verdict", "capacity thrash", Some(wrong), None), ..process(41_207, &counts) };
    let evictor = Evictor { pid: 41_207, bytes_per_second: 1 << 30, inferred: true, ..Evictor::default() };
    let victim = Process {
        diagnosis: diagnosis("victim", "victim of 41207", None, Some(evictor)),
        ..process(40_981, &Counts::default())
    };
    let processes = vec![thrasher, victim, process(1, &Counts::default())];
    Processes { time: time(second), processes, ..Processes::default() }
}

fn time(second: u64) -> String {
    format!("2026-11-21T14:{:02}:{:02}.000Z", second / 60, second % 60)
}

#[test]
fn ps_shows_rates_verdicts_with_age_and_victims() {
    // Rates use the daemon's clock, not the local one.
    let verdicts = Verdicts { time: time(262), ..Verdicts::default() };
    let daemon = Canned::default()
        .once("/api/v1/processes", &listing(260))
        .with("/api/v1/processes", &listing(262))
        .with("/api/v1/verdicts", &verdicts);
    let text = stdout(&run(&daemon.serve(), &["ps", "--interval", "0.1"]));
    let columns = ["PID", "FAULTS/s", "H2D/s", "VERDICT"].map(|title| text.find(title).unwrap());
    assert!(columns.is_sorted(), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[1].contains("41207  p") && lines[1].contains("  100  1.0 GiB  "), "{text}");
    assert!(lines[1].ends_with("  capacity thrash 00:04:12"), "{text}");
    assert!(lines[2].ends_with("  victim of 41207") && lines[3].ends_with("  -"), "{text}");
}

#[test]
fn ps_all_lists_ended_processes_too() {
    let text = stdout(&run(&serve_snapshot(busy()), &["ps", "--all", "--totals"]));
    let states: Vec<_> = text.lines().map(|line| line.split_whitespace().last().unwrap()).collect();
    assert_eq!(states, ["STATE", "running", "running", "exited"]);
}

#[test]
fn json_is_the_daemons_response() {
    let url = serve_snapshot(busy());
    let pids = |arguments: &[&str]| {
        let body: Processes = serde_json::from_str(&stdout(&run(&url, arguments))).unwrap();
        body.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    assert_eq!(pids(&["ps", "-o", "json"]), [41_207, 512]);
    assert_eq!(pids(&["ps", "-o", "json", "--all"]), [41_207, 512, 9]);
    let status: api::Status = serde_json::from_str(&stdout(&run(&url, &["status", "-o", "json"]))).unwrap();
    assert_eq!((status.state.as_str(), status.total.fault_entries), ("counting", 18_400));
}

#[test]
fn status_shows_the_source_and_the_sums() {
    let output = run(&serve_snapshot(busy()), &["status"]);
    assert_eq!(output.status.code(), Some(0));
    let expected = "\
uvmd      1.2.3 on gpu-17
State     counting for 4 min 12 s
Backend   ebpf, by kprobe
Driver    550.163.01, layout 550-555
Dropped   0 events
Faults    18.4k on GPUs (36.8k before coalescing), 0 on CPUs
Batches   310, 310 replays
Copied    12.3 MiB host to GPU, 5.0 GiB GPU to host, 0 B GPU to GPU
Populated 8.0 MiB without a copy
Evicted   5.0 GiB in 2.6k chunks
Thrash    3 thrashing pages, 2 throttles of 1.0 ms in total

BATCH         COUNT    MEAN     P50     P90     P99     MAX
faults          310      59      61      61      61      61
service time    310  480 us  492 us  492 us  492 us  492 us

GPU  NAME         FAULTS  BATCHES       H2D      D2H  EVICTED  UUID
  0  NVIDIA H200   18.4k      310  12.3 MiB  5.0 GiB  5.0 GiB  GPU-abababab-abab-abab-abab-abababababab

PROBE                   HITS  TIME/HIT
uvm_perf_event_notify  20.0k    400 ns
";
    assert_eq!(stdout(&output), expected);
}

#[test]
fn status_lists_missing_probes_and_block_records() {
    let mut partial = busy();
    partial.source.probes[0].missing = Some("batches, as the driver has no such function".to_owned());
    partial.source.block_records =
        RecordFigures { written: 5000, sampled_out: 20, dropped: 1, ..RecordFigures::default() };
    let text = stdout(&run(&serve_snapshot(partial), &["status"]));
    assert!(text.contains("Missing   uvm_perf_event_notify: batches, as the driver has no such function\n"), "{text}");
    assert!(
        text.contains("Blocks    5.0k records, 20 sampled out, 1 dropped: blocks' figures are lower bounds\n"),
        "{text}"
    );
}

#[test]
fn status_has_the_cross_checks_where_there_are_some() {
    let line = |done: Crosschecks| {
        let mut snapshot = busy();
        snapshot.source.crosschecks = Some(done);
        let text = stdout(&run(&serve_snapshot(snapshot), &["status"]));
        text.lines().find(|line| line.starts_with("Checked")).unwrap().to_owned()
    };
    assert_eq!(line(Crosschecks::default()), "Checked   no process checked yet");
    let comparisons = BTreeMap::from([
        ((CheckedFigure::CpuFaults, ComparisonResult::Agreed), 97),
        ((CheckedFigure::CpuFaults, ComparisonResult::Disagreed), 2),
        ((CheckedFigure::BytesDtoh, ComparisonResult::Inconclusive), 1),
    ]);
    let last_process = Some(ProcessId { pid: 41_207, start_ticks: 1 });
    assert_eq!(
        line(Crosschecks { checks: 12, comparisons, last_process }),
        "Checked   12 checks, last of process 41207; 100 comparisons with the driver's own counters: 2 disagree, 1 inconclusive"
    );
}

#[test]
fn status_lists_the_reasons_of_a_waiting_daemon() {
    let missing = vec!["no driver: load it".to_owned(), "no kprobes".to_owned()];
    let url = serve_snapshot(snapshot(SourceState::Waiting { missing }));
    let output = run(&url, &["status"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.contains("State     waiting\n          - no driver: load it\n          - no kprobes\n"), "{text}");
    assert!(text.contains("Driver    -\n"), "{text}");
}

#[test]
fn an_empty_list_has_a_reason_on_standard_error() {
    let idle = run(&serve_snapshot(counting()), &["ps"]);
    assert_eq!((idle.status.code(), stdout(&idle)), (Some(0), String::new()));
    assert_eq!(stderr(&idle), "uvmctl: no process uses managed memory\n");
    let refused = snapshot(SourceState::Refused { reason: "driver 999 is not known".to_owned() });
    let refused = run(&serve_snapshot(refused), &["ps"]);
    assert_eq!(stderr(&refused), "uvmctl: uvmd is not counting (refused): driver 999 is not known\n");
}

#[test]
fn dropped_events_are_reported() {
    let mut lossy = busy();
    lossy.source.dropped_events.insert("map_full", 12);
    lossy.processes[0].host.dropped_events = 12;
    let url = serve_snapshot(lossy);
    assert!(stderr(&run(&url, &["ps", "--totals"])).contains("lower bounds"));
    assert!(stdout(&run(&url, &["status"])).contains("Dropped   12 events (map_full 12): figures are lower bounds"));
}

#[test]
fn names_cannot_command_the_terminal() {
    let mut hostile = counting();
    hostile.processes = vec![
        process(1, "\u{1b}]0;owned\u{7}\n\u{9b}2J\u{202e}", None, Counters::default()),
        process(2, "名前", None, Counters::default()),
    ];
    let url = serve_snapshot(hostile);
    for arguments in [&["ps", "--totals"][..], &["ps", "-o", "json"], &["ps", "-o", "yaml"]] {
        let text = stdout(&run(&url, arguments));
        let unsafe_characters: Vec<_> = text
            .chars()
            .filter(|character| (character.is_control() && *character != '\n') || *character == '\u{202e}')
            .collect();
        assert_eq!(unsafe_characters, [], "{text:?}");
        assert!(text.contains("owned") && text.contains("名前"), "{text}");
    }
    assert_eq!(stdout(&run(&url, &["ps", "--totals"])).lines().count(), 3);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut many = counting();
    many.processes = (1..2_000).map(|pid| process(pid, "many", None, Counters::default())).collect();
    let mut child = uvmctl(&serve_snapshot(many))
        .args(["ps", "--totals"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
}

/// Output on a terminal of this many columns, made by script(1).
fn on_a_terminal(columns: u32, url: &str, environment: &str, arguments: &str) -> String {
    let command = format!("stty rows 24 cols {columns}; {environment} {} {arguments}", env!("CARGO_BIN_EXE_uvmctl"));
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("UVMD_URL", url)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    stdout(&output)
}

#[test]
fn on_a_terminal_a_listing_fits_and_has_colour() {
    let url = serve_snapshot(busy());
    let text = on_a_terminal(80, &url, "", "ps --all --totals");
    assert!(text.contains("\u{1b}[1m  PID  PROCESS"), "{text}");
    assert!(text.contains("\u{1b}[2m    9  nbody"), "{text}");
    let plain = on_a_terminal(80, &url, "NO_COLOR=1", "ps --all --totals");
    assert!(!plain.contains('\u{1b}'), "{plain}");
    assert!(plain.contains("VERDICT  STATE") && !plain.contains("INSTANCES"), "{plain}");
    assert!(plain.contains("EVICTED"), "{plain}");
    for line in plain.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
    assert!(on_a_terminal(80, &url, "NO_COLOR=1", "ps --totals -o wide").contains("INSTANCES"));
}

#[test]
fn every_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    let output = run("http://192.0.2.1:1", &["man", directory.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for page in ["uvmctl", "uvmctl-explain", "uvmctl-ps", "uvmctl-top"] {
        let text = std::fs::read_to_string(directory.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let nowhere = run("http://192.0.2.1:1", &["man", "/nonexistent"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(stderr(&nowhere).contains("cannot write man pages into /nonexistent"), "{}", stderr(&nowhere));
}
