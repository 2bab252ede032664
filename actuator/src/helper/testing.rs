//! Process with a ring, in which another run of these tests plays the helper.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    num::NonZeroUsize,
    os::unix::fs::MetadataExt,
    process::{Child, ChildStdin, Command, Stdio, exit},
    sync::{
        atomic::Ordering,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use call_ring::{
    Memory, Mode, NAME, TOTAL_BYTES,
    command::{AgentState, CommandResult, Response},
    memory::MAJOR,
};
use model::ProcessId;
use sys::{Roots, futex, pidfd::PidFd, processes, seccomp, shared_memory::SharedMemory};

use super::{Ring, ring::RingError};
use crate::inspections::Inspections;

/// Environment variable with the behaviour of this process.
const BEHAVIOUR: &str = "UVMD_TEST_HELPER";
/// Longer than any operation.
pub(crate) const LONG: Duration = Duration::from_mins(2);

/// Advice calls of the helper per command, as for that number of blocks.
pub(crate) const ADVICE_CALLS: u64 = 8;

/// Behaviour of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Reports each command, and then gives it this result.
    Answers(CommandResult),
    /// Reports the command, and answers `Done` once it is released.
    Hangs,
    /// Starts its thread, which takes no command.
    Sleeps,
    /// Starts no thread, as in a program without calls.
    NeverStarts,
    /// Fails to start its thread.
    Fails,
    /// Takes the command, and the process overwrites the ring.
    Overwrites,
    /// Passes calls through.
    IsOff,
    /// Started before the program installed a filter of system calls.
    IsFiltered,
    /// Is of a version without commands.
    IsOlder,
    /// The process has no ring.
    IsAbsent,
}

impl Behaviour {
    const ALL: [Self; 17] = [
        Self::Answers(CommandResult::Done),
        Self::Answers(CommandResult::Failed(1)),
        Self::Answers(CommandResult::Failed(600)),
        Self::Answers(CommandResult::NotAllocated),
        Self::Answers(CommandResult::ProgramAdvice),
        Self::Answers(CommandResult::NoDevice),
        Self::Answers(CommandResult::Unsupported),
        Self::Answers(CommandResult::NotActing),
        Self::Hangs,
        Self::Sleeps,
        Self::NeverStarts,
        Self::Fails,
        Self::Overwrites,
        Self::IsOff,
        Self::IsFiltered,
        Self::IsOlder,
        Self::IsAbsent,
    ];

    fn name(self) -> String {
        format!("{self:?}")
    }
}

/// Whether this machine lets the test open mappings of others.
pub(crate) fn is_permitted() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    assert!(is_root || env::var_os("UVMD_TEST_REQUIRE_ROOT").is_none());
    is_root
}

/// Process, killed on drop.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    reports: Receiver<String>,
    pub(crate) process: PidFd,
}

impl Program {
    pub(crate) fn start(behaviour: Behaviour) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "helper::testing::plays_a_helper"]).env(BEHAVIOUR, behaviour.name());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, reports) = mpsc::channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            let reported = lines.filter_map(|line| line.strip_prefix("helper: ").map(str::to_owned));
            reported.for_each(|line| drop(sender.send(line)));
        });
        let (input, process) = (child.stdin.take().unwrap(), PidFd::open(child.id()).unwrap());
        let program = Self { child, input, reports, process };
        assert_eq!(program.next_report(), "ready");
        program
    }

    /// Starts the process and the helper's thread, as a call of the program does after uvmd has set
    /// the mode.
    pub(crate) fn start_acting(behaviour: Behaviour) -> Self {
        let program = Self::start(behaviour);
        let ring = open(&program.process).unwrap();
        while ring.agent_state().unwrap() != AgentState::Running {
            thread::sleep(Duration::from_millis(1));
        }
        program
    }

    pub(crate) fn id(&self) -> ProcessId {
        let pid = self.process.pid();
        ProcessId { pid, start_ticks: processes::start_ticks(&Roots::default(), pid).unwrap().unwrap() }
    }

    /// Next report of the helper.
    pub(crate) fn next_report(&self) -> String {
        self.reports.recv_timeout(LONG).unwrap()
    }

    /// Next reports of the helper.
    pub(crate) fn next_reports(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next_report()).collect()
    }

    /// Takes the next report, and returns whether there was one.
    pub(crate) fn has_reported(&self) -> bool {
        self.reports.try_recv().is_ok()
    }

    /// Lets a helper that hangs continue.
    pub(crate) fn release(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Memory of the ring of a process.
pub(crate) fn memory_of(process: &PidFd) -> Option<SharedMemory> {
    Inspections::default().ring(&Roots::default(), process.pid(), Duration::ZERO).unwrap()
}

/// Ring of this process, whose helper acts from now on.
pub(crate) fn open(process: &PidFd) -> Result<Ring, RingError> {
    Ring::open(&Roots::default(), process, memory_of(process), &mut 0)
}

fn report(line: &str) {
    // On a new line: the test harness may have written part of one.
    writeln!(io::stdout(), "\nhelper: {line}").unwrap();
}

#[test]
fn plays_a_helper() {
    let Ok(name) = env::var(BEHAVIOUR) else { return };
    let behaviour = Behaviour::ALL.into_iter().find(|behaviour| behaviour.name() == name).unwrap();
    let (sender, released) = mpsc::channel();
    thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).for_each(|_| _ = sender.send(()));
        exit(0);
    });
    if behaviour == Behaviour::IsAbsent {
        report("ready");
        loop {
            thread::park();
        }
    }
    let shared = SharedMemory::create(NAME, NonZeroUsize::new(TOTAL_BYTES).unwrap()).unwrap();
    let words = shared.words();
    let mode = if behaviour == Behaviour::IsOff { Mode::Off } else { Mode::Record };
    let memory = Memory::create(words, mode).unwrap();
    let filters = seccomp::own(&Roots::default()).unwrap();
    memory.set_filters(if behaviour == Behaviour::IsFiltered { filters.map(|filters| filters + 1) } else { filters });
    if behaviour == Behaviour::IsOlder {
        words[1].store(u64::from(MAJOR) << 32, Ordering::Release);
    }
    if behaviour == Behaviour::Fails {
        memory.commands().set_agent_state(AgentState::Ended);
    }
    report("ready");
    while memory.mode() != Mode::Act
        || matches!(behaviour, Behaviour::NeverStarts | Behaviour::IsOff | Behaviour::IsOlder | Behaviour::Fails)
    {
        // As if the program made a call.
        thread::sleep(Duration::from_millis(1));
    }
    let commands = memory.commands();
    commands.set_agent_state(AgentState::Running);
    loop {
        let (word, value) = commands.futex().unwrap();
        let taken = if behaviour == Behaviour::Sleeps { None } else { commands.take() };
        let Some((ticket, command)) = taken else {
            futex::wait(word, value, LONG);
            continue;
        };
        let command = command.unwrap();
        report(&format!("{:?} {:#x} {:#x} {}", command.action, command.begin, command.end, command.gpu[0]));
        match behaviour {
            Behaviour::Answers(result) => commands.respond(ticket, Response { result, advice_calls: ADVICE_CALLS }),
            Behaviour::Overwrites => words.iter().for_each(|word| word.store(u64::MAX, Ordering::Release)),
            _ => {
                released.recv().unwrap();
                commands.respond(ticket, Response { result: CommandResult::Done, advice_calls: ADVICE_CALLS });
            }
        }
        futex::wake(word);
    }
}
