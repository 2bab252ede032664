//! Metrics and REST API of the public surface, held by golden files.

use std::fmt::Write;

use api::decision::EventType;
use model::{
    Access, Action, Advice, ApiCall, CallResult, Cause, DegradedReason, Direction, DropReason, EvictionCause,
    GpuSource, GpuUuid, Mode, OwnerKey, PatternKind, Place, RemoteCause, RestrictionScope, SourceState, Stage,
    VerdictKind, policy,
};
use web::{ProblemKind, Warning};

use crate::support::{counting, get, router};

/// Name, type, labels and buckets of each metric of docs/metrics.md, which is generated from the
/// definitions.
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

const GPU: GpuUuid = GpuUuid([0; 16]);

/// Values of types that have no list.
fn of_variants() -> [(&'static str, Vec<&'static str>); 5] {
    let advice = [
        Advice::PreferredLocation(Place::Host),
        Advice::PreferredLocation(Place::Gpu(GPU)),
        Advice::AccessedBy(GPU),
        Advice::ReadDuplication,
    ];
    let migrations = [Action::Migrate(Place::Host), Action::Migrate(Place::Gpu(GPU)), Action::Touch(GPU)];
    let mut actions: Vec<_> = migrations.into_iter().chain(advice.map(Action::Advise)).map(Action::name).collect();
    actions.extend(advice.map(|advice| Action::Withdraw(advice).name()));
    actions.dedup();
    let strided = PatternKind::Strided { stride_bytes: 1 };
    let patterns = [PatternKind::Sequential, strided, PatternKind::Cyclic, PatternKind::Random];
    let patterns = patterns.into_iter().chain([PatternKind::HotSet, PatternKind::Unknown]);
    let results = [
        CallResult::Done,
        CallResult::NotMapped,
        CallResult::Replaced,
        CallResult::Exited,
        CallResult::HostMemory,
        CallResult::Cancelled,
        CallResult::Shadow,
        CallResult::Failed(String::new()),
        CallResult::Denied(String::new()),
    ];
    let scopes = [
        RestrictionScope::Everything,
        RestrictionScope::Advice,
        RestrictionScope::SomeMemory,
        RestrictionScope::Moves,
        RestrictionScope::MovesToGpu,
        RestrictionScope::MovesToHost,
        RestrictionScope::RemoteMappings,
    ];
    [
        ("action", actions),
        ("call result", results.iter().map(CallResult::name).collect()),
        ("GPU source", [GpuSource::Nvml, GpuSource::Procfs].map(GpuSource::name).into()),
        ("pattern", patterns.map(PatternKind::name).collect()),
        ("restriction scope", scopes.map(RestrictionScope::name).into()),
    ]
}

/// Values of fields and labels that clients compare with, one line for each kind.
fn values() -> String {
    let policies: Vec<_> = policy::POLICIES.iter().map(|policy| policy.name).collect();
    let problems: Vec<_> = ProblemKind::ALL.iter().map(|kind| kind.uri()).collect();
    let kinds: [(&str, &[&str]); 17] = [
        ("access", &Access::ALL.map(Access::name)),
        ("call", &ApiCall::ALL.map(ApiCall::name)),
        ("cause", &Cause::ALL.map(Cause::name)),
        ("degraded reason", &DegradedReason::ALL.map(DegradedReason::name)),
        ("direction", &Direction::ALL.map(Direction::name)),
        ("drop reason", &DropReason::ALL.map(DropReason::name)),
        ("event type", &EventType::ALL.map(EventType::name)),
        ("eviction cause", &EvictionCause::ALL.map(EvictionCause::name)),
        ("mode", &Mode::ALL.map(Mode::name)),
        ("owner kind", &OwnerKey::KINDS),
        ("policy", &policies),
        ("problem type", &problems.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
        ("remote cause", &RemoteCause::ALL.map(RemoteCause::name)),
        ("stage", &Stage::NAMES),
        ("state", &SourceState::NAMES),
        ("verdict", &VerdictKind::ALL.map(VerdictKind::name)),
        ("warning", &Warning::ALL.map(Warning::name)),
    ];
    let mut text = String::new();
    let variants = of_variants();
    let kinds = kinds.into_iter().chain(variants.iter().map(|(kind, values)| (*kind, values.as_slice())));
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
