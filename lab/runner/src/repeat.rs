//! `lab-runner loop`: a scenario again and again until somebody asks for the end; for watching uvmd at work.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::bail;

use crate::{
    digits::digits,
    member::Member,
    protocol::Command,
    protocol::Event,
    scenario::{Scenario, size::human},
    sys::{counters::ProcessCounters, process::StopSignals},
    team::Team,
};

/// A round that takes longer hangs.
const ROUND: Duration = Duration::from_hours(1);

/// Repeat until SIGINT or SIGTERM, then verify everything.
pub(crate) fn repeat(scenario: &Scenario) -> anyhow::Result<()> {
    // Before any thread or process is started, so that the signals reach nobody else.
    let signals = StopSignals::block()?;
    let mut team = Team::start(scenario, true, Instant::now() + ROUND)?;
    let stop = team.sender();
    thread::spawn(move || while signals.wait().is_ok() && stop.send(Event::Stop).is_ok() {});
    let mut stopped = false;
    for round in 1.. {
        // Without a process left there is nothing to repeat.
        if stopped || !team.is_idle() || wrong(team.members()).is_some() {
            break;
        }
        let started = Instant::now();
        stopped |= team.go(started + ROUND)?;
        stopped |= team.order(&Command::Figures { residency: false }, started + ROUND)?;
        stopped |= team.was_stopped();
        println!("{}", progress(round, started.elapsed(), team.members()));
    }
    team.finish(Instant::now() + ROUND)?;
    match wrong(team.members()) {
        Some(reason) => bail!("{reason}"),
        None => println!("stopped; every byte of {} verified", human(scenario.managed_bytes())),
    }
    Ok(())
}

/// One line of sums since the start.
fn progress(round: u64, took: Duration, members: &[Member]) -> String {
    let sum = |figure: fn(&ProcessCounters) -> u64| -> u64 {
        members.iter().filter_map(Member::counters).map(|counters| figure(&counters)).sum()
    };
    format!(
        "round {round:>3} {:>5.1} s {:>10} GPU + {:>6} CPU faults  {:>9} in {:>9} out",
        took.as_secs_f64(),
        digits(sum(|each| each.fault_entries)),
        digits(sum(|each| each.cpu_faults)),
        human(sum(|each| each.bytes_htod)),
        human(sum(|each| each.bytes_dtoh)),
    )
}

/// Why it makes no sense to go on.
fn wrong(members: &[Member]) -> Option<String> {
    members.iter().find_map(|member| {
        let mismatch = member.checked().first_mismatch.map(|mismatch| mismatch.to_string());
        member.failure.clone().or(mismatch).map(|reason| format!("{}: {reason}", member.name))
    })
}
