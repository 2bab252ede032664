//! Verdicts in words: a headline, and the figures behind it.

use model::api::{Check, GpuDetail, UnavailableKind, Verdict, VerdictInputs, VerdictVictim, Verdicts};

use super::case::Case;
use crate::{rates, text, words};

/// `GPU0 (NVIDIA H200)`
pub(crate) fn gpu(gpu: Option<&GpuDetail>, uuid: Option<&str>) -> String {
    match (gpu, uuid) {
        (Some(GpuDetail { gpu, .. }), _) => text::named_gpu(gpu),
        (None, Some(uuid)) => text::printable(uuid).into_owned(),
        (None, None) => "a GPU".to_owned(),
    }
}

/// Verdict on a process as one sentence.
pub(crate) fn headline(case: &Case<'_>, now: &str) -> String {
    let Case { verdict, process, .. } = case;
    let gpu = gpu(case.gpu, verdict.gpu_uuid.as_deref());
    let subject = format!("{} {} ({})", process.pid, text::printable(&process.name), words::owner(process));
    let finding = match (verdict.kind.as_str(), case.verdict.evictor.as_ref()) {
        ("capacity_thrash", Some(evictor)) => {
            format!("refetches memory on {gpu} that {} {} evicts", evictor.pid, text::printable(&evictor.name))
        }
        ("capacity_thrash", None) => format!("is thrashing {gpu}: it refetches evicted memory"),
        ("ping_pong", _) => format!("is thrashing: its memory bounces between CPUs and {gpu}"),
        ("driver_throttling", _) => {
            format!("is throttled by the driver, as its memory bounces between CPUs and {gpu}")
        }
        ("streaming", _) => {
            format!(
                "streams through more memory than {gpu} has room for, and refetches hardly any of it: no thrashing, but costly"
            )
        }
        ("first_touch_storm", _) => format!("waits for faults on memory that it touches on {gpu} for the first time"),
        (other, _) => format!("shows on {gpu}: {}", words::kind(other)),
    };
    format!("{subject} {finding}. {}.", since(verdict, now))
}

/// `Since 14:02:11 UTC (4 min 12 s)`
fn since(verdict: &Verdict, now: &str) -> String {
    let age = words::age(&verdict.started_at, now).map(|age| format!(" ({})", text::duration(age))).unwrap_or_default();
    format!("Since {}{age}", time_of_day(&verdict.started_at))
}

/// Verdicts that are unavailable, with reasons.
pub(crate) fn unavailable(verdicts: &Verdicts) -> Vec<String> {
    let unavailable = |each: &UnavailableKind| {
        format!("Unavailable: {}; {}.", words::kind(&each.kind), text::printable(&each.reason))
    };
    verdicts.unavailable.iter().map(unavailable).collect()
}

/// `14:06:23 UTC` of an RFC 3339 time.
pub(crate) fn time_of_day(time: &str) -> String {
    let of_day = time.split_once('T').and_then(|(_, of_day)| of_day.get(..8)).unwrap_or("an unknown time");
    format!("{} UTC", text::printable(of_day))
}

/// Figures behind the verdict, most important first.
pub(crate) fn facts(case: &Case<'_>) -> Vec<String> {
    let Case { verdict, .. } = case;
    let mut facts = vec![memory(case), window(case)];
    facts.extend(own_calls(case));
    let VerdictInputs { missing_records, .. } = verdict.inputs;
    if missing_records > 0 {
        facts.push(format!(
            "{} block records are missing in that window: refetched bytes may be more.",
            text::count(missing_records)
        ));
    }
    facts
}

/// Counts of the last window that met the verdict's conditions.
pub(crate) fn window(case: &Case<'_>) -> String {
    format!("In the last window ({:.1} s) {}.", case.verdict.window_seconds, counted(case))
}

/// Memory of the process and of the GPU.
fn memory(case: &Case<'_>) -> String {
    let Case { process, gpu, .. } = case;
    let managed = process.managed_bytes.map_or_else(|| "an unknown amount".to_owned(), text::bytes);
    let resident = resident(process.resident);
    let card = gpu.and_then(|gpu| {
        let (memory, ratio) = (text::bytes(gpu.memory_bytes?), gpu.oversubscription_ratio?);
        let (all, ratio) = (text::bytes(gpu.managed_bytes), words::ratio(ratio));
        Some(format!(" The GPU has {memory}; its processes have {all} of managed memory: {ratio}."))
    });
    format!("It has {managed} of managed memory, of which {resident} in GPU memory.{}", card.unwrap_or_default())
}

