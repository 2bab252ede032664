//! Lower bound of the bytes over the link for an iteration of a program, by a log of the lab's CUDA
//! driver with accesses: `bound LOG GPU_MIB OPERATIONS ITERATIONS`, where the last so many iterations
//! have so many launches, copies and fills each. Prints a line of JSON: the bound of the whole log
//! less that of what was before them, for an iteration: in pages, and in blocks of 2 MiB; in blocks,
//! where the operands of a launch are on the GPU together; and so for policies that move whole blocks.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::env;

use planner::Part;
use sim::traffic::{Accesses, Copies, Operands, Traffic, least};
use trace_sources::import::lab::{self, PAGE_BYTES};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [log, gpu_mib, operations, iterations] = &arguments[..] else {
        return Err("usage: bound LOG GPU_MIB OPERATIONS ITERATIONS".into());
    };
    let log = lab::load(log.as_ref())?;
    let (room, iterations) = ((gpu_mib.parse::<u64>()? << 20) / PAGE_BYTES, iterations.parse::<usize>()?);
    let last = operations.parse::<usize>()? * iterations;
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
    let figures =
        bounds.map(|(name, (to_gpu, from_gpu))| format!(r#""to_gpu{name}": {to_gpu}, "from_gpu{name}": {from_gpu}"#));
    println!("{{{}}}", figures.join(", "));
    Ok(())
}
