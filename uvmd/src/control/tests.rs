use std::{fs, path::Path, sync::atomic::Ordering};

use config::{Policy, value::AbsolutePath};
use model::{GpuUuid, ProcessId, RestrictionScope, Selector};
use serde_json::{Value, json};
use web::{Control as _, Credential, Peer};

use super::*;
use crate::{
    acting::{Board, Executables},
    audit::testing::{audit, flush, lines},
    rules::Clock,
};

/// Control with separate files in this folder.
fn control(folder: &Path) -> (Control, Board) {
    let policy = Policy {
        overrides_file: AbsolutePath(folder.join("overrides.toml")),
        state_dir: AbsolutePath(folder.join("state")),
        ..Policy::default()
    };
    let (board, reader) = Board::new(None);
    let audit = audit(folder);
    let control = Control {
        rules: Rules::open(&policy, true, audit.clone(), Clock::default()).unwrap(),
        switch: Switch::open(&folder.join("off"), &folder.join("state")),
        enabled: true,
        reader,
        executables: Executables::default(),
        audit,
    };
    (control, board)
}

fn by() -> Requester {
    Requester { peer: Peer::Remote("192.0.2.7:4242".parse().unwrap()), credential: Credential::WriteToken }
}

fn rule(mode: Mode) -> Override {
    Override::new("mine", mode, "cycle")
}

fn whatever() -> Precondition {
    Box::new(|_| true)
}

/// Lines about changes over the API, without their times.
fn changes(folder: &Path) -> Vec<Value> {
    let mut lines = lines(folder);
    lines.retain(|line| line["type"] != "overrides_file_load");
    for line in &mut lines {
        line.as_object_mut().unwrap().remove("time");
    }
    lines
}

#[test]
fn audit_log_has_requester_and_state_before_and_after_each_change() {
    let folder = tempfile::tempdir().unwrap();
    let (control, _board) = control(folder.path());
    let (first, second) = (etag(&rule(Mode::Act)), etag(&rule(Mode::Observe)));
    control.put(rule(Mode::Act), &by(), &whatever()).unwrap();
    control.put(rule(Mode::Observe), &by(), &whatever()).unwrap();
    control.remove("mine", &by(), &whatever()).unwrap();
    control.switch_off(&by()).unwrap();
    control.keep_off();
    control.switch_on(&by(), control.times_off()).unwrap();
    let requester = json!({ "address": "192.0.2.7:4242", "credential": "write_token" });
    let lines = changes(folder.path());
    assert!(lines.iter().all(|line| line["requester"] == requester && line["result"] == "accepted"), "{lines:?}");
    let tags = |line: &Value| (line["type"].clone(), line["etag_before"].clone(), line["etag_after"].clone());
    let reader: Vec<_> = lines.iter().map(tags).collect();
    let null = Value::Null;
    assert_eq!(
        reader,
        [
            (json!("override_put"), null.clone(), json!(first)),
            (json!("override_put"), json!(first), json!(second)),
            (json!("override_delete"), json!(second), null.clone()),
            (json!("policy_off"), null.clone(), null.clone()),
            (json!("policy_on"), null.clone(), null),
        ]
    );
    assert_eq!(lines[0]["override"]["mode"], "act");
}

#[test]
fn unwritable_change_is_rejected_unless_it_reduces_acting() {
    let folder = tempfile::tempdir().unwrap();
    let (control, _board) = control(folder.path());
    control.put(rule(Mode::Act), &by(), &whatever()).unwrap();
    flush(&control.audit);
    // A folder in its place accepts no lines.
    fs::remove_file(folder.path().join("audit.jsonl")).unwrap();
    fs::create_dir(folder.path().join("audit.jsonl")).unwrap();
    for mode in [Mode::Act, Mode::Shadow] {
        let other = Override { priority: 1, ..rule(mode) };
        assert!(matches!(control.put(other, &by(), &whatever()), Err(ChangeError::NotAudited(_))), "{mode:?}");
    }
    control.switch_off(&by()).unwrap();
    control.keep_off();
    assert!(!control.switch.is_on());
    assert!(matches!(control.switch_on(&by(), control.times_off()), Err(ChangeError::NotAudited(_))));
    assert!(!control.switch.is_on());
    control.put(rule(Mode::Observe), &by(), &whatever()).unwrap();
    control.remove("mine", &by(), &whatever()).unwrap();
    assert!(control.overrides().overrides.is_empty());
    flush(&control.audit);
    // Three changes that were made, and three lines about rejected ones.
    assert_eq!(control.audit.dropped().load(Ordering::Relaxed), 6);
}

