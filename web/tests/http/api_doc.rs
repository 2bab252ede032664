//! The examples of docs/api.md have exactly the fields of the code's types.

use api::{
    Evictions, Gpus, HeatMap, History, Ops, OwnerDetail, OwnerReport, Owners, ProcessDetail, ProcessSummaries,
    Processes, Ranges, Sites, Status, Verdicts,
    decision::Decisions,
    rule::{EffectivePolicy, Overrides, PolicyState},
};
use model::DropReason;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../docs/api.md");

/// JSON examples below a heading.
fn examples(heading: &str) -> Vec<Value> {
    let (_, section) = DOCUMENT.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let texts = section.split("```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    texts.map(|text| serde_json::from_str(text).unwrap_or_else(|error| panic!("{heading}: {error}"))).collect()
}

/// First example below a heading.
fn example(heading: &str) -> Value {
    examples(heading).swap_remove(0)
}

fn assert_is<T: Serialize + DeserializeOwned>(written: &Value) {
    let read: T = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(&serde_json::to_value(read).unwrap(), written);
}

/// Adds the fields of `more` to `object`, which has none of them.
fn extend(object: &mut Value, more: &Value) {
    let (object, more) = (object.as_object_mut().unwrap(), more.as_object().unwrap());
    let fields = object.len();
    object.extend(more.clone());
    assert_eq!(object.len(), fields + more.len(), "the example repeats a field");
}

/// Example with the counts that it omits, at these places.
fn with_counts(heading: &str, places: &[&str]) -> Value {
    let counts = &example("`GET /api/v1/status`")["total"];
    let mut example = example(heading);
    for place in places {
        extend(example.pointer_mut(place).unwrap(), counts);
    }
    example
}

fn processes() -> Value {
    with_counts("`GET /api/v1/processes`", &["/processes/0", "/processes/0/gpus/0"])
}

#[test]
fn the_examples_are_of_the_types_that_are_served() {
    assert_is::<Processes>(&processes());
    // The example has only the fields that the list lacks.
    let mut detail = example("`GET /api/v1/processes/{pid}`");
    extend(&mut detail, &processes()["processes"][0]);
    assert_is::<ProcessDetail>(&detail);
    assert_is::<ProcessSummaries>(&example("`GET /api/v1/processes/summary`"));
    assert_is::<Ranges>(&example("`GET /api/v1/processes/{pid}/ranges`"));
    assert_is::<Sites>(&example("`GET /api/v1/processes/{pid}/sites`"));
    assert_is::<HeatMap>(&example("`GET /api/v1/processes/{pid}/heatmap`"));
    assert_is::<Ops>(&example("`GET /api/v1/processes/{pid}/ops`"));
    assert_is::<History>(&example("`GET /api/v1/processes/{pid}/history`"));
    assert_is::<Verdicts>(&example("`GET /api/v1/verdicts`"));
    assert_is::<Evictions>(&example("`GET /api/v1/evictions`"));
    assert_is::<Owners>(&with_counts("`GET /api/v1/owners`", &["/owners/0", "/owners/0/gpus/0"]));
    let mut owner = example("`GET /api/v1/owners/{kind}/{id}`");
    extend(&mut owner, &with_counts("`GET /api/v1/owners`", &["/owners/0", "/owners/0/gpus/0"])["owners"][0]);
    assert_is::<OwnerDetail>(&owner);
    assert_is::<OwnerReport>(&example("`GET /api/v1/owners/{kind}/{id}/report`"));
    assert_is::<Gpus>(&with_counts("`GET /api/v1/gpus`", &["/gpus/0"]));
    assert_is::<Status>(&example("`GET /api/v1/status`"));
    assert_is::<Overrides>(&example("Overrides"));
    assert_is::<EffectivePolicy>(&examples("Overrides")[1]);
    assert_is::<PolicyState>(&example("The switch"));
    assert_is::<Decisions>(&example("`GET /api/v1/decisions`"));
    assert!(example("Errors")["type"].is_string());
}

#[test]
fn the_example_of_a_status_has_every_drop_reason() {
    let Status { dropped_events_by_reason, .. } = serde_json::from_value(example("`GET /api/v1/status`")).unwrap();
    assert_eq!(dropped_events_by_reason, DropReason::ALL.map(|reason| (reason.name().to_owned(), 0)).into());
}

#[test]
fn the_document_lists_every_kind_of_verdict() {
    for kind in model::VerdictKind::ALL {
        assert!(DOCUMENT.contains(&format!("\n| `{}` |", kind.name())), "{kind:?}");
    }
}
