//! Overrides, the switch and decisions on the command line.

use api::{
    Status,
    decision::{Decision, Decisions, Measured},
    rule::{
        Candidate, DisabledBy, EffectivePolicy, Override, OverrideStatus, Overrides, PlanState, PolicyState,
        Restriction,
    },
};
use model::{Budget, LinkBytes, ProbeFigures, Selector, Share, order::Expected};

use crate::support::{Canned, run, stderr, stdout};

const NOW: &str = "2026-11-21T14:00:00.000Z";

fn override_status(id: &str) -> OverrideStatus {
    OverrideStatus {
        r#override: Override {
            id: Some(id.to_owned()),
            selector: Selector { pod: Some("7c1f*".to_owned()), ..Selector::default() },
            mode: "act".to_owned(),
            policy: Some("cycle".to_owned()),
            budget: Budget { bytes_per_second: Some(4 << 30), bytes: None },
            expires_at: Some("2026-11-21T16:00:00.000Z".to_owned()),
            ..Override::default()
        },
        source: "api".to_owned(),
        expired: false,
        matching_processes: Some(2),
    }
}

fn state(on: bool) -> PolicyState {
    let off =
        DisabledBy { source: "api".to_owned(), actor: "uid 0 on the socket".to_owned(), disabled_at: NOW.to_owned() };
    PolicyState {
        active: on,
        enabled: true,
        disabled_by: if on { Vec::new() } else { vec![off] },
        default_mode: "observe".to_owned(),
        default_policy: "auto-live".to_owned(),
        ..PolicyState::default()
    }
    .described()
}

fn daemon(on: bool) -> Canned {
    Canned::default()
        .with("/api/v1/overrides/", &override_status("pod-7c1f"))
        .with("/api/v1/overrides", &Overrides { overrides: vec![override_status("pod-7c1f")], ..Overrides::default() })
        .with("/api/v1/policy", &state(on))
        .with("/api/v1/status", &Status { time: NOW.to_owned(), ..Status::default() })
}

#[test]
fn overrides_are_listed_with_selector_and_expiry() {
    let output = run(&daemon(true).serve(), &["policy", "show"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected = "\
uvmd may act; default without an override: observe (auto-live)

ID        MATCH      MODE  POLICY  PRIORITY  BUDGET     EXPIRES      SOURCE
pod-7c1f  pod 7c1f*  act   cycle          0  4.0 GiB/s  in 2 h 0 min  api
";
    let text = stdout(&output);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&text), squeezed(expected), "{text}");
    let text = stdout(&run(&daemon(false).serve(), &["policy", "show"]));
    assert!(text.starts_with("acting is switched off by uid 0 on the socket since 2026-11-21T14:00"), "{text}");
    assert!(!text.contains("not saved"), "{text}");
}

#[test]
fn a_switch_that_is_not_saved_is_shown() {
    let pending = PolicyState { persist_pending: true, ..state(false) }.described();
    let daemon = Canned::default()
        .with("/api/v1/overrides", &Overrides::default())
        .with("/api/v1/policy/off", &pending)
        .with("/api/v1/policy", &pending)
        .with("/api/v1/status", &Status { time: NOW.to_owned(), ..Status::default() });
    for command in ["show", "off"] {
        let text = stdout(&run(&daemon.serve(), &["policy", command]));
        let second = text.lines().nth(1);
        assert_eq!(second, Some("the switch is not saved yet: a restarted uvmd would act again"), "{text}");
    }
}

