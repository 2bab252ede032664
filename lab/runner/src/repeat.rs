//! `lab-runner loop`: repeats a scenario until SIGINT or SIGTERM, to watch uvmd at work.

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

/// Time limit of a round; a longer one hangs.
const ROUND: Duration = Duration::from_hours(1);

/// Repeats until SIGINT or SIGTERM, then verifies all memory.
pub(crate) fn repeat(scenario: &Scenario) -> anyhow::Result<()> {
    // Before any thread or process starts, so that all of them inherit the blocked signals.
    let signals = StopSignals::block()?;
    let mut team = Team::start(scenario, true, Instant::now() + ROUND)?;
    let stop = team.sender();
    thread::spawn(move || while signals.wait().is_ok() && stop.send(Event::Stop).is_ok() {});
    let mut stopped = false;
    for round in 1.. {
        // Without a live process nothing can be repeated.
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

/// Line of sums since the start.
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

/// First failure or mismatch of a process, after which the loop ends.
fn wrong(members: &[Member]) -> Option<String> {
    members.iter().find_map(|member| {
        let mismatch = member.checked().first_mismatch.map(|mismatch| mismatch.to_string());
        member.failure.clone().or(mismatch).map(|reason| format!("{}: {reason}", member.name))
    })
}
