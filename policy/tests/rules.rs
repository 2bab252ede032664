//! Overrides and the processes that they apply to.
#![cfg(test)]

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use model::{Budget, Container, Job, Mode, Override, Owner, Pod, Process, ProcessId, Selector};
use policy::rules::{Explained, Fallback, MatchResult, Rules, Subject};

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn process() -> Process {
    Process {
        uid: 1000,
        cgroup: Some("/kubepods.slice/pod7.slice/cri-1f9c.scope".into()),
        owner: Owner {
            container: Some(Container { runtime: None, id: "1f9c8e".to_owned() }),
            pod: Some(Pod { uid: "7c1f-0c0e".to_owned() }),
            job: Some(Job { id: "123".to_owned(), step: None }),
            unit: None,
        },
        ..Process::new(ProcessId { pid: 7, start_ticks: 1 }, "python3")
    }
}

fn rule(id: &str, selector: Selector) -> Override {
    Override { selector, ..Override::new(id, Mode::Shadow, "cycle") }
}

fn fallback() -> Fallback {
    Fallback {
        mode: Mode::Observe,
        policy: "auto-live".to_owned(),
        budget: Budget { bytes_per_second: Some(100), bytes: Some(1000) },
        mode_max: Mode::Act,
    }
}

fn explain(overrides: Vec<Override>) -> Explained {
    let process = process();
    let subject = Subject { process: &process, executable: Some(Path::new("/usr/bin/python3.11")) };
    let rules = Rules::new(overrides, fallback());
    let explained = rules.explain(subject, NOW);
    assert_eq!(rules.directive(subject, NOW), explained.directive, "asked with and without the reasons");
    explained
}

fn selected(overrides: Vec<Override>) -> Option<String> {
    explain(overrides).directive.override_id
}

#[test]
fn default_applies_without_a_matching_override() {
    let Explained { directive, why, candidates } = explain(Vec::new());
    assert_eq!((directive.override_id, directive.mode, directive.policy.as_str()), (None, Mode::Observe, "auto-live"));
    assert_eq!(directive.budget, fallback().budget);
    assert!(why.contains("no override") && candidates.is_empty(), "{why}");
}

#[test]
fn all_fields_of_a_selector_must_match() {
    let matching = [
        Selector::default(),
        Selector { pid: Some(7), ..Selector::default() },
        Selector { executable: Some("python*".into()), ..Selector::default() },
        Selector { executable: Some("/usr/bin/*".into()), ..Selector::default() },
        Selector { uid: Some(1000), ..Selector::default() },
        Selector { cgroup: Some("/kubepods.slice".into()), ..Selector::default() },
        Selector { cgroup: Some("/kubepods.slice/".into()), ..Selector::default() },
        Selector { cgroup: Some("/".into()), ..Selector::default() },
        Selector { cgroup: Some("/kubepods.slice/pod*.slice".into()), ..Selector::default() },
        Selector { container: Some("1f9c".into()), ..Selector::default() },
        Selector { pod: Some("7c1f*".into()), ..Selector::default() },
        Selector { pod: Some("7c1f".into()), ..Selector::default() },
        Selector { job: Some("123".into()), ..Selector::default() },
        Selector { range: Some((0, 4096).into()), allocation_larger_than_bytes: Some(1), ..Selector::default() },
        Selector { uid: Some(1000), pod: Some("7c1f-0c0e".into()), job: Some("*".into()), ..Selector::default() },
    ];
    for selector in matching {
        assert_eq!(selected(vec![rule("a", selector.clone())]), Some("a".into()), "{selector:?}");
    }
    let others = [
        ("match.pid", Selector { pid: Some(8), ..Selector::default() }),
        ("match.executable", Selector { executable: Some("python".into()), ..Selector::default() }),
        ("match.executable", Selector { executable: Some("/bin/python3".into()), ..Selector::default() }),
        ("match.uid", Selector { uid: Some(0), pod: Some("7c1f*".into()), ..Selector::default() }),
        ("match.cgroup", Selector { cgroup: Some("/kubepods".into()), ..Selector::default() }),
        ("match.container", Selector { container: Some("f9c".into()), ..Selector::default() }),
        ("match.pod", Selector { pod: Some("c1f".into()), ..Selector::default() }),
        ("match.job", Selector { job: Some("12".into()), ..Selector::default() }),
    ];
    for (key, selector) in others {
        let Explained { directive, candidates, .. } = explain(vec![rule("a", selector)]);
        assert_eq!(directive.override_id, None);
        assert!(
            matches!(&candidates[0].result, MatchResult::Differs { key: differs, .. } if *differs == key),
            "{candidates:?}"
        );
    }
}

