//! uvmd as a service: one life after the other.

use std::{
    fs::{self, OpenOptions},
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use crate::uvmd::Client;

/// Where it listens.
pub(crate) const URL: &str = "http://127.0.0.1:9477";
/// Where the guest's first process looks for it.
const LOG: &str = "/run/uvmd.log";
/// Asked to end, it does; killed, its probes go with it.
const END: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// A running uvmd.
pub(crate) struct Service {
    options: Vec<String>,
    child: Child,
    /// Counts its lives from 1.
    pub(crate) life: u64,
}

impl Service {
    /// Start it, and wait until it counts.
    pub(crate) fn start(options: &[String]) -> anyhow::Result<Self> {
        Ok(Self { options: options.to_vec(), child: spawn(options)?, life: 1 })
    }

    /// Kill it (-9), and see that the kernel keeps nothing of it.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot wait for uvmd")? {
            bail!("uvmd had ended by itself with {status}");
        }
        self.child.kill().context("cannot kill uvmd")?;
        self.child.wait().context("cannot wait for uvmd")?;
        without_kprobes()
    }

    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.child = spawn(&self.options)?;
        self.life += 1;
        Ok(())
    }

    /// Resident memory.
    pub(crate) fn rss_kib(&self) -> anyhow::Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).context("uvmd is gone")?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("uvmd has no memory any more")?;
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{path} says {line:?}"))
    }

    /// Ask it to end, and see that it does well.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id();
        let asked = Command::new("kill").args(["-TERM", &pid.to_string()]).status().context("cannot run kill")?;
        if !asked.success() {
            bail!("uvmd was gone before it was asked to end");
        }
        let deadline = Instant::now() + END;
        let status = loop {
            match self.child.try_wait().context("cannot wait for uvmd")? {
                Some(status) => break status,
                None if Instant::now() > deadline => bail!("uvmd does not end"),
                None => thread::sleep(POLL),
            }
        };
        if !status.success() {
            bail!("uvmd ended with {status}");
        }
        without_kprobes()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // After an error. One that has ended cannot be killed, and that is no loss.
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
        // After an error: one that hangs would keep its probes. One that has ended cannot be killed.
        let _ = child.kill();
        let _ = child.wait();
        return Err(match ended {
            Some(status) => error.context(format!("uvmd ended with {status}: {}", last_line())),
            None => error,
        });
    }
    Ok(child)
}

/// Of uvmd's log.
fn last_line() -> String {
    let log = fs::read_to_string(LOG).unwrap_or_default();
    log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}

/// The kernel has no probe of anybody's.
fn no_kprobes() -> anyhow::Result<()> {
    let path = Path::new("/sys/kernel/debug/kprobes/list");
    let list = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match list.lines().count() {
        0 => Ok(()),
        count => bail!("{count} kprobes are left"),
    }
}

/// The kernel takes the probes of a dead process away in its own time.
fn without_kprobes() -> anyhow::Result<()> {
    let deadline = Instant::now() + END;
    loop {
        match no_kprobes() {
            Err(_) if Instant::now() < deadline => thread::sleep(POLL),
            result => return result,
        }
    }
}
