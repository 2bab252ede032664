//! `uvmctl plan`: plans of the memory of a trace's iteration. Needs neither the daemon nor a GPU.
//!
//! * `pool`: placement of all blocks in one pool
//! * `swap`: eviction of idle tensors

mod pool;
mod swap;

use clap::Subcommand;

use crate::output;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Options {
    /// Place all blocks of an iteration in one pool, and report the smallest size of the pool
    ///
    /// BOUND is the most bytes alive at once: no pool is smaller. PLANNER: online (without
    /// knowledge of later blocks), smartpool (by size), or optimal (a search that proves or
    /// improves). METHOD: its fit, or whether its result is proven. TOTAL: the pool and the
    /// persistent bytes. SAVED: reduction compared with the online pool, or, with --own-pool, with
    /// the program's own.
    Pool(pool::Options),
    /// Plan the eviction of idle tensors to the host, and report the GPU memory that an iteration
    /// saves
    ///
    /// Absences are selected by four scores, by a vote of them, and by the best weights of them.
    /// Without --limit, each line is the lowest peak that costs no time; with it, the overhead at
    /// that limit. MOVED: bytes in each direction.
    Swap(swap::Options),
}

pub(crate) fn run(options: Options, output: &output::Options) -> anyhow::Result<()> {
    match options {
        Options::Pool(mut options) => {
            options.json = output.report_file("plan", options.json.take())?;
            pool::run(options)
        }
        Options::Swap(mut options) => {
            options.json = output.report_file("plan", options.json.take())?;
            swap::run(&options)
        }
    }
}