#[test]
fn unknown_fields_of_a_process_match_no_selector() {
    let process = Process::new(ProcessId { pid: 7, start_ticks: 1 }, "python3");
    let subject = Subject { process: &process, executable: None };
    for selector in [
        Selector { executable: Some("/*".into()), ..Selector::default() },
        Selector { cgroup: Some("*".into()), ..Selector::default() },
        Selector { container: Some("*".into()), ..Selector::default() },
        Selector { pod: Some("*".into()), ..Selector::default() },
        Selector { job: Some("*".into()), ..Selector::default() },
    ] {
        let rules = Rules::new(vec![rule("a", selector.clone())], fallback());
        assert_eq!(rules.directive(subject, NOW).override_id, None, "{selector:?}");
    }
}

#[test]
fn precedence_is_priority_then_specificity_then_name() {
    let exact = rule("exact", Selector { pid: Some(7), ..Selector::default() });
    let wide = rule("wide", Selector::default());
    assert_eq!(selected(vec![wide.clone(), exact.clone()]), Some("exact".into()));
    let urgent = Override { priority: 1, ..wide.clone() };
    assert_eq!(selected(vec![exact, urgent]), Some("wide".into()));
    assert_eq!(selected(vec![wide, rule("also", Selector::default())]), Some("also".into()));
}

#[test]
fn selector_of_a_smaller_group_is_more_specific() {
    let growing = [
        Selector::default(),
        Selector { allocation_larger_than_bytes: Some(1), ..Selector::default() },
        Selector { uid: Some(1000), ..Selector::default() },
        Selector { executable: Some("py*".into()), ..Selector::default() },
        Selector { executable: Some("python3".into()), uid: Some(1000), ..Selector::default() },
        Selector { cgroup: Some("/kubepods.slice".into()), ..Selector::default() },
        Selector { cgroup: Some("/kubepods.slice/pod7.slice".into()), ..Selector::default() },
        Selector { job: Some("123".into()), ..Selector::default() },
        Selector { pod: Some("*".into()), ..Selector::default() },
        Selector { pod: Some("7c1f-0c0e".into()), ..Selector::default() },
        Selector { container: Some("1f9c".into()), ..Selector::default() },
        Selector { pid: Some(7), ..Selector::default() },
    ];
    for pair in growing.windows(2) {
        // The id would decide otherwise.
        let overrides = vec![rule("a", pair[0].clone()), rule("b", pair[1].clone())];
        assert_eq!(selected(overrides), Some("b".into()), "{:?}", pair[1]);
    }
}

#[test]
fn expired_override_is_not_selected() {
    let ends = |at| Override { expires_at: Some(at), priority: 1, ..rule("brief", Selector::default()) };
    let other = rule("other", Selector::default());
    assert_eq!(selected(vec![ends(NOW + Duration::from_secs(1)), other.clone()]), Some("brief".into()));
    let Explained { directive, candidates, .. } = explain(vec![ends(NOW), other]);
    assert_eq!(directive.override_id, Some("other".into()));
    assert_eq!(candidates[0].result, MatchResult::Expired);
}

#[test]
fn reasons_name_the_deciding_criterion() {
    let Explained { why, candidates, .. } = explain(vec![
        rule("team", Selector { uid: Some(1000), ..Selector::default() }),
        rule("pod", Selector { pod: Some("7c1f*".into()), ..Selector::default() }),
        rule("batch", Selector { job: Some("99".into()), ..Selector::default() }),
    ]);
    assert_eq!(why, "of 2 that match, pod is more specific");
    let texts: Vec<String> = candidates.iter().map(|each| format!("{}: {}", each.id, each.result)).collect();
    assert_eq!(
        texts,
        ["pod: selected", "batch: match.job does not match: it is 123", "team: it matches, but pod is more specific",]
    );
}

#[test]
fn unset_budgets_come_from_the_default() {
    let budget = Budget { bytes_per_second: Some(5), bytes: None };
    let directive = explain(vec![Override { budget, ..rule("a", Selector::default()) }]).directive;
    assert_eq!(directive.budget, Budget { bytes_per_second: Some(5), bytes: Some(1000) });
}

#[test]
fn mode_is_limited_by_the_configured_maximum() {
    let process = process();
    let subject = Subject { process: &process, executable: None };
    let acting = Override { mode: Mode::Act, ..rule("a", Selector::default()) };
    let rules = Rules::new(vec![acting], Fallback { mode_max: Mode::Shadow, ..fallback() });
    let Explained { directive, why, .. } = rules.explain(subject, NOW);
    assert_eq!(directive.mode, Mode::Shadow);
    assert!(why.contains("policy.enabled"), "{why}");
}

#[test]
fn expired_override_stays_expired_when_the_clock_is_set_back() {
    let process = process();
    let subject = Subject { process: &process, executable: None };
    let brief = Override { expires_at: Some(NOW + Duration::from_secs(1)), ..rule("brief", Selector::default()) };
    let rules = Rules::new(vec![brief], fallback());
    assert_eq!(rules.directive(subject, NOW).override_id.as_deref(), Some("brief"));
    let rules = rules.with_expired(["brief".to_owned()].into());
    let explained = rules.explain(subject, NOW);
    assert_eq!(
        (rules.directive(subject, NOW).override_id, &explained.candidates[0].result),
        (None, &MatchResult::Expired)
    );
}
