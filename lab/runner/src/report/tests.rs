use serde_json::json;

use super::*;
use crate::figures::{BYTES_HTOD, CPU_FAULTS, DROPPED_EVENTS, EVICTED_BYTES, FAULT_ENTRIES, Field, fields};

/// Figures that have a truth.
fn known_in(scope: Scope) -> impl Iterator<Item = &'static Field> {
    fields().filter(move |field| !matches!(field.relation(scope), Relation::Unknown | Relation::Zero))
}

/// Truth with every figure that has one, and exact figures of uvmd.
fn exact(scope: Scope) -> (Truth, Figures) {
    let mut truth = Truth::default();
    for (value, field) in (1..).zip(known_in(scope)) {
        truth.figures.set(field, value);
    }
    let mut uvmd = truth.figures.clone();
    uvmd.set(&DROPPED_EVENTS, 0);
    (truth, uvmd)
}

/// Pass with a single process, and exact figures of uvmd.
fn pass() -> Pass {
    let (truth, uvmd) = exact(Scope::Total);
    let process = ProcessReport {
        name: "a name that is too long for the table".to_owned(),
        pid: Some(7),
        end: Some(End::Finished),
        truth: truth.clone(),
        uvmd: uvmd.clone(),
        verified: true,
        checked: Checked { words_read: 1_234_567, verified_bytes: 96 << 20, ..Checked::default() },
        residency: None,
    };
    Pass {
        sums_left_out: false,
        verified: true,
        processes: vec![process],
        gpus: Vec::new(),
        total: TotalReport { truth, uvmd },
        comparison: Vec::new(),
        residency: Vec::new(),
        evictions: Vec::new(),
        evictions_not_known: None,
        second: None,
        uvmd_absent: None,
        access_log: None,
        problems: Vec::new(),
    }
}

fn report(pass: Pass, verdict: Verdict) -> Report {
    Report {
        scenario: "two_tenants".to_owned(),
        arch: "hopper".to_owned(),
        driver: "550.163.01".to_owned(),
        kernel: "6.12.95+deb12-amd64".to_owned(),
        gpu_mem_mib: 64,
        verdict,
        pass,
        without_counters: None,
    }
}

fn judged(uvmd: Uvmd, change: impl FnOnce(&mut Pass)) -> Verdict {
    let mut pass = pass();
    change(&mut pass);
    pass.judge(uvmd, true)
}

#[test]
fn an_exact_uvmd_and_right_data_pass() {
    assert_eq!(judged(Uvmd::Answered, |_| ()), Verdict::Pass);
    assert_eq!(judged(Uvmd::Unwanted, |pass| pass.total.uvmd = Figures::default()), Verdict::Pass);
}

#[test]
fn one_wrong_figure_fails_the_run() {
    assert_eq!(judged(Uvmd::Answered, |pass| pass.processes[0].uvmd.set(&CPU_FAULTS, 300)), Verdict::Fail);
    assert_eq!(judged(Uvmd::Answered, |pass| pass.total.uvmd.set(&EVICTED_BYTES, 0)), Verdict::Fail);
    assert_eq!(judged(Uvmd::Answered, |pass| pass.total.uvmd.set(&DROPPED_EVENTS, 1)), Verdict::Fail);
    assert_eq!(judged(Uvmd::Answered, |pass| pass.processes[0].uvmd = Figures::default()), Verdict::Fail);
}

#[test]
fn without_the_drivers_counters_only_totals_are_compared() {
    let mut pass = pass();
    pass.processes[0].uvmd = Figures::default();
    assert_eq!(pass.judge(Uvmd::Answered, false), Verdict::Pass);
    pass.total.uvmd.set(&BYTES_HTOD, 0);
    assert_eq!(pass.judge(Uvmd::Answered, false), Verdict::Fail);
}

#[test]
fn a_process_that_never_started_is_not_compared() {
    let never = |pass: &mut Pass| {
        (pass.processes[0].pid, pass.processes[0].truth, pass.processes[0].uvmd) =
            (None, Truth::default(), Figures::default());
        pass.total = TotalReport::default();
        for field in known_in(Scope::Total) {
            pass.total.truth.waive(field, "nothing ran");
        }
        pass.total.uvmd.set(&DROPPED_EVENTS, 0);
    };
    assert_eq!(judged(Uvmd::Answered, never), Verdict::Pass);
}

#[test]
fn wrong_data_or_a_problem_fails_the_run_with_or_without_uvmd() {
    for uvmd in [Uvmd::Answered, Uvmd::Absent, Uvmd::Unwanted] {
        assert_eq!(judged(uvmd, |pass| pass.verified = false), Verdict::Fail);
        assert_eq!(judged(uvmd, |pass| pass.problems.push("kernel: Oops".to_owned())), Verdict::Fail);
    }
}

#[test]
fn a_uvmd_that_does_not_respond_has_a_separate_verdict() {
    assert_eq!(judged(Uvmd::Absent, |pass| pass.total.uvmd = Figures::default()), Verdict::NoUvmd);
    let codes = [Verdict::Pass, Verdict::Fail, Verdict::NoUvmd].map(Verdict::exit_code);
    assert_eq!(codes, [0, 1, 3]);
    assert_eq!(Verdict::NoUvmd.max(Verdict::Pass), Verdict::NoUvmd);
    assert_eq!(Verdict::NoUvmd.max(Verdict::Fail), Verdict::Fail);
}

#[test]
fn the_report_has_its_public_keys() {
    let mut pass = pass();
    let verdict = pass.judge(Uvmd::Answered, true);
    let json = serde_json::to_value(report(pass, verdict)).unwrap();
    for key in ["scenario", "arch", "driver", "kernel", "verified", "processes", "gpus", "total", "without_counters"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    let process = &json["processes"][0];
    assert_eq!((&process["end"], &process["truth"]["fault_entries"]), (&json!("finished"), &json!(1)));
    assert!(process["truth"]["dropped_events"].is_null() && process["truth"]["remote_bytes"].is_null());
    assert_eq!(json["total"]["uvmd"]["dropped_events"], 0);
    assert_eq!(json["verdict"], "pass");
}

#[test]
fn the_table_fits_in_80_columns_and_marks_what_is_wrong() {
    let mut pass = pass();
    pass.total.uvmd.set(&FAULT_ENTRIES, u64::MAX >> 24);
    let verdict = pass.judge(Uvmd::Answered, true);
    let text = report(pass, verdict).to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let wrong: Vec<_> = text.lines().filter(|line| line.ends_with("WRONG")).collect();
    assert!(wrong.len() == 1 && wrong[0].contains("fault_entries"), "{text}");
    assert!(text.contains("1,234,567 words") && text.contains("96.0 MiB"), "{text}");
}

#[test]
fn second_uvmd_that_differs_from_the_first_fails_the_run() {
    let comparison = |holds| Comparison {
        scope: "total".to_owned(),
        field: "cpu_faults",
        relation: Relation::Exact,
        truth: Some(7),
        uvmd: Some(8),
        holds,
    };
    let second = |holds| Some(Second { comparison: Vec::new(), with_probes: vec![comparison(holds)] });
    assert_eq!(judged(Uvmd::Answered, |pass| pass.second = second(true)), Verdict::Pass);
    assert_eq!(judged(Uvmd::Answered, |pass| pass.second = second(false)), Verdict::Fail);
}
