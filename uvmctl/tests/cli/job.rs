//! `job report` and `job save`.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Output};

use api::{OwnerEviction, OwnerReport, Remedies, Remedy, ReportedUsage, StepReport, Verdict};

use crate::support::{Canned, nothing, stderr, stdout, uvmctl};

const JOB: &str = "/api/v1/owners/job/4711/report";
const GIB: u64 = 1 << 30;

fn usage(fetched: u64, refetched: u64, thrash_seconds: Option<f64>) -> ReportedUsage {
    ReportedUsage {
        bytes_htod: fetched * GIB,
        fetched_bytes: Some(fetched * GIB),
        refetched_bytes: Some(refetched * GIB),
        evicted_bytes: Some(refetched * GIB),
        refetch_seconds: Some(refetched as f64 / 25.0),
        verdict_seconds: thrash_seconds.map(|seconds| ("capacity_thrash".to_owned(), seconds)).into_iter().collect(),
        peak_oversubscription_ratio: Some(1.6),
        ..ReportedUsage::default()
    }
}

fn report() -> OwnerReport {
    let step = |step: Option<&str>, usage| StepReport { step: step.map(str::to_owned), usage };
    let eviction = |kind: &str, id: &str, gib: u64| OwnerEviction {
        kind: Some(kind.to_owned()),
        id: Some(id.to_owned()),
        bytes: gib * GIB,
        ..OwnerEviction::default()
    };
    let verdict = Verdict {
        summary: "20 train (job 4711) refetched memory that had been evicted from GPU0.".to_owned(),
        reason: "In the last window (2.0 s) it fetched 9.0 GiB/s.".to_owned(),
        thrashing: true,
        remedies: Some(Remedies {
            effective: vec![Remedy {
                action: "reduce the working set".to_owned(),
                evidence: "it is too large".to_owned(),
                unless: None,
            }],
            ineffective: Vec::new(),
        }),
        ..Verdict::default()
    };
    OwnerReport {
        kind: "job".to_owned(),
        id: "4711".to_owned(),
        uid: Some(1000),
        user: Some("alice".to_owned()),
        link_bytes_per_second: Some(25 * GIB),
        peak_gpu_oversubscription_ratio: Some(2.1),
        usage: usage(600, 550, Some(252.0)),
        steps: vec![
            step(None, usage(0, 0, None)),
            step(Some("0"), usage(580, 550, Some(252.0))),
            step(Some("1"), usage(20, 0, None)),
        ],
        evictions_inflicted: Some(vec![eviction("job", "4711", 540), eviction("unit", "etl.service", 2)]),
        evictions_suffered: Some(vec![eviction("job", "4711", 540), eviction("job", "7", 10)]),
        worst_verdict: Some(verdict),
        worst_verdict_step: Some("0".to_owned()),
        ..OwnerReport::default()
    }
}

/// Runs with the environment of an Epilog.
fn epilog(url: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let usual = [("SLURM_JOB_ID", "4711"), ("SLURMD_NODENAME", "gpu-17"), ("SLURM_JOB_ACCOUNT", "ml")];
    uvmctl(url).args(arguments).envs(usual).envs(variables.iter().copied()).output().unwrap()
}

const TEXT: &str = "\
Job          4711, account ml, user alice
Node         gpu-17
Verdicts     capacity thrash 4 min 12 s
Fetched      600 GiB; refetched after an eviction 550 GiB: 92 %; evicted 550 GiB
Cost         at least 22.0 s of link time for refetches, at 25.0 GiB/s
Peak         managed memory 1.6x of a GPU's, 2.1x with all processes there
Evicted by   the job itself 540 GiB, job 7 10.0 GiB
Evicts       the job itself 540 GiB, unit etl.service 2.0 GiB

STEP     FETCHED  REFETCHED  EVICTED    COST  PEAK  VERDICTS
(none)       0 B        0 B      0 B   0.0 s  1.6x  -
0        580 GiB    550 GiB  550 GiB  22.0 s  1.6x  capacity thrash 4 min 12 s
1       20.0 GiB        0 B      0 B   0.0 s  1.6x  -

Worst verdict of step 0
  20 train (job 4711) refetched memory that had been evicted from GPU0. In the last window (2.0 s)
  it fetched 9.0 GiB/s.
Remedies, cheapest first
  1. reduce the working set
     Because it is too large.
";

