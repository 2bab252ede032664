//! Verdicts as text: uvmd's words, and the figures that they are based on.

use api::{
    Check, GpuDetail, InvolvedRange, Process, Site, Sites, UnavailableKind, Verdict, VerdictInputs, VerdictVictim,
    Verdicts,
};

use crate::{text, words};

/// Verdict as a sentence in uvmd's words, with its age.
pub(crate) fn headline(verdict: &Verdict, now: &str) -> String {
    format!("{} {}.", text::printable(&verdict.summary), since(verdict, now))
}

/// `Since 14:02:11 UTC (4 min 12 s)`
fn since(verdict: &Verdict, now: &str) -> String {
    let age = words::age(&verdict.started_at, now).map(|age| format!(" ({})", text::duration(age))).unwrap_or_default();
    format!("Since {}{age}", time_of_day(&verdict.started_at))
}

/// Verdicts that are unavailable, with reasons.
pub(crate) fn unavailable(verdicts: &Verdicts) -> Vec<String> {
    let unavailable = |each: &UnavailableKind| {
        format!("Unavailable: {}; {}.", text::printable(&each.label), text::printable(&each.reason))
    };
    verdicts.unavailable.iter().map(unavailable).collect()
}

/// `14:06:23 UTC` of an RFC 3339 time.
pub(crate) fn time_of_day(time: &str) -> String {
    let of_day = time.split_once('T').and_then(|(_, of_day)| of_day.get(..8)).unwrap_or("an unknown time");
    format!("{} UTC", text::printable(of_day))
}

/// Figures behind the verdict, most important first.
pub(crate) fn facts(verdict: &Verdict, process: &Process, gpu: Option<&GpuDetail>) -> Vec<String> {
    let mut facts = vec![memory(process, gpu)];
    facts.push(reason(verdict));
    facts.extend(own_calls(process));
    let VerdictInputs { missing_records, .. } = verdict.inputs;
    if missing_records > 0 {
        facts.push(format!(
            "{} block records are missing in that window: refetched bytes may be more.",
            text::count(missing_records)
        ));
    }
    facts
}

/// Reason of the verdict in uvmd's words.
pub(crate) fn reason(verdict: &Verdict) -> String {
    text::printable(&verdict.reason).into_owned()
}

