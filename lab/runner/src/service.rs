//! uvmd as a service that is started, killed and restarted.

use std::{
    fs::{self, OpenOptions},
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::uvmd::Client;

/// Address of uvmd.
pub(crate) const URL: &str = "http://127.0.0.1:9477";
/// Log of uvmd, which the guest's first process reads.
const LOG: &str = "/run/uvmd.log";
/// Time limit of uvmd's exit after SIGTERM, and of the removal of its probes after a kill.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Running uvmd.
pub(crate) struct Service {
    options: Vec<String>,
    child: Child,
    /// Number of this execution, from 1.
    pub(crate) life: u64,
}

impl Service {
    /// Starts uvmd, and waits until it counts.
    pub(crate) fn start(options: &[String]) -> anyhow::Result<Self> {
        Ok(Self { options: options.to_vec(), child: spawn(options)?, life: 1 })
    }

    /// Kills uvmd (-9), and checks that the kernel removes its probes.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot wait for uvmd")? {
            bail!("uvmd had ended by itself with {status}");
        }
        self.child.kill().context("cannot kill uvmd")?;
        self.child.wait().context("cannot wait for uvmd")?;
        wait_for_no_kprobes()
    }

    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.options)?;
        self.life += 1;
        Ok(())
    }

    /// Resident memory of uvmd, in KiB.
    pub(crate) fn rss_kib(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).context("uvmd is gone")?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("uvmd has no memory any more")?;
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{path} says {line:?}"))
    }

    /// Sends SIGTERM, and checks that uvmd exits with success.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id();
        let sent = Command::new("kill").args(["-TERM", &pid.to_string()]).status().context("cannot run kill")?;
        if !sent.success() {
            bail!("uvmd was gone before it was asked to end");
        }
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let status = loop {
            match self.child.try_wait().context("cannot wait for uvmd")? {
                Some(status) => break status,
                None if Instant::now() > deadline => bail!("uvmd does not exit"),
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        if !status.success() {
            bail!("uvmd ended with {status}");
        }
        wait_for_no_kprobes()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only after an error. Killing an exited process fails, which does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(options: &[String]) -> anyhow::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(LOG).with_context(|| format!("cannot open {LOG}"))?;
    let mut command = Command::new("uvmd");
    command.args(options).stdout(log.try_clone().context("cannot duplicate a descriptor")?).stderr(log);
    let mut child = command.spawn().context("cannot start uvmd")?;
    if let Err(error) = Client::new(URL).ask_when_counting() {
        let ended = child.try_wait().context("cannot wait for uvmd")?;
        // Only after an error: a hanging uvmd would keep its probes. Killing an exited one fails,
        // which does no harm.
        let _ = child.kill();
        let _ = child.wait();
        return Err(match ended {
            Some(status) => error.context(format!("uvmd ended with {status}: {}", last_line())),
            None => error,
        });
    }
    Ok(child)
}

/// Last line of uvmd's log.
fn last_line() -> String {
    let log = fs::read_to_string(LOG).unwrap_or_default();
    log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("its log is empty").to_owned()
}

/// Checks that the kernel has no kprobe at all.
fn check_no_kprobes() -> anyhow::Result<()> {
    let path = Path::new("/sys/kernel/debug/kprobes/list");
    let list = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match list.lines().count() {
        0 => Ok(()),
        count => bail!("{count} kprobes are left"),
    }
}

/// Waits for the removal of all kprobes, which the kernel does some time after a process's death.
fn wait_for_no_kprobes() -> anyhow::Result<()> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    loop {
        match check_no_kprobes() {
            Err(_) if Instant::now() < deadline => thread::sleep(POLL_INTERVAL),
            result => return result,
        }
    }
}
