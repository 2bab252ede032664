//! A soak of a uvmd that acts: eight processes that it has much to do for, with random kills (-9) of them and of it.
//!
//! What it advised the driver to outlives it. So it stays dead until the processes have stopped; what is in force then is asked of the driver, and once
//! it lives again nothing of that may be left.

use std::{
    fmt::{self, Write as _},
    thread,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};
use serde::Serialize;

use super::summary::Failure;
use crate::{
    compare::{decided, policy},
    dice::Dice,
    member::{End, Member},
    protocol::Event,
    protocol::{Advised, Command},
    scenario::{parse::parse, size::human},
    service::{self, Service},
    team::Team,
    truth::{
        free::{all_is_free, gpus},
        kmsg::Log,
    },
    uvmd::Client,
};

/// What it is to be.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// It ends after so many, or a few more.
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// Words for uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// What it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    seed: u64,
    seconds: u64,
    rounds: u64,
    processes: u64,
    processes_killed: u64,
    uvmd_killed: u64,
    /// Calls of the driver that uvmds had made, as they said shortly before they were killed.
    calls: u64,
    /// Of the driver's, on which a dead uvmd's advice was in force; none was left once uvmd lived again.
    advised_ranges: u64,
    verified_bytes: u64,
    /// All of them were registered with the driver.
    killed_at_any_time: u64,
    pub(crate) failures: Vec<Failure>,
}

const PROCESSES: u64 = 8;
/// So many of them are killed.
const KILLED: u64 = 6;
/// How long they would work; they are stopped when uvmd was killed often enough.
const WORK_MS: u64 = 200_000;
/// Within this, those that are killed are.
const KILLED_MS: u64 = 20_000;
/// A round that takes longer hangs.
const ROUND: Duration = Duration::from_mins(4);
/// How often uvmd is killed in a round.
const LIVES: u64 = 2;
/// Whether it has acted or not, it lives no longer...
const LIFE: Duration = Duration::from_secs(20);
/// ...and a little; one that has acted, that little.
const LATER_MS: u64 = 1_500;
/// Within this, a uvmd that lives again has taken back what was in force.
const TAKE_BACK: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(200);

/// Soak until there were enough kills or something is wrong.
pub(crate) fn soak(options: &Options) -> anyhow::Result<Summary> {
    let gpus = gpus()?;
    let mut log = Log::whole()?;
    let mut service = Service::start(&policy::options(model::policy::CHOOSER, &options.uvmd)?)?;
    let mut summary = Summary { seed: options.seed, ..Summary::default() };
    let started = Instant::now();
    for seed in options.seed.. {
        if summary.kills() >= options.kills || !summary.failures.is_empty() {
            break;
        }
        let result = round(seed, &mut service, &mut summary).and_then(|()| all_is_free(&gpus));
        let complaint = log.complaints()?.into_iter().next().map(|complaint| format!("kernel: {complaint}"));
        if let Some(reason) = result.err().map(|error| format!("{error:#}")).or(complaint) {
            summary.failures.push(Failure { seed, fate: "Act".to_owned(), reason });
        }
        eprintln!("round {seed}: {} kills, {} advised ranges", summary.kills(), summary.advised_ranges);
    }
    summary.seconds = started.elapsed().as_secs();
    if let Err(error) = service.stop() {
        summary.failures.push(Failure { seed: 0, fate: "End".to_owned(), reason: format!("{error:#}") });
    }
    if summary.advised_ranges == 0 {
        let reason = "no dead uvmd had left advice: that it is taken back was not tried".to_owned();
        summary.failures.push(Failure { seed: 0, fate: "End".to_owned(), reason });
    }
    Ok(summary)
}

fn round(seed: u64, service: &mut Service, summary: &mut Summary) -> anyhow::Result<()> {
    let deadline = Instant::now() + ROUND;
    let mut dice = Dice::new(seed);
    let scenario = parse("soak", &scenario(&mut dice))?;
    // Before them, so that uvmd knows all that was ever advised about their memory: without that it advises nothing.
    let mut team = Team::start(&scenario, false, deadline)?;
    for _ in 0..LIVES {
        summary.calls += work_and_kill(&mut team, service, &mut dice, deadline)?;
        summary.uvmd_killed += 1;
        // Nothing runs, and nobody acts.
        summary.advised_ranges += advised(&mut team, deadline)?.len() as u64;
        service.restart()?;
        taken_back(&mut team, deadline)?;
    }
    summary.rounds += 1;
    team.finish(deadline)?;
    for member in team.members() {
        summary.add(member)?;
    }
    Ok(())
}

/// Let the processes work until uvmd, which acts on them, has been killed. Says how many calls it had made.
fn work_and_kill(team: &mut Team, service: &mut Service, dice: &mut Dice, deadline: Instant) -> anyhow::Result<u64> {
    thread::scope(|scope| {
        let stop = team.sender();
        let killer = scope.spawn(move || {
            let calls = kill(service, dice);
            // Nobody hears it only if the work has ended with an error.
            let _ = stop.send(Event::Stop);
            calls
        });
        let worked = team.go(deadline);
        let calls = killer.join().map_err(|_| anyhow!("the thread that kills panicked"))?;
        worked?;
        calls
    })
}

