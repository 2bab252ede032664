//! `gpu-check process`: actions on one running process, by hand.

use std::{thread, time::Duration};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use sys::uvm::{Uuid, counters::Counted};
use workloads::phase::Processor;

use crate::remote::{self, RemoteProcess};

#[derive(Args)]
pub(crate) struct Options {
    /// Process id
    pid: u32,
    /// Migrate all of its managed memory there
    #[arg(long, value_name = "WHERE")]
    migrate_to: Option<Destination>,
    /// UUID of the GPU, as shown by nvidia-smi -L
    #[arg(long, value_name = "GPU-UUID")]
    gpu_uuid: Option<Uuid>,
    /// Time to count, in milliseconds
    #[arg(long, default_value_t = 0)]
    watch_ms: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Destination {
    Cpu,
    Gpu,
}

/// Printed report, as JSON.
#[derive(Serialize)]
struct ProcessReport {
    pid: u32,
    managed_bytes: u64,
    moved_to: Option<Processor>,
    moved_bytes: u64,
    /// Counts since the attachment, including the migration.
    counted: Counted,
    /// Whether the process exited meanwhile: counts end at its exit.
    has_exited: bool,
}

/// Attaches, migrates, counts and prints.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { pid, migrate_to, gpu_uuid, watch_ms } = *options;
    let process = RemoteProcess::attach(pid)?;
    let ranges = remote::managed_ranges(pid)?;
    ensure!(migrate_to.is_none() || !ranges.is_empty(), "process {pid} has no managed memory");
    let mut moved_bytes = 0;
    if let Some(destination) = migrate_to {
        let to = match destination {
            Destination::Cpu => Uuid::CPU,
            Destination::Gpu => gpu_uuid.context("--migrate-to gpu needs --gpu-uuid")?,
        };
        for &(base, length) in &ranges {
            process.migrate(base, length, to)?;
            moved_bytes += length;
        }
    }
    let has_exited = process.wait_for_exit(Duration::from_millis(watch_ms))?;
    // Copies count when they are ordered; the driver orders some a little later.
    thread::sleep(Duration::from_millis(50));
    let counted = process.counted().context("nothing counts")?;
    let moved_to = migrate_to.map(|to| if to == Destination::Cpu { Processor::Cpu } else { Processor::Gpu });
    let managed_bytes = ranges.iter().map(|(_, length)| length).sum();
    println!(
        "{}",
        serde_json::to_string_pretty(&ProcessReport {
            pid,
            managed_bytes,
            moved_to,
            moved_bytes,
            counted,
            has_exited
        })?
    );
    Ok(())
}
