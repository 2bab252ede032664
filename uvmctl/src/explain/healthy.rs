//! Explanation of a process without an active verdict.

use api::{Process, Reuse, Verdict};

use super::{Evidence, finding};
use crate::{text, words};

pub(crate) fn headline(Evidence { process, verdicts, .. }: &Evidence) -> String {
    let verdict = if verdicts.unavailable.is_empty() { "No verdict" } else { "No verdict, of those available," };
    let subject = format!("{} {} ({})", process.pid, text::printable(&process.name), words::owner(process));
    match (&process.victim_of, process.state.as_str()) {
        (_, "exited") => format!("{verdict} on {subject}, which has exited."),
        (Some(evictor), _) => {
            format!("{verdict} on {subject} itself, but {}.", text::printable(&evictor.description()))
        }
        (None, _) => format!("{verdict} on {subject}."),
    }
}

pub(crate) fn facts(evidence: &Evidence) -> Vec<String> {
    let Process { managed_bytes, resident, counts, reuse, victim_of, .. } = &evidence.process;
    let managed = managed_bytes.map_or_else(|| "an unknown amount".to_owned(), text::bytes);
    let evicted = counts.evicted_bytes.map(|bytes| format!(", {} evicted", text::bytes(bytes))).unwrap_or_default();
    let mut facts = vec![
        format!("It has {managed} of managed memory, of which {} in GPU memory.", finding::resident(*resident)),
        format!(
            "Since uvmd counts: {} and {}, {} fetched{evicted}.",
            text::counted(counts.fault_entries, "GPU fault"),
            text::counted(counts.cpu_faults, "CPU fault"),
            text::bytes(counts.bytes_htod)
        ),
    ];
    if let Some(Reuse { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, .. }) = reuse
        && *fetched_bytes > 0
    {
        facts.push(format!(
            "Of the fetched bytes, {} were refetched after an eviction, and {} after a CPU fault.",
            text::share(*refetched_bytes, *fetched_bytes),
            text::share(*cpu_reclaimed_bytes, *fetched_bytes)
        ));
    }
    if let Some(evictor) = victim_of {
        facts.push(format!("The evictor: uvmctl explain {}", evictor.pid));
    }
    facts.extend(evidence.verdicts.ended.first().map(last_verdict));
    facts.extend(finding::unavailable(&evidence.verdicts));
    facts
}

fn last_verdict(verdict: &Verdict) -> String {
    let ended = verdict.ended_at.as_deref().map_or_else(|| "an unknown time".to_owned(), finding::time_of_day);
    format!(
        "Last verdict: {}, from {} to {ended}.",
        text::printable(&verdict.label),
        finding::time_of_day(&verdict.started_at)
    )
}
