//! `uvmd --withdraw`: withdraws advice that a former uvmd left in force, unless another uvmd does so.
//! Used before uvmd is removed, or if it does not start.
//!
//! It needs the journal and the driver, and neither probes nor a valid configuration.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use actuator::{Journal, JournalError, Leftover, Workers};
use anyhow::{Context, anyhow, bail};
use model::{Actuator, CallResult, DecisionId, GpuUuid, Order, Outcome, ProcessId, Step};
use sys::{Roots, private};

use crate::acting::{CommandName, JOURNAL_FILE, actuators};

/// Time without an outcome of any order after which the rest is given up. A call waits as long as
/// its process holds its memory map.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Time limit of the write of the journal.
const FLUSH: Duration = Duration::from_secs(10);

/// Withdraws all advice in force by the journal in this folder, prints the result for each process,
/// and returns whether none is left.
pub(crate) fn run(state_dir: &Path) -> anyhow::Result<bool> {
    let file = state_dir.join(JOURNAL_FILE);
    let mut out = io::stdout().lock();
    match fs::symlink_metadata(&file) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            writeln!(out, "there is no advice to withdraw: there is no journal {}", file.display())?;
            return Ok(true);
        }
        Err(error) => bail!("cannot read {}: {}", file.display(), sys::reason(&error)),
    }
    private::check_folder(state_dir)
        .map_err(|error| anyhow!("{} is not read: {}", state_dir.display(), sys::reason(&error)))?;
    let journal = Journal::open(&file, Roots::default()).map_err(|error| match error {
        JournalError::InUse(_) => anyhow!("{error}, and withdraws when it is stopped: `systemctl stop uvmd`"),
        error => error.into(),
    })?;
    let make = actuators(actuator::Settings::default(), Roots::default(), true);
    withdraw(&journal, make, TIMEOUT, &mut out).context("cannot report the withdrawal")
}

/// Withdraws with the actuators of `make`.
fn withdraw(
    journal: &Journal,
    make: impl Fn(GpuUuid) -> Box<dyn Actuator> + Send + Sync + 'static,
    timeout: Duration,
    out: &mut impl Write,
) -> io::Result<bool> {
    for process in journal.ended() {
        writeln!(out, "process {}: has exited, and its advice with it", process.pid)?;
    }
    let mut workers = Workers::start(make, || false, Some(journal.clone()));
    let mut orders: Vec<Order> = journal.leftovers().into_iter().zip(0..).map(order).collect();
    let mut fates: BTreeMap<ProcessId, Fate> = BTreeMap::new();
    let mut is_first_turn = true;
    while !orders.is_empty() {
        let asked = orders.len();
        let Turn { outcomes, unanswered } = turn(&mut workers, orders, timeout);
        let (refused, answered): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, outcome)| is_refused(outcome));
        for (order, outcome) in &answered {
            fates.entry(order.process).or_default().take(&order.steps, outcome);
        }
        // An order that hangs gives way to the others of its GPU. It is therefore repeated once
        // they are done, as long as any of them completes; and once in any case, as the first attempt
        // may have waited for a command of a helper.
        let is_stalled = refused.len() == asked && !is_first_turn;
        let is_last = is_stalled || !unanswered.is_empty();
        is_first_turn = false;
        for order in unanswered {
            fates.entry(order.process).or_default().is_held_up(&order.steps, timeout);
        }
        if is_last {
            for (order, outcome) in &refused {
                fates.entry(order.process).or_default().take(&order.steps, outcome);
            }
            break;
        }
        orders = refused.into_iter().map(|(order, _)| order).collect();
    }
    for (process, fate) in &fates {
        writeln!(out, "process {}{}: {fate}", process.pid, CommandName(*process))?;
    }
    let is_written = journal.rewrite(FLUSH);
    let warnings = journal.health().warnings;
    for warning in &warnings {
        writeln!(out, "{warning}")?;
    }
    let is_all = journal.leftovers().is_empty() && is_written && warnings.is_empty();
    let all = if is_all { "no advice of uvmd is in effect any more" } else { "not all is withdrawn: see above" };
    writeln!(out, "{all}")?;
    Ok(is_all)
}

/// Order to withdraw the remaining advice in reverse. Otherwise a page on the host that the GPU
/// touches, with accessed-by but without a preferred location, would be mapped there again.
fn order((Leftover { process, gpu, mut steps }, number): (Leftover, u64)) -> Order {
    steps.reverse();
    Order { decision: DecisionId(number), process, gpu, steps, is_rollback: true }
}

