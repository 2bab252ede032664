//! The examples of docs/api.md are what the code's types say, no field more or less.

use model::api::{Processes, Status};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

fn assert_is<T: Serialize + DeserializeOwned>(example: &str) {
    let written: Value = serde_json::from_str(example).unwrap();
    let read: T = serde_json::from_str(example).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

#[test]
fn the_examples_are_of_the_types_that_are_served() {
    let document = include_str!("../../../docs/api.md");
    let examples: Vec<_> =
        document.split("```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    let [processes, status, problem] = examples[..] else { panic!("{} examples", examples.len()) };
    assert_is::<Processes>(processes);
    assert_is::<Status>(status);
    assert_is::<Value>(problem);
}
