//! Plays uvmd's part in plans for a program with the helper in it: `plan PID`. Reads a command from
//! each line of standard input, and answers with a line of JSON. Beats each second. For tests.
//!
//! * `mode off | record | act`
//! * `learn PERIOD`: takes the last launches for an iteration; pointers that differ from those of the
//!   iteration before match any
//! * `publish BUDGET MOVE...`, a move as `BEGIN:BYTES:gpu|host:BEGIN_OP:WAIT_OP`, with `-` for no op
//!   that waits
//! * `withdraw`, `report`, `beat on | off`, `exit`

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::{
    env,
    io::{self, BufRead},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use call_ring::{
    Memory, Mode, NAME, PLAN_BYTES, PLAN_NAME, Plan, PlanMemory, TOTAL_BYTES, Token,
    call::Numbering,
    plan::{Destination, Move, Report},
};
use recorder::Process;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use sys::{Roots, futex, shared_memory::SharedMemory};

/// GPU of the lab, on plain memory.
const GPU: [u8; 16] = *b"lab GPU, plain \x01";
const BEAT: Duration = Duration::from_secs(1);

/// Launches that were recorded, and the iteration that was learnt of them.
struct Launches {
    process: Process,
    numbering: Numbering,
    /// Tokens of launches whose numbers are known, and the number of the first of them.
    tokens: Vec<Token>,
    first: u64,
    iteration: Vec<Token>,
    /// Number of the iteration's first launch.
    first_launch: u64,
}

impl Launches {
    fn learn(&mut self, period: usize) -> anyhow::Result<Value> {
        // Numbers that a former reader has read are waited for three polls long.
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.extend(self.process.poll()?);
        }
        for call in calls {
            let (Some(token), Some(number)) = (call.token(), self.numbering.number_of(&call)) else { continue };
            if self.tokens.is_empty() {
                self.first = number;
            }
            if number != self.first + self.tokens.len() as u64 {
                bail!("launches were dropped");
            }
            self.tokens.push(token);
        }
        let before = self.tokens.len().checked_sub(2 * period).context("too few launches")?;
        let (formers, tokens) = self.tokens.split_at(before + period);
        let pairs = || formers.iter().skip(before).zip(tokens);
        self.iteration = pairs()
            .map(|(former, token)| Token {
                pointers: token.pointers.filter(|_| token.pointers == former.pointers),
                ..*token
            })
            .collect();
        self.first_launch = self.first + (before + period) as u64;
        let differ = pairs().filter(|(former, token)| token.signature != former.signature).count();
        Ok(json!({ "first_launch": self.first_launch, "differ": differ }))
    }
}

fn one(text: &str) -> anyhow::Result<Move> {
    let [begin, bytes, destination, begin_op, wait_op] = text.split(':').collect::<Vec<_>>()[..] else {
        bail!("a move has five parts");
    };
    Ok(Move {
        begin: begin.parse()?,
        bytes: bytes.parse()?,
        destination: if destination == "gpu" { Destination::Gpu } else { Destination::Host },
        begin_op: begin_op.parse()?,
        wait_op: if wait_op == "-" { None } else { Some(wait_op.parse()?) },
    })
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn shown(Report { generation, state, counters }: Report) -> Value {
    json!({
        "generation": generation, "state": state.map(|state| format!("{state:?}")),
        "iterations": counters.iterations, "moves": counters.moves, "late": counters.late,
        "skipped": counters.skipped, "mismatched": counters.mismatched,
        "bytes_to_gpu": counters.bytes_to_gpu, "bytes_to_host": counters.bytes_to_host,
    })
}

fn main() -> anyhow::Result<()> {
    const RING_BYTES: NonZeroUsize = NonZeroUsize::new(TOTAL_BYTES).unwrap();
    const BYTES: NonZeroUsize = NonZeroUsize::new(PLAN_BYTES).unwrap();
    let (roots, pid) = (Roots::default(), env::args().nth(1).context("usage: plan PID")?.parse()?);
    let process = Process::find(&roots, pid)?.context("it has no ring")?;
    let ring = SharedMemory::of_process(&roots, pid, NAME, RING_BYTES)?.context("it has no ring")?;
    let shared = Arc::new(SharedMemory::of_process(&roots, pid, PLAN_NAME, BYTES)?.context("it has no plan")?);
    let memory = PlanMemory::open(&shared)?;
    let beats = Arc::new(AtomicBool::new(true));
    thread::spawn({
        let (shared, beats) = (Arc::clone(&shared), Arc::clone(&beats));
        move || {
            loop {
                if beats.load(Ordering::Relaxed)
                    && let Ok(memory) = PlanMemory::open(&shared)
                {
                    memory.beat(now_ns());
                }
                thread::sleep(BEAT);
            }
        }
    });
    let numbering = Numbering::default();
    let mut launches =
        Launches { process, numbering, tokens: Vec::new(), first: 0, iteration: Vec::new(), first_launch: 0 };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["mode", mode] => {
                let mode = [("record", Mode::Record), ("act", Mode::Act)].into_iter().find(|(name, _)| *name == mode);
                Memory::open(&ring)?.set_mode(mode.map_or(Mode::Off, |(_, mode)| mode));
                json!({})
            }
            ["learn", period] => launches.learn(period.parse()?)?,
            ["publish", budget, ref moves @ ..] => {
                let moves = moves.iter().map(|text| one(text)).collect::<anyhow::Result<Vec<Move>>>()?;
                let plan = Plan {
                    gpu: GPU,
                    first_launch: launches.first_launch,
                    budget_bytes: budget.parse()?,
                    tokens: &launches.iteration,
                    moves: &moves,
                };
                match memory.publish(&plan) {
                    Ok(generation) => json!({ "generation": generation }),
                    Err(reason) => json!({ "refused": format!("{reason:?}") }),
                }
            }
            ["withdraw"] => json!({ "generation": memory.withdraw() }),
            ["report"] => shown(memory.report()),
            ["beat", switch] => {
                beats.store(switch == "on", Ordering::Relaxed);
                json!({})
            }
            ["exit"] => return Ok(()),
            _ => bail!("no such command: {line}"),
        };
        if let Some((word, _)) = Memory::open(&ring)?.commands().futex() {
            futex::wake(word);
        }
        println!("{answer}");
    }
    Ok(())
}
