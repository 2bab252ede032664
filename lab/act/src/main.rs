//! Manual actions on a process's managed memory, with the results as lines of JSON. The lab's tests
//! use it (tests/lab/act.sh).
//!
//!     act 'migrate_to_gpu 1234 0x20000000000 0x20001000000'
//!
//! Commands:
//!
//! * `ACTION PID BEGIN END`: an order of one step; the actions are `model::Action`'s names
//! * `shuttle PID BEGIN END`: migrates the range to the GPU and to the host in turn, until a result
//!   is not done
//! * `undo`: withdraws the advice of a former run by the journal
//! * `overlaps FILE`: for each call in the file (a line `BEGIN END`, in ns since 1970), the number
//!   of the driver's calls made here that overlap it
//! * `sleep SECONDS`
#![expect(clippy::print_stdout, reason = "it is a program for the command line")]

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, SystemTime},
};

use actuator::{Caller, Journal, Settings, Workers};
use anyhow::{Context, bail};
use clap::Parser;
use model::{
    Action, Actuator, ActuatorChoice, ActuatorKind, Advice, CallResult, DecisionId, GpuUuid, LinkBytes, LinkMeter,
    Order, Outcome, Place, ProcessId, Step,
};
use sys::{Roots, executable::Program, shared_memory::set_accessor_program, uvm::Uuid};
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

/// Acts on a process's managed memory from the command line.
#[derive(Parser)]
struct Options {
    /// GPU to act on; the first software GPU by default.
    #[arg(long)]
    gpu: Option<Uuid>,
    /// Maximum of one migration call.
    #[arg(long, default_value_t = 2)]
    part_mib: u64,
    /// Host memory that stays free.
    #[arg(long, default_value_t = 64)]
    reserve_mib: u64,
    /// Actuator: auto, ioctl or helper.
    #[arg(long, default_value = "auto", value_parser = actuator)]
    actuator: ActuatorChoice,
    /// Journal of advice.
    #[arg(long)]
    journal: Option<PathBuf>,
    /// Kill switch: while this file exists, only withdrawals are executed.
    #[arg(long, default_value = "/run/act.off")]
    off: PathBuf,
    /// Commands, executed in sequence.
    #[arg(required = true)]
    commands: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(ended) = sys::actor::run_if_spawner() {
        return Ok(ended);
    }
    set_accessor_program(Program::this());
    let options = Options::parse();
    let calls = Calls::default();
    tracing::subscriber::set_global_default(calls.clone())?;
    let mut session = Session::new(&options, calls)?;
    options.commands.iter().try_for_each(|command| session.run(command).with_context(|| command.clone()))?;
    if session.journal.is_some_and(|journal| !journal.flush(Duration::from_secs(10))) {
        bail!("the journal is not written");
    }
    Ok(ExitCode::SUCCESS)
}

struct Session {
    gpu: GpuUuid,
    journal: Option<Journal>,
    workers: Workers,
    meter: Box<dyn LinkMeter>,
    calls: Calls,
}

impl Session {
    fn new(options: &Options, calls: Calls) -> anyhow::Result<Self> {
        let roots = Roots::default();
        let gpu = options.gpu.map_or_else(|| first_gpu(&roots), Ok)?;
        let settings = Settings {
            part_bytes: options.part_mib << 20,
            host_reserve_bytes: options.reserve_mib << 20,
            actuator: options.actuator,
        };
        let journal = options.journal.as_ref().map(|path| Journal::open(path, roots.clone())).transpose()?;
        let (actuator_roots, inspections, off) = (roots.clone(), actuator::Inspections::default(), options.off.clone());
        let make = move |_| -> Box<dyn Actuator> {
            Box::new(Caller::new(settings, actuator_roots.clone(), inspections.clone()))
        };
        let workers = Workers::start(make, move || off.exists(), journal.clone());
        Ok(Self { gpu: GpuUuid(gpu.bytes()), journal, workers, meter: actuator::link::meter(roots), calls })
    }