#[test]
fn epilog_reports_its_job_by_step_with_the_remedy() {
    let url = Canned::default().with(JOB, &report()).serve();
    let output = epilog(&url, &["job", "report"], &[]);
    assert_eq!(stdout(&output), TEXT, "{}", stderr(&output));
}

#[test]
fn job_that_uvmd_knows_by_its_sluid_is_found_by_its_number_and_shown_with_both() {
    let sluid = "sEKNKTV3WPV500";
    let url = Canned::default().with(&format!("/api/v1/owners/job/{sluid}/report"), &report()).serve();
    let output = epilog(&url, &["job", "report"], &[("SLURM_JOB_SLUID", sluid)]);
    assert!(stdout(&output).starts_with("Job          4711 (sEKNKTV3WPV500), account ml"), "{}", stderr(&output));
}

#[test]
fn without_an_id_and_an_environment_it_is_a_usage_error() {
    let output = uvmctl(&format!("http://{}", nothing())).args(["job", "report"]).env_remove("SLURM_JOB_ID").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("SLURM_JOB_ID is not set"), "{}", stderr(&output));
}

#[test]
fn given_rate_of_the_link_replaces_that_of_uvmd() {
    let url = Canned::default().with(JOB, &report()).serve();
    let output = epilog(&url, &["job", "report", "--link-rate", "50GiB"], &[]);
    assert!(stdout(&output).contains("at least 11.0 s of link time for refetches, at 50.0 GiB/s"), "{output:?}");
}

#[test]
fn saved_reports_of_two_nodes_are_one_report() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let spool = folder.path().to_str().unwrap();
    let url = Canned::default().with(JOB, &report()).serve();
    for node in ["gpu-17", "gpu-18"] {
        let output = epilog(&url, &["job", "save", "--spool", spool], &[("SLURMD_NODENAME", node)]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()), "{}", stderr(&output));
    }
    // Without uvmd and Slurm.
    let output = uvmctl(&format!("http://{}", nothing())).args(["job", "report", "4711", "--spool", spool]).output();
    let text = stdout(&output.unwrap());
    let expected = [
        "Nodes        gpu-17, gpu-18\n",
        "Verdicts     capacity thrash 8 min 24 s\n",
        "Cost         at least 44.0 s of link time for refetches, at 25.0 GiB/s\n",
        "gpu-18  0        580 GiB    550 GiB  550 GiB  22.0 s  1.6x  capacity thrash 4 min 12 s\n",
        "Worst verdict of step 0 on gpu-1",
    ];
    for line in expected {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let output = uvmctl(&format!("http://{}", nothing()))
        .args(["job", "report", "4711", "--spool", spool, "-o", "json"])
        .output();
    let json: serde_json::Value = serde_json::from_str(&stdout(&output.unwrap())).unwrap();
    assert_eq!(
        (&json["nodes"][1]["node"], &json["total"]["refetched_bytes"]),
        (&"gpu-18".into(), &(1100 * GIB).into())
    );
}

#[test]
fn job_that_had_the_same_number_is_named_and_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let spool = folder.path().to_str().unwrap();
    for (node, user, time) in
        [("gpu-17", "bob", "2026-10-01T12:00:00.000Z"), ("gpu-18", "alice", "2026-11-30T12:00:00.000Z")]
    {
        let url = Canned::default().with(JOB, &OwnerReport { time: time.to_owned(), ..report() }).serve();
        let variables = [("SLURMD_NODENAME", node), ("SLURM_JOB_USER", user)];
        let output = epilog(&url, &["job", "save", "--spool", spool], &variables);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let report = |arguments: &[&str]| {
        let mut command = uvmctl(&format!("http://{}", nothing()));
        command.env_remove("SLURM_JOB_ID").args(["job", "report", "4711", "--spool", spool]).args(arguments);
        stdout(&command.output().unwrap())
    };
    let (text, json) = (report(&[]), report(&["-o", "json"]));
    let others = "Other jobs   with the same number, not in these figures: 4711, account ml, user bob, until\n             \
                  2026-10-01T12:00:00.000Z on gpu-17\n";
    for line in ["Job          4711, account ml, user alice\nNode         gpu-18\n", "Fetched      600 GiB;", others] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["other_jobs"][0]["job"]["user"], "bob");
    assert_eq!(json["other_jobs"][0]["nodes"], serde_json::json!(["gpu-17"]));
}

#[test]
fn job_without_managed_memory_saves_nothing_and_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let url = Canned::default().serve();
    let output = epilog(&url, &["job", "save", "--spool", folder.path().to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