/// Kill it soon after it has begun to act.
fn kill(service: &mut Service, dice: &mut Dice) -> anyhow::Result<u64> {
    let client = Client::new(service::URL);
    let begin = Instant::now();
    // One that is too busy to answer is killed all the same.
    let calls = || decided::calls(&client).unwrap_or(0);
    while begin.elapsed() < LIFE && calls() == 0 {
        thread::sleep(POLL);
    }
    thread::sleep(Duration::from_millis(dice.between(0, LATER_MS)));
    let calls = calls();
    service.kill()?;
    Ok(calls)
}

fn advised(team: &mut Team, deadline: Instant) -> anyhow::Result<Vec<Advised>> {
    team.order(&Command::Advice, deadline)?;
    let living = team.members().iter().filter(|member| member.end.is_none());
    Ok(living.flat_map(|member| member.advised.clone()).collect())
}

fn taken_back(team: &mut Team, deadline: Instant) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let left = advised(team, deadline)?;
        let Some(Advised { begin: first, end, what }) = left.first() else { return Ok(()) };
        if begin.elapsed() > TAKE_BACK {
            bail!("a dead uvmd's advice is left on {} ranges, such as {first:#x} to {end:#x}: {what}", left.len());
        }
        thread::sleep(POLL);
    }
}

/// Eight processes; six are killed from outside. The first two go back and forth and are never killed: their memory is what is advised on.
fn scenario(dice: &mut Dice) -> String {
    let mut text = "name = \"soak\"\ngpu_mem_mib = 64\n".to_owned();
    // Where all fits, memory only goes back and forth; where it does not, much of that is evicted.
    let kinds = dice.pick([0, 1, 3]);
    for number in 0..PROCESSES {
        let kind = if number < 2 { 0 } else { dice.between(0, kinds) };
        let (mib, steps) = match kind {
            0 => (dice.between(2, 4), turns()),
            1 => (dice.between(2, 6), vec![random(dice, ""), "{ sleep_ms = 50 }".to_owned()]),
            2 => (dice.between(16, 80), walk(dice)),
            _ => (dice.between(24, 48), hot_and_cold(dice)),
        };
        // Writing to a string does not fail.
        let _ = write!(text, "\n[[process]]\nname = \"p{number}\"\nalloc = [{{ name = \"a\", mib = {mib} }}]\n");
        if number >= PROCESSES - KILLED {
            let _ = writeln!(text, "kill_after_ms = {}", dice.between(500, KILLED_MS));
        }
        let steps = steps.join(", ");
        let _ = writeln!(text, "steps = [{{ repeat_for_ms = {WORK_MS}, steps = [{steps}] }}]");
    }
    text
}

fn turns() -> Vec<String> {
    ["cpu_write", "gpu_write"]
        .map(|key| format!("{{ {key} = \"a\", stride = \"4 KiB\" }}, {{ sleep_ms = 20 }}"))
        .to_vec()
}

fn walk(dice: &mut Dice) -> Vec<String> {
    let key = dice.pick(["gpu_read", "gpu_write"]);
    vec![format!(
        "{{ {key} = \"a\", stride = \"16 KiB\", access_rate = 128 }}, {{ sleep_ms = {} }}",
        dice.between(50, 300)
    )]
}

fn random(dice: &mut Dice, part: &str) -> String {
    let seed = dice.between(1, 99);
    format!("{{ gpu_write = \"a\"{part}, stride = \"16 KiB\", order = \"random\", seed = {seed} }}")
}

fn hot_and_cold(dice: &mut Dice) -> Vec<String> {
    (1..=2)
        .flat_map(|half| {
            let cold = format!(
                "{{ gpu_read = \"a\", offset = \"{} MiB\", length = \"8 MiB\", stride = \"16 KiB\" }}",
                half * 8
            );
            [random(dice, ", length = \"8 MiB\""), cold, "{ sleep_ms = 50 }".to_owned()]
        })
        .collect()
}

impl Summary {
    fn kills(&self) -> u64 {
        self.processes_killed + self.uvmd_killed
    }

    fn add(&mut self, member: &Member) -> anyhow::Result<()> {
        let checked = member.checked();
        if let Some(failure) = &member.failure {
            bail!("{}: {failure}", member.name);
        }
        if checked.mismatches > 0 {
            bail!("{}: {} words are wrong", member.name, checked.mismatches);
        }
        self.processes += 1;
        self.processes_killed += u64::from(member.end == Some(End::Killed));
        self.verified_bytes += checked.verified_bytes;
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, seconds, rounds, processes, processes_killed, uvmd_killed, calls, advised_ranges, .. } = self;
        writeln!(
            f,
            "{rounds} rounds in {seconds} s, {processes} processes, {processes_killed} of them killed; uvmd killed {uvmd_killed} times"
        )?;
        writeln!(
            f,
            "{calls} calls by those that were; their advice was in force on {advised_ranges} ranges, and taken back"
        )?;
        writeln!(f, "{} verified in the end", human(self.verified_bytes))?;
        for Failure { seed, fate, reason } in &self.failures {
            writeln!(f, "FAILED: seed {seed}, {fate}: {reason}")?;
        }
        let verdict = if self.failures.is_empty() { "PASS" } else { "FAIL" };
        writeln!(f, "{verdict}: soak of a uvmd that acts, from seed {seed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_seed_eight_processes_work_and_six_of_them_are_killed() {
        for seed in 0..100 {
            let text = scenario(&mut Dice::new(seed));
            let parsed = parse("soak", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(parsed.processes.len(), 8);
            assert_eq!(parsed.processes.iter().filter(|process| process.kill_after.is_some()).count(), 6);
        }
    }
}
