//! Lower bound of the bytes over the link for an iteration of a program. It is the bound of the
//! whole log less that of what precedes the last iterations, per iteration: in pages; in blocks of
//! 2 MiB; in blocks, with the operands of a launch on the GPU together; and the same for policies
//! that move whole blocks.

use std::{num::NonZeroUsize, path::PathBuf};

use planner::Part;
use sim::traffic::{Accesses, Copies, Operands, Traffic, least};
use trace_sources::import::lab::{self, PAGE_BYTES};

use crate::Result;

/// Log of the lab's CUDA with accesses, and its last iterations.
#[derive(clap::Args)]
pub(crate) struct Bound {
    log: PathBuf,
    /// GPU memory
    gpu_mib: u64,
    /// Launches, copies and fills of an iteration
    operations: usize,
    /// Iterations at the end of the log
    iterations: NonZeroUsize,
}

impl Bound {
    pub(crate) fn print(&self) -> Result {
        let log = lab::load(&self.log)?;
        let room = (self.gpu_mib << 20) / PAGE_BYTES;
        let iterations = self.iterations.get();
        let last = self.operations * iterations;
        let of = |all: Accesses, room: u64, operands: Operands| {
            let mut before = all.clone();
            before.ops.truncate(all.ops.len().saturating_sub(last));
            let (all, before) = ([&all, &before]).map(|accesses| least(accesses, room, Copies::All, operands)).into();
            let each = |of: fn(Traffic) -> u64| (of(all) - of(before)) * PAGE_BYTES / iterations as u64;
            (each(|traffic| traffic.to_gpu), each(|traffic| traffic.from_gpu))
        };
        let bounds = [
            ("", of(Accesses::of_log(&log, PAGE_BYTES), room, Operands::Streamed)),
            ("_in_blocks", of(Accesses::of_log(&log, Part::BLOCK_BYTES), room, Operands::Streamed)),
            ("_in_blocks_together", of(Accesses::of_log(&log, Part::BLOCK_BYTES), room, Operands::Together)),
            ("_of_whole_blocks", of(Accesses::of_whole_blocks(&log), room, Operands::Together)),
        ];
        let figures = bounds
            .map(|(name, (to_gpu, from_gpu))| format!(r#""to_gpu{name}": {to_gpu}, "from_gpu{name}": {from_gpu}"#));
        println!("{{{}}}", figures.join(", "));
        Ok(())
    }
}
