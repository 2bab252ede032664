use super::*;

const COUNTERS: ProcessCounters =
    ProcessCounters { fault_entries: 10, cpu_faults: 2, bytes_htod: 65536, bytes_dtoh: 8192 };
const DRIVER: fn() -> GpuStats = || GpuStats {
    replayable_faults: 30,
    duplicates: 12,
    pages_in: 32,
    pages_out: 4,
    fault_pages_in: 32,
    fault_pages_out: 1,
    ..GpuStats::default()
};
const HARDWARE: fn() -> HardwareCounters = || HardwareCounters {
    fault_packets: 33,
    copied_htod_bytes: 131_072,
    copied_dtoh_bytes: 16384,
    ..HardwareCounters::default()
};

/// Two processes that the driver counted the same for, and a uvmd that is exact.
fn report() -> Report {
    let truth = process_truth(Some(COUNTERS));
    let uvmd = Figures { fault_instances: Some(15), evicted_bytes: Some(6144), dropped_events: Some(0), ..truth };
    let process = |name: &str| ProcessReport {
        name: name.to_owned(),
        pid: 7,
        truth,
        uvmd,
        verified: true,
        checked: Checked { words_read: 1_234_567, verified_bytes: 96 << 20, ..Checked::default() },
    };
    let truth = total_truth(&DRIVER(), &[Some(COUNTERS), Some(COUNTERS)]);
    Report {
        scenario: "two_tenants".to_owned(),
        arch: "hopper".to_owned(),
        driver: "550.163.01".to_owned(),
        kernel: "6.12.95+deb12-amd64".to_owned(),
        gpu_mem_mib: 64,
        verdict: Verdict::Fail,
        verified: true,
        processes: vec![process("fits"), process("a name that is too long for the table")],
        total: TotalReport { truth, uvmd: Figures { dropped_events: Some(0), ..truth } },
        comparison: Vec::new(),
        hardware: HARDWARE(),
        uvmd_absent: None,
        problems: Vec::new(),
    }
}

fn judged(uvmd: Uvmd, change: impl FnOnce(&mut Report)) -> Verdict {
    let mut report = report();
    change(&mut report);
    report.judge(uvmd);
    report.verdict
}

#[test]
fn the_total_is_what_the_driver_counted_for_all() {
    let truth = report().total.truth;
    let expected = Figures {
        fault_entries: Some(20),
        fault_instances: Some(30),
        cpu_faults: Some(4),
        bytes_htod: Some(131_072),
        bytes_dtoh: Some(16384),
        evicted_bytes: Some(3 * 4096),
        dropped_events: None,
    };
    assert_eq!(truth, expected);
}

#[test]
fn without_one_processs_counters_their_sums_are_unknown() {
    let truth = total_truth(&DRIVER(), &[Some(COUNTERS), None]);
    assert_eq!((truth.fault_entries, truth.cpu_faults, truth.fault_instances), (None, None, Some(30)));
    assert_eq!(process_truth(None), Figures::default());
}

#[test]
fn truth_from_two_sources_must_agree() {
    let observed = Observed { driver: DRIVER(), hardware: HARDWARE() };
    let processes = [Some(COUNTERS), Some(COUNTERS)];
    assert!(inconsistencies(&observed, &processes).is_empty());
    let wrong = |change: fn(&mut Observed)| {
        let mut observed = observed;
        change(&mut observed);
        inconsistencies(&observed, &processes).join("\n")
    };
    assert!(wrong(|observed| observed.driver.pages_in = 31).contains("processes' sum is 131072"));
    assert!(wrong(|observed| observed.driver.pages_out = 5).contains("processes' sum is 16384"));
    assert!(wrong(|observed| observed.hardware.copied_htod_bytes = 4096).contains("copy engine moved 4096"));
    assert!(wrong(|observed| observed.hardware.copied_dtoh_bytes = 4096).contains("copy engine moved 4096"));
    assert!(wrong(|observed| observed.hardware.fault_packets = 29).contains("the GPU raised 29"));
    assert!(wrong(|observed| observed.driver.duplicates = 9).contains("20 fault entries, but from 21 to 30"));
    assert!(wrong(|observed| observed.hardware.unknown_methods = 1).contains("methods it does not know"));
    assert!(wrong(|observed| observed.hardware.errors = 2).contains("met 2 errors"));
}

#[test]
fn an_exact_uvmd_and_right_data_pass() {
    assert_eq!(judged(Uvmd::Answered, |_| ()), Verdict::Pass);
    assert_eq!(judged(Uvmd::Unwanted, |report| report.total.uvmd = Figures::default()), Verdict::Pass);
}

#[test]
fn one_wrong_figure_fails_the_run() {
    assert_eq!(judged(Uvmd::Answered, |report| report.processes[1].uvmd.cpu_faults = Some(3)), Verdict::Fail);
    assert_eq!(judged(Uvmd::Answered, |report| report.total.uvmd.evicted_bytes = Some(0)), Verdict::Fail);
    assert_eq!(judged(Uvmd::Answered, |report| report.total.uvmd.dropped_events = Some(1)), Verdict::Fail);
    assert_eq!(judged(Uvmd::Answered, |report| report.processes[0].uvmd = Figures::default()), Verdict::Fail);
}

#[test]
fn wrong_data_or_a_problem_fails_the_run_with_or_without_uvmd() {
    for uvmd in [Uvmd::Answered, Uvmd::Absent, Uvmd::Unwanted] {
        assert_eq!(judged(uvmd, |report| report.verified = false), Verdict::Fail);
        assert_eq!(judged(uvmd, |report| report.problems.push("kernel: Oops".to_owned())), Verdict::Fail);
    }
}

#[test]
fn a_uvmd_that_does_not_answer_is_told_apart() {
    assert_eq!(judged(Uvmd::Absent, |report| report.total.uvmd = Figures::default()), Verdict::NoUvmd);
    let codes = [Verdict::Pass, Verdict::Fail, Verdict::NoUvmd].map(Verdict::exit_code);
    assert_eq!(codes, [0, 1, 3]);
}

#[test]
fn the_report_has_the_names_that_others_rely_on() {
    let mut report = report();
    report.judge(Uvmd::Answered);
    let json = serde_json::to_value(&report).unwrap();
    for key in ["scenario", "arch", "driver", "kernel", "verified", "processes", "total"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    let process = &json["processes"][0];
    assert_eq!((&process["name"], &process["truth"]["fault_entries"]), (&"fits".into(), &10.into()));
    assert!(process["truth"]["fault_instances"].is_null() && process["truth"]["evicted_bytes"].is_null());
    assert!(json["total"]["truth"]["dropped_events"].is_null());
    assert_eq!(json["total"]["uvmd"]["dropped_events"], 0);
    assert_eq!(json["verdict"], "pass");
}

#[test]
fn the_table_fits_in_80_columns_and_marks_what_is_wrong() {
    let mut report = report();
    report.total.uvmd.fault_entries = Some(u64::MAX >> 20);
    report.judge(Uvmd::Answered);
    let text = report.to_string();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let wrong: Vec<_> = text.lines().filter(|line| line.ends_with("WRONG")).collect();
    assert!(wrong.len() == 1 && wrong[0].contains("fault_entries"), "{text}");
    assert!(text.contains("2,469,134 words") && text.contains("192.0 MiB"), "{text}");
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(digits(number), text);
    }
}
