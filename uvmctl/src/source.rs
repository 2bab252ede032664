//! Where the iteration is from that is planned or modelled: a trace, or a network that is made.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use trace::{
    Alignment, Circle, Detector, Iteration, OpStream, Span,
    circle::Window,
    detect::State,
    import::{self, Trace, singa},
    zoo::{Hardware, Recipe},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// Trace: an iteration, a run, or blocks, in any of the forms that docs/traces.md lists
    #[arg(long, value_name = "PATH", required_unless_present = "zoo")]
    trace: Option<PathBuf>,

    /// Generated iteration instead, such as bert:256 or gpt:8x1024; its kernels take the least time of the machine's GPU
    #[arg(long, value_name = "NAME:BATCH", conflicts_with = "trace")]
    zoo: Option<Recipe>,

    /// Allocations in an iteration of a run [default: the period of the run]
    #[arg(long, value_name = "COUNT", conflicts_with = "zoo")]
    mallocs: Option<usize>,

    /// First allocation of the iteration, counted from 0
    #[arg(long, value_name = "NUMBER", requires = "mallocs", default_value_t = 0)]
    first_malloc: usize,
}

/// How an iteration is cut out of a run that tells what uses its blocks.
#[derive(Clone, Debug, Args)]
pub(crate) struct Cut {
    /// Lifetime of the blocks of a run
    #[arg(long, value_enum, default_value_t = Lives::Used, conflicts_with = "zoo")]
    lives: Lives,

    /// Log of the time that the program of a SINGA op trace was busy elsewhere: that time is cut out
    #[arg(long, value_name = "PATH", conflicts_with = "zoo")]
    busy: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lives {
    /// From malloc to free
    Allocated,
    /// From the first use to the last
    Used,
}

/// The blocks of an iteration, and what they are called.
pub(crate) struct Blocks {
    pub(crate) circle: Circle,
    /// Of a run, where in it the iteration lies.
    pub(crate) window: Option<Window>,
    /// By what a span says that it is; empty where the trace has no names.
    pub(crate) names: Vec<String>,
}

/// An iteration.
pub(crate) struct Found {
    pub(crate) iteration: Iteration,
    /// Of a run, where in it the iteration lies.
    pub(crate) window: Option<Window>,
    /// It is of a stream that tells uses one by one, apart from the work that they are for.
    pub(crate) uses_apart: bool,
}

impl Source {
    /// As the user named it.
    pub(crate) fn name(&self) -> String {
        match (&self.trace, &self.zoo) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(recipe)) => recipe.to_string(),
            (None, None) => String::new(),
        }
    }

    pub(crate) fn blocks(&self, alignment: Alignment) -> anyhow::Result<Blocks> {
        let wrong = || format!("no circle of blocks can be made of {}", self.name());
        // How long kernels last does not matter.
        let (window, names, circle) = match self.load(None, "a100")? {
            Trace::Iteration(iteration) => {
                let names = iteration.tensors().values().iter().map(|tensor| tensor.name.clone()).collect();
                (None, names, Circle::of_iteration(&iteration, alignment))
            }
            Trace::Ops(stream) => {
                let window = self.window(&stream)?;
                (Some(window), Vec::new(), Circle::of_ops(&stream, window, alignment))
            }
            Trace::Circle(circle) => {
                // Files hold no other than intervals.
                let block =
                    |span: &Span| (span.source, span.start, span.start + span.length, alignment.round(span.bytes));
                (None, Vec::new(), Circle::of_intervals(circle.spans.iter().map(block)))
            }
        };
        Ok(Blocks { circle: circle.with_context(wrong)?, window, names })
    }

    /// One iteration; the kernels of a made one last as they do on a machine's GPU.
    pub(crate) fn iteration(&self, cut: &Cut, machine: &str) -> anyhow::Result<Found> {
        match self.load(cut.busy.as_deref(), machine)? {
            Trace::Iteration(iteration) => Ok(Found { iteration, window: None, uses_apart: false }),
            Trace::Ops(stream) => {
                let window = self.window(&stream)?;
                let wrong = || format!("no iteration can be made of {}", self.name());
                let lives = match cut.lives {
                    Lives::Allocated => trace::Lives::Allocated,
                    Lives::Used => trace::Lives::Used,
                };
                let iteration = Iteration::of_ops(&stream, window, lives).with_context(wrong)?;
                Ok(Found { iteration, window: Some(window), uses_apart: stream.launches().is_empty() })
            }
            Trace::Circle(_) => {
                bail!("{} holds blocks without uses: nobody can tell when they are idle", self.name())
            }
        }
    }

    fn load(&self, busy: Option<&Path>, machine: &str) -> anyhow::Result<Trace> {
        if let Some(recipe) = &self.zoo {
            let Some(hardware) = Hardware::named(machine) else {
                bail!("how fast {machine} computes is not known: --zoo takes gtx1080ti, a100, h100, h200 or gh200");
            };
            return Ok(Trace::Iteration(recipe.make(&hardware)?));
        }
        let path = self.trace.as_deref().context("--trace or --zoo is needed")?;
        Ok(match busy {
            Some(busy) => Trace::Ops(singa::load_ops(path, &singa::load_busy(busy)?)?),
            None => import::load(path)?,
        })
    }

    fn window(&self, stream: &OpStream) -> anyhow::Result<Window> {
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
            bail!("nothing in {} comes again often enough; --mallocs and --first-malloc name an iteration", self.name())
        };
        Ok(window)
    }
}
