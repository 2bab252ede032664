//! Privileges of a spawner and an actor.

use std::{fs, fs::File, os::fd::AsRawFd, process::id, thread};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Signal, geteuid},
};
use sys::actor::{ActorError, Ending, SPAWNER_ARGUMENT};

use crate::support::{
    SHORT, Target, call, file, oom_score_adj, reply, signal, spawner, state, status, stop, until, works,
};

fn files(pid: u32) -> Vec<String> {
    // Descriptors that another test closes meanwhile are skipped.
    let name = |entry: fs::DirEntry| Some(fs::read_link(entry.path()).ok()?.display().to_string());
    let mut names: Vec<_> =
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(|entry| name(entry.ok()?)).collect();
    names.sort();
    names
}

/// Bytes of a process's environment, which only root may read.
fn environment_bytes(pid: u32) -> usize {
    let environment = fs::read(format!("/proc/{pid}/environ"));
    if geteuid().is_root() { environment.unwrap().len() } else { 0 }
}

#[test]
fn an_actor_has_its_channel_its_va_spaces_and_nothing_else() {
    // A descriptor that survives exec.
    let secret = File::open("/proc/self/status").unwrap();
    fcntl_setfd(&secret, FdFlags::empty()).unwrap();
    let target = Target::start();
    let mut spawner = spawner();
    let spawner_pid = spawner.pid();
    let mut actor = spawner.start_actor(&[file(), file()], None).unwrap();
    assert!(works(&mut actor, &target.held));
    let pid = actor.pid();
    let [null, other, channel] = <[String; 3]>::try_from(files(pid)).unwrap();
    assert_eq!([null, other], ["/dev/null", "/dev/null"]);
    assert!(channel.starts_with("socket:"));
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), std::path::Path::new("/"));
    assert_eq!(environment_bytes(pid), 0);
    for (name, value) in [
        ("Name", "uvmd-actor"),
        ("PPid", &spawner_pid.to_string()),
        ("Threads", "1"),
        ("NoNewPrivs", "1"),
        // A filter.
        ("Seccomp", "2"),
        ("CapInh", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("SigBlk", "0000000000000000"),
    ] {
        assert_eq!(status(pid, name), value, "{name}");
    }
    if geteuid().is_root() {
        // Unique: a process with the same id may stop, kill and limit it.
        let own = ["4000000019"; 4].join(" ");
        for (name, value) in [("Uid", own.as_str()), ("Gid", &own), ("Groups", "")] {
            assert_eq!(status(pid, name), value, "{name}");
        }
    }
    // In uvmd's cgroup it must not be the first OOM victim: the whole cgroup may be killed with it.
    assert_eq!(
        [pid, spawner_pid].map(oom_score_adj),
        [oom_score_adj(id()); 2],
        "as this process's own, which is not 1000"
    );
    assert_ne!(oom_score_adj(id()), 1000);
    drop(actor);
    drop(secret);
}

#[test]
fn spawner_has_its_socket_and_the_privileges_to_start_actors() {
    let spawner = spawner();
    let pid = spawner.pid();
    let [socket] = <[String; 1]>::try_from(files(pid)).unwrap();
    assert!(socket.starts_with("socket:"));
    assert_eq!(environment_bytes(pid), 0);
    let bits = |name| u64::from_str_radix(&status(pid, name), 16).unwrap();
    // DAC_OVERRIDE, KILL, SETGID, SETUID.
    let permitted = 1 << 1 | 1 << 5 | 1 << 6 | 1 << 7;
    assert_eq!((bits("CapPrm") & !permitted, bits("CapAmb"), bits("SigBlk")), (0, 0, 0));
    assert_eq!((status(pid, "Threads"), status(pid, "NoNewPrivs")), ("1".to_owned(), "1".to_owned()));
    // The values are those of another process than this one.
    assert_ne!(pid, id());
}

#[test]
fn termination_signals_end_an_actor_and_no_spawner() {
    let target = Target::start();
    let mut spawner = spawner();
    let spawner_pid = spawner.pid();
    let mut actor = spawner.start_actor(&[file()], None).unwrap();
    assert!(works(&mut actor, &target.held));
    for request in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal(spawner_pid, request);
    }
    assert!(works(&mut actor, &target.held));
    signal(actor.pid(), Signal::TERM);
    assert!(matches!(reply(&mut actor, &target.held), Err(ActorError::Ended(_))));
    assert_eq!(spawner.end(actor).unwrap(), Ending::Killed(15));
    assert!(works(&mut spawner.start_actor(&[file()], None).unwrap(), &target.held));
}

#[test]
fn an_actor_starts_without_this_processs_signal_mask_and_threads() {
    // The target is started from a thread that is not the first, with others running.
    let target = Target::start();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut spawner = spawner();
            assert!(works(&mut spawner.start_actor(&[file()], None).unwrap(), &target.held));
        });
    });
}

#[test]
fn spawner_cannot_be_started_by_hand() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_uvmd"))
        .arg(SPAWNER_ARGUMENT)
        .stdin(File::open("/dev/null").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message, "--actor-spawner is for uvmd itself, which starts it with a socket\n");
}

#[test]
fn call_on_an_unknown_va_space_is_rejected() {
    let target = Target::start();
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], None).unwrap();
    actor.ask(&target.held, 1, call()).unwrap();
    let message = reply(&mut actor, &target.held).unwrap().result.unwrap_err().to_string();
    assert_eq!(message, "UVM_MIGRATE failed: Bad file descriptor (os error 9)");
    let none: [File; 0] = [];
    drop(actor);
    assert!(spawner.start_actor(&none, None).is_err());
    let too_many: Vec<_> = (0..9).map(|_| file()).collect();
    assert!(spawner.start_actor(&too_many, None).is_err());
    assert!(works(&mut spawner.start_actor(&[file()], None).unwrap(), &target.held));
}

#[test]
fn descriptors_stay_open_in_the_actor_only() {
    let given = tempfile::NamedTempFile::new().unwrap();
    let is_open = |pid: u32| files(pid).iter().filter(|name| **name == given.path().display().to_string()).count();
    let mut spawner = spawner();
    let spawner_pid = spawner.pid();
    let before = is_open(id());
    let file = File::open(given.path()).unwrap();
    assert!(file.as_raw_fd() > 2);
    let actor = spawner.start_actor(&[&file], None).unwrap();
    drop(file);
    assert_eq!((is_open(id()), is_open(spawner_pid), is_open(actor.pid())), (before, 0, 1));
}

#[test]
fn hung_actor_does_not_affect_the_next() {
    let target = Target::start();
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], None).unwrap();
    assert!(works(&mut actor, &target.held));
    let pid = actor.pid();
    stop(pid);
    actor.ask(&target.held, 0, call()).unwrap();
    assert!(actor.reply(&target.held, SHORT).unwrap().is_none());
    assert_eq!(spawner.end(actor).unwrap(), Ending::Killed(9));
    until("it is not gone", || state(pid).is_none());
    assert!(works(&mut spawner.start_actor(&[file()], None).unwrap(), &target.held));
}
