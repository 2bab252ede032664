//! Both sides of a command.
#![cfg(test)]

use std::sync::atomic::AtomicU64;

use call_ring::{
    Command, Memory, Mode, TOTAL_BYTES,
    command::{Action, AgentState, Answer, Busy, NoAnswer, Response},
};

const COMMAND: Command =
    Command { action: Action::PreferHost, gpu: *b"0123456789abcdef", begin: 0x20_0000, end: 0x40_0000 };

fn words() -> Vec<AtomicU64> {
    (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn command_and_answer_round_trip() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    assert!(memory.has_commands());
    let commands = memory.commands();
    assert_eq!((commands.agent_state(), commands.take()), (AgentState::NotStarted, None));
    for answer in [Answer::Done, Answer::Failed(801), Answer::NotAllocated, Answer::ProgramAdvice, Answer::NoDevice] {
        let ticket = commands.submit(&COMMAND).unwrap();
        assert_eq!(commands.response(ticket), Err(NoAnswer::Pending));
        assert_eq!(commands.take(), Some((ticket, Some(COMMAND))));
        assert_eq!((commands.take(), commands.response(ticket)), (None, Err(NoAnswer::Taken)));
        let response = Response { answer, advice_calls: 3 };
        commands.respond(ticket, response);
        assert_eq!(commands.response(ticket), Ok(response));
    }
}

#[test]
fn revoked_command_is_not_taken() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let commands = memory.commands();
    let ticket = commands.submit(&COMMAND).unwrap();
    assert!(commands.revoke(ticket));
    assert_eq!(commands.take(), None);
    assert_eq!(commands.response(ticket), Err(NoAnswer::Invalid));
    // A pending command of a former uvmd is revoked by the next uvmd.
    let former = commands.submit(&COMMAND).unwrap();
    let next = commands.submit(&Command { action: Action::EnableReadDuplication, ..COMMAND }).unwrap();
    let taken = commands.take().unwrap();
    assert_eq!((taken.0, taken.1.unwrap().action), (next, Action::EnableReadDuplication));
    assert_ne!(former, next);
}

#[test]
fn taken_command_cannot_be_revoked_or_replaced() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let commands = memory.commands();
    let ticket = commands.submit(&COMMAND).unwrap();
    let _ = commands.take().unwrap();
    assert!(!commands.revoke(ticket));
    assert_eq!(commands.submit(&COMMAND), Err(Busy));
    commands.respond(ticket, Response { answer: Answer::Done, advice_calls: 0 });
    assert!(commands.submit(&COMMAND).is_ok());
}

#[test]
fn invalid_command_is_taken_and_has_to_be_answered() {
    let words = words();
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let commands = memory.commands();
    let ticket = commands.submit(&Command { end: COMMAND.begin, ..COMMAND }).unwrap();
    assert_eq!(commands.take(), Some((ticket, None)));
}
