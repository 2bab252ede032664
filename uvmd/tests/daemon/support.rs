//! Starts daemons and never leaves one behind.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::{self, Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const UVMD: &str = env!("CARGO_BIN_EXE_uvmd");

/// The daemon, with a state of its own, and not the configuration that this machine may have, nor the socket that all share.
pub(crate) fn uvmd() -> Command {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let state = format!("{}/state-{}/{number}", env!("CARGO_TARGET_TMPDIR"), process::id());
    let mut command = Command::new(UVMD);
    command.args(["--config", "/dev/null", "--set", "socket.enabled=false"]).env("NO_COLOR", "1");
    command.args(["--set", &format!("policy.state_dir={state}")]);
    command
}

/// Status and body of an answer on a socket, where this process is root.
pub(crate) fn ask(socket: &Path, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{kind}");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

/// Waits, for longer than anything takes on a busy machine, until this is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// For what takes a moment where nothing else runs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// One that serves. It is killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    /// `None` where the test gave it another.
    stderr: Option<BufReader<ChildStderr>>,
    pub(crate) address: String,
}

impl Daemon {
    /// Starts one on a port of its own, and waits until it serves.
    pub(crate) fn start() -> Self {
        let mut command = uvmd();
        command.args(["--listen", "127.0.0.1:0"]);
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        Self::of(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// One that was started, and tells when it serves.
    pub(crate) fn of(mut child: Child) -> Self {
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let line = read_until(&mut stderr, "serves on http://");
        let (_, address) = line.trim_end().split_once("serves on http://").unwrap();
        // In JSON a quote follows.
        let address = address.split('"').next().unwrap().to_owned();
        Self { child, stderr: Some(stderr), address }
    }

    /// One that serves on a socket; that it also does so over TCP is not waited for.
    pub(crate) fn spawn_on_socket(mut command: Command, socket: &Path) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        read_until(&mut stderr, &format!("serves on {}", socket.display()));
        Self { child, stderr: Some(stderr), address: String::new() }
    }

    /// One that does not tell on standard error when it serves, on this address.
    pub(crate) fn spawn_silent(mut command: Command, address: &str) -> Self {
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < PATIENCE, "it does not serve");
            assert!(child.try_wait().unwrap().is_none(), "it ended before it served");
            thread::sleep(Duration::from_millis(10));
        }
        let stderr = child.stderr.take().map(BufReader::new);
        Self { child, stderr, address: address.to_owned() }
    }

    /// Waits until it logs this, and returns the line.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        read_until(self.stderr.as_mut().unwrap(), text)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Status and body of an answer.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let agent: ureq::Agent = config.into();
        let mut response = agent.get(format!("http://{}{path}", self.address)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its end and returns how it ended, and the rest of its log.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let mut log = String::new();
        if let Some(stderr) = &mut self.stderr {
            stderr.read_to_string(&mut log).unwrap();
        }
        (status, log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A copy of the program that everyone may run, wherever the build lies. It is removed when dropped.
pub(crate) struct PublicCopy(TempDir);

impl PublicCopy {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(UVMD, folder.path().join("uvmd")).unwrap();
        Self(folder)
    }

    /// Runs it as nobody with these capabilities, written as setpriv(1) does.
    pub(crate) fn as_nobody(&self, capabilities: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")]);
        command.arg(self.0.path().join("uvmd")).args(["--config", "/dev/null", "--listen", "127.0.0.1:0"]);
        // A folder in which nobody may make any: nothing is kept.
        command.args(["--set", "socket.enabled=false", "--set", "policy.state_dir=/proc/uvmd"]);
        command.env("NO_COLOR", "1");
        command
    }
}

/// The first line that has this text.
fn read_until(stderr: &mut impl BufRead, text: &str) -> String {
    let mut log = String::new();
    loop {
        let mut line = String::new();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended without {text:?}:\n{log}");
        if line.contains(text) {
            return line;
        }
        log += &line;
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "it did not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs one that should end by itself.
pub(crate) fn run(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it did not end by itself: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Set to 1 where tests must not be skipped for want of root: by who runs them all.
const REQUIRE_ROOT: &str = "UVMD_TEST_REQUIRE_ROOT";

/// Whether this test may load probes. Says so if not: the daemon refuses to start, which has a test of its own.
pub(crate) fn privileged() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let privileged = u64::from_str_radix(effective.trim(), 16).unwrap() & CAP_SYS_ADMIN != 0;
    if !privileged {
        assert!(env::var(REQUIRE_ROOT).as_deref() != Ok("1"), "{REQUIRE_ROOT} is set and this is not root");
        println!("skipped: needs root");
    }
    privileged
}

pub(crate) fn has_driver() -> bool {
    Path::new("/sys/module/nvidia_uvm").exists()
}

pub(crate) fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe").exists()
}
