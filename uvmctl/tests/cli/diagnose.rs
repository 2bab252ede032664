//! Output of `ps`, `explain`, `evictions`, `heatmap`, `gpus` and `show` for a node with a thrashing
//! process and its victim.

use api::{
    DecisionSummary, Ops, QuotaHolder, Site, Sites, UnavailableKind, Verdicts,
    rule::{EffectivePolicy, PlanState, Restriction},
};

use nodes::thrashing::{NOW, detail_of, evictions, gpus, heat, processes, ranges_of, status, verdicts};

use crate::support::{Canned, busy, run, serve_snapshot, stderr, stdout, uvmctl};

/// Active verdicts on one process.
fn verdicts_of(pid: u32) -> Verdicts {
    let Verdicts { time, active, .. } = verdicts();
    let active = active.into_iter().filter(|verdict| verdict.pid == pid).collect();
    Verdicts { time, active, ..Verdicts::default() }
}

/// Two tenants and an idle process: one tenant fits, the other walks repeatedly over twice the
/// GPU's memory.
fn two_tenants() -> Canned {
    let mut daemon = Canned::default().with("/api/v1/processes/182/heatmap", &heat());
    for pid in [182, 180, 512] {
        let path = format!("/api/v1/processes/{pid}");
        daemon = daemon
            .with(&format!("{path}/verdict"), &verdicts_of(pid))
            .with(&format!("{path}/ranges"), &ranges_of(pid))
            .with(&format!("{path}/ops"), &Ops::default())
            .with(
                &format!("{path}/override"),
                &EffectivePolicy { mode: "observe".to_owned(), ..EffectivePolicy::default() },
            )
            .with(&path, &detail_of(pid));
    }
    daemon
        .with("/api/v1/status", &status())
        .with("/api/v1/processes", &processes())
        .with("/api/v1/verdicts", &verdicts())
        .with("/api/v1/evictions", &evictions(NOW, 4096 << 20))
        .with("/api/v1/gpus", &gpus())
}

#[test]
fn ps_names_the_thrasher_and_its_victim() {
    let text = stdout(&run(&two_tenants().serve(), &["ps", "--totals"]));
    let ends: Vec<_> = text.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
    assert_eq!(ends, ["VERDICT", "capacity thrash 00:04:12", "victim of 182 00:04:12", "-"], "{text}");
}

