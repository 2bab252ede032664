//! Rings read by accessors in processes of their own. This program starts itself as their spawner, so that it has
//! no test harness.
#![expect(clippy::indexing_slicing, clippy::print_stdout, clippy::unwrap_used, reason = "tests without a harness")]

mod program;

use std::{collections::BTreeMap, fs, process::ExitCode};

use call_ring::{Kind, TOTAL_BYTES, memory::LANES};
use model::ProcessId;
use program::{PROGRAM, Program};
use recorder::{Process, ProcessError, Quotas, Recordings, recording::State};
use rustix::process::{Pid, Signal, kill_process};
use sys::{
    Roots,
    executable::Program as Executable,
    fake::until,
    processes,
    shared_memory::{SharedMemoryError, accessor_of, set_accessor_program},
};

/// Starts a program of a user, with a ring.
fn start(uid: u32) -> Program {
    Program::of(uid, PROGRAM, &[TOTAL_BYTES, 1, LANES, Kind::Free as usize])
}

/// User of a program.
fn uid_of(program: &Program) -> u32 {
    processes::user(&Roots::default(), program.child.id()).unwrap()
}

/// Recordings of these programs, each of which is read.
fn recordings(programs: &[Program]) -> Recordings {
    let recordings = Recordings::new(Roots::default(), Quotas { window_bytes: 1 << 20, user_max: 4, node_max: 8 });
    let running: BTreeMap<ProcessId, u32> = programs.iter().map(|program| (program.id(), uid_of(program))).collect();
    until("recordings", || {
        recordings.scan(&running);
        recordings.poll();
        running.keys().all(|id| recordings.state_of(*id) == Some(State::Recording)).then_some(())
    });
    recordings
}

fn calls(recordings: &Recordings, program: &Program) -> u64 {
    recordings.snapshot(program.id()).unwrap().window().added()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

fn status(pid: u32, key: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn accessor_has_its_channel_the_rings_of_its_user_and_no_privileges() {
    let programs = [start(1001), start(1001)];
    let _recordings = recordings(&programs);
    let pid = accessor_of(1001).unwrap();
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut files: Vec<String> =
        links.map(|link| fs::read_link(link.unwrap().path()).unwrap().display().to_string()).collect();
    files.sort();
    assert!(files[..2].iter().all(|file| file.starts_with("/memfd:uvmd-ring")), "{files:?}");
    assert!(files.len() == 3 && files[2].starts_with("socket:"), "{files:?}");
    assert_eq!(status(pid, "Name").unwrap(), "uvmd-accessor");
    assert_eq!(["NoNewPrivs", "Seccomp", "Threads"].map(|key| status(pid, key).unwrap()), ["1", "2", "1"]);
    for key in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, key).unwrap(), "0000000000000000", "{key}");
    }
    assert_eq!(status(pid, "Uid").unwrap(), ["4000000021"; 4].join(" "));
    assert_eq!(status(status(pid, "PPid").unwrap().parse().unwrap(), "Name").unwrap(), "uvmd-spawner");
    let maps = |pid: &str| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps("self").contains("uvmd-ring"), "uvmd maps no ring");
}

fn accessor_of_a_user_ends_with_its_last_memory() {
    let programs = [start(1001), start(1002)];
    let recordings = recordings(&programs);
    let pids = [1001, 1002].map(|uid| accessor_of(uid).unwrap());
    drop(recordings);
    until("the exits", || pids.iter().all(|pid| status(*pid, "Name").is_none()).then_some(()));
    assert_eq!([1001, 1002].map(accessor_of), [None; 2]);
}

fn stopped_accessor_is_killed_and_delays_no_other_user() {
    let mut programs = [start(1001), start(1001), start(1002)];
    let recordings = recordings(&programs);
    let pid = accessor_of(1001).unwrap();
    signal(pid, Signal::STOP);
    programs.iter_mut().for_each(Program::call);
    recordings.poll();
    let counts = [0, 1, 2].map(|at: usize| calls(&recordings, &programs[at]));
    assert_eq!(counts, [0, 0, 1], "the other user's ring is read in the same poll");
    let late = State::Unreadable("its shared memory was not accessible in time".to_owned());
    // No poll is needed for the end of the accessor.
    until("the exit of the accessor", || status(pid, "Name").is_none().then_some(()));
    let is_late = |program: &Program| recordings.state_of(program.id()).as_ref() == Some(&late);
    let refused = until("a refusal", || {
        recordings.poll();
        programs.iter().position(is_late)
    });
    assert!(refused < 2);
    let other = &programs[1 - refused];
    until("the call of the user's other program", || {
        recordings.poll();
        (calls(&recordings, other) == 1).then_some(())
    });
    assert!(!is_late(other) && accessor_of(1001).is_some_and(|next| next != pid));
    // Also another search does not access it again.
    let found = Process::find(&Roots::default(), programs[refused].id().pid);
    assert!(matches!(found, Err(ProcessError::Memory(SharedMemoryError::Late))));
}

