//! One process of a scenario: a process of its own, started by the runner, that does what the commands on its standard input say.
//!
//! * [`steps`]: carries out the steps

mod steps;

use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};

use self::steps::{Executor, Flow, Machine};
use crate::{
    protocol::{Command, Reply},
    scenario::{Kind, Process},
    sys::{
        counters::{ProcessCounters, ToolsCounters},
        process,
        swgpu::{Gpu, GpuAccess, Space},
        uvm::{Managed, VaSpace},
    },
};

/// Where managed memory starts, in every process: far from everything else in it, so that runs can be compared address by address.
const MANAGED_BASE: u64 = 0x200_0000_0000;
/// The driver manages memory in blocks of this size; no two allocations share one.
const BLOCK_BYTES: u64 = 2 << 20;
/// Long enough for the driver's bottom half to be done with faults that were raised twice.
const QUIET: Duration = Duration::from_millis(100);

/// Be a worker until told to finish. Reports its own failure to the runner.
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

/// Commands as they come; [`Command::Stop`] takes effect at once.
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
                // A runner that is gone or talks nonsense: dropping the sender ends the worker.
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
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).context("the runner is gone")
}

fn work(commands: &mpsc::Receiver<Command>, stop: &AtomicBool) -> anyhow::Result<()> {
    let Ok(Command::Become { number, process }) = commands.recv() else { bail!("was not told what to do") };
    process::set_name(&process.name)?;
    let mut executor = Executor::new(Tenant::new(&process)?, &process, number, stop)?;
    reply(&Reply::Ready)?;
    while let Ok(command) = commands.recv() {
        match command {
            Command::Go => match executor.run(&process.steps)? {
                Flow::Done | Flow::Stopped => reply(&Reply::Done)?,
                Flow::Exit { code } => return exit(&mut executor, code),
            },
            Command::Figures => {
                let counters = executor.machine().counters.read();
                reply(&Reply::Figures { counters, checked: executor.checked().clone() })?;
            }
            Command::Finish => {
                executor.verify_everything();
                return reply(&Reply::Verified { checked: executor.checked().clone() });
            }
            Command::Become { .. } | Command::Stop => bail!("an unexpected command"),
        }
    }
    bail!("the runner is gone")
}

/// End this process in the middle of things: memory mapped, GPU registered. Verifying comes first, and is part of what is counted: after
/// it all pages are in host memory, so that nothing of this process can be evicted any more and its counters are final.
fn exit(executor: &mut Executor<'_, Tenant>, code: u8) -> anyhow::Result<()> {
    executor.verify_everything();
    let counters = settled(&executor.machine().counters);
    reply(&Reply::Exiting { counters, checked: executor.checked().clone(), code })?;
    std::process::exit(code.into())
}

/// The counters once they have not changed for a while.
fn settled(counters: &ToolsCounters) -> ProcessCounters {
    let mut last = counters.read();
    loop {
        thread::sleep(QUIET);
        let now = counters.read();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// This process, registered with the driver.
struct Tenant {
    // In the order in which they must be closed: the VA space before the GPU's channel, whose memory it uses.
    memory: Vec<(u64, Managed)>,
    _va_space: VaSpace,
    counters: ToolsCounters,
    space: Space,
}

impl Tenant {
    fn new(process: &Process) -> anyhow::Result<Self> {
        let gpu = Gpu::open()?;
        let uuid = gpu.uuid;
        let mut va_space = VaSpace::new(&uuid)?;
        // Before anything can be counted.
        let counters = ToolsCounters::attach(&va_space)?;
        let space = gpu.into_space()?;
        va_space.attach(&uuid, &space)?;
        let mut address = MANAGED_BASE;
        let mut memory = Vec::new();
        for allocation in &process.allocations {
            memory.push((address, Managed::map(&va_space, address, allocation.bytes)?));
            address += allocation.bytes.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES;
        }
        Ok(Self { memory, _va_space: va_space, counters, space })
    }
}

#[expect(clippy::indexing_slicing, reason = "a validated scenario names only allocations that it has")]
impl Machine for Tenant {
    fn address(&self, allocation: usize) -> u64 {
        self.memory[allocation].0
    }

    fn cpu_read(&self, allocation: usize, word: usize) -> u64 {
        self.memory[allocation].1.read(word)
    }

    fn cpu_write(&mut self, allocation: usize, word: usize, value: u64) {
        self.memory[allocation].1.write(word, value);
    }

    fn gpu_run(&mut self, kind: Kind, window: u32, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        self.space.run(kind, window, accesses)
    }
}