/// Memory of the process and of the GPU.
fn memory(process: &Process, gpu: Option<&GpuDetail>) -> String {
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
pub(crate) fn resident(resident: Option<api::Residency>) -> String {
    let Some(resident) = resident else { return "an unknown amount is".to_owned() };
    let bytes = text::bytes(resident.bytes);
    let (least, most) = (text::bytes(resident.min_bytes), text::bytes(resident.max_bytes));
    if least == most { format!("{bytes} are") } else { format!("{bytes} (at least {least}, at most {most}) are") }
}

/// Calls that the program makes already: advice to make them is redundant.
fn own_calls(process: &Process) -> Option<String> {
    let calls = process.counts.api_calls_by_kind.as_ref()?;
    let made: Vec<_> = calls
        .iter()
        .filter(|(_, calls)| **calls > 0)
        .map(|(kind, calls)| format!("{} {}", text::count(*calls), text::printable(&kind.replace('_', " "))))
        .collect();
    (!made.is_empty()).then(|| format!("Its calls since uvmd counts: {}.", made.join(", ")))
}

/// Ranges of the verdict, one line each.
pub(crate) fn ranges(verdict: &Verdict) -> Vec<String> {
    let line = |range: &InvolvedRange| {
        format!(
            "{:>8} at {}  {}  {:>5} of the traffic, {:>5} refetched",
            text::bytes(range.bytes),
            text::printable(&range.begin),
            text::left(&text::printable(&range.pattern.kind).replace('_', " "), 10),
            text::percent(range.traffic_ratio),
            text::percent(range.refetch_ratio),
        )
    };
    verdict.ranges.iter().flatten().map(line).collect()
}

/// Whether CPUs are a side of the verdict: memory bounces between CPUs and the GPU, not between GPUs.
pub(crate) fn involves_cpus(verdict: &Verdict) -> bool {
    matches!(verdict.kind.as_str(), "ping_pong" | "driver_throttling") && !verdict.inputs.is_between_gpus()
}

/// Maximum of sites that are listed.
const SITES_MAX: usize = 5;

/// Sites of CPU faults, one line each; empty if they are not counted.
pub(crate) fn sites(Sites { sites, sites_known, unattributed_cpu_faults, .. }: &Sites) -> Vec<String> {
    let line = |site: &Site| {
        format!(
            "{:>8} copied to the host by {:>11}  {}",
            text::bytes(site.bytes_dtoh),
            text::counted(site.cpu_faults, "fault"),
            text::printable(&site.description),
        )
    };
    let mut lines: Vec<String> = sites.iter().flatten().take(SITES_MAX).map(line).collect();
    let others = sites_known.unwrap_or(0).saturating_sub(lines.len() as u64);
    if others > 0 {
        lines.push(format!("and {}.", text::counted(others, "further site")));
    }
    if let Some(faults) = unattributed_cpu_faults.filter(|faults| *faults > 0) {
        let faults = text::counted(faults, "CPU fault");
        lines.push(format!("Unattributed, beyond the limit of sites or by another process: {faults}."));
    }
    lines
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

/// Condition of the verdict in uvmd's words, with its value and limit.
pub(crate) fn check(Check { description, met, .. }: &Check) -> String {
    format!("{}{}", text::printable(description), if *met { "" } else { ": not met" })
}

#[cfg(test)]
mod tests {
    use api::Residency;

    use super::*;

    const NOW: &str = "2026-11-21T14:06:23Z";
    const GIB: u64 = 1 << 30;

    fn thrashing() -> Verdict {
        Verdict {
            pid: 41_207,
            name: "python train.py".to_owned(),
            summary: "41207 python train.py (user alice) is thrashing GPU0: it refetches evicted memory.".to_owned(),
            reason: "In the last window (5.0 s) it fetched 10.0 GiB/s.".to_owned(),
            started_at: "2026-11-21T14:02:11.5Z".to_owned(),
            ..Verdict::default()
        }
    }

    #[test]
    fn the_headline_has_process_verdict_gpu_and_start() {
        assert_eq!(
            headline(&thrashing(), NOW),
            "41207 python train.py (user alice) is thrashing GPU0: it refetches evicted memory. Since 14:02:11 UTC (4 min 11 s)."
        );
    }

    #[test]
    fn sites_have_copied_bytes_faults_and_place_and_what_is_left_out() {
        let site = |faults, bytes_dtoh, description: &str| Site {
            cpu_faults: faults,
            bytes_dtoh,
            description: description.to_owned(),
            ..Site::default()
        };
        let few = vec![site(1, 65_536, "step+0x14 in /opt/train"), site(1200, 0, "an unknown module at 0x5000")];
        let mut found = Sites { sites: Some(few), sites_known: Some(2), ..Sites::default() };
        assert_eq!(
            sites(&found),
            [
                "64.0 KiB copied to the host by     1 fault  step+0x14 in /opt/train",
                "     0 B copied to the host by 1.2k faults  an unknown module at 0x5000"
            ]
        );
        found.sites = Some(vec![site(1, 0, "a"); 9]);
        (found.sites_known, found.unattributed_cpu_faults) = (Some(20), Some(7));
        let lines = sites(&found);
        assert_eq!(lines.len(), SITES_MAX + 2);
        assert_eq!(
            lines[SITES_MAX..],
            ["and 15 further sites.", "Unattributed, beyond the limit of sites or by another process: 7 CPU faults."]
        );
    }

    #[test]
    fn facts_have_figures_and_their_certainty() {
        let mut verdict = thrashing();
        verdict.inputs.missing_records = 7;
        let resident = Some(Residency::exactly(38 * GIB));
        let mut process = Process { managed_bytes: Some(61 * GIB), resident, ..Process::default() };
        process.counts.api_calls_by_kind = Some([("set_accessed_by".to_owned(), 3)].into());
        let gpu = GpuDetail {
            memory_bytes: Some(44 * GIB),
            managed_bytes: 70 * GIB,
            oversubscription_ratio: Some(1.59),
            ..GpuDetail::default()
        };
        assert_eq!(
            facts(&verdict, &process, Some(&gpu)),
            [
                "It has 61.0 GiB of managed memory, of which 38.0 GiB are in GPU memory. The GPU has 44.0 GiB; its processes have 70.0 GiB of \
                 managed memory: 1.6x.",
                "In the last window (5.0 s) it fetched 10.0 GiB/s.",
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
    fn a_check_has_the_words_of_uvmd() {
        let description = "92 % of arriving bytes were refetched\u{1b} (limit 25 %)".to_owned();
        let check = Check { description, met: true, ..Check::default() };
        assert_eq!(super::check(&check), "92 % of arriving bytes were refetched\\u{1b} (limit 25 %)");
        let unmet = super::check(&Check { met: false, ..check });
        assert!(unmet.ends_with("(limit 25 %): not met"), "{unmet}");
    }
}
