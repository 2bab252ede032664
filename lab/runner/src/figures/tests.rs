use serde_json::json;

use super::*;

/// Every figure of uvmd, each with a distinct value.
fn all(offset: u64) -> Figures {
    let mut figures = Figures::default();
    for (value, field) in (offset..).zip(fields().filter(|field| !field.uvmd.is_empty())) {
        figures.set(field, value);
    }
    figures.set(&DROPPED_EVENTS, 0);
    figures
}

fn truth(figures: &Figures) -> Truth {
    Truth { figures: figures.clone(), ..Truth::default() }
}

fn wrong(comparisons: &[Comparison]) -> Vec<&'static str> {
    comparisons.iter().filter(|comparison| !comparison.holds).map(|comparison| comparison.field).collect()
}

#[test]
fn equal_figures_hold() {
    for scope in [Scope::Process, Scope::Gpu, Scope::Total] {
        assert_eq!(wrong(&compare("x", scope, &truth(&all(1)), &all(1))), [""; 0]);
    }
}

#[test]
fn every_exact_figure_that_differs_is_reported() {
    let mut uvmd = all(2);
    uvmd.set(&DROPPED_EVENTS, 1);
    let expected: Vec<&str> = fields()
        .filter(|field| !matches!(field.relation(Scope::Total), Unknown | AtLeast))
        .map(|field| field.name)
        .collect();
    assert!(expected.len() > 20);
    assert_eq!(wrong(&compare("total", Scope::Total, &truth(&all(1)), &uvmd)), expected);
}

#[test]
fn a_figure_that_is_missing_does_not_hold() {
    let has_truth = |field: &&Field| !matches!(field.relation(Scope::Process), Unknown | Zero);
    let exact: Vec<&str> = fields().filter(has_truth).map(|field| field.name).collect();
    assert_eq!(wrong(&compare("p", Scope::Process, &Truth::default(), &all(1))), exact);
    let missing = wrong(&compare("p", Scope::Process, &truth(&all(1)), &Figures::default()));
    assert!(missing.contains(&"dropped_events") && exact.iter().all(|name| missing.contains(name)));
}

#[test]
fn a_waived_figure_is_not_compared_and_the_report_has_the_reason() {
    let mut truth = truth(&all(1));
    truth.waive(&CPU_FAULTS, "for a reason");
    let mut uvmd = all(1);
    uvmd.set(&CPU_FAULTS, 77);
    assert_eq!(wrong(&compare("p", Scope::Process, &truth, &uvmd)), [""; 0]);
    let json = serde_json::to_value(&truth).unwrap();
    assert_eq!((&json["cpu_faults"], &json["not_known"]["cpu_faults"]), (&Value::Null, &json!("for a reason")));
}

#[test]
fn a_bound_holds_on_its_side() {
    let holds = |relation: Relation| [4, 5, 6].map(|uvmd| relation.holds(Some(5), Some(uvmd)));
    assert_eq!(holds(AtMost), [true, true, false]);
    assert_eq!(holds(AtLeast), [false, true, true]);
    assert_eq!(holds(Exact), [false, true, false]);
    assert!(!AtMost.holds(None, Some(1)) && !AtLeast.holds(Some(1), None));
}

#[test]
fn an_exact_figure_can_be_a_bound_in_one_run_and_the_report_has_the_reason() {
    let mut truth = truth(&all(1));
    truth.loosen(&REPLAYS, AtMost, "for a reason");
    let mut uvmd = all(1);
    uvmd.set(&REPLAYS, 0);
    assert_eq!(wrong(&compare("total", Scope::Total, &truth, &uvmd)), [""; 0]);
    uvmd.set(&REPLAYS, 1000);
    assert_eq!(wrong(&compare("total", Scope::Total, &truth, &uvmd)), ["replays"]);
    assert_eq!(serde_json::to_value(&truth).unwrap()["bounds"]["replays"], json!(["at_most", "for a reason"]));
}

