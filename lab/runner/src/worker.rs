//! Worker: one process of a scenario, started by the runner. It executes the commands on its
//! standard input.
//!
//! * [`tenant`]: its memory and its GPUs at the driver

mod tenant;

use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::{Context, bail};

use self::tenant::Tenant;
use crate::{
    protocol::{Command, Findings, Reply},
    scenario::{
        Process, parse,
        steps::{Flow, run_list},
    },
    sys::{memory::SharedPages, process},
    work::{Memory, Work},
};

/// Runs a worker until it has finished. Reports a failure to the runner.
pub(crate) fn main() -> anyhow::Result<()> {
    process::die_with_parent()?;
    let stop = Arc::new(AtomicBool::new(false));
    let commands = commands(Arc::clone(&stop));
    let result = work(&commands, &stop);
    if let Err(error) = &result {
        reply(&Reply::Failed { reason: format!("{error:#}") })?;
    }
    result
}

/// Receives commands; [`Command::Stop`] takes effect at once.
fn commands(stop: Arc<AtomicBool>) -> mpsc::Receiver<Command> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let command = line.map_err(anyhow::Error::from).and_then(|line| Ok(serde_json::from_str(&line)?));
            match command {
                Ok(Command::Stop) => stop.store(true, Ordering::Relaxed),
                Ok(command) => {
                    if sender.send(command).is_err() {
                        break;
                    }
                }
                // The runner has exited or sent an invalid command: dropping the sender ends the
                // worker.
                Err(_) => break,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    receiver
}

fn reply(reply: &Reply) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).context("the runner has exited")
}

/// Runs all steps, after the process's delay.
fn run_steps(process: &Process, work: &Work<'_>) -> anyhow::Result<Flow> {
    thread::sleep(process.delay);
    run_list(&process.steps, work)
}

fn work(commands: &mpsc::Receiver<Command>, stop: &AtomicBool) -> anyhow::Result<()> {
    let Ok(Command::Assign { scenario, variation, process: at, counters }) = commands.recv() else {
        bail!("received no assignment")
    };
    let mut scenario = parse::parse_varied("the scenario", &scenario, variation)?;
    let number = at as u64 + 1;
    let process =
        if at < scenario.processes.len() { scenario.processes.swap_remove(at) } else { bail!("no process {number}") };
    process::set_name(&process.name)?;
    let pages = SharedPages::create()?;
    let tenant = Tenant::new(&process, counters.then_some(&pages))?;
    let memory = Memory::new(&process, number, pages.tally(), stop)?;
    let work = Work::new(&tenant, &memory);
    let findings =
        || Ok::<_, anyhow::Error>(Findings { first_mismatch: memory.first_mismatch(), accesses: tenant.accesses()? });
    reply(&Reply::Ready { pages_fd: pages.fd(), tracker_fds: tenant.tracker_fds() })?;
    while let Ok(command) = commands.recv() {
        match command {
            Command::Go => match run_steps(&process, &work)? {
                Flow::Done => reply(&Reply::Done)?,
                Flow::Stopped => {
                    // A next `Go` may follow.
                    stop.store(false, Ordering::Relaxed);
                    reply(&Reply::Done)?;
                }
                // Exits with memory mapped and GPUs registered. Verification comes first, and is
                // part of the counts: after it all pages are in host memory, so that no memory of
                // this process can be evicted any more.
                Flow::Exit { code } => {
                    work.verify_everything()?;
                    reply(&Reply::Exiting { findings: findings()?, code })?;
                    std::process::exit(code.into())
                }
            },
            Command::Figures { residency } => {
                let residency = residency.then(|| tenant.residency(&process)).transpose()?;
                reply(&Reply::Figures { findings: findings()?, residency })?;
            }
            Command::Advice => reply(&Reply::Advice { advised: tenant.advised(&process)? })?,
            Command::Finish => {
                work.verify_everything()?;
                return reply(&Reply::Verified { findings: findings()? });
            }
            Command::Assign { .. } | Command::Stop => bail!("an unexpected command"),
        }
    }
    bail!("the runner has exited")
}
