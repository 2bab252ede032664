//! Both sides of a command.
#![cfg(test)]

use std::sync::atomic::AtomicU64;

use call_ring::{
    Command, Commands, Memory, Mode, TOTAL_BYTES,
    command::{Action, AgentState, Busy, CommandResult, NoResponse, Response, Submission, Ticket},
    operation::{apply, copy_of},
};

const COMMAND: Command =
    Command { action: Action::PreferHost, gpu: *b"0123456789abcdef", begin: 0x20_0000, end: 0x40_0000 };

fn words() -> Vec<AtomicU64> {
    (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect()
}

/// Slot of uvmd, which reads copies.
struct Uvmd<'a>(&'a [AtomicU64]);

impl Uvmd<'_> {
    fn of<T>(&self, read: impl FnOnce(Commands<'_, u64>) -> T) -> T {
        read(Memory::open(&copy_of(self.0)).unwrap().commands())
    }

    fn submit(&self, command: &Command) -> Result<Ticket, Busy> {
        let Submission { ticket, operations } = self.of(|commands| commands.submit(command))?;
        assert_eq!(apply(operations, self.0), operations.len());
        assert!(self.of(|commands| commands.has(ticket)));
        Ok(ticket)
    }

    fn revoke(&self, ticket: Ticket) -> bool {
        apply([self.of(|commands| commands.revoke(ticket))], self.0) == 1
    }

    fn response(&self, ticket: Ticket) -> Result<Response, NoResponse> {
        self.of(|commands| commands.response(ticket, &commands))
    }
}

#[test]
fn command_and_answer_round_trip() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    assert!(memory.has_commands());
    let (commands, uvmd) = (memory.commands(), Uvmd(&words));
    assert_eq!((commands.agent_state(), commands.take()), (AgentState::NotStarted, None));
    for result in [
        CommandResult::Done,
        CommandResult::Failed(801),
        CommandResult::NotAllocated,
        CommandResult::ProgramAdvice,
        CommandResult::NoDevice,
    ] {
        let ticket = uvmd.submit(&COMMAND).unwrap();
        assert_eq!(uvmd.response(ticket), Err(NoResponse::Pending));
        assert_eq!(commands.take(), Some((ticket, Some(COMMAND))));
        assert_eq!((commands.take(), uvmd.response(ticket)), (None, Err(NoResponse::Taken)));
        let response = Response { result, advice_calls: 3 };
        commands.respond(ticket, response);
        assert_eq!(uvmd.response(ticket), Ok(response));
    }
}

#[test]
fn revoked_command_is_not_taken() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let (commands, uvmd) = (memory.commands(), Uvmd(&words));
    let ticket = uvmd.submit(&COMMAND).unwrap();
    assert!(uvmd.revoke(ticket));
    assert_eq!(commands.take(), None);
    assert_eq!(uvmd.response(ticket), Err(NoResponse::Invalid));
    // A pending command of a former uvmd is revoked by the next uvmd.
    let former = uvmd.submit(&COMMAND).unwrap();
    let next = uvmd.submit(&Command { action: Action::EnableReadDuplication, ..COMMAND }).unwrap();
    let taken = commands.take().unwrap();
    assert_eq!((taken.0, taken.1.unwrap().action), (next, Action::EnableReadDuplication));
    assert_ne!(former, next);
}

#[test]
fn taken_command_cannot_be_revoked_or_replaced() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let (commands, uvmd) = (memory.commands(), Uvmd(&words));
    let ticket = uvmd.submit(&COMMAND).unwrap();
    let _ = commands.take().unwrap();
    assert!(!uvmd.revoke(ticket));
    assert_eq!(uvmd.submit(&COMMAND), Err(Busy));
    commands.respond(ticket, Response { result: CommandResult::Done, advice_calls: 0 });
    assert!(uvmd.submit(&COMMAND).is_ok());
}

#[test]
fn invalid_command_is_taken_and_has_to_be_answered() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let (commands, uvmd) = (memory.commands(), Uvmd(&words));
    let ticket = uvmd.submit(&Command { end: COMMAND.begin, ..COMMAND }).unwrap();
    assert_eq!(commands.take(), Some((ticket, None)));
}

#[test]
fn command_taken_since_the_copy_was_made_stays_as_it_is() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let (commands, uvmd) = (memory.commands(), Uvmd(&words));
    let first = uvmd.submit(&COMMAND).unwrap();
    let next = uvmd.of(|commands| commands.submit(&Command { action: Action::PreferGpu, ..COMMAND })).unwrap();
    let revoke = uvmd.of(|commands| commands.revoke_pending()).unwrap();
    assert_eq!(commands.take(), Some((first, Some(COMMAND))));
    assert_eq!((apply(next.operations, &words), apply([revoke], &words)), (0, 0));
    assert!(uvmd.of(|commands| commands.is_taken() && commands.has(first) && commands.revoke_pending().is_none()));
}
