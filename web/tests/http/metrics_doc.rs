//! docs/metrics.md equals the code's definitions.

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
fn the_document_describes_every_drop_reason() {
    let document = web::metrics::markdown();
    let (_, reasons) = document.split_once("\n## Reasons\n").unwrap();
    for reason in DropReason::ALL {
        assert!(reasons.contains(&format!("\n| `{}` | {} |\n", reason.name(), reason.counts())), "{reason:?}");
    }
    // The two that do not count events are described so.
    for reason in [DropReason::SpacesFull, DropReason::RingFull] {
        assert!(reason.counts().contains("not events"), "{reason:?}");
    }
}

#[test]
fn the_queries_of_the_document_use_existing_metrics() {
    let document = web::metrics::markdown();
    let queries = document.split("```promql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = queries.flat_map(|queries| queries.split(move |character| !is_part(character)));
    let names = words.filter(|name| ["uvm", "process_"].iter().any(|prefix| name.starts_with(prefix)));
    let metrics = names
        .filter(|name| name.contains('_'))
        .map(|name| ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name));
    for metric in metrics {
        assert!(document.contains(&format!("\n## `{metric}`\n")), "{metric}");
    }
}
