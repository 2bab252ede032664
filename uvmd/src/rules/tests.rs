use std::{
    fs,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use config::value::AbsolutePath;
use model::{Mode, ProcessId, Selector};
use policy::rules::Expired;
use tempfile::TempDir;

use web::{ChangeError, Precondition};

use super::*;
use crate::audit::testing::{audit, flush, lines};

const FILE: &str = "[[override]]\nid = \"a\"\nmode = \"act\"\n";

struct Node {
    folder: TempDir,
    policy: Policy,
    /// Time of the clock in seconds.
    clock: Arc<Mutex<u64>>,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy {
            enabled: true,
            overrides_file: AbsolutePath(folder.path().join("overrides.toml")),
            state_dir: AbsolutePath(folder.path().join("state")),
            ..Policy::default()
        };
        Self { folder, policy, clock: Arc::new(Mutex::new(0)) }
    }

    fn write(&self, text: &str) {
        fs::write(&self.policy.overrides_file.0, text).unwrap();
    }

    fn open(&self) -> Rules {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> anyhow::Result<Rules> {
        let clock = Arc::clone(&self.clock);
        Rules::open(&self.policy, true, audit(self.folder.path()), Clock::new(move || at(*clock.lock().unwrap())))
    }

    fn set_clock(&self, seconds: u64) {
        *self.clock.lock().unwrap() = seconds;
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Checks the file until it is applied.
fn settle(rules: &Rules) {
    rules.check_file();
    assert!(rules.check_file(), "nobody changed it in between");
}

fn rule(id: &str) -> Override {
    Override {
        selector: Selector { executable: Some("x".to_owned()), ..Selector::default() },
        ..Override::new(id, Mode::Shadow, "cycle")
    }
}

fn whatever() -> Precondition {
    Box::new(|_| true)
}

#[expect(clippy::unnecessary_wraps, reason = "it stands for one that may refuse")]
fn granted(_: Option<&Override>, _: Option<&Override>) -> Result<(), ChangeError> {
    Ok(())
}

fn names(rules: &Rules) -> Vec<String> {
    rules.overrides().overrides.into_iter().filter_map(|each| each.r#override.id).collect()
}

fn override_id(rules: &Rules) -> Option<String> {
    let process = Process::new(ProcessId { pid: 7, start_ticks: 1 }, "x");
    rules.directive(&process, None).override_id
}

#[test]
fn no_override_means_observe() {
    let rules = Node::new().open();
    assert!(!rules.may_act() && names(&rules).is_empty());
    assert_eq!(override_id(&rules), None);
}

#[test]
fn file_is_followed_and_an_invalid_one_changes_nothing() {
    let node = Node::new();
    let rules = node.open();
    node.write(FILE);
    settle(&rules);
    assert_eq!((names(&rules), override_id(&rules)), (vec!["a".to_owned()], Some("a".to_owned())));
    assert!(rules.may_act());
    node.write("[[override]]\nid = \"b\"\n");
    settle(&rules);
    assert_eq!(names(&rules), ["a"]);
    let error = rules.overrides().file_error.unwrap();
    assert!(error.contains("overrides.toml:1: override") && error.contains("missing field `mode`"), "{error}");
    fs::remove_file(&node.policy.overrides_file.0).unwrap();
    settle(&rules);
    assert_eq!((names(&rules).len(), rules.overrides().file_error), (0, None));
}

#[test]
fn initially_invalid_file_is_reported() {
    let node = Node::new();
    node.write("x");
    let rules = node.open();
    assert!(rules.overrides().file_error.unwrap().contains("overrides.toml:1: "));
}

#[test]
fn file_being_rewritten_does_not_count_as_one_with_fewer_overrides() {
    let node = Node::new();
    let excepts = "[[override]]\nid = \"b\"\nmode = \"observe\"\n";
    node.write(&format!("{FILE}{excepts}"));
    let rules = node.open();
    let file = &node.policy.overrides_file.0;
    // Emptied, cut between two tables, and missing: each is found once.
    for moment in ["", FILE] {
        node.write(moment);
        assert!(!rules.check_file());
        assert_eq!(names(&rules), ["a", "b"], "{moment:?}");
    }
    fs::remove_file(file).unwrap();
    assert!(!rules.check_file());
    node.write("[[override");
    assert!(!rules.check_file());
    assert_eq!((names(&rules).len(), rules.overrides().file_error), (2, None));
    node.write(excepts);
    settle(&rules);
    assert_eq!(names(&rules), ["b"]);
    // The same text, written again: it may change further.
    let later = SystemTime::now() + Duration::from_secs(5);
    fs::File::options().write(true).open(file).unwrap().set_modified(later).unwrap();
    assert!(!rules.check_file() && rules.check_file());
    fs::remove_file(file).unwrap();
    settle(&rules);
    assert!(names(&rules).is_empty());
}

#[test]
fn default_does_not_act_before_the_first_valid_file() {
    let mut node = Node::new();
    node.policy.mode.0 = Mode::Act;
    node.write("[[override");
    let rules = node.open();
    assert_eq!(rules.fallback().mode, Mode::Shadow);
    assert!(rules.overrides().file_error.unwrap().starts_with("until the file's exceptions are known"));
    node.write("");
    settle(&rules);
    assert_eq!(rules.fallback().mode, Mode::Act);
    node.write("[[override");
    settle(&rules);
    assert_eq!(rules.fallback().mode, Mode::Act, "what was in force still is");
}

#[test]
fn overrides_of_the_api_outlive_the_service() {
    let node = Node::new();
    let put = node.open().put(&rule("mine"), &whatever(), &granted).unwrap();
    assert_eq!((put.is_new, put.now.source.as_str()), (true, "api"));
    let rules = node.open();
    assert_eq!((names(&rules), override_id(&rules)), (vec!["mine".to_owned()], Some("mine".to_owned())));
    assert!(!rules.put(&rule("mine"), &whatever(), &granted).unwrap().is_new);
    rules.remove("mine", &whatever(), &granted).unwrap();
    assert_eq!(rules.remove("mine", &whatever(), &granted), Err(ChangeError::NotFound));
    assert!(names(&node.open()).is_empty());
}

#[test]
fn changed_override_fails_the_precondition() {
    let node = Node::new();
    let rules = node.open();
    rules.put(&rule("mine"), &whatever(), &granted).unwrap();
    let other = Override { mode: Mode::Act, ..rule("mine") };
    let absent: Precondition = Box::new(|there| there.is_none());
    assert_eq!(rules.put(&other, &absent, &granted), Err(ChangeError::PreconditionFailed));
    assert_eq!(rules.remove("mine", &absent, &granted), Err(ChangeError::PreconditionFailed));
    assert_eq!(names(&rules), ["mine"]);
}

#[test]
fn api_cannot_change_overrides_of_the_file() {
    let node = Node::new();
    let rules = node.open();
    rules.put(&Override { mode: Mode::Act, ..rule("a") }, &whatever(), &granted).unwrap();
    rules.put(&rule("b"), &whatever(), &granted).unwrap();
    node.write(FILE);
    settle(&rules);
    // The override of the file appears once.
    assert_eq!(names(&rules), ["b", "a"]);
    assert!(matches!(rules.put(&rule("a"), &whatever(), &granted), Err(ChangeError::InFile(_))));
    assert!(matches!(rules.remove("a", &whatever(), &granted), Err(ChangeError::InFile(_))));
}

#[test]
fn change_is_announced_with_both_states_and_not_made_if_refused() {
    let node = Node::new();
    let rules = node.open();
    let told = std::cell::RefCell::new(Vec::new());
    let announce = |before: Option<&Override>, after: Option<&Override>| {
        told.borrow_mut().push((before.map(|rule| rule.mode), after.map(|rule| rule.mode)));
        if after.is_some_and(|rule| rule.mode == Mode::Act) {
            Err(ChangeError::NotAudited("full".to_owned()))
        } else {
            Ok(())
        }
    };
    let acting = Override { mode: Mode::Act, ..rule("mine") };
    rules.put(&rule("mine"), &whatever(), &announce).unwrap();
    rules.put(&rule("mine"), &whatever(), &announce).unwrap();
    assert_eq!(rules.put(&acting, &whatever(), &announce), Err(ChangeError::NotAudited("full".to_owned())));
    assert_eq!(rules.overrides().overrides[0].r#override.mode, "shadow");
    rules.remove("mine", &whatever(), &announce).unwrap();
    let (shadow, act) = (Some(Mode::Shadow), Some(Mode::Act));
    // A change without an effect is no change.
    assert_eq!(*told.borrow(), [(None, shadow), (shadow, act), (shadow, None)]);
}

#[test]
fn changed_or_invalid_file_is_in_the_audit_log() {
    let node = Node::new();
    let rules = node.open();
    for text in [FILE, FILE, "[[override", ""] {
        node.write(text);
        settle(&rules);
    }
    flush(&rules.0.audit);
    let told: Vec<_> = lines(node.folder.path())
        .iter()
        .map(|line| (line["result"].as_str().unwrap().to_owned(), line["overrides"].as_u64().unwrap()))
        .collect();
    let result = |result: &str, overrides| (result.to_owned(), overrides);
    assert_eq!(told, [result("accepted", 0), result("accepted", 1), result("failed", 1), result("accepted", 0)]);
    let of_file = lines(node.folder.path());
    assert!(of_file.iter().all(|line| line["type"] == "overrides_file_load"), "{of_file:?}");
    assert_eq!(
        (&of_file[1]["etag_before"], &of_file[3]["etag_after"]),
        (&of_file[0]["etag_after"], &of_file[0]["etag_after"])
    );
    assert_ne!(of_file[1]["etag_after"], of_file[0]["etag_after"]);
}

#[test]
fn override_that_cannot_be_stored_is_not_in_effect() {
    let node = Node::new();
    let rules = node.open();
    fs::write(&node.policy.state_dir.0, "no folder").unwrap();
    assert!(matches!(rules.put(&rule("mine"), &whatever(), &granted), Err(ChangeError::NotSaved(_))));
    assert!(names(&rules).is_empty());
}

#[test]
fn invalid_parameters_are_rejected_and_those_of_another_version_ignored() {
    let node = Node::new();
    let rules = node.open();
    let misspelt = Override { parameters: [("rest".to_owned(), "remot".to_owned())].into(), ..rule("mine") };
    let Err(ChangeError::Invalid(invalid)) = rules.put(&misspelt, &whatever(), &granted) else { panic!("it is taken") };
    assert_eq!(invalid.field, "parameters.rest");
    assert!(names(&rules).is_empty());
    stored::write(&rules.0.state_file, &[misspelt], &Expired::new()).unwrap();
    assert_eq!((names(&node.open()), override_id(&node.open())), (vec!["mine".to_owned()], Some("mine".to_owned())));
}

#[test]
fn stuck_disk_leaves_the_previous_state_readable() {
    let node = Node::new();
    node.write(FILE);
    let rules = node.open();
    let reads = || {
        assert_eq!((names(&rules), override_id(&rules)), (vec!["a".to_owned()], Some("a".to_owned())));
        assert_eq!((rules.may_act(), rules.fallback().mode), (true, Mode::Observe));
        rules.check_file();
        rules.forget_ended();
    };
    let put = rules.0.state_file.disk.stuck(|| rules.put(&rule("mine"), &whatever(), &granted), reads);
    assert!(put.unwrap().is_new);
    assert_eq!(names(&rules), ["mine", "a"]);
    let removed = rules.0.state_file.disk.stuck(
        || rules.remove("mine", &whatever(), &granted),
        || assert_eq!(names(&rules), ["mine", "a"], "it is in force until that is kept"),
    );
    removed.unwrap();
    assert_eq!(names(&rules), ["a"]);
}

/// Override for all processes, until second 10.
fn brief(id: &str) -> Override {
    Override { selector: Selector::default(), expires_at: Some(at(10)), ..rule(id) }
}

const BRIEF_FILE: &str = "[[override]]\nid = \"b\"\nmode = \"act\"\nexpires_at = \"1970-01-01T00:00:10.0001Z\"\n";

#[test]
fn expired_override_of_the_api_is_deleted_for_good() {
    let node = Node::new();
    let rules = node.open();
    rules.put(&brief("mine"), &whatever(), &granted).unwrap();
    assert_eq!((override_id(&rules).as_deref(), rules.may_act()), (Some("mine"), true));
    node.set_clock(10);
    assert_eq!((override_id(&rules), names(&rules).len(), rules.may_act()), (None, 0, false));
    node.set_clock(5);
    assert_eq!((override_id(&rules), names(&rules).len(), rules.may_act()), (None, 0, false));
    rules.persist_expired();
    assert!(names(&node.open()).is_empty(), "nor does it come back with a restart");
    flush(&rules.0.audit);
    let ends: Vec<_> = lines(node.folder.path()).into_iter().filter(|line| line["type"] == "override_end").collect();
    assert_eq!((ends.len(), &ends[0]["id"], &ends[0]["reason"]), (1, &"mine".into(), &"expired".into()));
}

#[test]
fn expired_override_of_the_file_stays_expired() {
    let node = Node::new();
    node.write(BRIEF_FILE);
    let rules = node.open();
    assert_eq!((override_id(&rules).as_deref(), rules.overrides().overrides[0].expired), (Some("b"), false));
    node.set_clock(11);
    assert_eq!(override_id(&rules), None);
    node.set_clock(5);
    let is_over = |rules: &Rules| {
        assert_eq!((override_id(rules), rules.may_act()), (None, false));
        let explained = rules.explain(&Process::new(ProcessId { pid: 7, start_ticks: 1 }, "x"), None);
        assert_eq!(explained.candidates[0].result.to_string(), "it has expired");
        assert!(rules.overrides().overrides[0].expired);
    };
    is_over(&rules);
    rules.persist_expired();
    is_over(&node.open());
    // A later expiry makes it another override.
    node.write(&BRIEF_FILE.replace(":10.0001Z", ":20Z"));
    settle(&rules);
    assert_eq!(override_id(&rules).as_deref(), Some("b"));
    // The record of its expiry is removed with it.
    rules.persist_expired();
    let text = fs::read_to_string(node.folder.path().join("state/overrides.json")).unwrap();
    assert!(!text.contains("1970-01-01T00:00:10"), "{text}");
}

#[test]
fn first_request_sees_an_expiry_and_no_change_reverts_it() {
    let node = Node::new();
    let rules = node.open();
    rules.put(&brief("brief"), &whatever(), &granted).unwrap();
    let expires_meanwhile = || {
        node.set_clock(10);
        assert_eq!(override_id(&rules), None);
        node.set_clock(5);
    };
    rules.0.state_file.disk.stuck(|| rules.put(&rule("mine"), &whatever(), &granted), expires_meanwhile).unwrap();
    assert_eq!(names(&rules), ["mine"]);
    rules.persist_expired();
    assert_eq!(names(&node.open()), ["mine"]);
}

#[test]
fn unstored_expiries_are_stored_once_possible() {
    let node = Node::new();
    let rules = node.open();
    rules.put(&brief("mine"), &whatever(), &granted).unwrap();
    node.set_clock(10);
    let allow = |mode| {
        fs::set_permissions(node.folder.path().join("state"), std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    allow(0o770);
    assert!(names(&rules).is_empty());
    rules.persist_expired();
    allow(0o700);
    node.set_clock(5);
    rules.persist_expired();
    assert!(names(&node.open()).is_empty());
}

#[test]
fn override_that_has_expired_already_is_rejected() {
    let node = Node::new();
    node.set_clock(10);
    let rules = node.open();
    let Err(ChangeError::Invalid(invalid)) = rules.put(&brief("mine"), &whatever(), &granted) else {
        panic!("it is taken")
    };
    assert_eq!((invalid.field.as_ref(), names(&rules).len()), ("expires_at", 0));
}

#[test]
fn malformed_stored_overrides_are_quarantined() {
    let node = Node::new();
    let state = node.folder.path().join("state");
    node.open().put(&rule("mine"), &whatever(), &granted).unwrap();
    let state_file = state.join("overrides.json");
    for (text, name) in [
        ("{", "overrides.json.damaged"),
        ("[]", "overrides.json.damaged.2"),
        ("{\"overrides\":[{\"id\":\"a\",\"mode\":\"on\"}]}", "overrides.json.damaged.3"),
    ] {
        fs::write(&state_file, text).unwrap();
        assert!(names(&node.open()).is_empty());
        assert_eq!(fs::read_to_string(state.join(name)).unwrap(), text);
    }
    let rules = node.open();
    rules.put(&rule("other"), &whatever(), &granted).unwrap();
    assert_eq!(names(&node.open()), ["other"]);
}

#[test]
fn override_for_a_process_ends_with_it() {
    let node = Node::new();
    let rules = node.open();
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let of_pid = Override { selector: Selector { pid: Some(child.id()), ..Selector::default() }, ..rule("mine") };
    let put = rules.put(&of_pid, &whatever(), &granted).unwrap();
    let start_ticks = put.now.r#override.selector.start_ticks;
    assert!(!rules.put(&of_pid, &whatever(), &granted).unwrap().is_new && start_ticks.is_some());
    let is_meant = |start_ticks| {
        let process = Process::new(ProcessId { pid: child.id(), start_ticks }, "x");
        let explained = rules.explain(&process, None);
        (explained.directive.override_id.is_some(), explained.candidates[0].result.to_string())
    };
    assert!(is_meant(start_ticks.unwrap()).0);
    let (is_meant, why) = is_meant(1);
    let told = "match.start_ticks does not match: it is a later process with that id, started at tick 1";
    assert_eq!((is_meant, why.as_str()), (false, told));
    rules.forget_ended();
    assert_eq!(names(&rules), ["mine"]);
    child.kill().unwrap();
    child.wait().unwrap();
    rules.forget_ended();
    assert!(names(&rules).is_empty() && !rules.may_act());
}

#[test]
fn check_for_exited_processes_blocks_nothing_and_keeps_new_overrides() {
    let node = Node::new();
    let rules = node.open();
    let of_me = |priority| Override {
        selector: Selector { pid: Some(std::process::id()), ..Selector::default() },
        priority,
        ..rule("mine")
    };
    rules.put(&of_me(1), &whatever(), &granted).unwrap();
    rules.put(&rule("everybody"), &whatever(), &granted).unwrap();
    let mut looked_at = Vec::new();
    rules.forget(|rule| {
        looked_at.push(rule.id.clone());
        rules.put(&of_me(2), &whatever(), &granted).unwrap();
        true
    });
    assert_eq!((looked_at, names(&rules)), (vec!["mine".to_owned()], vec!["mine".to_owned(), "everybody".to_owned()]));
    rules.forget(|_| true);
    assert_eq!(names(&rules), ["everybody"]);
}

#[test]
fn default_does_not_act_while_exceptions_are_unknown() {
    let mut node = Node::new();
    node.policy.mode.0 = Mode::Act;
    let mode = |rules: &Rules| {
        let process = Process::new(ProcessId { pid: 7, start_ticks: 1 }, "x");
        rules.directive(&process, None).mode
    };
    node.open().put(&Override { mode: Mode::Observe, ..rule("mine") }, &whatever(), &granted).unwrap();
    fs::write(node.folder.path().join("state/overrides.json"), "{").unwrap();
    let rules = node.open();
    assert_eq!((mode(&rules), rules.fallback().mode), (Mode::Shadow, Mode::Shadow));
    let told = rules.overrides().file_error.unwrap();
    assert!(told.contains("overrides.json.damaged") && told.contains("acts on no process"), "{told}");
    // Processes named in the file are still acted on.
    node.write(FILE);
    settle(&rules);
    assert_eq!(mode(&rules), Mode::Act);
    node.write("");
    settle(&rules);
    assert_eq!(mode(&rules), Mode::Shadow);
    let other =
        Override { selector: Selector { executable: Some("y".to_owned()), ..Selector::default() }, ..rule("b") };
    rules.put(&other, &whatever(), &granted).unwrap();
    assert_eq!((mode(&rules), rules.overrides().file_error), (Mode::Act, None));
}

#[test]
fn unreadable_state_file_stays_and_fails_the_start() {
    let node = Node::new();
    let path = node.folder.path().join("state/overrides.json");
    node.open().put(&rule("mine"), &whatever(), &granted).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = node.try_open().unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("overrides.json"), "{error}");
    assert!(path.is_dir());
}

#[test]
fn another_file_and_default_take_effect_at_once() {
    let node = Node::new();
    node.write(FILE);
    let rules = node.open();
    let other = node.folder.path().join("other.toml");
    let mut policy = node.policy.clone();
    policy.mode.0 = Mode::Shadow;
    policy.overrides_file = AbsolutePath(other.clone());
    let of_file = config::overrides::parse("[[override]]\nid = \"b\"\nmode = \"observe\"\n").unwrap();
    rules.reload(&policy, of_file);
    assert_eq!((names(&rules), rules.fallback().mode), (vec!["b".to_owned()], Mode::Shadow));
    // The new file is followed from then on, and the first is not.
    fs::write(&other, FILE.replace("\"a\"", "\"c\"")).unwrap();
    node.write("");
    settle(&rules);
    assert_eq!(names(&rules), ["c"]);
}

const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";

/// File of the fleet with one override for the pod.
fn of_fleet(mode: &str) -> String {
    format!(r#"[{{"id": "fleet-a", "match": {{"pod": "{UID}"}}, "mode": "{mode}", "priority": -10000}}]"#)
}

impl Node {
    fn with_fleet() -> Self {
        let mut node = Self::new();
        node.policy.mode.0 = Mode::Act;
        node.policy.fleet_overrides_file = Some(AbsolutePath(node.fleet_file()));
        node
    }

    fn fleet_file(&self) -> PathBuf {
        self.folder.path().join("fleet.json")
    }

    /// Replaces the file of the fleet by renaming.
    fn write_fleet(&self, text: &str) {
        let new = self.folder.path().join("fleet.json.new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, self.fleet_file()).unwrap();
    }
}

#[test]
fn fleet_acts_on_no_process_until_its_file_is_known() {
    let node = Node::with_fleet();
    let rules = node.open();
    assert_eq!(rules.fallback().mode, Mode::Shadow);
    let error = rules.overrides().file_error.unwrap();
    assert!(error.contains("acts on no process") && error.contains("fleet.json: there is no such file"), "{error}");
    node.write_fleet("[]");
    rules.check_fleet();
    assert_eq!((rules.fallback().mode, rules.overrides().file_error), (Mode::Act, None));
    // The earlier overrides stay while it is gone.
    node.write_fleet(&of_fleet("observe"));
    rules.check_fleet();
    fs::remove_file(node.fleet_file()).unwrap();
    rules.check_fleet();
    assert_eq!((names(&rules), rules.fallback().mode), (vec!["fleet-a".to_owned()], Mode::Act));
    assert!(rules.overrides().file_error.unwrap().starts_with("the former overrides stay in effect"));
}

#[test]
fn fleet_file_api_and_node_file_hold_together() {
    let node = Node::with_fleet();
    node.write(FILE);
    node.write_fleet(&of_fleet("act"));
    let rules = node.open();
    rules.put(&rule("mine"), &whatever(), &granted).unwrap();
    let sources = |rules: &Rules| -> Vec<_> {
        let all = rules.overrides().overrides.into_iter();
        all.map(|each| (each.r#override.id.unwrap(), each.source)).collect()
    };
    let both = |id: &str, source: &str| (id.to_owned(), source.to_owned());
    assert_eq!(sources(&rules), [both("mine", "api"), both("a", "file"), both("fleet-a", "fleet")]);
    assert!(
        matches!(rules.remove("fleet-a", &whatever(), &granted), Err(ChangeError::InFile(file)) if file.ends_with("fleet.json"))
    );
    let Err(ChangeError::Invalid(invalid)) = rules.put(&rule("fleet-b"), &whatever(), &granted) else {
        panic!("it is taken")
    };
    assert_eq!(invalid.field, "id");
}

#[test]
fn fleet_that_demands_more_is_refused_as_a_whole() {
    let node = Node::with_fleet();
    node.write_fleet(&of_fleet("shadow"));
    let rules = node.open();
    let good = of_fleet("act");
    let other = |from: &str, to: &str| {
        format!("[{},{}", &good[1..good.len() - 1], &good.replace("fleet-a", "fleet-b").replace(from, to)[1..])
    };
    for (bad, reason) in [
        (other(&format!("\"pod\": \"{UID}\""), ""), "[1].match.pod: not the whole UID"),
        (other("-10000", "2147483647"), "[1].priority: not from -11000"),
        (other("fleet-b", "mine"), "[1].id: not one that begins"),
        (other("fleet-b", "fleet-a"), "[1].id: an earlier override has it, too"),
        (other("mode", &"x\\n".repeat(400_000)), "longer than 1048576 bytes"),
        (other("\"mode\"", &format!("\"{}\"", "x\\n".repeat(1_000))), "unknown field"),
        ("[".to_owned(), "EOF"),
    ] {
        node.write_fleet(&bad);
        rules.check_fleet();
        assert_eq!(rules.overrides().overrides[0].r#override.mode, "shadow", "{reason}");
        let error = rules.overrides().file_error.unwrap();
        assert!(error.contains(reason) && error.len() < 600 && !error.contains('\n'), "{error}");
    }
    // One that changes at every check is applied nevertheless.
    for mode in ["observe", "act"] {
        node.write_fleet(&of_fleet(mode));
        rules.check_fleet();
        assert_eq!(
            (rules.overrides().overrides[0].r#override.mode.as_str(), rules.overrides().file_error),
            (mode, None)
        );
    }
}

#[test]
fn link_or_pipe_in_place_of_the_fleets_file_is_refused_without_waiting() {
    let node = Node::with_fleet();
    node.write_fleet(&of_fleet("shadow"));
    let rules = node.open();
    let elsewhere = node.folder.path().join("elsewhere");
    fs::rename(node.fleet_file(), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, node.fleet_file()).unwrap();
    rules.check_fleet();
    assert!(rules.overrides().file_error.unwrap().contains("it is a symbolic link"));
    fs::remove_file(node.fleet_file()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(node.fleet_file()).status().unwrap().success());
    rules.check_fleet();
    assert!(rules.overrides().file_error.unwrap().contains("it is not a regular file"));
    assert_eq!(names(&rules), ["fleet-a"]);
}

#[test]
fn fragments_beside_the_fleets_file_are_not_read() {
    let node = Node::with_fleet();
    let folder = node.folder.path().join("fleet");
    fs::create_dir_all(folder.join("overrides.d")).unwrap();
    fs::write(folder.join("overrides.d/x.toml"), FILE).unwrap();
    fs::write(folder.join("overrides.json"), of_fleet("observe")).unwrap();
    let policy =
        Policy { fleet_overrides_file: Some(AbsolutePath(folder.join("overrides.json"))), ..node.policy.clone() };
    let rules = Rules::open(&policy, true, audit(node.folder.path()), Clock::default()).unwrap();
    rules.check_fleet();
    assert_eq!(names(&rules), ["fleet-a"]);
}
