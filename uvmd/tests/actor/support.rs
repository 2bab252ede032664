//! Real spawners, actors, targets and cgroups.

use std::{
    env,
    fs::{self, File},
    io,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sys::{
    actor::{Actor, ActorError, Reply, Spawner},
    executable::Program,
    pidfd::PidFd,
    uvm::{Uuid, call::Call, pages::PageRange},
};

/// Time after which an operation has failed, even on a busy machine.
const LONG: Duration = Duration::from_mins(2);
/// Wait for an event that must not occur.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

pub(crate) fn spawner() -> Spawner {
    Spawner::start(&Program::at(env!("CARGO_BIN_EXE_uvmd"))).unwrap()
}

/// File on which every call fails with ENOTTY.
pub(crate) fn file() -> File {
    File::open("/dev/null").unwrap()
}

pub(crate) fn call() -> Call {
    Call::Migrate(PageRange::new(0, 2 << 20).unwrap(), Uuid::CPU)
}

/// Reply to a call that was sent.
pub(crate) fn reply(actor: &mut Actor, target: &PidFd) -> Result<Reply, ActorError> {
    actor.reply(target, LONG).map(|reply| reply.expect("a reply"))
}

/// Whether the actor makes calls.
pub(crate) fn works(actor: &mut Actor, target: &PidFd) -> bool {
    actor.ask(target, 0, call()).unwrap();
    let result = reply(actor, target).unwrap().result;
    result.unwrap_err().to_string().starts_with("UVM_MIGRATE failed: Inappropriate ioctl")
}

/// Target process, killed on drop.
pub(crate) struct Target {
    pub(crate) process: Child,
    pub(crate) held: PidFd,
}

impl Target {
    pub(crate) fn start() -> Self {
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        let held = PidFd::open(process.id()).unwrap();
        Self { process, held }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

pub(crate) fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    until("it does not stop", || state(pid) == Some('T'));
}

/// State as in ps; `None` for a process that does not exist.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether it has exited, apart from a status that its parent has not read.
pub(crate) fn has_ended(pid: u32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Line of /proc/PID/status.
pub(crate) fn status(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// OOM score adjustment of a process.
pub(crate) fn oom_score_adj(pid: u32) -> i32 {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
}

/// Cgroup of version 2; its remaining processes are killed on drop.
pub(crate) struct Cgroup(pub(crate) PathBuf);

impl Cgroup {
    /// Creates a cgroup. `None`, with a message, if this machine has none or does not permit it.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount =
            mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|fields| fields[2] == "cgroup2");
        let folder =
            mount.map(|fields| PathBuf::from(fields[1]).join(format!("uvmd-test-{}-{name}", std::process::id())));
        let made = folder.ok_or_else(|| io::Error::other("it is not mounted")).and_then(|folder| {
            fs::create_dir(&folder)?;
            Ok(Self(folder))
        });
        match made {
            Ok(cgroup) => Some(cgroup),
            Err(error) => {
                assert!(
                    mounts.lines().all(|line| !line.contains(" cgroup2 rw"))
                        || env::var("UVMD_TEST_REQUIRE_ROOT").as_deref() != Ok("1"),
                    "UVMD_TEST_REQUIRE_ROOT is set, and no cgroup can be made: {error}"
                );
                println!("skipped: no cgroup of version 2 can be made: {error}");
                None
            }
        }
    }

    pub(crate) fn open(&self) -> File {
        File::open(&self.0).unwrap()
    }

    pub(crate) fn take(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join("cgroup.procs")).unwrap();
        text.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Whether its cgroup.events contains this line.
    pub(crate) fn is(&self, event: &str) -> bool {
        fs::read_to_string(self.0.join("cgroup.events")).unwrap().lines().any(|line| line == event)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.freeze"), "0");
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let deadline = Instant::now() + LONG;
        while fs::remove_dir(&self.0).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
