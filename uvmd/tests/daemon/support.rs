//! Start of daemons, none of which outlives its test.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) const UVMD: &str = env!("CARGO_BIN_EXE_uvmd");

/// Line of the journal: a page of advice on a process.
pub(crate) fn advice_line(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start_ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().to_owned();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let gpu = "GPU-01010101-0101-0101-0101-010101010101";
    let text = format!(
        "{{\"version\":1,\"boot\":\"{}\",\"pid\":{pid},\"start_ticks\":{start_ticks},\"gpu\":\"{gpu}\",\"begin\":4096,\"end\":8192,\"advice\":\"preferred_location\"",
        boot.trim()
    );
    format!("{text},\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(text.as_bytes()))
}

/// Folder with all files of one daemon. Removed on drop.
pub(crate) struct Node(TempDir);

impl Node {
    /// Folder in memory, if possible: uvmd waits a second for a disk, which other processes may
    /// keep busy for longer.
    pub(crate) fn new() -> Self {
        Self(TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/uvmd.sock")
    }

    /// uvmd with this configuration, without a socket and without files of the machine.
    pub(crate) fn configured(&self, config: &Path) -> Command {
        let mut command = Command::new(UVMD);
        command.arg("--config").arg(config).args(["--set", "socket.enabled=false"]).env("NO_COLOR", "1");
        for (option, path) in [
            ("socket.path", self.socket()),
            ("policy.overrides_file", self.path("overrides.toml")),
            ("policy.state_dir", self.path("state")),
            ("policy.kill_switch", self.path("policy.off")),
        ] {
            command.args(["--set", &format!("{option}={}", path.display())]);
        }
        command
    }

    /// uvmd with the default configuration.
    pub(crate) fn command(&self) -> Command {
        self.configured("/dev/null".as_ref())
    }

    /// uvmd on this address.
    pub(crate) fn listening_on(&self, listen: &str) -> Command {
        let mut command = self.command();
        command.args(["--listen", listen]);
        command
    }

    /// uvmd on this address and the socket.
    pub(crate) fn with_socket(&self, listen: &str) -> Command {
        let mut command = self.listening_on(listen);
        command.args(["--set", "socket.enabled=true"]);
        command
    }

    /// File that only its owner can read.
    pub(crate) fn write_token(&self, name: &str, token: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, format!("{token}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// Status and body of a response on the socket, if this process is root.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let Answer { status, body } = http(UnixStream::connect(self.socket()).unwrap(), method, path, "", body);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// Body of a response on the socket.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path, "").1
    }
}

/// Response to a request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Sends one request with these further header lines, and reads the response up to the end of the
/// connection.
pub(crate) fn http(mut stream: impl Read + Write, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let length = body.len();
    // Responses in version 1.0 are not chunked.
    let head =
        format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}{kind}Content-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).unwrap();
    let answer = io::read_to_string(stream).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), body: body.to_owned() }
}

/// Waits until a condition holds, for longer than any operation takes on a busy machine.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Time limit of operations that take a moment on an idle machine.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

/// Serving daemon, killed on drop.
pub(crate) struct Daemon {
    child: Child,
    /// `None` if the test redirected it.
    stderr: Option<BufReader<ChildStderr>>,
    pub(crate) address: String,
    /// `None` if the test owns it.
    node: Option<Node>,
}

impl Daemon {
    /// Starts a daemon with a separate node and port, and waits until it serves.
    pub(crate) fn start() -> Self {
        let node = Node::new();
        let mut daemon = Self::spawn(node.listening_on("127.0.0.1:0"));
        daemon.node = Some(node);
        daemon
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        Self::of(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Daemon of a started process, which logs when it serves.
    pub(crate) fn of(mut child: Child) -> Self {
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let line = read_until(&mut stderr, "serves on http://");
        let (_, address) = line.trim_end().split_once("serves on http://").unwrap();
        // In JSON a quote follows.
        let address = address.split('"').next().unwrap().to_owned();
        Self { child, stderr: Some(stderr), address, node: None }
    }

    /// Starts a daemon on a socket, without waiting for TCP.
    pub(crate) fn spawn_on_socket(mut command: Command, socket: &Path) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        read_until(&mut stderr, &format!("serves on {}", socket.display()));
        Self { child, stderr: Some(stderr), address: String::new(), node: None }
    }

    /// Starts a daemon without messages on standard error, on this address.
    pub(crate) fn spawn_silent(mut command: Command, address: &str) -> Self {
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < TIMEOUT, "it does not serve");
            assert!(child.try_wait().unwrap().is_none(), "it ended before it served");
            thread::sleep(Duration::from_millis(10));
        }
        let stderr = child.stderr.take().map(BufReader::new);
        Self { child, stderr, address: address.to_owned(), node: None }
    }

    /// Waits until it logs this text, and returns the line.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        read_until(self.stderr.as_mut().unwrap(), text)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connection over TCP.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Status and body of a response over TCP.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let Answer { status, body } = http(self.connect(), "GET", path, "", "");
        (status, body)
    }

    /// Metrics, without `hostname`.
    pub(crate) fn metrics(&self) -> String {
        nodes::exposition::without_hostname(&self.get("/metrics").1)
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).1).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its exit, and returns its status and the rest of its log.
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
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copy of the program that every user may run, wherever the build is. Removed on drop.
pub(crate) struct PublicCopy(TempDir);

impl PublicCopy {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Not by this process: a file that it wrote is "busy" as long as a child of another test
        // inherits it.
        assert!(Command::new("cp").arg(UVMD).arg(folder.path()).status().unwrap().success());
        Self(folder)
    }

    /// Runs it as user nobody with these capabilities, in the syntax of setpriv(1).
    pub(crate) fn as_nobody(&self, capabilities: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.args([format!("--inh-caps={capabilities}"), format!("--ambient-caps={capabilities}")]);
        command.arg(self.0.path().join("uvmd")).args(["--config", "/dev/null", "--listen", "127.0.0.1:0"]);
        // A folder in which nothing can be created: nothing is persistent.
        command.args(["--set", "socket.enabled=false", "--set", "policy.state_dir=/proc/uvmd"]);
        command.env("NO_COLOR", "1");
        command
    }
}

/// First line with this text.
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
        assert!(start.elapsed() < TIMEOUT, "it did not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program that should exit by itself.
pub(crate) fn run(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("it did not end by itself: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Variable set to 1 if tests must not be skipped for lack of root.
const REQUIRE_ROOT: &str = "UVMD_TEST_REQUIRE_ROOT";

/// Whether this test may load probes; prints a message if not. The daemon fails to start then,
/// which has a separate test.
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
