//! `uvmctl plan`: what planners make of a trace. It needs neither the daemon nor a GPU.
//!
//! * `pool`: one pool for all blocks
//! * `source`: the iteration in a trace

mod pool;
mod source;

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Options {
    /// Give every block of an iteration its place in one pool, and say how small the pool can be
    ///
    /// BOUND is the most bytes alive at once: no pool is smaller. The same blocks are placed by a pool that does not know what comes next (online), by
    /// size (smartpool), and by a search that proves or improves (optimal). SAVED is what a pool takes less than the online one, or, with --own-pool, less
    /// than the program's own.
    Pool(pool::Options),
}

pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    match options {
        Options::Pool(options) => pool::run(options),
    }
}
