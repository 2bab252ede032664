//! Processes that write and verify by their mirrors, more than the card holds, of which some are
//! killed at any instruction.

use std::{
    io::{self, Read},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use gpu::swgpu::Gpu;

use super::{Process, fill, verify};
use crate::dice::Dice;

/// Processes at a time.
const VICTIMS: usize = 3;
/// Longest time between two kills, in milliseconds: a process is killed at its start, too.
const PAUSE_MAX_MS: u64 = 400;

/// Writes and verifies until standard input ends.
pub(super) fn victim(bytes: u64, seed: u64) -> anyhow::Result<()> {
    let process = Process::start(bytes)?;
    let mirror = &process.gpu(0)?.2;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            done.store(true, Ordering::Relaxed);
        });
        let mut round = seed;
        // Once at least.
        loop {
            fill(&mirror.words, process.words, round);
            verify(&mirror.words, process.words, round)?;
            verify(&process.managed, process.words, round)?;
            round += 1;
            if done.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    })
}

/// Starts the processes, kills one of them `count` times and replaces it; then all that live have
/// to end with their data right.
pub(super) fn kills(mib: u64, count: u32, seed: u64) -> anyhow::Result<()> {
    let mut dice = Dice::new(seed);
    let mut victims: Vec<Child> = (0..VICTIMS).map(|_| start(mib, &mut dice)).collect::<anyhow::Result<_>>()?;
    for _ in 0..count {
        thread::sleep(Duration::from_millis(dice.between(0, PAUSE_MAX_MS)));
        let at = dice.index(victims.len());
        let mut killed = victims.swap_remove(at);
        if let Some(status) = killed.try_wait()? {
            bail!("a process ended by itself: {status}");
        }
        killed.kill()?;
        killed.wait()?;
        victims.push(start(mib, &mut dice)?);
    }
    for mut victim in victims {
        drop(victim.stdin.take());
        let status = victim.wait()?;
        ensure!(status.success(), "a process failed: {status}");
    }
    let counters = Gpu::open(0)?.counters()?;
    ensure!(counters.errors == 0, "the model met {} errors", counters.errors);
    ensure!(counters.unknown_methods == 0, "the model met {} unknown methods", counters.unknown_methods);
    ensure!(counters.copied_dtoh_bytes > 0, "nothing was evicted");
    println!(
        "kills: {count}; to the GPU {} MiB, from it {} MiB",
        counters.copied_htod_bytes >> 20,
        counters.copied_dtoh_bytes >> 20
    );
    Ok(())
}

fn start(mib: u64, dice: &mut Dice) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("no path of this program")?;
    let seed = dice.between(0, u64::from(u32::MAX));
    Command::new(program)
        .args(["mirror", "--victim", "--mib", &mib.to_string(), "--seed", &seed.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start a process")
}