/// Orders of one attempt.
struct Turn {
    outcomes: Vec<(Order, Outcome)>,
    unanswered: Vec<Order>,
}

fn turn(workers: &mut Workers, orders: Vec<Order>, timeout: Duration) -> Turn {
    let mut waiting = BTreeMap::new();
    for order in orders {
        waiting.insert(order.decision, order.clone());
        workers.submit(order);
    }
    let mut outcomes = Vec::new();
    while !waiting.is_empty()
        && let Some(outcome) = workers.next_outcome(timeout)
    {
        outcomes.extend(waiting.remove(&outcome.decision).map(|order| (order, outcome)));
    }
    Turn { outcomes, unanswered: waiting.into_values().collect() }
}

fn is_refused(outcome: &Outcome) -> bool {
    outcome.calls.iter().any(|call| matches!(call.result, CallResult::Failed(_)))
}

/// Result of the withdrawal of a process's advice.
#[derive(Debug, Default)]
struct Fate {
    steps: usize,
    bytes: u64,
    has_ended: bool,
    /// Reason why some of it is still in force.
    left: Option<String>,
}

impl Fate {
    fn take(&mut self, steps: &[Step], outcome: &Outcome) {
        self.is_about(steps);
        for call in &outcome.calls {
            match &call.result {
                CallResult::Done | CallResult::NotMapped | CallResult::Replaced => {}
                CallResult::Exited => self.has_ended = true,
                CallResult::Failed(why) | CallResult::Denied(why) => self.left = Some(why.clone()),
                other => self.left = Some(other.name().to_owned()),
            }
        }
    }

    fn is_held_up(&mut self, steps: &[Step], timeout: Duration) {
        self.is_about(steps);
        self.left = Some(format!("no answer in {} s: the process may hold its memory map", timeout.as_secs()));
    }

    fn is_about(&mut self, steps: &[Step]) {
        self.steps += steps.len();
        self.bytes += steps.iter().map(Step::bytes).sum::<u64>();
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, bytes, has_ended, left } = self;
        let advice = format_args!("{steps} pieces of advice, {} KiB together", bytes >> 10);
        match left {
            _ if *has_ended => write!(f, "has exited, and its advice with it"),
            Some(why) => write!(f, "NOT withdrawn, or not all of it: {advice}: {why}"),
            None => write!(f, "withdrawn: {advice}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{process, sync::mpsc};

    use model::{Call, Interrupt};

    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);
    const SOON: Duration = Duration::from_secs(20);

    fn start_ticks(pid: u32) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap()
    }