#[test]
fn requester_of_a_switch_off_is_audited_even_if_it_cannot_be_stored() {
    let folder = tempfile::tempdir().unwrap();
    let (control, _board) = control(folder.path());
    control.switch_off(&by()).unwrap();
    assert!(control.state().persist_pending, "nobody has kept it yet");
    flush(&control.audit);
    let reader: Vec<Value> = changes(folder.path()).iter().map(|line| line["type"].clone()).collect();
    assert_eq!(reader, ["policy_off"]);
    control.keep_off();
    flush(&control.audit);
    assert_eq!((control.state().persist_pending, changes(folder.path()).len()), (false, 1));
}

#[test]
fn audited_change_that_could_not_be_stored_has_a_failure_line() {
    let folder = tempfile::tempdir().unwrap();
    let (control, _board) = control(folder.path());
    fs::write(folder.path().join("state"), "no folder").unwrap();
    assert!(matches!(control.put(rule(Mode::Act), &by(), &whatever()), Err(ChangeError::NotSaved(_))));
    flush(&control.audit);
    let results: Vec<Value> = changes(folder.path()).iter().map(|line| line["result"].clone()).collect();
    assert_eq!(results, ["accepted", "failed"]);
    assert!(changes(folder.path())[1]["reason"].as_str().unwrap().contains("cannot save"));
}

#[test]
fn restrictions_are_those_of_the_requested_process() {
    let folder = tempfile::tempdir().unwrap();
    let (control, mut board) = control(folder.path());
    let id = |pid| ProcessId { pid, start_ticks: 1 };
    let restriction = |pid, scope| model::Restriction {
        process: id(pid),
        gpu: Some(GpuUuid([1; 16])),
        scope,
        reason: "it advises the driver itself".to_owned(),
    };
    board.publish_restrictions(std::time::Instant::now(), || {
        vec![restriction(7, RestrictionScope::Advice), restriction(8, RestrictionScope::Policy("cycle"))]
    });
    let reader = |pid| control.wanted(&Process::new(id(pid), "x")).restrictions;
    let expected = Restriction {
        gpu_uuid: Some("GPU-01010101-0101-0101-0101-010101010101".to_owned()),
        scope: "advice".to_owned(),
        label: "No advice".to_owned(),
        reason: "it advises the driver itself".to_owned(),
    };
    assert_eq!(reader(7), [expected]);
    assert_eq!(reader(8)[0].scope, "cycle");
    assert_eq!(reader(9), []);
}

#[test]
fn explanation_is_of_the_program_that_the_loop_has_read() {
    let folder = tempfile::tempdir().unwrap();
    let (control, _board) = control(folder.path());
    let selector = Selector { executable: Some("/usr/bin/train".to_owned()), ..Selector::default() };
    control.put(Override { selector, ..rule(Mode::Act) }, &by(), &whatever()).unwrap();
    // A living process, whose own program is another.
    let id = ProcessId { pid: std::process::id(), start_ticks: 1 };
    let explained = || control.wanted(&Process::new(id, "x"));
    assert_eq!(explained().override_id, None, "the loop has read nothing: it is read now");
    let loop_reads = |second, program: &str| {
        let read = || Ok(program.into());
        control.executables.get(id, std::time::Duration::from_secs(second), read).unwrap();
    };
    loop_reads(0, "/usr/bin/train");
    assert_eq!(explained().override_id.as_deref(), Some("mine"));
    loop_reads(30, "/usr/bin/other");
    assert_eq!(explained().override_id, None);
}
