//! Metrics and REST API of the public surface, held by golden files.

use std::fmt::Write;

use model::{
    Access, ApiCall, Cause, DegradedReason, Direction, DropReason, EvictionCause, Mode, RemoteCause, Stage,
    VerdictKind, policy,
};
use web::{ProblemKind, Warning};

use crate::support::{counting, get, router};

/// Name, type, labels and buckets of each metric of docs/metrics.md, which is generated from the definitions.
fn metrics(document: &str) -> String {
    let mut text = String::new();
    for section in document.split("\n## `").skip(1) {
        let (name, section) = section.split_once('`').unwrap();
        let section = section.split("\n## ").next().unwrap();
        let kind = section.trim().split('.').next().unwrap().to_lowercase();
        writeln!(text, "{name} {kind}").unwrap();
        let paragraphs: Vec<_> = section.split("\n\n").map(|paragraph| paragraph.replace('\n', " ")).collect();
        let labels = paragraphs.iter().find_map(|text| text.strip_prefix("Labels: ")).unwrap();
        writeln!(text, "  {}", labels.trim().trim_end_matches('.').replace(['`', ','], "")).unwrap();
        if let Some(buckets) = paragraphs.iter().find_map(|text| text.strip_prefix("Buckets up to ")) {
            writeln!(text, "  le {}", buckets.split(", and ").next().unwrap().replace(", ", " ")).unwrap();
        }
    }
    text
}

/// Values of fields and labels that clients compare with: of each kind a line.
fn values() -> String {
    let policies: Vec<_> = policy::POLICIES.iter().map(|policy| policy.name).collect();
    let problems: Vec<_> = ProblemKind::ALL.iter().map(|kind| kind.uri()).collect();
    let kinds: [(&str, &[&str]); 14] = [
        ("access", &Access::ALL.map(Access::name)),
        ("call", &ApiCall::ALL.map(ApiCall::name)),
        ("cause", &Cause::ALL.map(Cause::name)),
        ("degraded reason", &DegradedReason::ALL.map(DegradedReason::name)),
        ("direction", &Direction::ALL.map(Direction::name)),
        ("drop reason", &DropReason::ALL.map(DropReason::name)),
        ("eviction cause", &EvictionCause::ALL.map(EvictionCause::name)),
        ("mode", &Mode::ALL.map(Mode::name)),
        ("policy", &policies),
        ("problem type", &problems.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
        ("remote cause", &RemoteCause::ALL.map(RemoteCause::name)),
        ("stage", &Stage::NAMES),
        ("verdict", &VerdictKind::ALL.map(VerdictKind::name)),
        ("warning", &Warning::ALL.map(Warning::name)),
    ];
    let mut text = String::new();
    for (kind, values) in kinds {
        writeln!(text, "{kind}: {}", values.join(" ")).unwrap();
    }
    text
}

#[test]
fn values_are_those_of_the_golden_file() {
    ::surface::hold("values.txt", &values());
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
