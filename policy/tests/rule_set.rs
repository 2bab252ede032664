//! Overrides by source: their changes, expiry and binding to processes.
#![cfg(test)]

use std::time::{Duration, SystemTime};

use model::{Budget, Mode, Override, Process, ProcessId, Selector};
use policy::rules::{Expired, Fallback, MatchResult, NewlyExpired, NoProcess, RuleSet, Subject, bind, has_ended};

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn rule(id: &str, mode: Mode) -> Override {
    Override::new(id, mode, "cycle")
}

/// Override until a time.
fn brief(id: &str, expires_at: SystemTime) -> Override {
    Override { expires_at: Some(expires_at), ..rule(id, Mode::Act) }
}

fn of_process(pid: u32, start_ticks: Option<u64>) -> Override {
    Override { selector: Selector { pid: Some(pid), start_ticks, ..Selector::default() }, ..rule("mine", Mode::Act) }
}

fn set_with(mode: Mode, stored: Option<Vec<Override>>) -> RuleSet {
    let fallback = Fallback { mode, policy: "auto-live".to_owned(), budget: Budget::default(), mode_max: Mode::Act };
    RuleSet::new(fallback, stored.map(|api_overrides| (api_overrides, Expired::new())))
}

/// Set of these overrides of the API, and none of the files.
fn set(api_overrides: Vec<Override>) -> RuleSet {
    let mut set = set_with(Mode::Observe, Some(api_overrides));
    set.replace_file(Vec::new());
    set
}

fn selected(set: &RuleSet, now: SystemTime) -> Option<String> {
    let process = Process::new(ProcessId { pid: 7, start_ticks: 1 }, "x");
    set.rules().directive(Subject { process: &process, executable: None }, now).override_id
}

#[test]
fn default_acts_on_no_process_while_exceptions_are_unknown() {
    // The files were not valid yet.
    let mut set = set_with(Mode::Act, Some(Vec::new()));
    assert_eq!(set.fallback().mode, Mode::Shadow);
    set.replace_file(Vec::new());
    assert_eq!(set.fallback().mode, Mode::Act);
    // The stored overrides of the API are malformed.
    let mut set = set_with(Mode::Act, None);
    set.replace_file(Vec::new());
    assert_eq!((set.fallback().mode, set.rules().may_act(at(0))), (Mode::Shadow, true));
    set.change("a", Some(&rule("a", Mode::Observe)));
    assert_eq!(set.fallback().mode, Mode::Act);
    assert!(!set_with(Mode::Observe, None).rules().may_act(at(0)));
}

#[test]
fn override_of_the_file_hides_that_of_the_api_with_its_id() {
    let mut set = set(vec![rule("a", Mode::Act), rule("b", Mode::Act)]);
    set.replace_file(vec![rule("a", Mode::Shadow)]);
    let modes: Vec<_> = set.rules().ordered().iter().map(|rule| (rule.id.clone(), rule.mode)).collect();
    assert_eq!(modes, [("a".to_owned(), Mode::Shadow), ("b".to_owned(), Mode::Act)]);
    assert_eq!(set.hidden().map(|rule| rule.id.as_str()).collect::<Vec<_>>(), ["a"]);
    set.replace_file(Vec::new());
    assert_eq!((set.rules().ordered().len(), set.hidden().count()), (2, 0));
}

#[test]
fn change_replaces_or_removes_the_override_with_its_id() {
    let mut set = set(vec![rule("a", Mode::Act), rule("b", Mode::Act)]);
    let changed = [rule("b", Mode::Act), rule("a", Mode::Shadow)];
    assert_eq!(set.api_overrides_with("a", Some(&changed[1])), changed);
    assert_eq!(set.api_overrides().len(), 2, "it is not changed yet");
    set.change("a", Some(&changed[1]));
    assert_eq!(set.api_overrides(), changed);
    set.change("b", None);
    assert_eq!(set.api_overrides(), &changed[1..]);
}

#[test]
fn only_unchanged_overrides_are_removed_with_their_process() {
    let mut set = set(vec![of_process(7, Some(1)), rule("b", Mode::Act)]);
    let ended = set.api_overrides().to_vec();
    set.change("mine", Some(&of_process(8, Some(2))));
    assert_eq!(set.remove(&ended), [rule("b", Mode::Act)]);
    assert_eq!(set.api_overrides(), [of_process(8, Some(2))]);
}

#[test]
fn expired_override_of_the_api_is_removed() {
    let mut set = set(vec![brief("a", at(10)), rule("b", Mode::Observe)]);
    assert_eq!((set.next_expiry(), set.rules().may_act(at(9))), (Some(at(10)), true));
    assert!(set.expire(at(9)).is_empty());
    assert_eq!(
        set.expire(at(10)),
        NewlyExpired { file_overrides: Vec::new(), api_overrides: vec![brief("a", at(10))] }
    );
    // The clock is set back.
    assert_eq!((set.next_expiry(), set.rules().may_act(at(9))), (None, false));
}

