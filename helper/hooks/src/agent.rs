//! The helper's thread, which executes commands of uvmd.
//!
//! The first call that is recorded in [`Act`](call_ring::Mode::Act) starts it, once. It waits on
//! the command futex, executes a command, and answers. In other modes it executes no
//! commands. While it follows a [plan](crate::plan), it waits for moves that begin, and checks for
//! commands and uvmd's heartbeat every 100 ms, or every 10 ms within a second of a command, as
//! others may follow.
//!
//! It does not keep a process alive whose threads end one by one: it ends within a second after the
//! first thread. It does not check for other threads, as the driver may have threads of its own.
//! The exit of the process waits for the part in progress, and no part begins after that. So the
//! driver's exit handler, which runs next, never coincides with a call of this thread.

#![expect(unsafe_code, reason = "functions that the C library calls with a pointer")]

use core::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicU64, Ordering},
};

use call_ring::{
    command::{AgentState, CommandResult, Response},
    plan::Reason,
};

use crate::{
    act::Executor,
    clock,
    first_stage::FirstStage,
    headroom,
    mapping::Words,
    plan::Mover,
    process,
    system::{self, Sharing, WaitResult},
    threads::{STACK_BYTES, Threads},
    watch::{CHECK_INTERVAL_NS, Watch},
};

/// Address space that the C library reserves for a thread's allocations.
const ARENA_BYTES: u64 = 128 << 20;

/// Intervals of checks for commands and uvmd's heartbeat while a plan is followed: normally, and
/// for a second after a command.
const POLL_INTERVAL_NS: u64 = 100_000_000;
const BUSY_POLL_INTERVAL_NS: u64 = 10_000_000;

/// The helper's thread.
#[derive(Debug)]
pub(crate) struct Agent {
    /// 1 once the thread was started, or failed to start.
    is_started: &'static AtomicU64,
    threads: Option<Threads>,
    /// Count of system call filters when the helper was loaded.
    filters: Option<u64>,
    first_stage: FirstStage,
    executor: Executor,
    mover: Mover,
}

impl Agent {
    /// Creates the agent without starting its thread.
    pub(crate) fn new(
        first_stage: FirstStage,
        threads: Option<Threads>,
        words: &mut Words,
        executor: Executor,
        mover: &Mover,
    ) -> Option<Self> {
        let filters = first_stage.filters();
        executor.memory.set_filters(filters);
        Some(Self { is_started: words.next()?, threads, filters, first_stage, executor, mover: *mover })
    }

    /// Starts the thread, once.
    pub(crate) fn start(&'static self) {
        if self.is_started.load(Ordering::Relaxed) == 0 && self.is_started.swap(1, Ordering::AcqRel) == 0 {
            let threads = self.threads.filter(|_| self.is_permitted());
            let this = (&raw const *self).cast_mut().cast();
            // The exit handler first: without it, the thread could call the driver while the driver
            // shuts down.
            if !threads.is_some_and(|threads| threads.at_exit(on_process_exit, this) && threads.start(run, this)) {
                self.executor.memory.commands().set_agent_state(AgentState::Ended);
            }
        }
    }

    /// Whether the calling thread is known to have only the system call filters with which the
    /// helper was loaded.
    pub(crate) fn has_initial_filters(&self) -> bool {
        self.filters.is_some() && self.first_stage.filters() == self.filters
    }

    /// Whether the thread cannot harm the program.
    fn is_permitted(&self) -> bool {
        // A filter installed since then may kill the program for creating a thread. Under the
        // earlier filters, the driver has created threads of its own.
        self.has_initial_filters()
            && headroom::has_room(STACK_BYTES as u64, STACK_BYTES as u64 + ARENA_BYTES)
            && process::can_detect_end()
    }

    fn serve(&self) {
        let (executor, commands) = (&self.executor, self.executor.memory.commands());
        let mut watch = Watch::new(executor.gate);
        // Time of the last command, if less than a second ago.
        let mut last_command_ns = None;
        while !watch.must_end() {
            // Reports the thread as ended, so that uvmd acts from outside. The thread itself does
            // not end, as that takes system calls.
            if executor.permission.is_revoked() {
                commands.set_agent_state(AgentState::Ended);
            }
            let Some((word, stage)) = commands.futex() else { return };
            let is_following = self.mover.follow(&mut watch);
            let Some((ticket, command)) = commands.take() else {
                if is_following {
                    self.mover.plan.wait(if last_command_ns.is_some() {
                        BUSY_POLL_INTERVAL_NS
                    } else {
                        POLL_INTERVAL_NS
                    });
                    if last_command_ns
                        .is_some_and(|time_ns| clock::monotonic_ns().saturating_sub(time_ns) >= CHECK_INTERVAL_NS)
                    {
                        last_command_ns = None;
                        executor.release_idle();
                    }
                    continue;
                }
                match system::wait(word, stage, Sharing::Shared, CHECK_INTERVAL_NS) {
                    WaitResult::Woken => {}
                    WaitResult::TimedOut => {
                        executor.release_idle();
                        self.mover.release_idle();
                    }
                    WaitResult::Failed => return,
                }
                continue;
            };
            let refused = |result| Response { result, advice_calls: 0 };
            let response = match command {
                _ if !executor.permission.is_granted() => refused(CommandResult::NotActing),
                Some(command) => executor.execute(&command, &mut watch),
                None => refused(CommandResult::Unsupported),
            };
            last_command_ns = Some(clock::monotonic_ns());
            commands.respond(ticket, response);
        }
    }
}

/// Agent that was passed as a pointer.
fn agent(this: *mut c_void) -> &'static Agent {
    // SAFETY: `start` passes an agent with the lifetime `'static`.
    unsafe { &*this.cast::<Agent>() }
}

/// Runs at the process's exit: waits for the part of a command in progress, and permits no further
/// one. In a forked child, none is in progress.
extern "C" fn on_process_exit(this: *mut c_void) {
    let agent = agent(this);
    agent.mover.plan.stop(Reason::Exit);
    agent.executor.gate.shut();
}

/// Main function of the thread.
extern "C" fn run(this: *mut c_void) -> *mut c_void {
    let agent = agent(this);
    system::name_thread(c"uvmd-helper");
    agent.executor.gate.set_owner();
    let commands = agent.executor.memory.commands();
    commands.set_agent_state(AgentState::Running);
    agent.serve();
    agent.mover.shut_down();
    agent.executor.shut_down();
    commands.set_agent_state(AgentState::Ended);
    null_mut()
}