#[test]
fn an_override_is_named_by_its_selector() {
    let daemon = daemon(false);
    let arguments = ["policy", "set", "--pod", "7c1f", "--policy", "cycle", "--mode", "act", "--expires", "2h"];
    let output = run(&daemon.serve(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("pod-7c1f: act by cycle for pod 7c1f*, at most 4.0 GiB/s, until "));
    assert!(stdout(&output).ends_with("; matches 2 processes now\n"), "{}", stdout(&output));
    assert!(stderr(&output).contains("the override has no effect yet: acting is switched off"), "{}", stderr(&output));
    let request = daemon.requests()[0].to_lowercase();
    assert!(request.starts_with("put /api/v1/overrides/pod-7c1f http/1.1\r\n"), "{request}");
    assert!(request.contains("content-type: application/json\r\n"), "{request}");
    for named in [&["--pod", "7c1f*"][..], &["pod-7c1f"], &["override/pod-7c1f"]] {
        let output = run(&daemon.serve(), &[&["policy", "unset"], named].concat());
        assert_eq!(stdout(&output), "override/pod-7c1f deleted\n", "{}", stderr(&output));
    }
    assert!(daemon.requests().iter().any(|request| request.starts_with("DELETE /api/v1/overrides/pod-7c1f ")));
}

#[test]
fn unset_deletes_the_overrides_of_a_selection_whatever_their_names() {
    let for_pid = |id: &str, pid| {
        let selector = Selector { pid: Some(pid), start_ticks: Some(884_213), ..Selector::default() };
        let r#override = Override { selector, ..override_status(id).r#override };
        OverrideStatus { r#override, ..override_status(id) }
    };
    let of_file = OverrideStatus { source: "file".to_owned(), ..override_status("of-file") };
    let known = || vec![for_pid("mine", 7), for_pid("pid-8", 8), override_status("pods"), of_file.clone()];
    let unset = |arguments: &[&str]| {
        let daemon = listed(known());
        let output = run(&daemon.serve(), &[&["policy", "unset"], arguments].concat());
        (changes(&daemon), output)
    };
    assert_eq!(unset(&["--pid", "7"]).0, ["DELETE /api/v1/overrides/mine"]);
    let (changes, output) = unset(&["--all"]);
    let all = ["DELETE /api/v1/overrides/mine", "DELETE /api/v1/overrides/pid-8", "DELETE /api/v1/overrides/pods"];
    assert_eq!(changes, all);
    assert_eq!(stdout(&output), "override/mine deleted\noverride/pid-8 deleted\noverride/pods deleted\n");
    assert_eq!(stderr(&output), "uvmctl: not deleted, as a file of uvmd has it: of-file\n");
    let (changes, output) = unset(&["--pid", "9"]);
    assert_eq!((changes.len(), output.status.code()), (0, Some(1)));
    assert!(stderr(&output).contains("no override of the API has this selection"), "{}", stderr(&output));
    assert_eq!(unset(&["--all", "--larger-than", "64MiB"]).1.status.code(), Some(2));
}

#[test]
fn ambiguous_arguments_are_usage_errors() {
    for arguments in [
        // A selector is required.
        &["policy", "set", "--mode", "act"][..],
        &["policy", "set", "--pid", "7"],
        &["policy", "set", "--pid", "7", "--mode", "on"],
        &["policy", "set", "--pid", "7", "--mode", "act", "--policy", "none"],
        &["policy", "set", "--pid", "7", "--mode", "act", "--expires", "soon"],
        &["policy", "unset"],
        &["policy", "unset", "x", "--pid", "7"],
        &["decisions", "7", "--pid", "7"],
        &["policy", "unset", "x", "--watch"],
    ] {
        let output = run("http://192.0.2.1:1", arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn policy_explain_has_the_selected_override_candidates_and_restrictions() {
    let candidate = |id: &str, matches, selected, reason: &str| Candidate {
        id: id.to_owned(),
        matches,
        selected,
        reason: reason.to_owned(),
    };
    let policy = EffectivePolicy {
        pid: 41_207,
        name: "python".to_owned(),
        mode: "act".to_owned(),
        policy: "cycle".to_owned(),
        reason: "of 2 that match, a is more specific".to_owned(),
        candidates: vec![
            candidate("a", true, true, "selected"),
            candidate("b", false, false, "match.job does not match: it is 7"),
        ],
        restrictions: vec![
            Restriction {
                gpu_uuid: Some("GPU-abab".to_owned()),
                scope: "advice".to_owned(),
                label: "No advice".to_owned(),
                reason: "the application advises the driver itself".to_owned(),
            },
            Restriction {
                scope: "cycle".to_owned(),
                label: "No cycle".to_owned(),
                reason: "it was rolled back\u{1b}".to_owned(),
                ..Restriction::default()
            },
        ],
        plan: Some(PlanState {
            state: "planned".to_owned(),
            description: "foresight, 52.0 MiB over the link in an iteration, 37 iterations so far".to_owned(),
            probes: Some(ProbeFigures {
                launches: 40,
                probed: 38,
                iterations: 51,
                named_bytes: 312 << 20,
                touched_bytes: 76 << 20,
            }),
            ..PlanState::default()
        }),
        ..EffectivePolicy::default()
    };
    let daemon = Canned::default().with("/api/v1/processes/41207/override", &policy);
    let text = stdout(&run(&daemon.serve(), &["policy", "explain", "41207"]));
    let expected = "\
41207 python: act by cycle
  Reason: of 2 that match, a is more specific.
  No action: acting is switched off (uvmctl policy show).
  Plan: foresight, 52.0 MiB over the link in an iteration, 37 iterations so far.
  Probes: 38 of 40 launches, which access at most 76.0 MiB of the 312 MiB that they name.
  No advice at GPU-abab: the application advises the driver itself.
  No cycle: it was rolled back\\u{1b}.
  * a: selected
  - b: match.job does not match: it is 7
";
    assert_eq!(text, expected);
}

#[test]
fn plan_and_restriction_of_an_earlier_uvmd_have_their_bare_names() {
    let plan = PlanState { state: "planning".to_owned(), ..PlanState::default() };
    let reason = "it waits for its turn".to_owned();
    let restriction = Restriction { scope: "auto-plan".to_owned(), reason, ..Restriction::default() };
    let policy =
        EffectivePolicy { pid: 41207, plan: Some(plan), restrictions: vec![restriction], ..EffectivePolicy::default() };
    let daemon = Canned::default().with("/api/v1/processes/41207/override", &policy);
    let text = stdout(&run(&daemon.serve(), &["policy", "explain", "41207"]));
    assert!(text.contains("  Plan: planning.\n  auto-plan: it waits for its turn.\n"), "{text}");
}

#[test]
fn acting_is_switched_off_and_on() {
    let daemon = Canned::default().with("/api/v1/policy/off", &state(false)).with("/api/v1/policy/on", &state(true));
    let url = daemon.serve();
    assert!(stdout(&run(&url, &["policy", "off"])).starts_with("acting is switched off by uid 0 on the socket"));
    assert_eq!(stdout(&run(&url, &["policy", "on"])), "uvmd may act\n");
    assert!(daemon.requests().iter().all(|request| request.starts_with("POST ")));
}

pub(crate) fn decision() -> Decision {
    let share = |at_least, at_most| Share { at_least, at_most };
    let measured = |bytes| Measured {
        window_seconds: 2.0,
        link_bytes: Some(LinkBytes { htod: bytes, dtoh: bytes }),
        own_link_bytes: bytes,
        ..Measured::default()
    };
    Decision {
        id: 17,
        pid: 41_207,
        name: "python".to_owned(),
        gpu_uuid: "GPU-abab".to_owned(),
        policy: "cycle".to_owned(),
        override_id: Some("llm".to_owned()),
        verdict: Some("capacity_thrash".to_owned()),
        reason: "it walks 96 MiB again and again".to_owned(),
        expected: Expected { link_bytes_saved: share(0.5, 0.65), faults_saved: share(0.4, 0.65) },
        stage: "confirmed".to_owned(),
        created_at: "2026-11-21T13:58:00.000Z".to_owned(),
        updated_at: "2026-11-21T13:59:00.000Z".to_owned(),
        bytes: 96 << 20,
        before: measured(100 << 20),
        after: Some(measured(45 << 20)),
        pace: Some(1.25),
        link_bytes_saved: Some(0.55),
        effect: "link -55 %".to_owned(),
        actuator: Some("helper".to_owned()),
        ..Decision::default()
    }
}

#[test]
fn decisions_are_listed_with_their_effect_and_their_reason() {
    let shadow = Decision {
        id: 18,
        stage: "shadow".to_owned(),
        stage_reason: Some("nothing more is wanted".to_owned()),
        after: None,
        pace: None,
        link_bytes_saved: None,
        effect: "link -50 % to -65 % expected".to_owned(),
        ..decision()
    };
    let known = Decisions { time: NOW.to_owned(), decisions: vec![shadow, decision()], ..Decisions::default() };
    let daemon = Canned::default().with("/api/v1/decisions", &known);
    let output = run(&daemon.serve(), &["decisions", "--pid", "41207", "--stage", "confirmed", "-n", "5"]);
    let text = stdout(&output);
    assert!(text.contains("18  41207  python   cycle   shadow     00:01:00  link -50 % to -65 % expected"), "{text}");
    assert!(text.contains("link -55 %") && text.contains("it walks 96 MiB again and again"), "{text}");
    assert!(daemon.requests()[0].starts_with("GET /api/v1/decisions?pid=41207&stage=confirmed&limit=5 "));
}

#[test]
fn a_decision_is_shown_with_its_windows_before_and_after() {
    let daemon = Canned::default().with("/api/v1/decisions/17", &decision());
    let text = stdout(&run(&daemon.serve(), &["decisions", "17"]));
    for part in [
        "Decision 17: cycle for 41207 python on GPU-abab",
        "Stage    confirmed",
        "Expected 50 % to 65 % of link bytes saved, 40 % to 65 % of faults",
        "Effect   link -55 %",
        "the longest call took 0 ns; by helper",
        "Memory   96.0 MiB, where requires read permission",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("before").contains("50.0 MiB") && row("after").contains("22.5 MiB"), "{text}");
}

fn listed(overrides: Vec<OverrideStatus>) -> Canned {
    Canned::default()
        .with("/api/v1/overrides/", &override_status("pod-7c1f"))
        .with("/api/v1/overrides", &Overrides { overrides, ..Overrides::default() })
        .with("/api/v1/policy", &state(true))
}

/// Requests that change state, such as `PUT /api/v1/overrides/llm`.
fn changes(daemon: &Canned) -> Vec<String> {
    let line = |request: String| request.split(" HTTP").next().unwrap().to_owned();
    daemon.requests().into_iter().map(line).filter(|line| !line.starts_with("GET")).collect()
}

#[test]
fn exported_overrides_are_applied_as_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    for form in ["table", "json"] {
        let daemon = listed(vec![override_status("a"), override_status("b")]);
        let url = daemon.serve();
        let exported = run(&url, &["policy", "export", "-o", form]);
        let file = folder.path().join(if form == "json" { "all.json" } else { "all.toml" });
        std::fs::write(&file, stdout(&exported)).unwrap();
        let output = run(&url, &["policy", "apply", "-f", file.to_str().unwrap(), "--prune"]);
        assert_eq!(stdout(&output), "override/a unchanged\noverride/b unchanged\n", "{}", stderr(&output));
        assert_eq!(changes(&daemon), [""; 0]);
    }
}

#[test]
fn overrides_of_files_are_created_configured_and_with_prune_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("1.toml", "[[override]]\nid = \"new\"\nmode = \"shadow\"\nmatch.pid = 7\n");
    write("2.json", r#"[{"id": "old", "mode": "observe"}]"#);
    write("notes.txt", "not an override");
    let daemon = listed(vec![override_status("old"), override_status("extra")]);
    let url = daemon.serve();
    let apply = |options: &[&str]| {
        let files = ["policy", "apply", "-f", folder.path().to_str().unwrap()];
        run(&url, &[&files, options].concat())
    };
    let expected =
        "override/new created (dry run)\noverride/old configured (dry run)\noverride/extra deleted (dry run)\n";
    assert_eq!(stdout(&apply(&["--prune", "--dry-run"])), expected);
    assert_eq!(changes(&daemon), [""; 0]);
    let output = apply(&["-o", "name"]);
    assert_eq!(stdout(&output), "override/new\noverride/old\n", "{}", stderr(&output));
    let expected = "override/new created, matches 2 processes now\noverride/old configured, matches 2 processes now\n";
    assert_eq!(stdout(&apply(&[])), expected);
    assert_eq!(changes(&daemon)[2..], ["PUT /api/v1/overrides/new", "PUT /api/v1/overrides/old"]);
    let json = stdout(&apply(&["--prune", "-o", "json"]));
    assert!(json.contains(r#"{"id":"extra","change":"deleted"}"#), "{json}");
    assert_eq!(changes(&daemon).last().unwrap(), "DELETE /api/v1/overrides/extra");
}

#[test]
fn a_mistake_in_a_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("good.toml");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&good, "[[override]]\nid = \"a\"\nmode = \"shadow\"\n").unwrap();
    let of_file = OverrideStatus { source: "file".to_owned(), ..override_status("a") };
    let daemon = listed(vec![of_file]);
    let url = daemon.serve();
    let apply = |files: &[&std::path::PathBuf]| {
        let files = files.iter().flat_map(|file| ["-f", file.to_str().unwrap()]);
        run(&url, &["policy", "apply"].into_iter().chain(files).collect::<Vec<_>>())
    };
    std::fs::write(&bad, "[[override]]\nid = \"b\"\n\nmode = \"on\"\n").unwrap();
    let mistake = apply(&[&good, &bad]);
    assert!(stderr(&mistake).contains("bad.toml:4: override.mode: expected \"observe\""), "{}", stderr(&mistake));
    std::fs::copy(&good, &bad).unwrap();
    assert!(stderr(&apply(&[&good, &bad])).contains("another file has an override \"a\""));
    assert!(stderr(&apply(&[&good])).contains("override/a is in a file of uvmd"));
    assert_eq!(apply(&[&folder.path().join("none.toml")]).status.code(), Some(1));
    assert_eq!(changes(&daemon), [""; 0]);
}

#[test]
fn export_omits_overrides_of_files_and_expired_ones() {
    let of_file = OverrideStatus { source: "file".to_owned(), ..override_status("of-file") };
    let expired = OverrideStatus { expired: true, ..override_status("expired") };
    let url = listed(vec![override_status("a"), of_file, expired]).serve();
    let export = |options: &[&str]| run(&url, &[&["policy", "export"], options].concat());
    let output = export(&[]);
    assert_eq!(stdout(&output).matches("[[override]]").count(), 1, "{}", stdout(&output));
    assert!(stdout(&output).contains("id = \"a\"") && stderr(&output).contains("expired, and not exported: expired"));
    assert_eq!(stdout(&export(&["--all"])).matches("[[override]]").count(), 2);
    assert!(stdout(&export(&["override/of-file"])).contains("id = \"of-file\""));
    assert!(stderr(&export(&["none"])).contains("there is no override \"none\""));
    assert_eq!(export(&["-o", "yaml"]).status.code(), Some(2));
}
