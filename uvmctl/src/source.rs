//! Source of the iteration to plan or simulate: a trace, or a generated network.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use trace::{
    Alignment, Circle, Detector, Iteration, IterationWindow, OpStream, RecordedIteration, Span,
    circle::Window,
    detect::{Settings, State},
};
use trace_sources::{
    import::{self, Trace, singa},
    zoo::{Hardware, Recipe},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// Trace: an iteration, a run, or blocks, in any of the forms that docs/traces.md lists
    #[arg(long, value_name = "PATH", required_unless_present = "zoo")]
    trace: Option<PathBuf>,

    /// Generated iteration instead, such as bert:256 or gpt:8x1024; its kernels take the least time
    /// of the machine's GPU
    #[arg(long, value_name = "NAME:BATCH", conflicts_with = "trace")]
    zoo: Option<Recipe>,

    /// Allocations in an iteration of a run [default: the period of the run]
    #[arg(long, value_name = "COUNT", conflicts_with = "zoo")]
    mallocs: Option<usize>,

    /// First allocation of the iteration, counted from 0
    #[arg(long, value_name = "NUMBER", requires = "mallocs", default_value_t = 0)]
    first_malloc: usize,
}

/// Extraction of an iteration from a run that records the uses of its blocks.
#[derive(Clone, Debug, Args)]
pub(crate) struct Extraction {
    /// Lifetime of the blocks of a run
    #[arg(long, value_enum, default_value_t = Lives::Used, conflicts_with = "zoo")]
    lives: Lives,

    /// Log of the time that the program of a SINGA op trace was busy elsewhere: that time is cut
    /// out
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

/// Blocks of an iteration with their names.
pub(crate) struct Blocks {
    pub(crate) circle: Circle,
    /// Position of the iteration within a run.
    pub(crate) window: Option<Window>,
    /// Names by the source of a span; empty if the trace has none.
    pub(crate) names: Vec<String>,
}

/// Iteration with its position and the form of its trace.
pub(crate) struct LoadedIteration {
    pub(crate) iteration: Iteration,
    /// What a recorded program does before it, if launches have addresses.
    pub(crate) before: Vec<Iteration>,
    /// Position of the iteration within a run.
    pub(crate) window: Option<IterationWindow>,
    /// Whether the trace is a stream without launches: it records each use separately, not by
    /// kernel.
    pub(crate) lacks_launches: bool,
}

impl Source {
    /// Source as given on the command line.
    pub(crate) fn name(&self) -> String {
        match (&self.trace, &self.zoo) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(recipe)) => recipe.to_string(),
            (None, None) => String::new(),
        }
    }

    pub(crate) fn blocks(&self, alignment: Alignment) -> anyhow::Result<Blocks> {
        let failure = || format!("cannot build a circle of blocks from {}", self.name());
        // The machine only affects kernel times, which a placement does not use.
        let (window, names, circle) = match self.load(None, "a100")? {
            Trace::Iteration(iteration) => {
                let names = iteration.tensors().values().iter().map(|tensor| tensor.name.clone()).collect();
                (None, names, Circle::of_iteration(&iteration, alignment))
            }
            Trace::Ops(stream) => {
                let IterationWindow::Mallocs(window) = self.window(&stream)? else {
                    bail!("{} allocates nothing in an iteration: there are no blocks to place", self.name())
                };
                (Some(window), Vec::new(), Circle::of_ops(&stream, window, alignment))
            }
            Trace::Circle(circle) => {
                // Circles from files are always intervals.
                let block =
                    |span: &Span| (span.source, span.start, span.start + span.length, alignment.round(span.bytes));
                (None, Vec::new(), Circle::of_intervals(circle.spans.iter().map(block)))
            }
        };
        Ok(Blocks { circle: circle.with_context(failure)?, window, names })
    }

    /// Loads one iteration; kernels of a generated one have the times of `machine`'s GPU.
    pub(crate) fn iteration(&self, extraction: &Extraction, machine: &str) -> anyhow::Result<LoadedIteration> {
        match self.load(extraction.busy.as_deref(), machine)? {
            Trace::Iteration(iteration) => {
                Ok(LoadedIteration { iteration, before: Vec::new(), window: None, lacks_launches: false })
            }
            Trace::Ops(stream) => {
                let window = self.window(&stream)?;
                let failure = || format!("cannot extract an iteration from {}", self.name());
                let lives = match extraction.lives {
                    Lives::Allocated => trace::Lives::Allocated,
                    Lives::Used => trace::Lives::Used,
                };
                let (iteration, before) = match RecordedIteration::of(&stream, window).with_context(failure)? {
                    Some(RecordedIteration { iteration, before }) => (iteration, before),
                    None => (Iteration::of_ops(&stream, window, lives).with_context(failure)?, Vec::new()),
                };
                let lacks_launches = stream.launches().is_empty();
                Ok(LoadedIteration { iteration, before, window: Some(window), lacks_launches })
            }
            Trace::Circle(_) => {
                bail!("{} holds blocks without uses: their idle times are unknown", self.name())
            }
        }
    }

    fn load(&self, busy: Option<&Path>, machine: &str) -> anyhow::Result<Trace> {
        if let Some(recipe) = &self.zoo {
            let Some(hardware) = Hardware::named(machine) else {
                bail!("the compute rate of {machine} is unknown: --zoo supports gtx1080ti, a100, h100, h200 or gh200");
            };
            return Ok(Trace::Iteration(recipe.make(&hardware)?));
        }
        let path = self.trace.as_deref().context("--trace or --zoo is required")?;
        Ok(match busy {
            Some(busy) => Trace::Ops(singa::load_ops(path, &singa::load_busy(busy)?)?),
            None => import::load(path)?,
        })
    }

    fn window(&self, stream: &OpStream) -> anyhow::Result<IterationWindow> {
        if let Some(mallocs) = self.mallocs {
            return Ok(Window { first_malloc: self.first_malloc, mallocs }.into());
        }
        let Some(window) = detected(stream) else {
            bail!("no period found in {}: select an iteration with --mallocs and --first-malloc", self.name())
        };
        Ok(window)
    }
}

/// Last iteration of a run that repeats.
fn detected(stream: &OpStream) -> Option<IterationWindow> {
    let states = Detector::new(Settings::of_recorded(stream)).observe(stream);
    let is_confirmed = |state: &State| matches!(state, State::Locked(_));
    // The last lock, as the first iterations of a run are not typical; one that the end of a
    // short run did not confirm if there is no other.
    let last = |filter: fn(&State) -> bool| {
        let mut states = states.iter().rev().map(|(_, state)| state).filter(|state| filter(state));
        states.find_map(|state| state.lock()?.iteration_window())
    };
    last(is_confirmed).or_else(|| last(|_| true))
}

/// Period of a recorded run, with the options of `sim` and `plan` that select it.
pub(crate) fn period(stream: &OpStream) -> String {
    match detected(stream) {
        Some(IterationWindow::Mallocs(Window { first_malloc, mallocs })) => {
            format!("period: --mallocs {mallocs} --first-malloc {first_malloc}, which sim and plan find themselves")
        }
        Some(IterationWindow::Launches(window)) => {
            format!("period: {} launches without an allocation, which sim and plan find themselves", window.launches)
        }
        None => "period: none found; sim and plan need --mallocs, the number of allocations in an iteration".to_owned(),
    }
}
