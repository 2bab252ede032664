//! `uvmctl plan`: what planners make of a trace. It needs neither the daemon nor a GPU.
//!
//! * `pool`: one pool for all blocks
//! * `swap`: which tensors leave the GPU while they are idle

mod pool;
mod swap;

use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Options {
    /// Give every block of an iteration its place in one pool, and say how small the pool can be
    ///
    /// BOUND is the most bytes alive at once: no pool is smaller. The same blocks are placed by a pool that does not know what comes next (online), by
    /// size (smartpool), and by a search that proves or improves (optimal). SAVED is what a pool takes less than the online one, or, with --own-pool, less
    /// than the program's own.
    Pool(pool::Options),
    /// Send tensors to the host while they are idle, and say how much less GPU memory an iteration can do with
    ///
    /// Which absences are taken is chosen by four scores, by a vote of them, and by the best weights of them. Without --limit, each line is the lowest peak that
    /// costs no time; with it, what keeping the limit costs.
    Swap(swap::Options),
}

pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    match options {
        Options::Pool(options) => pool::run(options),
        Options::Swap(options) => swap::run(&options),
    }
}
