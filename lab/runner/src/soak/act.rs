//! Soak of a uvmd that acts: eight processes that need many actions, with random kills (-9) of them
//! and of uvmd.
//!
//! Advice outlives a killed uvmd. uvmd is therefore restarted only after the processes have
//! stopped. The advice in force at that time is read from the driver; the restarted uvmd must
//! withdraw all of it.

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

/// Options of the soak.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Minimum of kills; the soak ends after the round that reaches it, or up to [`MORE_ROUNDS`]
    /// later.
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// Options of uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// Result of the soak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    seed: u64,
    seconds: u64,
    rounds: u64,
    processes: u64,
    processes_killed: u64,
    uvmd_killed: u64,
    /// Calls of the driver that uvmd had made, as it reported shortly before each kill.
    calls: u64,
    /// Ranges of the driver on which a killed uvmd's advice was in force; none was left after the
    /// restarts.
    advised_ranges: u64,
    verified_bytes: u64,
    /// Always 0: all processes were registered with the driver when they were killed.
    killed_at_any_time: u64,
    pub(crate) failures: Vec<Failure>,
}

const PROCESSES: u64 = 8;
/// Number of processes that are killed.
const KILLED_PROCESSES: u64 = 6;
/// Maximum working time of the processes; they are stopped at each kill of uvmd.
const WORK_MS: u64 = 200_000;
/// Maximum delay of the processes' kills.
const KILL_DELAY_MAX_MS: u64 = 20_000;
/// Time limit of a round; a longer one hangs.
const ROUND: Duration = Duration::from_mins(4);
/// Kills of uvmd per round.
const UVMD_KILLS: u64 = 2;
/// Time limit for uvmd's first advice; uvmd is killed after it even if it has given none.
const FIRST_ADVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// Rounds more, at most, if no killed uvmd has left advice in those with enough kills: whether it
/// does is not ours to decide.
const MORE_ROUNDS: u64 = 3;
/// Maximum of the random delay of uvmd's kill.
const UVMD_KILL_DELAY_MAX_MS: u64 = 1_500;
/// Time limit within which a restarted uvmd must withdraw the advice in force.
const WITHDRAWAL_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Soaks until there are enough kills or a check fails.
pub(crate) fn soak(options: &Options) -> anyhow::Result<Summary> {
    let gpus = gpus()?;
    let mut log = Log::whole()?;
    let mut service = Service::start(&policy::options(model::policy::CHOOSER, &options.uvmd)?)?;
    let mut summary = Summary { seed: options.seed, ..Summary::default() };
    let started = Instant::now();
    let mut more_rounds = MORE_ROUNDS;
    for seed in options.seed.. {
        if !summary.failures.is_empty() {
            break;
        }
        if summary.kills() >= options.kills {
            if summary.advised_ranges > 0 || more_rounds == 0 {
                break;
            }
            more_rounds -= 1;
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
        let reason = "no killed uvmd had left advice, so its withdrawal was not tested".to_owned();
        summary.failures.push(Failure { seed: 0, fate: "End".to_owned(), reason });
    }
    Ok(summary)
}

fn round(seed: u64, service: &mut Service, summary: &mut Summary) -> anyhow::Result<()> {
    let deadline = Instant::now() + ROUND;
    let mut dice = Dice::new(seed);
    let scenario = parse("soak", &scenario(&mut dice))?;
    // uvmd runs before the processes start, so that it has seen all advice on their memory;
    // otherwise it gives none.
    let mut team = Team::start(&scenario, false, deadline)?;
    for _ in 0..UVMD_KILLS {
        summary.calls += work_and_kill(&mut team, service, &mut dice, deadline)?;
        summary.uvmd_killed += 1;
        // The processes have stopped, and no uvmd acts.
        summary.advised_ranges += advised(&mut team, deadline)?.len() as u64;
        service.restart()?;
        wait_for_withdrawal(&mut team, deadline)?;
    }
    summary.rounds += 1;
    team.finish(deadline)?;
    for member in team.members() {
        summary.add(member)?;
    }
    Ok(())
}

/// Lets the processes work until uvmd, which acts on them, has been killed. Returns the number of
/// its calls.
fn work_and_kill(team: &mut Team, service: &mut Service, dice: &mut Dice, deadline: Instant) -> anyhow::Result<u64> {
    thread::scope(|scope| {
        let stop = team.sender();
        let killer = scope.spawn(move || {
            let calls = kill(service, dice);
            // The receiver is gone only if the work has ended with an error.
            let _ = stop.send(Event::Stop);
            calls
        });
        let result = team.go(deadline);
        let calls = killer.join().map_err(|_| anyhow!("the thread that kills panicked"))?;
        result?;
        calls
    })
}

/// Kills uvmd soon after its first advice.
fn kill(service: &mut Service, dice: &mut Dice) -> anyhow::Result<u64> {
    let client = Client::new(service::URL);
    let begin = Instant::now();
    // A uvmd that is too busy to answer is killed, too.
    while begin.elapsed() < FIRST_ADVICE_TIMEOUT && !decided::has_advised(&client).unwrap_or(false) {
        thread::sleep(POLL_INTERVAL);
    }
    thread::sleep(Duration::from_millis(dice.between(0, UVMD_KILL_DELAY_MAX_MS)));
    let calls = decided::calls(&client).unwrap_or(0);
    service.kill()?;
    Ok(calls)
}

fn advised(team: &mut Team, deadline: Instant) -> anyhow::Result<Vec<Advised>> {
    team.order(&Command::Advice, deadline)?;
    let living = team.members().iter().filter(|member| member.end.is_none());
    Ok(living.flat_map(|member| member.advised.clone()).collect())
}

fn wait_for_withdrawal(team: &mut Team, deadline: Instant) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let remaining = advised(team, deadline)?;
        let Some(Advised { begin: first, end, description }) = remaining.first() else { return Ok(()) };
        if begin.elapsed() > WITHDRAWAL_TIMEOUT {
            bail!(
                "a killed uvmd's advice is still in force on {} ranges, such as {first:#x} to {end:#x}: {description}",
                remaining.len()
            );
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Scenario with eight processes, of which six are killed from outside. The first two exchange
/// memory between CPU and GPU and are never killed: their memory receives the advice.
fn scenario(dice: &mut Dice) -> String {
    let mut text = "name = \"soak\"\ngpu_mem_mib = 64\n".to_owned();
    // If everything fits, memory only moves between CPU and GPU; otherwise much of that is evicted.
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
        if number >= PROCESSES - KILLED_PROCESSES {
            let _ = writeln!(text, "kill_after_ms = {}", dice.between(500, KILL_DELAY_MAX_MS));
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
            "{calls} calls by the killed ones; their advice was in force on {advised_ranges} ranges, and withdrawn"
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
    fn every_seed_gives_eight_processes_of_which_six_are_killed() {
        for seed in 0..100 {
            let text = scenario(&mut Dice::new(seed));
            let parsed = parse("soak", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(parsed.processes.len(), 8);
            assert_eq!(parsed.processes.iter().filter(|process| process.kill_after.is_some()).count(), 6);
        }
    }
}
