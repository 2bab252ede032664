//! `uvmctl doctor` on fake file trees of /proc and /sys.

use std::{collections::BTreeMap, fs, process::Output};

use model::{CheckedFigure, ComparisonResult, Crosschecks, Degradation, DegradedReason, SourceState};
use serde_json::Value;
use sys::fake::{Machine, small_kernel};

use crate::support::{self, counting, nothing, serve_snapshot, snapshot, stderr, stdout};

/// `CAP_BPF`, `CAP_PERFMON` and `CAP_SYS_PTRACE`.
const ENOUGH: u64 = 1 << 39 | 1 << 38 | 1 << 19;

/// A node that meets all requirements, with a running uvmd.
fn node() -> Machine {
    let symbol = |probe: abi::Probe| format!("0000000000000000 t {}\t[nvidia_uvm]\n", probe.name());
    Machine::new()
        .with("proc/sys/kernel/osrelease", "6.12.0\n")
        .with("proc/sys/kernel/hostname", "gpu-17\n")
        .with("proc/sys/kernel/unprivileged_bpf_disabled", "2\n")
        .with("proc/sys/kernel/yama/ptrace_scope", "1\n")
        .with("proc/kallsyms", sys::symbols::NEEDED.map(symbol).concat())
        .with("proc/driver/nvidia/gpus/0000:17:00.0/information", "")
        .with("proc/41/status", process("uvmd", ENOUGH))
        .with("sys/bus/event_source/devices/kprobe/type", "6\n")
        .with("sys/kernel/btf/vmlinux", small_kernel())
        .with("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
        .with("sys/module/nvidia_uvm/version", "550.163.01\n")
        .with("sys/module/nvidia_uvm/initstate", "live\n")
        .with("sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_threshold", "51\n")
}

/// Status of this process with another name and other capabilities.
fn process(name: &str, capabilities: u64) -> String {
    let line = |line: &str| match line.split_once('\t') {
        Some(("Name:", _)) => format!("Name:\t{name}\n"),
        Some(("Pid:", _)) => "Pid:\t41\n".to_owned(),
        Some(("CapEff:", _)) => format!("CapEff:\t{capabilities:016x}\n"),
        _ => format!("{line}\n"),
    };
    fs::read_to_string("/proc/self/status").unwrap().lines().map(line).collect::<Vec<_>>().concat()
}

fn doctor(url: &str, machine: &Machine, arguments: &[&str]) -> Output {
    // An empty configuration, independent of this machine's.
    doctor_configured(url, machine, "/dev/null", arguments)
}

fn doctor_configured(url: &str, machine: &Machine, config: &str, arguments: &[&str]) -> Output {
    let (proc, sys) = (machine.roots.proc.to_str().unwrap(), machine.roots.sys.to_str().unwrap());
    support::run(url, &[&["doctor", "--proc", proc, "--sys", sys, "--config", config], arguments].concat())
}

/// Checks with their verdicts, and the overall result.
fn verdicts(url: &str, machine: &Machine) -> (Vec<(String, String)>, bool) {
    let output = doctor(url, machine, &["-o", "json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let word = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    let checks = report["checks"].as_array().unwrap();
    let ok = report["ok"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!ok)));
    (checks.iter().map(|check| (word(check, "name"), word(check, "verdict"))).collect(), ok)
}

fn with_verdict(url: &str, machine: &Machine, verdict: &str) -> Vec<String> {
    let (checks, _) = verdicts(url, machine);
    checks.into_iter().filter(|(_, each)| each == verdict).map(|(name, _)| name).collect()
}

fn healthy() -> String {
    serve_snapshot(counting())
}

#[test]
fn the_node_that_is_checked_is_named() {
    let text = stdout(&doctor(&healthy(), &node(), &[]));
    assert!(text.starts_with("Node gpu-17\n\n"), "{text}");
    let text = stdout(&doctor(&healthy(), &node(), &["-o", "json"]));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["node"], "gpu-17");
}

