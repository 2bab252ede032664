use super::*;

fn shipped(name: &str) -> Scenario {
    let file = format!("{}/../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    load(Path::new(&file)).unwrap()
}

fn simulated(name: &str) -> Counts {
    let scenario = shipped(name);
    counts(&scenario, scenario.gpu_mem_mib * MIB).unwrap()
}

#[test]
fn ping_pong_counts_follow_from_the_drivers_rules() {
    let counts = simulated("pingpong");
    assert_eq!((counts.fault_entries, counts.fault_instances, counts.replays, counts.cpu_faults), (20, 20, 20, 20));
    assert_eq!((counts.bytes_htod, counts.bytes_dtoh, counts.evicted_bytes), (20 << 16, 19 << 16, 0));
}

#[test]
fn an_oversubscribed_loop_fetches_everything_in_each_pass_and_leaves_the_gpu_full() {
    let counts = simulated("cyclic");
    // 72 MiB four times, through 62 of 64 MiB, as the driver reserves a frame; the CPU's writes map
    // a block in six faults.
    assert_eq!(counts.bytes_htod, 4 * 72 * MIB);
    assert_eq!(counts.evicted_bytes, (4 * 72 - 62) * MIB);
    assert_eq!((counts.bytes_dtoh, counts.cpu_faults), (counts.evicted_bytes, 6 * 36));
}

#[test]
fn thrashing_is_detected_the_cpu_throttled_and_a_page_pinned() {
    let counts = simulated("thrashing");
    // 64 KiB at the first detection and again at the second; only the CPU is throttled, once.
    assert_eq!((counts.thrashing_pages, counts.throttles, counts.pins), (32, 1, 1));
    // Ten passes that read the page and ten that write it, four accesses each; then the page
    // migrates again.
    assert_eq!((counts.remote_accesses, counts.remote_bytes), (80, 80 * 32));
    // Twice 64 KiB, then page by page; 64 KiB after a pause, and twice in the second thrashing; one
    // page at the end.
    let granule = 1 << 16;
    assert_eq!(counts.bytes_htod, 2 * granule + granule + 3 * granule + 4096);
    assert_eq!(counts.bytes_dtoh, 3 * granule + granule + 2 * granule + 4096);
    assert_eq!((counts.fault_entries, counts.cpu_faults), (4 * 16 + 4, 3 + 17 + 3));
}

#[test]
fn prefetched_memory_does_not_thrash() {
    let counts = simulated("prefetch");
    assert!(counts.bytes_htod > 2 * 72 * MIB, "{counts:?}");
    assert_eq!((counts.thrashing_pages, counts.throttles, counts.remote_bytes), (0, 0, 0));
}

#[test]
fn thrashing_is_detected_only_if_a_scenario_sets_its_lapse() {
    let enabled = |parameters: &[(&str, u64)]| {
        let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        machine::driver(&parameters).map(|driver| driver.thrashing.enabled.value)
    };
    let lapse = ("uvm_perf_thrashing_lapse_usec", 1_000_000);
    assert!(!enabled(&[]).unwrap() && enabled(&[lapse]).unwrap());
    assert!(!enabled(&[lapse, ("uvm_perf_thrashing_enable", 0)]).unwrap());
    assert!(enabled(&[lapse, ("uvm_perf_thrashing_threshold", 9)]).is_err());
    assert!(enabled(&[("uvm_perf_fault_batch_count", 9)]).is_err());
}

#[test]
fn scenarios_that_vary_or_are_not_modelled_are_omitted_with_the_reason() {
    let reason = |name| not_simulated(&shipped(name));
    for name in ["sequential", "cyclic", "oversubscribe", "random", "strided", "pingpong", "first_touch", "hot_cold"] {
        assert_eq!(reason(name), None, "{name}");
    }
    assert_eq!(reason("streaming"), Some("threads at the same time"));
    assert_eq!(reason("phases"), Some("advice"));
    assert_eq!(reason("throttle"), Some("atomics on what may thrash"));
    assert_eq!(reason("two_tenants"), Some("several processes"));
    let error = counts(&shipped("streaming"), 64 * MIB).unwrap_err().to_string();
    assert_eq!(error, "streaming cannot be simulated: it has threads at the same time");
}

/// Counts that deviate by 5 % and 2.1 % from the medians of the runs below.
const COUNTS: Counts = Counts {
    fault_entries: 105,
    fault_instances: 7,
    replays: 9,
    cpu_faults: 0,
    bytes_htod: 1021,
    transfers_htod: 0,
    bytes_dtoh: 0,
    evicted_bytes: 0,
    evictions: 0,
    bytes_ssd_written: 0,
    thrashing_pages: 0,
    throttles: 0,
    pins: 0,
    remote_accesses: 0,
    remote_bytes: 0,
};

fn run(verdict: &str, truth: &str) -> Report {
    let total = format!(r#""total": {{"truth": {{{truth}}}, "uvmd": {{}}}}"#);
    let again = r#"{"total": {"truth": {"bytes_htod": 1000, "replays": 10, "fault_entries": null}}}"#;
    let text = format!(
        r#"{{"scenario": "x", "gpu_mem_mib": 64, "verdict": "{verdict}", {total}, "without_counters": {again}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_figure_holds_up_to_its_limit_of_the_drivers_median() {
    let truth = r#""fault_entries": 100, "fault_instances": 7, "bytes_htod": 999, "bytes_dtoh": 0, "cpu_faults": 0,
        "evicted_bytes": 0, "replays": 5, "thrashing_pages": 0, "throttles": 0, "remote_bytes": 0"#;
    let runs = [run("pass", truth), run("pass", &truth.replace("100", "90"))];
    let compared = Compared::new("x", 64, &Lab::of(&runs).unwrap(), &COUNTS);
    let row = |name: &str| compared.figures.iter().find(|row| row.figure == name).unwrap();
    assert_eq!((&row("fault_entries").lab, row("fault_entries").holds), (&vec![90, 100], false), "105 of 95");
    assert_eq!((row("bytes_htod").lab.len(), row("bytes_htod").holds), (4, false));
    assert!(row("bytes_dtoh").holds && row("bytes_dtoh").error == Some(0.0));
    assert!(row("replays").holds && row("replays").error.is_some_and(|error| error > 0.2), "no limit");
    assert!(!compared.holds());
    let within = Compared::new("x", 64, &Lab::of(&runs[..1]).unwrap(), &Counts { bytes_htod: 1000, ..COUNTS });
    assert!(within.holds(), "5 % of 100");
}

#[test]
fn a_figure_with_a_limit_that_no_run_reports_is_a_named_miss() {
    let truth = r#""fault_entries": 105, "fault_instances": 7, "bytes_htod": 1042, "bytes_dtoh": 0, "cpu_faults": 0,
        "evicted_bytes": 0, "thrashing_pages": 0, "throttles": 0, "remote_bytes": 0"#;
    let missed = |truth: &[&str]| {
        let runs: Vec<Report> = truth.iter().map(|truth| run("pass", truth)).collect();
        let compared = Compared::new("x", 64, &Lab::of(&runs).unwrap(), &COUNTS);
        let missed: Vec<&str> = compared.figures.iter().filter(|row| !row.holds).map(|row| row.figure).collect();
        assert_eq!(compared.holds(), missed.is_empty());
        missed
    };
    assert!(missed(&[truth]).is_empty(), "replays have no limit");
    let without_instances = truth.replace("\"fault_instances\": 7", "\"fault_instances\": null");
    assert_eq!(missed(&[&without_instances]), ["fault_instances"]);
    assert_eq!(missed(&[&truth.replace("cpu_faults", "faults_of_the_cpu")]), ["cpu_faults"]);
    assert!(missed(&[&without_instances, truth]).is_empty(), "one run reports it");
}

#[test]
fn a_waived_figure_is_not_missed_and_a_bound_is_not_compared() {
    let truth = r#""fault_entries": 105, "fault_instances": 7, "bytes_htod": 1042, "bytes_dtoh": 0, "cpu_faults": 0,
        "evicted_bytes": null, "thrashing_pages": 0, "throttles": 9, "remote_bytes": 0"#;
    let reasons = r#""not_known": {"evicted_bytes": "it prefetched"}, "bounds": {"throttles": ["at most", "why"]}"#;
    let once = |truth: String| -> Report {
        let report = r#"{"scenario": "x", "gpu_mem_mib": 64, "verdict": "pass", "total": {"truth": {TRUTH}}}"#;
        serde_json::from_str(&report.replace("TRUTH", &truth)).unwrap()
    };
    let (waived, silent) = (once(format!("{truth}, {reasons}")), once(truth.replace(": 9", ": 0")));
    let figures = |runs: &[Report]| {
        let compared = Compared::new("x", 64, &Lab::of(runs).unwrap(), &COUNTS);
        let row = |name| compared.figures.iter().find(|row| row.figure == name).unwrap();
        (row("evicted_bytes").holds, row("throttles").lab.clone())
    };
    assert_eq!(figures(std::slice::from_ref(&waived)), (true, vec![]));
    assert_eq!(figures(&[waived, silent]), (false, vec![0]), "one run should have known");
}

#[test]
fn without_a_run_figures_stand_alone() {
    assert!(Compared::new("x", 64, &Lab::default(), &COUNTS).figures.iter().all(|row| row.holds && row.lab.is_empty()));
}

#[test]
fn a_run_that_did_not_pass_is_rejected() {
    let runs = [run("fail", "")];
    assert!(Lab::of(&runs).unwrap_err().to_string().contains("did not pass"));
}
