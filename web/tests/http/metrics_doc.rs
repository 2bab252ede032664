//! docs/metrics.md is what the code's definitions say.

use std::{env, fs, path::Path};

#[test]
fn the_document_lists_the_metrics_that_there_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, web::metrics::markdown()).unwrap();
    }
    let document = fs::read_to_string(&path).unwrap();
    assert!(
        document == web::metrics::markdown(),
        "docs/metrics.md is out of date: run UPDATE_DOCS=1 cargo test -p web --test http metrics_doc"
    );
}