#[test]
fn explain_has_verdict_ranges_victims_and_remedies() {
    let output = run(&two_tenants().serve(), &["explain", "182"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "\
182 streams (user alice) is thrashing GPU0 (NVIDIA H200): it refetches evicted memory. Since
  14:02:11 UTC (4 min 12 s).
  It has 128 MiB of managed memory, of which 44.0 MiB (at least 43.0 MiB, at most 45.0 MiB) are in
  GPU memory. The GPU has 64.0 MiB; its processes have 154 MiB of managed memory: 2.4x.
  In the last window (2.0 s) it fetched 100 MiB/s, 92 % of that refetched after an eviction; 100
  MiB/s were evicted from or for it.
  Ranges:
   128 MiB at 0x7f2a40000000  cyclic      100 % of the traffic,  92 % refetched
  Evicted for it (inferred): 180 fits 11.0 MiB/s.
Checks
  - 92 % of arriving bytes were refetched (limit 25 %)
Remedies, cheapest first
  1. uvmctl policy set --pid 182 --policy cycle --mode shadow
     Because uvmd could keep a part that fits on the GPU, and the rest at the host, without a change
     of the program; in mode shadow it only reports its decisions, in uvmctl decisions.
  2. in the program: leave the last 65.0 MiB of the 128 MiB at 0x7f2a40000000 at the host, with
     cudaMemAdvise(SetPreferredLocation, cudaCpuDeviceId) and cudaMemAdvise(SetAccessedBy, GPU)
     Because its pattern is cyclic, which fits 98 % of 1.2k steps from fault to fault, so each pass
     evicts what the next one needs: 92 % of its fetched bytes are refetched; then 65.0 MiB of it
     cross the link in each pass instead of up to 128 MiB.
     Not if each byte is used many times in one pass: accesses to resident memory raise no fault.
  3. use up to 65.0 MiB less at a time, for example by a smaller batch
     Because the ranges involved have 128 MiB, and there is room for 63.0 MiB for all processes on
     this GPU.
     Not if part of it is not in use: then a smaller reduction is enough.
Ineffective
  - cudaMemPrefetchAsync alone: the GPU is full, so prefetches evict as much as the faults do.
Limitations
  - How often memory is used that is in GPU memory: an access that hits raises no fault.
Evidence: uvmctl explain 182 -o json
";
    assert_eq!(stdout(&output), expected);
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/diagnose.md");
    assert!(std::fs::read_to_string(document).unwrap().contains(expected), "docs/diagnose.md shows another output");
}

#[test]
fn explain_of_a_ping_pong_has_the_cpu_code_that_faults() {
    let mut verdicts = verdicts_of(182);
    verdicts.active[0].kind = "ping_pong".to_owned();
    let site = |bytes_dtoh, cpu_faults, description: &str| Site {
        bytes_dtoh,
        cpu_faults,
        description: description.to_owned(),
        ..Site::default()
    };
    let sites = vec![
        site(300 << 20, 4800, "normalize+0x20 in /opt/train"),
        site(75 << 20, 1200, "checkpoint+0x2c in /opt/train"),
    ];
    let path = "/api/v1/processes/182";
    let daemon = Canned::default()
        .with(&format!("{path}/verdict"), &verdicts)
        .with(&format!("{path}/ranges"), &ranges_of(182))
        .with(&format!("{path}/sites"), &Sites { sites: Some(sites), sites_known: Some(2), ..Sites::default() })
        .with(&format!("{path}/ops"), &Ops::default())
        .with(
            &format!("{path}/override"),
            &EffectivePolicy { mode: "observe".to_owned(), ..EffectivePolicy::default() },
        )
        .with(path, &detail_of(182))
        .with("/api/v1/gpus", &gpus());
    let text = stdout(&run(&daemon.serve(), &["explain", "182"]));
    let expected = "
  CPU code that faults on its managed memory, since uvmd counts:
   300 MiB copied to the host by 4.8k faults  normalize+0x20 in /opt/train
  75.0 MiB copied to the host by 1.2k faults  checkpoint+0x2c in /opt/train
";
    assert!(text.contains(expected), "{text}");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/diagnose.md");
    assert!(std::fs::read_to_string(document).unwrap().contains(expected), "docs/diagnose.md shows another output");
}

#[test]
fn explain_refers_a_victim_to_its_evictor() {
    let text = stdout(&run(&two_tenants().serve(), &["explain", "180"]));
    assert!(
        text.starts_with("180 fits (user alice) refetches memory on GPU0 (NVIDIA H200) that 182 streams evicts."),
        "{text}"
    );
    assert!(text.contains("uvmctl explain 182") && !text.contains("SetPreferredLocation"), "{text}");
}

#[test]
fn explain_of_a_healthy_process_has_figures() {
    let output = run(&two_tenants().serve(), &["explain", "512"]);
    let expected = "\
No verdict on 512 idle (user alice).
  It has 2.0 MiB of managed memory, of which 2.0 MiB are in GPU memory.
  Since uvmd counts: 1.0k GPU faults and 0 CPU faults, 4.0 GiB fetched, 4.0 GiB evicted.
Evidence: uvmctl explain 512 -o json
";
    assert_eq!(stdout(&output), expected);
}

#[test]
fn explain_reports_why_calls_are_not_recorded() {
    let of_state = |state: &str| Ops { state: state.to_owned(), ..Ops::default() };
    let quota_holder = Some(QuotaHolder { uid: 1001, recordings: 8, max_recordings: 16 });
    for (ops, line) in [
        (of_state("throttled"), "Its calls are not recorded for now: the reader time of its user is used up.\n"),
        (
            Ops { quota_holder, ..of_state("quota_reached") },
            "Its calls are not recorded: user 1001 has 8 of 16 recordings.\n",
        ),
    ] {
        for pid in ["512", "182"] {
            let daemon = two_tenants().once(&format!("/api/v1/processes/{pid}/ops?"), &ops);
            let text = stdout(&run(&daemon.serve(), &["explain", pid]));
            assert!(text.ends_with(&format!("{line}Evidence: uvmctl explain {pid} -o json\n")), "{text}");
        }
    }
}

#[test]
fn explain_has_what_uvmd_does_and_why_it_does_not_do_more() {
    let mut detail = detail_of(512);
    detail.process.decisions = vec![DecisionSummary {
        id: 7,
        stage: "confirmed".to_owned(),
        label: "acting: tenants, link -95 %".to_owned(),
        ..DecisionSummary::default()
    }];
    let plan = PlanState {
        state: "learning".to_owned(),
        description: "learning its iterations".to_owned(),
        ..PlanState::default()
    };
    let restriction = Restriction {
        scope: "cycle".to_owned(),
        label: "No cycle".to_owned(),
        reason: "it was denied: there is too little host memory; cool-down: 20 s".to_owned(),
        ..Restriction::default()
    };
    let effective = EffectivePolicy {
        override_id: Some("demo".to_owned()),
        mode: "act".to_owned(),
        active: true,
        plan: Some(plan),
        restrictions: vec![restriction],
        ..EffectivePolicy::default()
    };
    let path = "/api/v1/processes/512";
    let daemon = Canned::default()
        .with(&format!("{path}/verdict"), &verdicts_of(512))
        .with(&format!("{path}/ranges"), &ranges_of(512))
        .with(&format!("{path}/ops"), &Ops { state: "recording".to_owned(), ..Ops::default() })
        .with(&format!("{path}/override"), &effective)
        .with(path, &detail)
        .with("/api/v1/gpus", &gpus());
    let text = stdout(&run(&daemon.serve(), &["explain", "512"]));
    let expected = "\
Actions of uvmd
  - acting: tenants, link -95 % (uvmctl decisions 7)
  - Plan: learning its iterations.
  - No cycle: it was denied: there is too little host memory; cool-down: 20 s.
  - Its calls are recorded: uvmctl ops 512.
  - Overrides and reasons: uvmctl policy explain 512.
Evidence: uvmctl explain 512 -o json
";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn without_block_records_unavailable_verdicts_are_listed() {
    let reason = "block records are off (records.enabled = false), so it is not known whether it comes back".to_owned();
    let unavailable =
        vec![UnavailableKind { kind: "capacity_thrash".to_owned(), label: "capacity thrash".to_owned(), reason }];
    let daemon = two_tenants()
        .once("/api/v1/verdicts", &Verdicts { unavailable: unavailable.clone(), ..verdicts() })
        .once("/api/v1/processes/512/verdict", &Verdicts { unavailable, ..verdicts_of(512) })
        .serve();
    let explained = stdout(&run(&daemon, &["explain", "512"]));
    assert!(explained.starts_with("No verdict, of those available, on 512 idle"), "{explained}");
    assert!(
        explained.contains("  Unavailable: capacity thrash; block records are off (records.enabled = false), so"),
        "{explained}"
    );
    let listed = run(&daemon, &["ps", "--totals"]);
    assert!(stderr(&listed).contains("verdicts that uvmd cannot give: capacity thrash"), "{}", stderr(&listed));
}

#[test]
fn explain_as_json_is_the_daemons_response() {
    let output = run(&two_tenants().serve(), &["explain", "182", "-o", "json"]);
    let verdicts: Verdicts = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((verdicts.active.len(), verdicts.active[0].pid), (1, 182));
}

#[test]
fn an_unknown_process_is_exit_code_1() {
    for command in ["explain", "heatmap"] {
        let output = run(&serve_snapshot(busy()), &[command, "7"]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()));
        assert!(stderr(&output).contains("no process 7"), "{}", stderr(&output));
    }
}

#[test]
fn evictions_are_listed_as_sums_and_measured_as_rates() {
    let output = run(&two_tenants().serve(), &["evictions"]);
    let expected = "\
VICTIM       EVICTOR      CAUSE  GPU  EVICTED  CHUNKS
182 streams  itself       fault    0  4.0 GiB    2.0k
180 fits     182 streams  fault    0  588 MiB     294
182 streams  180 fits     fault    0  500 MiB     250
";
    assert_eq!(stdout(&output), expected);
    assert!(stderr(&output).contains("inferred"), "{}", stderr(&output));

    let path = "/api/v1/evictions";
    let daemon = two_tenants()
        .once(path, &evictions("2026-11-21T14:00:00Z", 0))
        .once(path, &evictions("2026-11-21T14:00:02Z", 64 << 20));
    let text = stdout(&run(&daemon.serve(), &["evictions", "-i", "0.1"]));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "what stands still is left out: {text}");
    assert!(lines[1].starts_with("182 streams  itself") && lines[1].contains("32.0 MiB"), "{text}");
}

