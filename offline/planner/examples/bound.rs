//! Lower bound of the bytes over the link for an iteration of a program, by a log of the lab's CUDA
//! driver with accesses: `bound LOG GPU_MIB OPERATIONS ITERATIONS`, where the last so many iterations
//! have so many launches, copies and fills each. Prints a line of JSON: the bound of the whole log
//! less that of what was before them, for an iteration; in pages, and in blocks of 2 MiB.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::env;

use planner::traffic::{Accesses, Copies, Traffic, least};
use trace::import::lab::{self, PAGE_BYTES};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [log, gpu_mib, operations, iterations] = &arguments[..] else {
        return Err("usage: bound LOG GPU_MIB OPERATIONS ITERATIONS".into());
    };
    let log = lab::load(log.as_ref())?;
    let (room, iterations) = ((gpu_mib.parse::<u64>()? << 20) / PAGE_BYTES, iterations.parse::<usize>()?);
    let last = operations.parse::<usize>()? * iterations;
    let of = |item_bytes: u64| {
        let all = Accesses::of_log(&log, item_bytes);
        let mut before = all.clone();
        before.ops.truncate(all.ops.len().saturating_sub(last));
        let (all, before) = (least(&all, room, Copies::All), least(&before, room, Copies::All));
        let each = |of: fn(Traffic) -> u64| (of(all) - of(before)) * PAGE_BYTES / iterations as u64;
        (each(|traffic| traffic.to_gpu), each(|traffic| traffic.from_gpu))
    };
    let (pages, blocks) = (of(PAGE_BYTES), of(2 << 20));
    println!(
        r#"{{"to_gpu": {}, "from_gpu": {}, "to_gpu_in_blocks": {}, "from_gpu_in_blocks": {}}}"#,
        pages.0, pages.1, blocks.0, blocks.1
    );
    Ok(())
}