/// `38.2 GiB (at least 38.0 GiB, at most 38.5 GiB) are`
pub(crate) fn resident(resident: Option<model::api::Residency>) -> String {
    let Some(resident) = resident else { return "an unknown amount is".to_owned() };
    let bytes = text::bytes(resident.bytes);
    let (least, most) = (text::bytes(resident.min_bytes), text::bytes(resident.max_bytes));
    if least == most { format!("{bytes} are") } else { format!("{bytes} (at least {least}, at most {most}) are") }
}

fn counted(case: &Case<'_>) -> String {
    let Case { verdict, .. } = case;
    let inputs = &verdict.inputs;
    let bytes = |bytes: u64| format!("{}/s", rates::per_second(Some(case.per_second(bytes)), text::bytes));
    let events = |events: u64| format!("{}/s", rates::per_second(Some(case.per_second(events)), text::count));
    let of_fetched = |part: u64| text::share(part, inputs.fetched_bytes);
    match verdict.kind.as_str() {
        "capacity_thrash" | "streaming" => {
            let evictor_part = verdict
                .evictor
                .as_ref()
                .map(|evictor| format!(", {}/s of them for {}", text::bytes(evictor.bytes_per_second), evictor.pid));
            format!(
                "it fetched {}, {} of that refetched after an eviction; {} were evicted{}",
                bytes(inputs.bytes_htod),
                of_fetched(inputs.refetched_bytes),
                bytes(inputs.evicted_bytes),
                evictor_part.unwrap_or_default()
            )
        }
        "ping_pong" => format!(
            "2 MiB blocks bounced {}; it fetched {}, and {} of that had been reclaimed by CPU faults ({})",
            events(inputs.bounces),
            bytes(inputs.bytes_htod),
            of_fetched(inputs.cpu_reclaimed_bytes),
            events(inputs.cpu_faults)
        ),
        "driver_throttling" => format!(
            "the driver throttled processors {} times, {} in total, and found {} thrashing",
            text::count(inputs.throttles),
            text::nanoseconds(inputs.throttled_ns),
            text::counted(inputs.thrashing_pages, "page")
        ),
        "first_touch_storm" => format!(
            "{} were populated by {} GPU faults; {} were fetched",
            bytes(inputs.populated_bytes),
            events(inputs.fault_entries),
            bytes(inputs.bytes_htod)
        ),
        _ => format!("it fetched {}, and {} were evicted", bytes(inputs.bytes_htod), bytes(inputs.evicted_bytes)),
    }
}

/// Calls that the program makes already: advice to make them is redundant.
fn own_calls(case: &Case<'_>) -> Option<String> {
    let calls = &case.process.counts.api_calls_by_kind;
    let made: Vec<_> = calls
        .iter()
        .filter(|(_, calls)| **calls > 0)
        .map(|(kind, calls)| format!("{} {}", text::count(*calls), text::printable(&kind.replace('_', " "))))
        .collect();
    (!made.is_empty()).then(|| format!("Its calls since uvmd counts: {}.", made.join(", ")))
}

/// Ranges of the verdict, one line each.
pub(crate) fn ranges(case: &Case<'_>) -> Vec<String> {
    let line = |involved: super::case::Involved<'_>| {
        format!(
            "{:>8} at {}  {}  {:>5} of the traffic, {:>5} refetched",
            text::bytes(involved.range.bytes),
            text::printable(&involved.range.begin),
            text::left(&text::printable(involved.pattern()).replace('_', " "), 10),
            text::percent(involved.range.traffic_ratio),
            text::percent(involved.range.refetch_ratio),
        )
    };
    case.involved().map(line).collect()
}

/// Victims of the process, with their losses.
pub(crate) fn costs(victims: &[VerdictVictim]) -> Option<String> {
    let (last, others) = victims.split_last()?;
    let cost = |victim: &VerdictVictim| {
        format!("{} {} {}/s", victim.pid, text::printable(&victim.name), text::bytes(victim.bytes_per_second))
    };
    let others: Vec<_> = others.iter().map(cost).collect();
    let and = if others.is_empty() { "" } else { " and " };
    let inferred = if victims.iter().any(|victim| victim.inferred) { " (inferred)" } else { "" };
    Some(format!("Evicted for it{inferred}: {}{and}{}.", others.join(", "), cost(last)))
}