#[test]
fn expired_override_of_the_file_stays_expired_until_its_expiry_changes() {
    // Records have milliseconds.
    let expiry = at(10) + Duration::from_micros(100);
    let mut set = set(Vec::new());
    set.replace_file(vec![brief("a", expiry)]);
    assert_eq!(selected(&set, at(9)).as_deref(), Some("a"));
    assert_eq!(set.expire(at(11)).file_overrides, [brief("a", expiry)]);
    assert!(set.expire(at(11)).is_empty(), "it expires once");
    assert_eq!((selected(&set, at(9)), set.next_expiry()), (None, None));
    let process = Process::new(ProcessId { pid: 7, start_ticks: 1 }, "x");
    let explained = set.rules().explain(Subject { process: &process, executable: None }, at(9));
    assert_eq!(explained.candidates[0].result, MatchResult::Expired);
    // The same file, read again.
    assert!(!set.replace_file(vec![brief("a", expiry)]));
    assert_eq!(selected(&set, at(9)), None);
    assert!(set.replace_file(vec![brief("a", at(20))]), "its record is removed");
    assert_eq!((selected(&set, at(9)).as_deref(), set.next_expiry()), (Some("a"), Some(at(20))));
    assert!(set.expired_of_file().is_empty());
}

#[test]
fn expiry_in_a_file_that_is_invalid_now_does_not_affect_the_api() {
    let mut first = set(Vec::new());
    first.replace_file(vec![brief("a", at(10))]);
    first.expire(at(10));
    // After a restart, with an invalid file.
    let stored = (Vec::new(), first.expired_of_file().clone());
    let mut second = RuleSet::new(first.fallback(), Some(stored));
    second.change("a", Some(&rule("a", Mode::Act)));
    assert_eq!(selected(&second, at(9)).as_deref(), Some("a"));
    assert!(!second.replace_file(vec![brief("a", at(10))]));
    assert_eq!(selected(&second, at(9)), None, "the one of the file is still expired");
}

#[test]
fn fleet_is_in_effect_beside_the_file_and_unknown_until_it_is_read() {
    let mut set = set_with(Mode::Act, Some(Vec::new())).with_fleet();
    set.replace_file(vec![rule("node", Mode::Act)]);
    assert_eq!(set.fallback().mode, Mode::Shadow, "the fleet may exempt processes");
    set.replace_fleet(vec![Override { priority: -10_000, ..rule("fleet-a", Mode::Act) }]);
    assert_eq!(set.fallback().mode, Mode::Act);
    assert_eq!(selected(&set, at(0)).as_deref(), Some("node"));
    assert!(set.is_of_fleet("fleet-a") && set.is_in_files("fleet-a") && !set.is_of_fleet("node"));
    set.replace_file(Vec::new());
    assert_eq!(selected(&set, at(0)).as_deref(), Some("fleet-a"));
}

#[test]
fn expiry_in_the_fleet_is_remembered_while_one_of_the_files_is_unknown() {
    let mut first = set(Vec::new());
    first.replace_fleet(vec![brief("fleet-a", at(10))]);
    assert_eq!(first.expire(at(10)).file_overrides, [brief("fleet-a", at(10))]);
    let stored = (Vec::new(), first.expired_of_file().clone());
    let mut second = RuleSet::new(first.fallback(), Some(stored)).with_fleet();
    assert!(!second.replace_file(Vec::new()), "its record stays");
    assert!(!second.replace_fleet(vec![brief("fleet-a", at(10))]));
    assert_eq!(selected(&second, at(9)), None);
    assert!(second.replace_fleet(Vec::new()), "its record is removed");
}

#[test]
fn override_is_bound_to_the_process_that_has_its_id() {
    let now = |start_ticks| move |_: u32| Ok::<Option<u64>, String>(start_ticks);
    let bound = of_process(7, Some(3));
    assert_eq!(bind(&of_process(7, None), now(Some(3))).as_ref(), Ok(&bound));
    assert_eq!(bind(&bound, now(Some(3))).as_ref(), Ok(&bound));
    assert_eq!(bind(&bound, now(Some(4))), Err(NoProcess::Exited { pid: 7, start_ticks: 4 }));
    assert_eq!(bind(&bound, now(None)), Err(NoProcess::Missing(7)));
    let denied = |_| Err("permission denied");
    assert_eq!(bind(&bound, denied).unwrap_err().to_string(), "the process 7 cannot be read: permission denied");
    // It is for all processes: none is read.
    let all = rule("all", Mode::Act);
    assert_eq!(bind(&all, denied).as_ref(), Ok(&all));

    assert!(!has_ended(&bound, now(Some(3))) && has_ended(&bound, now(Some(4))) && has_ended(&bound, now(None)));
    assert!(!has_ended(&bound, denied), "it may be alive");
    assert!(!has_ended(&all, now(None)));
}
