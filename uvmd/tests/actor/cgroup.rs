//! Place of an actor, and its effects on its cgroup.

use std::{fs, os::fd::AsFd, time::Duration};

use sys::actor::{ActorError, Ending};

use crate::support::{Cgroup, SHORT, Target, call, file, oom_score_adj, reply, spawner, state, until, works};

#[test]
fn only_the_actor_is_in_the_requested_cgroup() {
    let Some(cgroup) = Cgroup::new("placed") else { return };
    let target = Target::start();
    cgroup.take(target.held.pid());
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], Some(cgroup.open().as_fd())).unwrap();
    assert!(works(&mut actor, &target.held));
    let mut expected = vec![target.held.pid(), actor.pid()];
    let mut found = cgroup.processes();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn actor_is_the_first_oom_victim_of_a_cgroup_and_the_spawner_is_not() {
    let Some(cgroup) = Cgroup::new("killed-first") else { return };
    let target = Target::start();
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], Some(cgroup.open().as_fd())).unwrap();
    let long = Duration::from_mins(2);
    assert!(actor.is_confined(&target.held, long).unwrap());
    let own = oom_score_adj(std::process::id());
    assert_eq!([actor.pid(), spawner.pid()].map(oom_score_adj), [1000, own]);
    assert!(actor.is_confined(&target.held, long).unwrap(), "said once, and known from then on");
    assert!(works(&mut actor, &target.held));
}

#[test]
fn cgroup_is_removable_once_its_own_processes_exit() {
    let Some(cgroup) = Cgroup::new("emptied") else { return };
    let mut target = Target::start();
    cgroup.take(target.held.pid());
    let mut spawner = spawner();
    for _ in 0..3 {
        let mut actor = spawner.start_actor(&[file()], Some(cgroup.open().as_fd())).unwrap();
        assert!(works(&mut actor, &target.held));
        assert!(spawner.end(actor).is_ok());
        // At once, as the end of a step does not wait either.
        assert_eq!(cgroup.processes(), [target.held.pid()]);
    }
    target.kill();
    until("it is not empty", || cgroup.is("populated 0"));
    fs::remove_dir(&cgroup.0).unwrap();
}

#[test]
fn kill_of_a_cgroup_kills_the_actor() {
    let Some(cgroup) = Cgroup::new("killed") else { return };
    let target = Target::start();
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], Some(cgroup.open().as_fd())).unwrap();
    assert!(works(&mut actor, &target.held));
    cgroup.write("cgroup.kill", "1");
    until("it is not empty", || cgroup.is("populated 0"));
    assert!(matches!(reply(&mut actor, &target.held), Err(ActorError::Ended(_))));
    assert_eq!(spawner.end(actor).unwrap(), Ending::Killed(9));
    fs::remove_dir(&cgroup.0).unwrap();
}

#[test]
fn an_actor_in_a_frozen_cgroup_hangs_and_can_be_killed() {
    let Some(cgroup) = Cgroup::new("frozen") else { return };
    let target = Target::start();
    cgroup.take(target.held.pid());
    cgroup.write("cgroup.freeze", "1");
    until("it does not freeze", || cgroup.is("frozen 1"));
    let mut spawner = spawner();
    let mut actor = spawner.start_actor(&[file()], Some(cgroup.open().as_fd())).unwrap();
    actor.ask(&target.held, 0, call()).unwrap();
    assert!(actor.reply(&target.held, SHORT).unwrap().is_none());
    let pid = actor.pid();
    assert!(spawner.end(actor).is_ok());
    assert_eq!(state(pid), None);
    // It was not thawed meanwhile.
    assert!(cgroup.is("frozen 1"));
    assert_eq!(cgroup.processes(), [target.held.pid()]);
}

#[test]
fn actor_starts_elsewhere_after_a_failed_start() {
    let Some(cgroup) = Cgroup::new("removed") else { return };
    let removed = cgroup.open();
    drop(cgroup);
    let target = Target::start();
    let mut spawner = spawner();
    let no_cgroup = file();
    for folder in [removed.as_fd(), no_cgroup.as_fd()] {
        let error = spawner.start_actor(&[file()], Some(folder)).map(drop).unwrap_err();
        assert!(matches!(error, ActorError::NotStarted(_)), "{error}");
    }
    assert!(works(&mut spawner.start_actor(&[file()], None).unwrap(), &target.held));
}

#[test]
fn threaded_cgroup_is_supported() {
    // Its memory is charged to the cgroup of its domain, for the target as for the actor.
    let Some(cgroup) = Cgroup::new("threaded") else { return };
    cgroup.write("cgroup.type", "threaded");
    let target = Target::start();
    let mut spawner = spawner();
    assert!(works(&mut spawner.start_actor(&[file()], Some(cgroup.open().as_fd())).unwrap(), &target.held));
}
