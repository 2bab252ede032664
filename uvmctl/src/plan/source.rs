//! The iteration in a trace: what comes again and again in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use trace::{
    Alignment, Circle, Detector, Iteration, Lives, OpStream, Span,
    circle::Window,
    detect::State,
    import::{self, Trace, singa},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// The trace: an iteration, a run, or blocks, in any of the forms that docs/traces.md lists
    #[arg(long, value_name = "PATH")]
    pub(super) trace: PathBuf,

    /// Of a run, this many allocations make an iteration, instead of what repeats in it
    #[arg(long, value_name = "COUNT")]
    mallocs: Option<usize>,

    /// The allocation with which the iteration begins, counted from 0
    #[arg(long, value_name = "NUMBER", requires = "mallocs", default_value_t = 0)]
    first_malloc: usize,
}

impl Source {
    pub(super) fn circle(&self, alignment: Alignment) -> anyhow::Result<Circle> {
        let path = &self.trace;
        let wrong = || format!("no circle of blocks can be made of {}", path.display());
        match import::load(path)? {
            Trace::Iteration(iteration) => Circle::of_iteration(&iteration, alignment).with_context(wrong),
            Trace::Ops(stream) => {
                let window = self.window(path, &stream)?;
                Circle::of_ops(&stream, window, alignment).with_context(wrong)
            }
            Trace::Circle(circle) => {
                // Files hold no other than intervals.
                let block =
                    |span: &Span| (span.source, span.start, span.start + span.length, alignment.round(span.bytes));
                Circle::of_intervals(circle.spans.iter().map(block)).with_context(wrong)
            }
        }
    }

    /// One iteration, and whether it is of a stream that tells uses one by one, apart from the work that they are for.
    pub(super) fn iteration(&self, lives: Lives, busy: Option<&Path>) -> anyhow::Result<(Iteration, bool)> {
        let path = &self.trace;
        let trace = match busy {
            Some(busy) => Trace::Ops(singa::load_ops(path, &singa::load_busy(busy)?)?),
            None => import::load(path)?,
        };
        match trace {
            Trace::Iteration(iteration) => Ok((iteration, false)),
            Trace::Ops(stream) => {
                let window = self.window(path, &stream)?;
                let wrong = || format!("no iteration can be made of {}", path.display());
                let iteration = Iteration::of_ops(&stream, window, lives).with_context(wrong)?;
                Ok((iteration, stream.launches().is_empty()))
            }
            Trace::Circle(_) => {
                bail!("{} holds blocks without uses: nobody can tell when they are idle", path.display())
            }
        }
    }

    fn window(&self, path: &Path, stream: &OpStream) -> anyhow::Result<Window> {
        if let Some(mallocs) = self.mallocs {
            return Ok(Window { first_malloc: self.first_malloc, mallocs });
        }
        let mut detector = Detector::default();
        let states = detector.observe(stream);
        // The last that was relied on: the first iterations of a run are not like the others.
        let last = states.into_iter().rev().find_map(|(_, state)| match state {
            State::Locked(lock) => lock.window(),
            _ => None,
        });
        let Some(window) = last else {
            bail!(
                "nothing in {} comes again often enough; --mallocs and --first-malloc name an iteration",
                path.display()
            )
        };
        Ok(window)
    }
}
