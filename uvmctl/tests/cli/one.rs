//! Output of `show` for one process.

use model::{Block, Blocks, Process, ProcessId, Snapshot, ToolsLevel};

use crate::support::{GPU, at, busy, run, serve_snapshot, stderr, stdout};

fn with_blocks() -> Snapshot {
    let mut snapshot = busy();
    let block = |address, fault_entries| Block {
        gpu: Some(GPU),
        fault_entries,
        cpu_faults: 2,
        bytes_htod: 4 << 20,
        bytes_dtoh: 2 << 20,
        evicted_bytes: 2 << 20,
        evictions: 1,
        ..Block::new(address, at(3))
    };
    snapshot.processes[0].blocks = Blocks {
        busiest: vec![block(0x7f2a_4000_0000, 900), Block { gpu: None, ..block(0x2000_0000, 30) }],
        known: 48,
        ..Blocks::default()
    };
    snapshot
}

#[test]
fn it_shows_sums_batches_gpus_and_the_busiest_blocks() {
    let output = run(&serve_snapshot(with_blocks()), &["show", "41207"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "\
Process   41207 python train.py
State     running since 2023-11-14T22:13:21.000Z
User      alice
Managed   64.0 MiB mapped; 0 B are in GPU memory
Faults    18.4k on GPUs (36.8k before coalescing), 7 on CPUs
Batches   310, 310 replays
Copied    12.3 MiB host to GPU, 5.0 GiB GPU to host, 0 B GPU to GPU
Populated 8.0 MiB without a copy
Evicted   5.0 GiB in 2.6k chunks
Thrash    3 thrashing pages, 2 throttles of 1.0 ms in total
Induced   4.0 KiB of any process evicted for it, in 1 chunk

BATCH         COUNT    MEAN     P50     P90     P99     MAX
faults          310      59      61      61      61      61
service time    310  480 us  492 us  492 us  492 us  492 us

GPU  FAULTS  BATCHES       H2D      D2H  EVICTED  RESIDENT  UUID
  0   18.4k      310  12.3 MiB  5.0 GiB  5.0 GiB       0 B  GPU-abababab-abab-abab-abab-abababababab

         BLOCK  GPU  FAULTS  CPU-FLT      H2D      D2H  EVICTED  EVICTIONS  LAST (UTC)
0x7f2a40000000    0     900        2  4.0 MiB  2.0 MiB  2.0 MiB          1    22:13:23
    0x20000000    -      30        2  4.0 MiB  2.0 MiB  2.0 MiB          1    22:13:23

2 of 48 blocks of 2 MiB, busiest first
";
    assert_eq!(stdout(&output), expected);
}

#[test]
fn unavailable_residency_is_not_shown_as_0() {
    let mut snapshot = with_blocks();
    snapshot.source.driver.as_mut().unwrap().residency_unavailable = Some("it is not shown".to_owned());
    let server = serve_snapshot(snapshot);
    let text = stdout(&run(&server, &["show", "41207"]));
    for line in ["Managed   64.0 MiB mapped; an unknown amount is in GPU memory\n", "Populated -\n"] {
        assert!(text.contains(line), "{text}");
    }
    let row = |text: &str, name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(row(&text, "GPU-abab").contains(" 5.0 GiB  GPU-") && !text.contains("RESIDENT"), "{text}");
    let listing = stdout(&run(&server, &["ps", "--totals"]));
    assert!(row(&listing, "41207").contains(" 64.0 MiB         -  "), "{listing}");
}

#[test]
fn what_the_source_does_not_count_is_a_dash_and_lines_of_it_are_omitted() {
    let server = serve_snapshot(of_tools(with_blocks()));
    let row = |text: &str| text.lines().find(|line| line.contains("41207")).unwrap().to_owned();
    let cells = |text: &str| row(text).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let listing = stdout(&run(&server, &["ps", "--totals", "--output", "wide"]));
    // After MANAGED: resident; faults and copies; evicted, induced, instances and batches; CPU faults; and four more.
    let managed = cells(&listing).iter().position(|cell| cell == "MiB").unwrap() + 1;
    let figures = cells(&listing)[managed..].join(" ");
    assert!(figures.starts_with("- 18.4k 12.3 MiB 5.0 GiB 5.0 GiB - 36.8k - 7 - - 3 "), "{listing}");
    let shown = stdout(&run(&server, &["show", "41207"]));
    for line in
        ["Faults    18.4k on GPUs (36.8k before coalescing), 7 on CPUs\n", "Populated -\n", "Evicted   5.0 GiB\n"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    for absent in ["Batches ", "Calls ", "Induced ", "P99"] {
        assert!(!shown.contains(absent), "{absent}: {shown}");
    }
    let tables = "
GPU  FAULTS       H2D      D2H  EVICTED  UUID
  0   18.4k  12.3 MiB  5.0 GiB  5.0 GiB  GPU-abababab-abab-abab-abab-abababababab

         BLOCK  GPU      H2D      D2H  EVICTED  LAST (UTC)
0x7f2a40000000    0  4.0 MiB  2.0 MiB  2.0 MiB    22:13:23
";
    assert!(shown.contains(tables), "{shown}");
}

#[test]
fn lists_that_the_source_does_not_count_have_the_reason_instead() {
    let server = serve_snapshot(of_tools(busy()));
    for arguments in [&["evictions"][..], &["evictions", "--matrix"], &["evictions", "-i", "0.1"]] {
        let output = run(&server, arguments);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()));
        let reason = "uvmctl: victims and evictors are not counted by the driver's tools at this level: needs";
        assert!(stderr(&output).starts_with(reason), "{}", stderr(&output));
    }
    let json: api::Evictions = serde_json::from_str(&stdout(&run(&server, &["evictions", "-o", "json"]))).unwrap();
    assert!(json.pairs.is_none() && json.unavailable.is_some(), "{json:?}");
}

fn of_tools(mut snapshot: Snapshot) -> Snapshot {
    snapshot.source.backend = "tools";
    snapshot.source.not_counted = ToolsLevel::Moves.not_counted();
    snapshot
}

#[test]
fn reasons_for_lower_bounds_are_listed() {
    let mut snapshot = with_blocks();
    let blocks = &mut snapshot.processes[0].blocks;
    (blocks.sampled_out_records, blocks.dropped_records, blocks.forgotten) = (1200, 0, 7);
    let text = stdout(&run(&serve_snapshot(snapshot), &["show", "41207", "-n", "1"]));
    let expected = "1 of 48 blocks of 2 MiB, busiest first; blocks' figures are lower bounds (1.2k records sampled out, as too many came at once, \
                    7 blocks forgotten for lack of space)\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn moment_from_which_a_process_is_counted_is_shown() {
    let mut snapshot = busy();
    let text = stdout(&run(&serve_snapshot(snapshot.clone()), &["show", "512"]));
    assert!(!text.contains("Counted"), "{text}");
    snapshot.processes.iter_mut().for_each(|process| process.counted_from = Some(at(4)));
    let text = stdout(&run(&serve_snapshot(snapshot), &["show", "512"]));
    assert!(text.contains("\nCounted   from 2023-11-14T22:13:24.000Z on; not what it did before\n"), "{text}");
}

#[test]
fn an_idle_process_has_no_empty_tables() {
    let text = stdout(&run(&serve_snapshot(busy()), &["show", "512"]));
    assert!(text.contains("Faults    0 on GPUs") && text.ends_with("No 2 MiB block of it is known\n"), "{text}");
    for absent in ["BATCH  ", "BLOCK  ", "Thrash", "Remote", "Calls", "Induced"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

#[test]
fn json_is_the_daemons_response() {
    let output = run(&serve_snapshot(with_blocks()), &["show", "41207", "-o", "json", "--blocks", "1"]);
    let detail: api::ProcessDetail = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((detail.process.pid, detail.blocks.len(), detail.blocks_known), (41_207, 1, 48));
}

#[test]
fn the_running_process_with_a_pid_is_shown_by_default() {
    let mut snapshot = busy();
    let first = &snapshot.processes[0];
    let earlier = Process {
        id: ProcessId { pid: 41_207, start_ticks: 0 },
        name: "earlier".to_owned(),
        exited_at: Some(at(9)),
        ..first.clone()
    };
    snapshot.processes.insert(0, earlier);
    let url = serve_snapshot(snapshot);
    assert!(stdout(&run(&url, &["show", "41207"])).starts_with("Process   41207 python train.py\n"));
    let text = stdout(&run(&url, &["show", "41207", "--start-ticks", "0"]));
    assert!(text.starts_with("Process   41207 earlier\nState     exited at 2023-11-14T22:13:29.000Z\n"), "{text}");
}

#[test]
fn an_unknown_process_is_exit_code_1_with_a_reason() {
    let output = run(&serve_snapshot(busy()), &["show", "7"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()));
    assert!(stderr(&output).contains("no process 7 uses managed memory"), "{}", stderr(&output));
}