/// Condition of the verdict, with its limit and value.
pub(crate) fn check(check: &Check) -> String {
    let Check { name, description, value, threshold, met } = check;
    let remark = if *met { "" } else { " (not met)" };
    let shown = if name.ends_with("_bytes") { in_bytes } else { number };
    format!("{} {}: it is {}{remark}", text::printable(description), shown(*threshold), shown(*value))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates at both ends")]
fn in_bytes(value: f64) -> String {
    text::bytes(value as u64)
}

/// Number with its significant digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use model::api::{Evictor, Residency};

    use super::*;
    use crate::explain::advice::testing::{Fixture, GIB};

    const NOW: &str = "2026-11-21T14:06:23Z";

    fn known(kind: &str) -> Fixture {
        let mut known = Fixture::new(kind);
        known.verdict.started_at = "2026-11-21T14:02:11.5Z".to_owned();
        known.verdict.inputs.bytes_htod = 50 * GIB;
        (known.verdict.inputs.fetched_bytes, known.verdict.inputs.refetched_bytes) = (50 * GIB, 46 * GIB);
        known.verdict.inputs.evicted_bytes = 45 * GIB;
        known.process.user = Some("alice".to_owned());
        known.process.managed_bytes = Some(61 * GIB);
        known.process.resident = Some(Residency { bytes: 38 * GIB, min_bytes: 38 * GIB, max_bytes: 38 * GIB });
        known
    }

    #[test]
    fn the_headline_has_process_verdict_gpu_and_start() {
        let mut thrashing = known("capacity_thrash");
        thrashing.card(44 * GIB, 70 * GIB);
        assert_eq!(
            headline(&thrashing.case(), NOW),
            "41207 python train.py (user alice) is thrashing GPU?: it refetches evicted memory. Since 14:02:11 UTC (4 min 11 s)."
        );
    }

    #[test]
    fn a_verdict_caused_by_another_process_names_the_process() {
        let mut victim = known("capacity_thrash");
        victim.verdict.evictor =
            Some(Evictor { pid: 182, name: "streams".to_owned(), bytes_per_second: 8 * GIB, ..Evictor::default() });
        assert!(headline(&victim.case(), NOW).contains("refetches memory on a GPU that 182 streams evicts"));
        assert!(facts(&victim.case())[1].contains("9.0 GiB/s were evicted, 8.0 GiB/s of them for 182"));
        victim.verdict.evictor = None;
        assert!(headline(&victim.case(), NOW).contains("is thrashing"));
    }

    #[test]
    fn facts_have_figures_and_their_certainty() {
        let mut thrashing = known("capacity_thrash");
        thrashing.card(44 * GIB, 70 * GIB);
        thrashing.gpu.as_mut().unwrap().oversubscription_ratio = Some(1.59);
        thrashing.verdict.inputs.missing_records = 7;
        thrashing.process.counts.api_calls_by_kind.insert("set_accessed_by".to_owned(), 3);
        assert_eq!(
            facts(&thrashing.case()),
            [
                "It has 61.0 GiB of managed memory, of which 38.0 GiB are in GPU memory. The GPU has 44.0 GiB; its processes have 70.0 GiB of \
                 managed memory: 1.6x.",
                "In the last window (5.0 s) it fetched 10.0 GiB/s, 92 % of that refetched after an eviction; 9.0 GiB/s were evicted.",
                "Its calls since uvmd counts: 3 set accessed by.",
                "7 block records are missing in that window: refetched bytes may be more.",
            ]
        );
    }

    #[test]
    fn resident_bytes_have_bounds_unless_equal() {
        let of = |min_bytes, max_bytes| resident(Some(Residency { bytes: 38 * GIB, min_bytes, max_bytes }));
        assert_eq!(of(38 * GIB, 38 * GIB), "38.0 GiB are");
        assert_eq!(of(37 * GIB, 39 * GIB), "38.0 GiB (at least 37.0 GiB, at most 39.0 GiB) are");
    }

    #[test]
    fn victims_are_named_with_their_losses() {
        let victim = |pid, gib: u64| VerdictVictim {
            pid,
            name: "p".to_owned(),
            bytes_per_second: gib * GIB,
            ..VerdictVictim::default()
        };
        assert_eq!(costs(&[]), None);
        assert_eq!(costs(&[victim(1, 3)]).unwrap(), "Evicted for it: 1 p 3.0 GiB/s.");
        let all = [victim(1, 3), victim(2, 2), VerdictVictim { inferred: true, ..victim(3, 1) }];
        let expected = "Evicted for it (inferred): 1 p 3.0 GiB/s, 2 p 2.0 GiB/s and 3 p 1.0 GiB/s.";
        assert_eq!(costs(&all).unwrap(), expected);
    }

    #[test]
    fn a_check_shows_limit_and_value() {
        let what = "refetched bytes, to arrived bytes: at least".to_owned();
        let check = Check { description: what, value: 0.923, threshold: 0.25, met: true, ..Check::default() };
        assert_eq!(super::check(&check), "refetched bytes, to arrived bytes: at least 0.25: it is 0.92");
        let (name, what) = ("arrived_bytes".to_owned(), "bytes that arrived: at least".to_owned());
        let check = Check { name, description: what, value: 127_401_984.0, threshold: 4_194_304.0, met: true };
        assert_eq!(super::check(&check), "bytes that arrived: at least 4.0 MiB: it is 122 MiB");
    }
}
