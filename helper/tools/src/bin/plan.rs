//! Publishes plans for a program with the helper, in place of uvmd: `plan PID`. Reads a command
//! from each line of standard input, and answers with a line of JSON. Sends a heartbeat each
//! second. For tests.
//!
//! * `mode off | record | act`
//! * `learn PERIOD`: takes the last launches as an iteration; pointers that differ from those of
//!   the previous iteration match any pointers
//! * `publish BUDGET MOVE...`, a move as `BEGIN:BYTES:gpu|host:BEGIN_OP:WAIT_OP[:EXPIRY_OP]`, with `-`
//!   for no op that waits
//! * `publish-for-ever BUDGET MOVE...`: the same plan repeatedly, without an answer
//! * `withdraw`, `report`, `beat on | off`, `exit`

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::{
    collections::BTreeMap,
    env,
    io::{self, BufRead},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use call_ring::{
    Memory, Mode, Operation, Plan, PlanMemory, Token,
    command::FUTEX_WORD,
    memory::HEADER_WORDS,
    plan::{Destination, HANDOVER_WAIT_MAX_NS, HEADER_BYTES, Move, Reason, Report, heartbeat},
};
use helper_tools::{DEFAULT_GPU, prepare};
use recorder::{Memories, Process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use sys::{Roots, shared_memory::SharedMemory};

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Recorded launches, and the iteration learnt from them.
struct Launches {
    process: Process,
    /// Tokens of launches by number in 64 bits.
    tokens: BTreeMap<u64, Token>,
    iteration: Vec<Token>,
    /// Number of the iteration's first launch.
    first_launch: u32,
}

impl Launches {
    fn learn(&mut self, period: usize) -> anyhow::Result<Value> {
        // Polls often enough for the merge to give up on the calls that an earlier reader has read.
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.extend(self.process.poll()?);
        }
        for call in calls {
            let last = self.tokens.last_key_value().map(|(last, _)| *last);
            if let (Some(token), Some(number)) = (call.token(), call.number_near(last)) {
                self.tokens.insert(number, token);
            }
        }
        let before = self.tokens.len().checked_sub(2 * period).context("too few launches")?;
        let (numbers, both): (Vec<u64>, Vec<Token>) =
            self.tokens.iter().skip(before).map(|(number, token)| (*number, *token)).unzip();
        if !numbers.is_sorted_by(|number, next| number + 1 == *next) {
            bail!("launches were dropped, or failed");
        }
        let (previous_tokens, tokens) = both.split_at(period);
        let pairs = || previous_tokens.iter().zip(tokens);
        self.iteration = pairs()
            .map(|(previous, token)| Token {
                pointers: token.pointers.filter(|_| token.pointers == previous.pointers),
                ..*token
            })
            .collect();
        self.first_launch = numbers.get(period).copied().map_or(0, low);
        let differ = pairs().filter(|(previous, token)| token.signature != previous.signature).count();
        Ok(json!({ "first_launch": self.first_launch, "differ": differ }))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits")]
const fn low(number: u64) -> u32 {
    number as u32
}

fn parse_move(text: &str) -> anyhow::Result<Move> {
    let parts = text.split(':').collect::<Vec<_>>();
    let ([begin, bytes, destination, begin_op, wait_op] | [begin, bytes, destination, begin_op, wait_op, _]) =
        parts[..]
    else {
        bail!("a move has five parts, or six");
    };
    Ok(Move {
        begin: begin.parse()?,
        bytes: bytes.parse()?,
        destination: if destination == "gpu" { Destination::Gpu } else { Destination::Host },
        begin_op: begin_op.parse()?,
        wait_op: if wait_op == "-" { None } else { Some(wait_op.parse()?) },
        expiry_op: parts.get(5).map(|op| op.parse()).transpose()?,
    })
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn report_json(Report { generation, state, counters }: Report) -> Value {
    json!({
        "generation": generation, "state": state.map(|state| format!("{state:?}")),
        "iterations": counters.iterations, "moves": counters.moves, "late": counters.late,
        "expired": counters.expired, "skipped": counters.skipped, "mismatched": counters.mismatched,
        "bytes_to_gpu": counters.bytes_to_gpu, "bytes_to_host": counters.bytes_to_host,
    })
}

/// Copy of the header of a plan.
fn header(shared: &SharedMemory) -> anyhow::Result<Vec<u64>> {
    Ok(shared.with_retries(|shared| shared.copy_words(HEADER_BYTES / size_of::<u64>()))?)
}

fn write(shared: &SharedMemory, operations: &[Operation]) -> anyhow::Result<()> {
    shared.with_retries(|shared| shared.write(operations.iter().copied(), None))?;
    Ok(())
}

/// Publishes a plan: its generation, or the reason why the helper would refuse it.
fn publish(shared: &SharedMemory, plan: &Plan<'_>) -> anyhow::Result<Result<u64, Reason>> {
    let words = header(shared)?;
    let (generation, operations) = match PlanMemory::open(&words)?.publish(plan) {
        Ok((generation, operations)) => (generation, operations.collect::<Vec<_>>()),
        Err(reason) => return Ok(Err(reason)),
    };
    write(shared, &operations)?;
    Ok(Ok(generation))
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(ended) = prepare() {
        return Ok(ended);
    }
    let (roots, pid) = (Roots::default(), env::args().nth(1).context("usage: plan PID")?.parse()?);
    let process = Process::find(&roots, pid)?.context("it has no ring")?;
    let Memories { ring, plan } = process.memories().clone();
    let shared = plan.map_err(anyhow::Error::msg)?.context("it has no plan")?;
    PlanMemory::open(&header(&shared)?)?;
    let beats = Arc::new(AtomicBool::new(true));
    thread::spawn({
        let (shared, beats) = (Arc::clone(&shared), Arc::clone(&beats));
        move || {
            loop {
                if beats.load(Ordering::Relaxed) {
                    let _ = write(&shared, &[heartbeat(now_ns())]);
                }
                thread::sleep(HEARTBEAT_INTERVAL);
            }
        }
    });
    let mut launches = Launches { process, tokens: BTreeMap::new(), iteration: Vec::new(), first_launch: 0 };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["mode", mode] => {
                let mode = [("record", Mode::Record), ("act", Mode::Act)].into_iter().find(|(name, _)| *name == mode);
                let words = ring.with_retries(|ring| ring.copy_words(HEADER_WORDS))?;
                write(&ring, &[Memory::open(&words)?.set_mode(mode.map_or(Mode::Off, |(_, mode)| mode))])?;
                json!({})
            }
            ["learn", period] => launches.learn(period.parse()?)?,
            [command @ ("publish" | "publish-waiting" | "publish-for-ever"), budget, ref moves @ ..] => {
                let moves = moves.iter().map(|text| parse_move(text)).collect::<anyhow::Result<Vec<Move>>>()?;
                let plan = Plan {
                    gpu: DEFAULT_GPU,
                    first_launch: launches.first_launch,
                    budget_bytes: budget.parse()?,
                    handover_wait_ns: if command == "publish-waiting" { HANDOVER_WAIT_MAX_NS } else { 0 },
                    tokens: &launches.iteration,
                    moves: &moves,
                };
                if command == "publish-for-ever" {
                    loop {
                        publish(&shared, &plan)?.map_err(|reason| anyhow!("refused: {reason:?}"))?;
                    }
                }
                match publish(&shared, &plan)? {
                    Ok(generation) => json!({ "generation": generation }),
                    Err(reason) => json!({ "refused": format!("{reason:?}") }),
                }
            }
            ["withdraw"] => {
                let operations = PlanMemory::open(&header(&shared)?)?.withdraw().collect::<Vec<_>>();
                write(&shared, &operations)?;
                json!({ "generation": PlanMemory::open(&header(&shared)?)?.generation() })
            }
            ["report"] => {
                let (first, later) = (header(&shared)?, header(&shared)?);
                report_json(PlanMemory::open(&first)?.report(&PlanMemory::open(&later)?))
            }
            ["beat", switch] => {
                beats.store(switch == "on", Ordering::Relaxed);
                json!({})
            }
            ["exit"] => return Ok(ExitCode::SUCCESS),
            _ => bail!("no such command: {line}"),
        };
        ring.with_retries(|ring| ring.write([], Some(FUTEX_WORD)))?;
        println!("{answer}");
    }
    Ok(ExitCode::SUCCESS)
}
