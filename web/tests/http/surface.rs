//! Metrics and REST API of the public surface, held by golden files.

use std::fmt::Write;

use crate::support::{counting, get, router};

/// Name, type, labels and buckets of each metric of docs/metrics.md, which is generated from the definitions.
fn metrics(document: &str) -> String {
    let mut text = String::new();
    for section in document.split("\n## `").skip(1) {
        let (name, section) = section.split_once('`').unwrap();
        let section = section.split("\n## ").next().unwrap();
        let kind = section.trim().split('.').next().unwrap().to_lowercase();
        writeln!(text, "{name} {kind}").unwrap();
        let labels = section.lines().find_map(|line| line.strip_prefix("Labels: ")).unwrap();
        writeln!(text, "  {}", labels.trim_end_matches('.').replace(['`', ','], "")).unwrap();
        if let Some(buckets) = section.lines().find_map(|line| line.strip_prefix("Buckets up to ")) {
            writeln!(text, "  le {}", buckets.split(", and ").next().unwrap().replace(", ", " ")).unwrap();
        }
    }
    text
}

#[test]
fn metrics_are_those_of_the_golden_file() {
    ::surface::hold("metrics.txt", &metrics(&web::metrics::markdown()));
}

#[tokio::test]
async fn the_rest_api_is_that_of_the_golden_file() {
    let document = get(&router(counting()), "/openapi.json").await.json();
    ::surface::hold("api.txt", &::surface::openapi(&document));
}
