//! Starts daemons and never leaves one behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

pub(crate) const UVMD: &str = env!("CARGO_BIN_EXE_uvmd");

/// One that serves. It is killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) address: String,
}

impl Daemon {
    /// Starts one on a port of its own, and waits until it serves.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(UVMD);
        command.args(["--listen", "127.0.0.1:0"]).env("NO_COLOR", "1");
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut log = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended before it served:\n{log}");
            log += &line;
            if let Some((_, address)) = line.trim_end().split_once("serves on http://") {
                break address.to_owned();
            }
        };
        Self { child, stderr, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Status and body of an answer.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(10)))
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

    /// Waits for its end and returns how it ended, after how long, and the rest of its log.
    pub(crate) fn wait(mut self) -> (ExitStatus, Duration, String) {
        let start = Instant::now();
        let status = wait(&mut self.child);
        let took = start.elapsed();
        let mut log = String::new();
        self.stderr.read_to_string(&mut log).unwrap();
        (status, took, log)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it did not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs one that should end by itself.
pub(crate) fn run(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("it did not end by itself: {:?}", child.wait_with_output());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// Whether this test may load probes. Says so if not: the daemon refuses to start, which has a test of its own.
pub(crate) fn privileged() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let privileged = u64::from_str_radix(effective.trim(), 16).unwrap() & CAP_SYS_ADMIN != 0;
    if !privileged {
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