#[test]
fn evictions_as_a_matrix_have_victims_against_evictors() {
    let text = stdout(&run(&two_tenants().serve(), &["evictions", "--matrix"]));
    let expected = "\
evicted by:                 182        180
182 streams             4.0 GiB    500 MiB
180 fits                588 MiB          .
";
    assert_eq!(text, expected);
}

#[test]
fn a_heat_map_shows_ranges_by_address() {
    let url = two_tenants().serve();
    let in_ascii = |arguments: &[&str]| stdout(&uvmctl(&url).args(arguments).env("LC_ALL", "C").output().unwrap());
    let text = in_ascii(&["heatmap", "182"]);
    let lines: Vec<_> = text.lines().collect();
    // Blank cells without events, then rising heat; ASCII in a locale without Unicode.
    assert_eq!(lines[0], "0x7f2a40000000   128 MiB   ..::--==++**###", "{text}");
    assert!(lines[1].contains("blank: never seen"), "{text}");
    let by = in_ascii(&["heatmap", "182", "--by", "resident"]);
    assert!(by.lines().next().unwrap().ends_with("_:_:_:_:_:_:_:_"), "{by}");
}

#[test]
fn gpus_are_listed_with_their_managed_memory() {
    let text = stdout(&run(&two_tenants().serve(), &["gpus"]));
    let expected = "\
GPU  NAME           MEMORY      USED  MANAGED  RATIO  RESIDENT  H2D  D2H  EVICTED  REFETCH%  UUID
  0  NVIDIA H200  64.0 MiB  63.0 MiB  154 MiB   2.4x  62.0 MiB  0 B  0 B      0 B      92 %  GPU-abababab-abab-abab-abab-abababababab
";
    assert_eq!(text, expected);
}

#[test]
fn show_has_command_verdict_and_evictor() {
    let text = stdout(&run(&two_tenants().serve(), &["show", "180"]));
    for line in [
        "Command   /opt/bin/run --fast",
        "Verdict   capacity thrash on GPU0 since 14:02:11 UTC (uvmctl explain 180)",
        "Verdict   11.0 MiB/s of its memory is evicted for 182 streams",
        "Managed   24.0 MiB mapped; 16.0 MiB are in GPU memory",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
}