#[test]
fn a_complete_node_is_ok() {
    let (checks, ok) = verdicts(&healthy(), &node());
    assert!(ok, "{checks:?}");
    // The test server reports another version, and files cannot be devices of the driver.
    let not_ok: Vec<_> = checks.iter().filter(|(_, verdict)| verdict != "ok").collect();
    let expected = [("new programs", "unknown"), ("version", "warning")];
    assert_eq!(
        not_ok,
        expected.map(|(name, verdict)| (name.to_owned(), verdict.to_owned())).iter().collect::<Vec<_>>()
    );
}

#[test]
fn missing_requirements_of_a_bare_machine_have_remedies() {
    let url = format!("http://{}", nothing());
    let output = doctor(&url, &Machine::new(), &[]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""));
    let text = stdout(&output);
    for line in [
        "missing  kernel ",
        "missing  BPF ",
        "missing  kprobes ",
        "missing  kernel types ",
        "missing  driver ",
        "missing  uvmd ",
    ] {
        assert!(text.contains(&format!("\n{line}")) || text.starts_with(line), "{line} is not in\n{text}");
    }
    assert!(text.contains("-> run `modprobe nvidia-uvm`"), "{text}");
    assert!(text.contains("6 things that uvmd needs are missing"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn each_missing_requirement_is_found() {
    let cases: [(&str, &str, &str); 6] = [
        ("proc/sys/kernel/osrelease", "5.4.0-150-generic\n", "kernel"),
        ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n", "lockdown"),
        ("sys/kernel/debug/kprobes/enabled", "0\n", "kprobes"),
        ("sys/kernel/btf/vmlinux", "not BTF", "kernel types"),
        ("sys/module/nvidia_uvm/version", "999.12.03\n", "driver"),
        ("proc/kallsyms", "0 t uvm_perf_event_notify.constprop.0\t[nvidia_uvm]\n", "functions"),
    ];
    let url = healthy();
    for (file, text, name) in cases {
        assert_eq!(with_verdict(&url, &node().with(file, text), "missing"), [name], "{file}");
    }
    assert_eq!(with_verdict(&url, &node().with("proc/41/status", process("uvmd", 1 << 39)), "missing"), ["rights"]);
}

#[test]
fn kernel_without_kprobes_that_is_too_old_for_fentry_lacks_them() {
    let machine = node().with("sys/kernel/btf/nvidia_uvm", "");
    machine.remove("sys/bus");
    assert_eq!(with_verdict(&healthy(), &machine, "missing"), ["kprobes"]);
    let text = stdout(&doctor(&healthy(), &machine, &[]));
    assert!(text.contains("absent, and fentry needs bpf_preempt_disable"), "{text}");
}

/// A daemon that counts by the driver's tools.
fn by_tools() -> String {
    let mut snapshot = counting();
    snapshot.source.backend = "tools";
    snapshot.source.probes.clear();
    serve_snapshot(snapshot)
}

#[test]
fn what_probes_lack_is_a_warning_while_the_tools_count() {
    let machine = node().with("sys/kernel/debug/kprobes/enabled", "0\n");
    machine.write("proc/kallsyms", "");
    let url = by_tools();
    assert_eq!(with_verdict(&url, &machine, "missing"), Vec::<String>::new());
    assert_eq!(with_verdict(&url, &machine, "warning"), ["kprobes", "functions", "version"]);
    let text = stdout(&doctor(&url, &machine, &[]));
    assert!(text.contains("ok       tools          uvmd counts by the driver's tools"), "{text}");
    assert!(text.contains("-> write 1 to /sys/kernel/debug/kprobes/enabled"), "{text}");
    assert!(!text.contains("probes         all"), "{text}");
}

#[test]
fn tools_are_not_mentioned_where_probes_count_or_are_demanded() {
    assert!(!stdout(&doctor(&healthy(), &node(), &[])).contains("driver's tools"));
    let machine = node().with("sys/kernel/debug/kprobes/enabled", "0\n");
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(&config, "[collector]\nsource = \"probes\"\n").unwrap();
    let url = format!("http://{}", nothing());
    let text = stdout(&doctor_configured(&url, &machine, config.path().to_str().unwrap(), &[]));
    assert!(text.contains("missing  kprobes ") && !text.contains("driver's tools"), "{text}");
    let text = stdout(&doctor(&url, &machine, &[]));
    assert!(text.contains("driver's tools"), "{text}");
}

#[test]
fn driver_whose_tools_interface_is_unknown_lacks_the_tools() {
    let machine = node().with("sys/kernel/debug/kprobes/enabled", "0\n");
    machine.write("sys/module/nvidia_uvm/version", "548.1\n");
    let url = format!("http://{}", nothing());
    let text = stdout(&doctor(&url, &machine, &[]));
    assert!(text.contains("missing  tools          uvmd does not know the tools interface of driver 548.1"), "{text}");
    // They make up for nothing that the probes lack.
    assert!(text.contains("missing  kprobes "), "{text}");
}

#[test]
fn limitations_are_warnings() {
    let cases: [(&str, String, &str); 4] = [
        ("proc/sys/net/core/bpf_jit_enable", "0\n".to_owned(), "BPF"),
        ("proc/sys/kernel/yama/ptrace_scope", "3\n".to_owned(), "ptrace"),
        ("proc/41/status", process("uvmd", 1 << 39 | 1 << 38), "ptrace"),
        ("sys/module/nvidia_uvm/parameters/uvm_enable_builtin_tests", "1\n".to_owned(), "parameters"),
    ];
    let url = healthy();
    for (file, text, name) in cases {
        let machine = node().with(file, text);
        assert_eq!(with_verdict(&url, &machine, "missing"), Vec::<String>::new(), "{file}");
        assert_eq!(with_verdict(&url, &machine, "warning"), [name, "version"], "{file}");
    }
}

#[test]
fn unreadable_facts_are_unknown_and_no_failure() {
    let machine = node();
    for file in ["proc/kallsyms", "sys/kernel/btf/vmlinux", "proc/sys/kernel/yama/ptrace_scope"] {
        let path = machine.roots.proc.parent().unwrap().join(file);
        fs::remove_file(&path).unwrap();
        // A directory cannot be read as a file, even by root.
        fs::create_dir(&path).unwrap();
    }
    // Nothing can be opened below a file, even by root.
    machine.write("sys/kernel/debug", "");
    machine.remove("sys/module/nvidia_uvm/parameters");
    let (checks, ok) = verdicts(&healthy(), &machine);
    assert!(ok, "{checks:?}");
    let unknown = ["kprobes", "kernel types", "ptrace", "functions", "new programs", "parameters"];
    assert_eq!(with_verdict(&healthy(), &machine, "unknown"), unknown);
}

#[test]
fn another_program_named_uvmd_is_ignored() {
    let machine = node().with("proc/40/status", process("uvmd", 0)).with("proc/42/status", process("uvmd", 0));
    assert!(verdicts(&healthy(), &machine).1);
}

#[test]
fn before_5_11_the_limit_of_locked_memory_matters() {
    let limits = |max: &str| {
        let line = |line: &str| {
            let is_it = line.starts_with("Max locked memory");
            let own = || format!("Max locked memory         {max:<20} {max:<20} bytes     \n");
            if is_it { own() } else { format!("{line}\n") }
        };
        fs::read_to_string("/proc/self/limits").unwrap().lines().map(line).collect::<String>()
    };
    let machine = node().with("proc/sys/kernel/osrelease", "5.10.0\n");
    let url = healthy();
    let verdict = || {
        let (checks, _) = verdicts(&url, &machine);
        checks.into_iter().find(|(name, _)| name == "locked memory").unwrap().1
    };
    assert_eq!(verdict(), "unknown");
    for (max, expected) in [("65536", "warning"), ("unlimited", "ok")] {
        machine.write("proc/41/limits", limits(max));
        assert_eq!(verdict(), expected, "{max}");
    }
}

#[test]
fn use_of_ordinary_memory_by_gpus_is_shown() {
    let parameter = |name: &str| format!("sys/module/nvidia_uvm/parameters/{name}");
    let finding = |machine: &Machine| {
        let text = stdout(&doctor(&healthy(), machine, &[]));
        text.lines().find(|line| line.contains("HMM, ATS")).unwrap().to_owned()
    };
    let machine = node();
    assert!(finding(&machine).contains("this driver has no HMM; ATS is on where"), "{}", finding(&machine));
    machine.write(&parameter("uvm_disable_hmm"), "N\n");
    assert!(finding(&machine).contains("HMM is off (the driver was built without it"), "{}", finding(&machine));
    let symbols = fs::read_to_string(machine.roots.proc.join("kallsyms")).unwrap();
    machine.write("proc/kallsyms", symbols + "0 t uvm_hmm_va_space_initialize\t[nvidia_uvm]\n");
    assert!(finding(&machine).contains("HMM is on"), "{}", finding(&machine));
    machine.write(&parameter("uvm_enable_va_space_mm"), "0\n");
    assert!(finding(&machine).contains("HMM is off (uvm_enable_va_space_mm=0)"), "{}", finding(&machine));
    machine.write(&parameter("uvm_disable_hmm"), "Y\n");
    machine.write(&parameter("uvm_ats_mode"), "0\n");
    let expected = "HMM is off (uvm_disable_hmm=Y); ATS is off (uvm_ats_mode=0)";
    assert!(finding(&machine).contains(expected), "{}", finding(&machine));
}

#[test]
fn changed_parameters_are_shown() {
    let machine = node().with("sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_threshold", "75\n");
    let text = stdout(&doctor(&healthy(), &machine, &[]));
    assert!(text.contains("ok       parameters     uvm_perf_prefetch_threshold=75 (default 51)"), "{text}");
}

#[test]
fn waiting_losses_and_warnings_of_the_daemon_are_reported() {
    let waits = serve_snapshot(snapshot(SourceState::Waiting { missing: vec!["no driver".to_owned()] }));
    assert_eq!(with_verdict(&waits, &node(), "missing"), ["uvmd"]);
    assert!(stdout(&doctor(&waits, &node(), &[])).contains("-> no driver"));

    let mut loses = counting();
    loses.source.dropped_events.insert("map_full", 3);
    loses.source.warnings.push("no names".to_owned());
    assert_eq!(with_verdict(&serve_snapshot(loses), &node(), "warning"), ["uvmd", "version", "losses"]);
}

#[test]
fn sources_that_disagree_are_a_warning() {
    let with = |result| {
        let mut snapshot = counting();
        let comparisons = BTreeMap::from([((CheckedFigure::CpuFaults, result), 3)]);
        snapshot.source.crosschecks = Some(Crosschecks { checks: 1, comparisons, last_process: None });
        snapshot
    };
    let agrees = serve_snapshot(with(ComparisonResult::Agreed));
    let text = stdout(&doctor(&agrees, &node(), &[]));
    assert!(
        text.contains("ok       crosscheck     3 comparisons with the driver's own counters in 1 checks: 0 disagree"),
        "{text}"
    );
    // Those of an earlier loading of the driver are no warning.
    let mut disagrees = with(ComparisonResult::Disagreed);
    assert_eq!(with_verdict(&serve_snapshot(disagrees.clone()), &node(), "warning"), ["version"]);
    disagrees.source.degraded.push(Degradation {
        reason: DegradedReason::SourcesDisagree,
        uid: Some(1000),
        user: None,
        pid: Some(7),
        description: "cpu_faults".to_owned(),
    });
    assert_eq!(with_verdict(&serve_snapshot(disagrees), &node(), "warning"), ["uvmd", "version", "crosscheck"]);
}

#[test]
fn a_cgroup_namespace_of_its_own_is_a_warning_about_owners() {
    let mut snapshot = counting();
    snapshot.source.degraded.push(Degradation {
        reason: DegradedReason::CgroupNamespace,
        uid: None,
        user: None,
        pid: None,
        description: "cut off".to_owned(),
    });
    assert_eq!(with_verdict(&serve_snapshot(snapshot), &node(), "warning"), ["uvmd", "version", "owners"]);
}

#[test]
fn an_invalid_configuration_is_missing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "\nlisten = 9477\n").unwrap();
    let output = doctor_configured(&healthy(), &node(), file.path().to_str().unwrap(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("missing  configuration") && text.contains(":2: listen: invalid"), "{text}");
}