    fn run(&mut self, command: &str) -> anyhow::Result<()> {
        match command.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["undo"] => self.undo(),
            ["sleep", seconds] => {
                thread::sleep(Duration::from_secs(seconds.parse()?));
                Ok(())
            }
            ["overlaps", file] => self.overlaps(&fs::read_to_string(file)?),
            ["shuttle", pid, begin, end] => {
                let (process, range) = (process(pid)?, range(begin, end)?);
                let mut places = [Place::Gpu(self.gpu), Place::Host].into_iter().cycle();
                while self.execute(
                    process,
                    vec![step(range, Action::Migrate(places.next().context("a place")?))],
                    false,
                )? {}
                Ok(())
            }
            [action, pid, begin, end] => {
                let action = self.action(action)?;
                self.execute(process(pid)?, vec![step(range(begin, end)?, action)], false).map(drop)
            }
            _ => bail!("no such command (see the top of the source)"),
        }
    }

    fn undo(&mut self) -> anyhow::Result<()> {
        let journal = self.journal.clone().context("without --journal there is nothing to undo")?;
        let leftovers = journal.leftovers();
        println!("{{\"leftovers\": {}}}", leftovers.len());
        for left in leftovers {
            self.execute(left.process, left.steps, true)?;
        }
        Ok(())
    }

    /// Executes an order. Returns whether all of it succeeded.
    fn execute(&mut self, process: ProcessId, steps: Vec<Step>, is_rollback: bool) -> anyhow::Result<bool> {
        let name = steps.first().map_or("nothing", |step| step.action.name());
        let before = self.meter.read(self.gpu);
        self.workers.submit(Order { decision: DecisionId(1), process, gpu: self.gpu, steps, is_rollback });
        let outcome = self.workers.next_outcome(Duration::from_mins(10)).context("no outcome in ten minutes")?;
        let moved = before.zip(self.meter.read(self.gpu));
        print_outcome(name, &outcome, moved);
        Ok(outcome.calls.iter().all(|call| call.result == CallResult::Done))
    }

    fn action(&self, name: &str) -> anyhow::Result<Action> {
        let gpu = Place::Gpu(self.gpu);
        let advice = [
            Advice::PreferredLocation(Place::Host),
            Advice::PreferredLocation(gpu),
            Advice::AccessedBy(self.gpu),
            Advice::ReadDuplication,
        ];
        [Action::Migrate(gpu), Action::Migrate(Place::Host), Action::Touch(self.gpu)]
            .into_iter()
            .chain(advice.map(Action::Advise))
            .chain(advice.map(Action::Withdraw))
            .find(|action| action.name() == name)
            .context("no such action")
    }

    fn overlaps(&self, text: &str) -> anyhow::Result<()> {
        let calls = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_overlaps: BTreeMap<usize, u64> = BTreeMap::new();
        for line in text.lines() {
            let (begin, end) = line.split_once(' ').context("not a line of two times")?;
            let (begin, end): (u128, u128) = (begin.parse()?, end.parse()?);
            let first = calls.partition_point(|(_, ended)| *ended < begin);
            let overlaps = calls.iter().skip(first).take_while(|(begun, _)| *begun <= end).count();
            *by_overlaps.entry(overlaps).or_default() += 1;
        }
        let most = by_overlaps.last_key_value().context("an empty file")?.0;
        println!(
            "{}",
            serde_json::json!({ "driver_calls": calls.len(), "target_calls_by_overlaps": by_overlaps, "most_overlaps": most })
        );
        Ok(())
    }
}

fn actuator(name: &str) -> Result<ActuatorChoice, &'static str> {
    ActuatorChoice::ALL.into_iter().find(|choice| choice.name() == name).ok_or("no such actuator")
}

fn print_outcome(action: &str, outcome: &Outcome, moved: Option<(LinkBytes, LinkBytes)>) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut reason = None;
    for call in &outcome.calls {
        if let CallResult::Failed(text) | CallResult::Denied(text) = &call.result {
            reason = Some(text);
        }
        *counts.entry(call.result.name()).or_default() += 1;
    }
    let moved = moved.map(|(before, after)| [after.htod - before.htod, after.dtoh - before.dtoh]);
    let actuator = outcome.actuator.map(ActuatorKind::name);
    let longest_ns = outcome.calls.iter().map(|call| call.duration_ns).max();
    println!(
        "{}",
        serde_json::json!({ "action": action, "calls": counts, "reason": reason, "link_bytes": moved, "longest_ns": longest_ns, "made_by": actuator })
    );
}

fn first_gpu(roots: &Roots) -> anyhow::Result<Uuid> {
    let folder = roots.proc.join("driver/swgpu/gpus");
    let names = fs::read_dir(&folder).context("no software GPU; --gpu says which GPU it is")?;
    let mut names: Vec<_> = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names.first().context("no GPU")?.parse()?)
}

fn process(pid: &str) -> anyhow::Result<ProcessId> {
    let pid = pid.parse()?;
    let stat = procfs::process::Process::new(i32::try_from(pid)?)?.stat()?;
    Ok(ProcessId { pid, start_ticks: stat.starttime })
}

fn range(begin: &str, end: &str) -> anyhow::Result<(u64, u64)> {
    let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
    Ok((address(begin)?, address(end)?))
}

const fn step((begin, end): (u64, u64), action: Action) -> Step {
    Step { begin, end, action }
}

/// Calls of the driver, as (begin, end) in ns since 1970: by the calendar clock, which both sides
/// share and which is never set in a guest.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(u128, u128)>>>);

impl Calls {
    fn now() -> u128 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos()
    }
}

impl Subscriber for Calls {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.name() == "uvm_call"
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Self::now(), u128::MAX));
    }

    fn exit(&self, _span: &Id) {
        if let Some(last) = self.0.lock().unwrap_or_else(PoisonError::into_inner).last_mut() {
            last.1 = Self::now();
        }
    }
}
