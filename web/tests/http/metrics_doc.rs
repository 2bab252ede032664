//! docs/metrics.md is what the code's definitions say.

use std::{env, fs, path::Path};

use model::DropReason;

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

#[test]
fn the_document_says_what_each_reason_for_a_drop_counts() {
    let document = web::metrics::markdown();
    let (_, reasons) = document.split_once("\n## Reasons\n").unwrap();
    for reason in DropReason::ALL {
        assert!(reasons.contains(&format!("\n| `{}` | {} |\n", reason.name(), reason.counts())), "{reason:?}");
    }
    // The two that are not events say so.
    for reason in [DropReason::SpacesFull, DropReason::RingFull] {
        assert!(reason.counts().contains("not events"), "{reason:?}");
    }
}

#[test]
fn the_queries_of_the_document_are_of_metrics_that_there_are() {
    let document = web::metrics::markdown();
    let (definitions, queries) = document.split_once("```promql\n").unwrap();
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let names = queries.split(|character| !is_part(character)).filter(|name| name.starts_with("uvm"));
    let metrics = names
        .filter(|name| name.contains('_'))
        .map(|name| ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name));
    for metric in metrics {
        assert!(definitions.contains(&format!("\n## `{metric}`\n")), "{metric}");
    }
}
