//! The custom resource definitions in the repository.
#![cfg(test)]

use std::{env, fs, path::Path};

#[test]
fn shipped_definitions_are_those_of_the_types() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes/base/crds.yaml");
    let text = fleet::resources::definitions().unwrap();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap_or_default(), text, "UPDATE_DOCS=1 cargo test -p fleet writes it");
}
