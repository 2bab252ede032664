//! Exits that follow other exits.

use std::{mem, thread, time::Duration};

use rustix::process::Signal;
use sys::{
    actor::{ActorError, Ending, Spawner},
    executable::Program,
    pidfd::PidFdError,
};

use crate::support::{SHORT, Target, call, file, has_ended, reply, signal, spawner, state, stop, until, works};

#[test]
fn actor_exits_when_its_handle_is_dropped() {
    let target = Target::start();
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], None).unwrap();
    let pid = actor.pid();
    assert!(works(&mut actor, &target.held));
    assert!(spawner.end(actor).is_ok());
    assert_eq!(state(pid), None, "it has ended and was reaped");
}

#[test]
fn call_ends_when_the_target_exits() {
    let mut target = Target::start();
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], None).unwrap();
    assert!(works(&mut actor, &target.held));
    stop(actor.pid());
    actor.ask(&target.held, 0, call()).unwrap();
    target.kill();
    let gone = |error| matches!(error, ActorError::Target(PidFdError::NoProcess(pid)) if pid == target.held.pid());
    assert!(gone(actor.reply(&target.held, Duration::from_mins(2)).map(drop).unwrap_err()));
    assert!(gone(actor.ask(&target.held, 0, call()).unwrap_err()), "and no other call is begun");
    assert_eq!(spawner.end(actor).unwrap(), Ending::Killed(9));
}

#[test]
fn actor_dies_with_its_spawner() {
    let target = Target::start();
    let mut spawner = spawner();
    let spawner_pid = spawner.pid();
    let mut actor = spawner.start_actor(&[file()], None).unwrap();
    assert!(works(&mut actor, &target.held));
    let pid = actor.pid();
    stop(pid);
    actor.ask(&target.held, 0, call()).unwrap();
    assert!(actor.reply(&target.held, SHORT).unwrap().is_none());
    signal(spawner_pid, Signal::KILL);
    until("it outlives its spawner", || has_ended(pid));
    assert!(matches!(reply(&mut actor, &target.held), Err(ActorError::Ended(_))));
    let unreaped = spawner.end(actor).unwrap_err();
    assert!(unreaped.wait_for_exit(Duration::from_mins(2)).unwrap());
    assert!(matches!(spawner.start_actor(&[file()], None), Err(ActorError::SpawnerGone(_))));
    drop(spawner);
    assert_eq!(state(spawner_pid), None, "it was reaped");
}

#[test]
fn spawner_and_actor_die_with_their_parent() {
    // A thread, as a spawner belongs to one, and a killed process ends all of its threads.
    let (spawner_pid, pid) = thread::spawn(|| {
        let target = Target::start();
        let spawner = Box::leak(Box::new(spawner()));
        let spawner_pid = spawner.pid();
        let mut actor = spawner.start_actor(&[file()], None).unwrap();
        assert!(works(&mut actor, &target.held));
        let pid = actor.pid();
        stop(pid);
        mem::forget(actor);
        (spawner_pid, pid)
    })
    .join()
    .unwrap();
    until("they outlive it", || has_ended(spawner_pid) && has_ended(pid));
}

#[test]
fn a_spawner_ends_with_its_handle() {
    let spawner = spawner();
    let pid = spawner.pid();
    drop(spawner);
    assert_eq!(state(pid), None);
}

#[test]
fn hung_actor_is_killed() {
    let spawner = spawner();
    let pid = spawner.pid();
    stop(pid);
    drop(spawner);
    assert_eq!(state(pid), None);
}

#[test]
fn a_program_that_is_no_spawner_is_an_error() {
    for program in ["/nonexistent", "/bin/true"] {
        let error = Spawner::start(&Program::at(program)).map(drop).unwrap_err();
        assert!(matches!(error, ActorError::NoSpawner(_)), "{error}");
    }
}