    /// Journal with a page of advice of each kind on this process at each of these GPUs.
    fn journal(folder: &Path, gpus: &[GpuUuid]) -> Journal {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let pid = process::id();
        let line = |gpu: &GpuUuid, page: u64, advice: &str| {
            let text = format!(
                "{{\"version\":1,\"boot\":\"{}\",\"pid\":{pid},\"start_ticks\":{},\"gpu\":\"{gpu}\",\"begin\":{},\"end\":{},\"advice\":{advice}",
                boot.trim(),
                start_ticks(pid),
                page * 4096,
                (page + 1) * 4096
            );
            format!("{text},\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(text.as_bytes()))
        };
        let lines = gpus.iter().zip(0..).flat_map(|(gpu, page)| {
            let accessed = format!("\"accessed_by\",\"processor\":\"{gpu}\"");
            [line(gpu, page, "\"preferred_location\""), line(gpu, page, &accessed)]
        });
        let path = folder.join(JOURNAL_FILE);
        fs::write(&path, lines.collect::<String>()).unwrap();
        Journal::open(&path, Roots::default()).unwrap()
    }

    /// Actuator with this result, which reports its orders.
    struct Answers(CallResult, mpsc::Sender<Vec<&'static str>>);

    impl Actuator for Answers {
        fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
            self.1.send(order.steps.iter().map(|step| step.action.name()).collect()).unwrap();
            let call = |step: &Step| Call { step: *step, result: self.0.clone(), duration_ns: 1 };
            let calls = order.steps.iter().map(call).collect();
            Outcome::new(order, calls)
        }
    }

    /// Withdraws. Returns whether no advice is left, the report, and the orders.
    fn withdrawn(journal: &Journal, answer: &CallResult) -> (bool, String, Vec<Vec<&'static str>>) {
        let (asked, is_asked) = mpsc::channel();
        let (mut out, answer) = (Vec::new(), answer.clone());
        let make = move |_| -> Box<dyn Actuator> { Box::new(Answers(answer.clone(), asked.clone())) };
        let is_all = withdraw(journal, make, SOON, &mut out).unwrap();
        (is_all, String::from_utf8(out).unwrap(), is_asked.try_iter().collect())
    }

    #[test]
    fn live_advice_is_withdrawn_in_reverse_and_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), &[GPU, GpuUuid([2; 16])]);
        let (is_all, report, asked) = withdrawn(&journal, &CallResult::Done);
        assert!(is_all, "{report}");
        assert_eq!(asked, [["unset_accessed_by", "unset_preferred_location"]; 2]);
        let lines: Vec<_> = report.lines().collect();
        assert_eq!(lines.len(), 2, "{report}");
        assert!(lines[0].starts_with(&format!("process {} (", process::id())), "{report}");
        assert!(lines[0].ends_with("): withdrawn: 4 pieces of advice, 16 KiB together"), "{report}");
        assert_eq!(lines[1], "no advice of uvmd is in effect any more");
        let text = fs::read_to_string(folder.path().join(JOURNAL_FILE)).unwrap();
        assert_eq!(text.lines().count(), 1, "written anew, with nothing but its header: {text}");
        // A second run has nothing to do.
        let (is_all, report, asked) = withdrawn(&journal, &CallResult::Done);
        assert_eq!((is_all, report.lines().count(), asked), (true, 1, vec![]));
    }

    #[test]
    fn failed_withdrawal_stays_in_the_journal_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), &[GPU]);
        let (is_all, report, _) = withdrawn(&journal, &CallResult::Failed("the driver says no".to_owned()));
        assert!(!is_all);
        assert!(
            report
                .contains("NOT withdrawn, or not all of it: 2 pieces of advice, 8 KiB together: the driver says no\n")
        );
        assert!(report.ends_with("not all is withdrawn: see above\n"), "{report}");
        assert_eq!(journal.leftovers().len(), 1);
    }

    #[test]
    fn preempted_withdrawal_is_repeated_after_the_others() {
        struct GivesWay(bool);
        impl Actuator for GivesWay {
            fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
                let is_first = !std::mem::replace(&mut self.0, true);
                let gives_way = is_first && order.gpu == GPU;
                let answer =
                    if gives_way { CallResult::Failed("a withdrawal waits".to_owned()) } else { CallResult::Done };
                let call = |step: &Step| Call { step: *step, result: answer.clone(), duration_ns: 1 };
                let calls = order.steps.iter().map(call).collect();
                Outcome::new(order, calls)
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), &[GPU, GpuUuid([2; 16])]);
        let mut out = Vec::new();
        let is_all = withdraw(&journal, |_| Box::new(GivesWay(false)), SOON, &mut out).unwrap();
        let report = String::from_utf8(out).unwrap();
        assert!(is_all && report.contains("): withdrawn: 4 pieces of advice, 16 KiB together"), "{report}");
    }

    #[test]
    fn advice_of_a_process_that_exits_meanwhile_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), &[GPU]);
        let (is_all, report, _) = withdrawn(&journal, &CallResult::Exited);
        assert!(is_all && report.contains("has exited, and its advice with it\n"), "{report}");
    }

    #[test]
    fn process_that_holds_its_memory_map_is_reported_and_not_waited_for() {
        struct Hangs(mpsc::Receiver<()>);
        impl Actuator for Hangs {
            fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
                let _ = self.0.recv();
                Outcome::new(order, Vec::new())
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let journal = journal(folder.path(), &[GPU]);
        let (let_go, held) = mpsc::channel();
        let held = std::sync::Mutex::new(Some(held));
        let make = move |_| -> Box<dyn Actuator> { Box::new(Hangs(held.lock().unwrap().take().unwrap())) };
        let mut out = Vec::new();
        let is_all = withdraw(&journal, make, Duration::from_millis(1), &mut out).unwrap();
        let report = String::from_utf8(out).unwrap();
        assert!(!is_all && report.contains("no answer in 0 s: the process may hold its memory map\n"), "{report}");
        drop(let_go);
    }
}
