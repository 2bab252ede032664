//! Planner processes of the real program: their answers, permissions and limits.
#![cfg(test)]

use std::{
    env, fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use plans::{Answer, methods, methods::Workload, planning, planning::wire};
use rustix::process::geteuid;
use serde_json::json;
use sys::{
    executable::Program,
    sandbox::{Deadline, Ended, Failure, Process},
};

const ARGUMENT: &str = "--planner";
/// Deadline that none of these workloads should reach, even on a busy machine.
const LONG: Deadline = Deadline { cpu: Duration::from_secs(30), wall: Duration::from_mins(10) };
/// Time within which a planner process has its filter, even on a busy machine.
const TIMEOUT: Duration = Duration::from_mins(1);
const UNIT: u64 = 2 << 20;

fn start() -> Process {
    Process::start(&Program::at(env!("CARGO_BIN_EXE_uvmd")), ARGUMENT).unwrap()
}

/// Whether this process is root: a planner process then drops more. Prints a message if not.
fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        assert!(env::var("UVMD_TEST_REQUIRE_ROOT").as_deref() != Ok("1"), "this is not root");
        println!("skipped in part: needs root");
    }
    is_root
}

/// Workload of this many launches. Each uses a window of units, which moves on by one.
fn workload(launches: usize, units: usize, window: usize) -> Workload {
    let uses = |unit: usize| (0..launches).filter(move |op| (unit + units - op % units) % units < window);
    let piece = |unit: usize| {
        let uses: Vec<usize> = uses(unit).collect();
        json!({ "block": 0, "address": (1_u64 << 40) + unit as u64 * UNIT, "bytes": UNIT, "is_managed": true,
            "is_movable": true, "outlives": true, "uses": uses })
    };
    let bytes = units as u64 * UNIT / 2;
    let workload = json!({
        "pieces": { "ops": launches, "all": (0..units).map(piece).collect::<Vec<_>>() },
        "durations_ns": vec![100_000_u64; launches],
        "queue_starts": vec![Some(0_usize); launches],
        "memory": { "bytes": bytes, "room_bytes": bytes, "launch_bytes_max": bytes },
    });
    serde_json::from_value(workload).unwrap()
}

fn ask(method: &'static str, workload: &Workload, deadline: Deadline) -> (Result<Answer, Failure>, Duration) {
    let question = wire::question(&[method], workload).unwrap();
    let Ended { output, cpu, .. } = start().run(&question, wire::answer_bytes_max(1), deadline, || false);
    (output.map(|answer| wire::check(&answer, &[method], workload)), cpu)
}

#[test]
fn planner_process_answers_as_its_methods_do() {
    let workload = workload(48, 24, 3);
    for method in ["foresight", "autoswap", "appobmem", "g10", "pump", "harmful-plan"] {
        let expected = planning::best_outline(&[methods::by_name(method).unwrap()], workload.clone());
        assert_eq!(ask(method, &workload, LONG).0.unwrap(), expected, "{method}");
    }
}

#[test]
fn planner_process_has_its_pipes_and_nothing_else() {
    let process = start();
    let folder = format!("/proc/{}", process.pid());
    let status = || fs::read_to_string(format!("{folder}/status")).unwrap();
    // A filter, before it reads anything.
    let begun = Instant::now();
    while !status().contains("Seccomp:\t2\n") {
        assert!(begun.elapsed() < TIMEOUT, "no filter: {}", status());
        thread::sleep(Duration::from_millis(1));
    }
    let status = status();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (name, value) in [
        ("Name", "uvmd-planner"),
        ("Threads", "1"),
        ("NoNewPrivs", "1"),
        ("CapInh", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("SigBlk", "0000000000000000"),
    ] {
        assert_eq!(line(name), value, "{name}");
    }
    if is_root() {
        // The user is not that of actors, so that it cannot signal these either.
        let own = ["4000000020"; 4].join(" ");
        assert_eq!([line("Uid"), line("Gid"), line("Groups")], [own.clone(), own, String::new()]);
        let mut files: Vec<_> = fs::read_dir(format!("{folder}/fd")).unwrap().map(|entry| entry.unwrap()).collect();
        files.sort_by_key(fs::DirEntry::file_name);
        let pipes: Vec<_> = files.iter().map(|entry| fs::read_link(entry.path()).unwrap()).collect();
        let [input, output, messages] = <[_; 3]>::try_from(pipes).unwrap();
        assert!([&input, &output].iter().all(|pipe| pipe.to_str().unwrap().starts_with("pipe:")));
        assert!(input != output && output == messages);
        assert_eq!(fs::read(format!("{folder}/environ")).unwrap(), b"");
        let limits = fs::read_to_string(format!("{folder}/limits")).unwrap();
        let limit = |name: &str| {
            let words = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap().split_whitespace();
            words.take(2).map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(limit("Max data size"), [128 << 20; 2]);
        assert_eq!(limit("Max cpu time"), [30; 2]);
        assert_eq!(limit("Max core file size"), [0; 2]);
    }
}

#[test]
fn planning_that_takes_too_long_is_killed_at_its_deadline() {
    let workload = workload(16_384, 1024, 64);
    let cpu = Duration::from_millis(500);
    let (answer, used) = ask("foresight", &workload, Deadline { cpu, ..LONG });
    assert!(matches!(answer, Err(Failure::CpuTime(limit)) if limit == cpu), "{answer:?}");
    assert!(used >= cpu, "{used:?}");
}

#[test]
fn planning_that_is_not_wanted_any_more_is_killed() {
    let process = start();
    let pid = process.pid();
    let question = wire::question(&["foresight"], &workload(16_384, 1024, 64)).unwrap();
    let begun = Instant::now();
    let stops = || begun.elapsed() > Duration::from_millis(100);
    let ended = process.run(&question, wire::answer_bytes_max(1), LONG, stops);
    assert!(matches!(ended.output, Err(Failure::Stopped)), "{ended:?}");
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
}

#[test]
fn question_that_takes_too_much_memory_ends_the_planner_process_alone() {
    // uvmd asks no such question: a number takes a byte or two here, and eight there.
    let question = format!(r#"{{"methods":[],"workload":{{"durations_ns":[{}0]}}}}"#, "1,".repeat(30 << 20));
    let ended = start().run(question.as_bytes(), wire::answer_bytes_max(1), LONG, || false);
    assert!(matches!(ended.output, Err(Failure::Memory)), "{ended:?}");
}

#[test]
fn planner_process_cannot_be_started_by_hand() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvmd"));
    let output = command.arg(ARGUMENT).stdin(fs::File::open("/dev/null").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message, "--planner is for uvmd itself, which starts it with pipes\n");
}