#[test]
fn inexact_figures_of_processes_must_be_right_in_their_sum() {
    let zero = Figures::of_uvmd(&json!({
        "evicted_bytes": 0, "induced_eviction_bytes": 0, "bytes_dtod": 0, "replays": 9,
        "fault_instances_by_access": { "prefetch": 0, "read": 0, "write": 0, "atomic_weak": 0, "atomic_strong": 0 },
        "bytes_by_cause": { "htod": { "fault": 0, "tree_prefetch": 0 }, "dtoh": { "fault": 0, "tree_prefetch": 0 },
            "dtod": { "fault": 0, "tree_prefetch": 0 } },
    }));
    let process = |instances| {
        let mut figures = zero.clone();
        figures.set(&FAULT_INSTANCES, instances);
        figures
    };
    let mut waived = Truth::default();
    waived.waive(&EVICTED_BYTES, "for a reason");
    let sums = |first: Figures, second: Figures| {
        let of_processes = [(&Truth::default(), &first), (&waived, &second)];
        let sums = compare_sums(&truth(&process(12)), &of_processes);
        (sums.iter().any(|sum| sum.field == "evicted_bytes"), wrong(&sums))
    };
    assert_eq!(sums(process(5), process(7)), (true, vec![]), "the two shared replays");
    assert_eq!(sums(process(5), process(8)).1, ["fault_instances"]);
    assert_eq!(sums(process(12), Figures::default()).1.len(), 9, "one is not known");
}

#[test]
fn figures_of_uvmd_are_read_from_its_counts_and_absent_ones_are_not_known() {
    let counts = json!({
        "fault_entries": 3,
        "bytes_by_cause": { "htod": { "fault": 4, "tree_prefetch": 5, "api": 100 }, "dtod": { "fault": 0, "tree_prefetch": 0 } },
        "api_calls_by_kind": { "prefetch": 6 },
    });
    let figures = Figures::of_uvmd(&counts);
    let found = [&FAULT_ENTRIES, &FAULT_BYTES_IN, &CALLS[0], &FAULT_BYTES_OUT, &CPU_FAULTS];
    assert_eq!(found.map(|field| figures.get(field)), [Some(3), Some(9), Some(6), None, None]);
}

#[test]
fn figures_are_increases_and_a_decrease_is_named() {
    let since = all(10).since(&all(4)).unwrap();
    assert_eq!((since.get(&FAULT_ENTRIES), since.get(&DROPPED_EVENTS)), (Some(6), Some(0)));
    assert!(all(4).since(&all(10)).is_err());
}

#[test]
fn the_table_in_the_documentation_says_the_same() {
    let document = include_str!("../../../../docs/truth.md");
    for field in fields() {
        let name = field.name.split_once('.').map_or(field.name.to_owned(), |(name, _)| format!("{name}.KIND"));
        for (scope, title) in [(Scope::Process, "process"), (Scope::Gpu, "GPU"), (Scope::Total, "total")] {
            let start = format!("| `{name}` | {title} |");
            let row = document.lines().find(|line| line.starts_with(&start));
            let documented = row.map(|row| row.split('|').nth(4).unwrap().trim());
            // Figures that neither side has are not in the table.
            let expected = match field.relation(scope) {
                Exact => Some("exact"),
                AtMost => Some("at most"),
                AtLeast => Some("at least"),
                Zero => Some("must be 0"),
                Unknown => documented.filter(|documented| *documented == "none"),
            };
            assert_eq!(documented, expected, "{start}");
        }
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = fields().map(|field| field.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn figures_that_the_source_does_not_count_are_not_compared_unless_every_source_counts_them() {
    let mut truth = truth(&all(1));
    let mut uvmd = all(1);
    for field in [&EVICTED_BYTES, &CPU_FAULTS] {
        uvmd.set(field, None);
    }
    truth.waive_uncounted(&uvmd);
    assert_eq!(truth.waived.keys().copied().collect::<Vec<_>>(), ["evicted_bytes"]);
    assert_eq!(wrong(&compare("p", Scope::Process, &truth, &uvmd)), ["cpu_faults"]);
}

#[test]
fn two_sources_are_compared_by_what_both_count() {
    let (mut probes, mut tools) = (Figures::default(), Figures::default());
    for (field, of_probes, of_tools) in
        [(&FAULT_ENTRIES, Some(5), Some(5)), (&REPLAYS, Some(1), None), (&EVICTED_BYTES, Some(8), Some(4))]
    {
        probes.set(field, of_probes);
        tools.set(field, of_tools);
    }
    let compared = compare_sources("total", &probes, &tools);
    let compared: Vec<_> = compared.iter().map(|each| (each.field, each.holds)).collect();
    assert_eq!(compared, [("fault_entries", true), ("evicted_bytes", false)]);
}
