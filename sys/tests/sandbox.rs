//! Computations in processes: this program itself, whose main function begins with
//! [`run_if_sandboxed`]. So it has no test harness.
#![expect(clippy::panic, clippy::print_stdout, clippy::unwrap_used, reason = "tests without a harness")]

use std::{
    ffi::CStr,
    fs,
    hint::black_box,
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use sys::{
    executable::Program,
    sandbox::{Deadline, Ended, Failure, Limits, Process, run_if_sandboxed},
};

const ARGUMENT: &str = "--computation";
const NAME: &CStr = c"uvmd-computes";
const LIMITS: Limits = Limits { memory_bytes: 64 << 20, cpu: Duration::from_secs(20) };
/// Deadline that no computation here reaches, even on a busy machine.
const LONG: Deadline = Deadline { cpu: Duration::from_secs(15), wall: Duration::from_mins(5) };
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Computations, good and bad, by the first word of the input.
fn compute(input: &[u8], output: &mut dyn Write) -> io::Result<()> {
    let text = String::from_utf8_lossy(input);
    let (name, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let bytes = match name {
        "reverse" => rest.bytes().rev().collect(),
        "allocate" => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(black_box(vec![1; 1 << 20]));
            }
        }
        "spin" => loop {
            black_box(0);
        },
        "panic" => panic!("no such tensor"),
        "overflow" => overflow(1).to_string().into_bytes(),
        "long" => vec![0; OUTPUT_BYTES_MAX + 1],
        "open" => fs::read("/etc/hostname").unwrap_or_default(),
        "execute" => Command::new("/bin/true").output().map(|output| output.stdout).unwrap_or_default(),
        "thread" => thread::spawn(Vec::new).join().unwrap_or_default(),
        "connect" => std::net::TcpStream::connect("127.0.0.1:1").map(|_| Vec::new()).unwrap_or_default(),
        "steps" => {
            output.write_all(b"first\nsec")?;
            output.flush()?;
            compute(rest.as_bytes(), output)?;
            Vec::new()
        }
        _ => Vec::new(),
    };
    output.write_all(&bytes)
}

#[expect(unconditional_recursion, reason = "the stack is to end")]
fn overflow(depth: u64) -> u64 {
    black_box(depth) + overflow(black_box(depth + 1))
}

fn run(input: &str, deadline: Deadline) -> Ended {
    start().run(input.as_bytes(), OUTPUT_BYTES_MAX, deadline, || false)
}

fn start() -> Process {
    Process::start(&Program::this(), ARGUMENT).unwrap()
}

fn failure(input: &str) -> String {
    run(input, LONG).output.unwrap_err().to_string()
}

fn output_is_of_the_input() {
    assert_eq!(run("reverse abc", LONG).output.unwrap(), b"cba");
    // More than a pipe holds, both ways.
    let long = "ab".repeat(400_000);
    assert_eq!(run(&format!("reverse {long}"), LONG).output.unwrap(), "ba".repeat(400_000).as_bytes());
}

fn computation_without_end_is_killed_at_its_deadline_and_its_time_is_known() {
    let cpu = Duration::from_millis(300);
    let Ended { output, cpu: used, .. } = run("spin", Deadline { cpu, ..LONG });
    assert!(matches!(output, Err(Failure::CpuTime(limit)) if limit == cpu), "{output:?}");
    assert!(used >= cpu, "{used:?}");
    let wall = Duration::from_millis(200);
    assert!(matches!(run("spin", Deadline { wall, ..LONG }).output, Err(Failure::WallTime(_))));
}

fn output_so_far_is_that_of_a_computation_that_is_killed() {
    let cpu = Duration::from_millis(300);
    let Ended { output, written, .. } = run("steps spin", Deadline { cpu, ..LONG });
    assert!(matches!(output, Err(Failure::CpuTime(_))), "{output:?}");
    assert_eq!(String::from_utf8(written).unwrap(), "first\nsec");
    assert!(matches!(run("steps allocate", LONG).output, Err(Failure::Memory)));
}

fn memory_of_a_computation_is_limited_and_named() {
    assert_eq!(failure("allocate"), "it needs more memory than it may have");
    // Its input alone takes too much.
    assert_eq!(failure(&"x".repeat(80 << 20)), "it needs more memory than it may have");
}

fn computation_that_dies_is_reported_with_its_message() {
    let message = failure("panic");
    assert!(
        message.starts_with("it panicked at sys/tests/sandbox.rs") && message.contains("no such tensor"),
        "{message}"
    );
    let message = failure("overflow");
    assert!(message.starts_with("it was killed by signal 6") && message.contains("overflowed its stack"), "{message}");
}

fn output_is_bounded() {
    assert_eq!(failure("long"), format!("its output has more than {OUTPUT_BYTES_MAX} bytes"));
}

fn computation_can_neither_open_execute_connect_nor_start_threads() {
    for name in ["open", "execute", "thread", "connect"] {
        let message = failure(name);
        // SIGSYS.
        assert!(message.starts_with("it was killed by signal 31"), "{name}: {message}");
    }
}

fn stop_kills_a_computation() {
    let process = start();
    let pid = process.pid();
    let begun = Instant::now();
    let stops = || begun.elapsed() > Duration::from_millis(50);
    assert!(matches!(process.run(b"spin", OUTPUT_BYTES_MAX, LONG, stops).output, Err(Failure::Stopped)));
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "it was reaped");
}

fn dropped_handle_kills_the_process() {
    let process = start();
    let pid = process.pid();
    drop(process);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

fn wait_until(what: &str, is_over: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_over() {
        assert!(begun.elapsed() < LONG.wall, "{what} within {:?}", LONG.wall);
        thread::sleep(Duration::from_millis(1));
    }
}

fn process_dies_with_the_thread_that_started_it() {
    let pid = thread::spawn(|| {
        let process = start();
        let pid = process.pid();
        let is_confined = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("Seccomp:\t2");
        wait_until("confinement", is_confined);
        std::mem::forget(process);
        pid
    })
    .join()
    .unwrap();
    let has_ended = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    wait_until("the end of the process", has_ended);
}

fn computation_is_not_started_by_hand() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.arg(ARGUMENT).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("--computation is for uvmd itself"));
}

fn main() -> ExitCode {
    if let Some(ended) = run_if_sandboxed(ARGUMENT, NAME, LIMITS, compute) {
        return ended;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let tests: &[(&str, fn())] = &[
        ("output_is_of_the_input", output_is_of_the_input),
        (
            "computation_without_end_is_killed_at_its_deadline_and_its_time_is_known",
            computation_without_end_is_killed_at_its_deadline_and_its_time_is_known,
        ),
        ("memory_of_a_computation_is_limited_and_named", memory_of_a_computation_is_limited_and_named),
        (
            "output_so_far_is_that_of_a_computation_that_is_killed",
            output_so_far_is_that_of_a_computation_that_is_killed,
        ),
        ("computation_that_dies_is_reported_with_its_message", computation_that_dies_is_reported_with_its_message),
        ("output_is_bounded", output_is_bounded),
        (
            "computation_can_neither_open_execute_connect_nor_start_threads",
            computation_can_neither_open_execute_connect_nor_start_threads,
        ),
        ("stop_kills_a_computation", stop_kills_a_computation),
        ("dropped_handle_kills_the_process", dropped_handle_kills_the_process),
        ("process_dies_with_the_thread_that_started_it", process_dies_with_the_thread_that_started_it),
        ("computation_is_not_started_by_hand", computation_is_not_started_by_hand),
    ];
    for (name, test) in tests.iter().filter(|(name, _)| wanted.iter().all(|word| name.contains(word))) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
