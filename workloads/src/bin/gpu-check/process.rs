//! `gpu-check process`: what can be done to one running process, by hand.

use std::{thread, time::Duration};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use sys::uvm::{Uuid, counters::Counted};
use workloads::phase::Processor;

use crate::outside::{self, Outside};

#[derive(Args)]
pub(crate) struct Options {
    /// The process
    pid: u32,
    /// Move all of its managed memory there
    #[arg(long, value_name = "WHERE")]
    migrate_to: Option<Destination>,
    /// The GPU, as nvidia-smi -L names it
    #[arg(long, value_name = "GPU-UUID")]
    gpu_uuid: Option<Uuid>,
    /// How long to count, in milliseconds
    #[arg(long, default_value_t = 0)]
    watch_ms: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Destination {
    Cpu,
    Gpu,
}

/// What is told, as JSON.
#[derive(Serialize)]
struct Told {
    pid: u32,
    managed_bytes: u64,
    moved_to: Option<Processor>,
    moved_bytes: u64,
    /// From the attachment on, what was moved included.
    counted: Counted,
    /// The process ended meanwhile: the figures are what was counted until then.
    has_exited: bool,
}

/// Attach, move, watch, tell.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { pid, migrate_to, gpu_uuid, watch_ms } = *options;
    let outside = Outside::attach(pid)?;
    let ranges = outside::managed_ranges(pid)?;
    ensure!(migrate_to.is_none() || !ranges.is_empty(), "process {pid} has no managed memory");
    let mut moved_bytes = 0;
    if let Some(destination) = migrate_to {
        let to = match destination {
            Destination::Cpu => Uuid::CPU,
            Destination::Gpu => gpu_uuid.context("--migrate-to gpu needs --gpu-uuid")?,
        };
        for &(base, length) in &ranges {
            outside.migrate(base, length, to)?;
            moved_bytes += length;
        }
    }
    let has_exited = outside.wait_for_exit(Duration::from_millis(watch_ms))?;
    // Counted when a copy is ordered; the driver orders some a little later.
    thread::sleep(Duration::from_millis(50));
    let counted = outside.counted().context("nothing counts")?;
    let moved_to = migrate_to.map(|to| if to == Destination::Cpu { Processor::Cpu } else { Processor::Gpu });
    let managed_bytes = ranges.iter().map(|(_, length)| length).sum();
    println!(
        "{}",
        serde_json::to_string_pretty(&Told { pid, managed_bytes, moved_to, moved_bytes, counted, has_exited })?
    );
    Ok(())
}