/// Stops the accessor during a poll, and goes on. Returns whether the call was read then: not if a busy machine
/// has made the stop too long.
fn stop_during_a_poll(program: &mut Program, recordings: &Recordings, accessor: u32, count: u64) -> bool {
    program.call();
    signal(accessor, Signal::STOP);
    recordings.poll();
    assert!(calls(recordings, program) < count);
    signal(accessor, Signal::CONT);
    until("the call", || {
        recordings.poll();
        let is_late = recordings.state_of(program.id()) != Some(State::Recording);
        (is_late || calls(recordings, program) == count).then_some(!is_late)
    })
}

fn reply_that_comes_after_its_caller_has_given_up_is_not_that_of_a_later_request() {
    let (programs, recordings) = until("five stops that are short enough", || {
        let mut programs = [start(1001)];
        let recordings = recordings(&programs);
        let pid = accessor_of(1001).unwrap();
        (1..=5).all(|count| stop_during_a_poll(&mut programs[0], &recordings, pid, count)).then_some(())?;
        Some((programs, recordings))
    });
    let losses = recordings.snapshot(programs[0].id()).unwrap().losses();
    assert_eq!((losses.invalid, losses.unknown), (0, 0));
}

fn killed_accessor_is_replaced() {
    let mut programs = [start(1001)];
    let recordings = recordings(&programs);
    let pid = accessor_of(1001).unwrap();
    // Its last request has a reply.
    recordings.poll();
    signal(pid, Signal::KILL);
    until("its exit", || status(pid, "State").is_none_or(|state| state.starts_with('Z')).then_some(()));
    programs[0].call();
    until("the call", || {
        recordings.poll();
        (calls(&recordings, &programs[0]) == 1).then_some(())
    });
}

fn ring_is_read_after_the_end_of_another_program_of_its_user() {
    let mut programs = vec![start(1001), start(1001)];
    let recordings = recordings(&programs);
    let pid = accessor_of(1001).unwrap();
    drop(programs.pop());
    let running = BTreeMap::from([(programs[0].id(), 1001)]);
    let rings = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    until("the end of its memory", || {
        recordings.scan(&running);
        recordings.poll();
        (rings() == 2).then_some(())
    });
    programs[0].call();
    until("the call", || {
        recordings.poll();
        (calls(&recordings, &programs[0]) == 1).then_some(())
    });
    assert_eq!(accessor_of(1001), Some(pid), "the accessor has dropped one memory, and goes on");
}

fn main() -> ExitCode {
    if let Some(ended) = sys::actor::run_if_spawner() {
        return ended;
    }
    let tests: [(&str, fn()); 6] = [
        (
            "accessor_has_its_channel_the_rings_of_its_user_and_no_privileges",
            accessor_has_its_channel_the_rings_of_its_user_and_no_privileges,
        ),
        ("accessor_of_a_user_ends_with_its_last_memory", accessor_of_a_user_ends_with_its_last_memory),
        ("stopped_accessor_is_killed_and_delays_no_other_user", stopped_accessor_is_killed_and_delays_no_other_user),
        (
            "reply_that_comes_after_its_caller_has_given_up_is_not_that_of_a_later_request",
            reply_that_comes_after_its_caller_has_given_up_is_not_that_of_a_later_request,
        ),
        ("killed_accessor_is_replaced", killed_accessor_is_replaced),
        (
            "ring_is_read_after_the_end_of_another_program_of_its_user",
            ring_is_read_after_the_end_of_another_program_of_its_user,
        ),
    ];
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        // As nextest asks for; no test is ignored.
        if !words.iter().any(|word| word == "--ignored") {
            for (name, _) in tests {
                println!("{name}: test");
            }
        }
        return ExitCode::SUCCESS;
    }
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("UVMD_TEST_REQUIRE_ROOT").is_none());
    if !is_root {
        return ExitCode::SUCCESS;
    }
    set_accessor_program(Executable::at(std::env::current_exe().unwrap()));
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    for (name, test) in tests.iter().filter(|(name, _)| wanted.iter().all(|word| name.contains(word.as_str()))) {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}
