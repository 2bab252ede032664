//! The examples of docs/api.md are what the code's types say, no field more or less.

use model::{
    DropReason,
    api::{ProcessDetail, Processes, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

fn assert_is<T: Serialize + DeserializeOwned>(example: &str) {
    let written: Value = serde_json::from_str(example).unwrap();
    let read: T = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

/// The example of one process shows only what the list has not.
fn with_the_fields_of_the_list(detail: &str, processes: &str) -> String {
    let detail: serde_json::Map<_, _> = serde_json::from_str(detail).unwrap();
    let processes: Value = serde_json::from_str(processes).unwrap();
    let mut process = processes["processes"][0].as_object().unwrap().clone();
    let listed = process.len();
    process.extend(detail.clone());
    assert_eq!(process.len(), listed + detail.len(), "the example repeats a field of the list");
    serde_json::to_string(&process).unwrap()
}

/// The JSON examples in the order of the document.
fn examples() -> [&'static str; 4] {
    let document = include_str!("../../../docs/api.md");
    let examples = document.split("```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    examples.collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn the_examples_are_of_the_types_that_are_served() {
    let [processes, detail, status, problem] = examples();
    assert_is::<Processes>(processes);
    assert_is::<ProcessDetail>(&with_the_fields_of_the_list(detail, processes));
    assert_is::<Status>(status);
    assert_is::<Value>(problem);
}

#[test]
fn the_example_of_a_status_has_every_reason_for_a_drop() {
    let [_, _, status, _] = examples();
    let Status { dropped_events_by_reason, .. } = serde_json::from_str(status).unwrap();
    assert_eq!(dropped_events_by_reason, DropReason::ALL.map(|reason| (reason.name().to_owned(), 0)).into());
}
