//! `uvmctl doctor` on machines made of files.

use std::{fs, process::Output};

use model::SourceState;
use serde_json::Value;
use sys::fake::{Machine, small_kernel};

use crate::support::{self, counting, nothing, serve_snapshot, snapshot, stderr, stdout};

/// `CAP_BPF`, `CAP_PERFMON` and `CAP_SYS_PTRACE`.
const ENOUGH: u64 = 1 << 39 | 1 << 38 | 1 << 19;

/// A node that lacks nothing, with uvmd at work.
fn node() -> Machine {
    let symbol = |probe: abi::Probe| format!("0000000000000000 t {}\t[nvidia_uvm]\n", probe.name());
    Machine::new()
        .with("proc/sys/kernel/osrelease", "6.12.0\n")
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

/// This process's own status under another name, with other rights.
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
    // Not the one that this machine may have.
    doctor_configured(url, machine, "/dev/null", arguments)
}

fn doctor_configured(url: &str, machine: &Machine, config: &str, arguments: &[&str]) -> Output {
    let (proc, sys) = (machine.roots.proc.to_str().unwrap(), machine.roots.sys.to_str().unwrap());
    support::run(url, &[&["doctor", "--proc", proc, "--sys", sys, "--config", config], arguments].concat())
}

/// The checks by verdict, and whether all is well.
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

fn well() -> String {
    serve_snapshot(counting())
}

#[test]
fn on_a_node_that_lacks_nothing_all_is_well() {
    let (checks, ok) = verdicts(&well(), &node());
    assert!(ok, "{checks:?}");
    // The test's server has a version of its own.
    let not_ok: Vec<_> = checks.iter().filter(|(_, verdict)| verdict != "ok").collect();
    assert_eq!(not_ok, [&("version".to_owned(), "warning".to_owned())]);
}

#[test]
fn on_a_bare_machine_everything_that_is_missing_is_named_with_what_to_do() {
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
fn each_thing_that_is_missing_alone_is_found() {
    let cases: [(&str, &str, &str); 6] = [
        ("proc/sys/kernel/osrelease", "5.4.0-150-generic\n", "kernel"),
        ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n", "lockdown"),
        ("sys/kernel/debug/kprobes/enabled", "0\n", "kprobes"),
        ("sys/kernel/btf/vmlinux", "not BTF", "kernel types"),
        ("sys/module/nvidia_uvm/version", "999.12.03\n", "driver"),
        ("proc/kallsyms", "0 t uvm_perf_event_notify.constprop.0\t[nvidia_uvm]\n", "functions"),
    ];
    let url = well();
    for (file, text, name) in cases {
        assert_eq!(with_verdict(&url, &node().with(file, text), "missing"), [name], "{file}");
    }
    assert_eq!(with_verdict(&url, &node().with("proc/41/status", process("uvmd", 1 << 39)), "missing"), ["rights"]);
}

#[test]
fn what_only_limits_uvmd_is_a_warning() {
    let cases: [(&str, String, &str); 4] = [
        ("proc/sys/net/core/bpf_jit_enable", "0\n".to_owned(), "BPF"),
        ("proc/sys/kernel/yama/ptrace_scope", "3\n".to_owned(), "ptrace"),
        ("proc/41/status", process("uvmd", 1 << 39 | 1 << 38), "ptrace"),
        ("sys/module/nvidia_uvm/parameters/uvm_enable_builtin_tests", "1\n".to_owned(), "parameters"),
    ];
    let url = well();
    for (file, text, name) in cases {
        let machine = node().with(file, text);
        assert_eq!(with_verdict(&url, &machine, "missing"), Vec::<String>::new(), "{file}");
        assert_eq!(with_verdict(&url, &machine, "warning"), [name, "version"], "{file}");
    }
}

#[test]
fn what_may_not_be_seen_is_unknown_and_no_failure() {
    let machine = node();
    for file in ["proc/kallsyms", "sys/kernel/btf/vmlinux", "proc/sys/kernel/yama/ptrace_scope"] {
        let path = machine.roots.proc.parent().unwrap().join(file);
        fs::remove_file(&path).unwrap();
        // Not readable as a file, whoever asks.
        fs::create_dir(&path).unwrap();
    }
    // Nor can anyone look below a file.
    machine.write("sys/kernel/debug", "");
    machine.remove("sys/module/nvidia_uvm/parameters");
    let (checks, ok) = verdicts(&well(), &machine);
    assert!(ok, "{checks:?}");
    let unknown = ["kprobes", "kernel types", "ptrace", "functions", "parameters"];
    assert_eq!(with_verdict(&well(), &machine, "unknown"), unknown);
}

#[test]
fn another_program_of_that_name_is_not_taken_for_uvmd() {
    let machine = node().with("proc/40/status", process("uvmd", 0)).with("proc/42/status", process("uvmd", 0));
    assert!(verdicts(&well(), &machine).1);
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
    let url = well();
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
fn parameters_that_somebody_chose_are_shown() {
    let machine = node().with("sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_threshold", "75\n");
    let text = stdout(&doctor(&well(), &machine, &[]));
    assert!(text.contains("ok       parameters     uvm_perf_prefetch_threshold=75 (default 51)"), "{text}");
}

#[test]
fn a_daemon_that_waits_loses_or_cannot_tell_all_is_named() {
    let waits = serve_snapshot(snapshot(SourceState::Waiting { missing: vec!["no driver".to_owned()] }));
    assert_eq!(with_verdict(&waits, &node(), "missing"), ["uvmd"]);
    assert!(stdout(&doctor(&waits, &node(), &[])).contains("-> no driver"));

    let mut loses = counting();
    loses.source.dropped_events.insert("map_full", 3);
    loses.source.warnings.push("no names".to_owned());
    assert_eq!(with_verdict(&serve_snapshot(loses), &node(), "warning"), ["uvmd", "version", "losses"]);
}

#[test]
fn a_configuration_that_uvmd_would_not_start_with_is_missing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, "\nlisten = 9477\n").unwrap();
    let output = doctor_configured(&well(), &node(), file.path().to_str().unwrap(), &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("missing  configuration") && text.contains(":2: listen: invalid"), "{text}");
}
