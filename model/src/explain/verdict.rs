//! One verdict as a sentence, and its reason.

use super::case;
use crate::{
    VerdictKind,
    api::Verdict,
    text::{bytes, count, counted, nanoseconds, share},
};

/// Verdict as a sentence. `owner` is the owner of the process, `gpu` the GPU, both in words.
#[must_use]
pub fn summary(kind: VerdictKind, verdict: &Verdict, owner: &str, gpu: &str) -> String {
    let finding = match (kind, &verdict.evictor) {
        (VerdictKind::CapacityThrash, Some(evictor)) => {
            format!("refetches memory on {gpu} that {} {} evicts", evictor.pid, evictor.name)
        }
        (VerdictKind::CapacityThrash, None) => format!("is thrashing {gpu}: it refetches evicted memory"),
        (VerdictKind::PingPong, _) => format!("is thrashing: its memory bounces between CPUs and {gpu}"),
        (VerdictKind::DriverThrottling, _) => {
            format!("is throttled by the driver, as its memory bounces between CPUs and {gpu}")
        }
        (VerdictKind::Streaming, _) => format!(
            "streams through more memory than {gpu} has room for, and refetches hardly any of it: no thrashing, but costly"
        ),
        (VerdictKind::FirstTouchStorm, _) => {
            format!("waits for faults on memory that it touches on {gpu} for the first time")
        }
    };
    let Verdict { pid, name, .. } = verdict;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    let owner = if owner.is_empty() { String::new() } else { format!(" ({owner})") };
    format!("{pid}{name}{owner} {finding}.")
}

/// Reason of a verdict as a sentence: the counts of the last window that met its conditions.
#[must_use]
pub fn reason(kind: VerdictKind, verdict: &Verdict) -> String {
    let Verdict { inputs, evictor, window_seconds, .. } = verdict;
    let rate = |bytes: u64| format!("{}/s", case::rate(verdict, bytes, self::bytes));
    let events = |events: u64| format!("{}/s", case::rate(verdict, events, count));
    let of_fetched = |part: u64| share(part, inputs.fetched_bytes);
    let counts = match kind {
        VerdictKind::CapacityThrash | VerdictKind::Streaming => {
            let for_evictor = evictor
                .as_ref()
                .map(|evictor| format!(", {}/s of them for {}", bytes(evictor.bytes_per_second), evictor.pid));
            format!(
                "it fetched {}, {} of that refetched after an eviction; {} were evicted{}",
                rate(inputs.bytes_htod),
                of_fetched(inputs.refetched_bytes),
                rate(inputs.evicted_bytes),
                for_evictor.unwrap_or_default()
            )
        }
        VerdictKind::PingPong => format!(
            "2 MiB blocks bounced {}; it fetched {}, and {} of that had been reclaimed by CPU faults ({})",
            events(inputs.bounces),
            rate(inputs.bytes_htod),
            of_fetched(inputs.cpu_reclaimed_bytes),
            events(inputs.cpu_faults)
        ),
        VerdictKind::DriverThrottling => format!(
            "the driver throttled processors {} times, {} in total, and found {} thrashing",
            count(inputs.throttles),
            nanoseconds(inputs.throttled_ns),
            counted(inputs.thrashing_pages, "page")
        ),
        VerdictKind::FirstTouchStorm => format!(
            "{} were populated by {} GPU faults; {} were fetched",
            rate(inputs.populated_bytes),
            events(inputs.fault_entries),
            rate(inputs.bytes_htod)
        ),
    };
    format!("In the last window ({window_seconds:.1} s) {counts}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::Evictor, verdict::Inputs};

    const GIB: u64 = 1 << 30;

    fn thrashing() -> Verdict {
        let inputs = Inputs {
            bytes_htod: 50 * GIB,
            fetched_bytes: 50 * GIB,
            refetched_bytes: 46 * GIB,
            evicted_bytes: 45 * GIB,
            ..Inputs::default()
        };
        Verdict { pid: 41_207, name: "python train.py".to_owned(), window_seconds: 5.0, inputs, ..Verdict::default() }
    }

    fn victim() -> Verdict {
        let evictor = Evictor { pid: 182, name: "streams".to_owned(), bytes_per_second: 8 * GIB, ..Evictor::default() };
        Verdict { evictor: Some(evictor), ..thrashing() }
    }

    #[test]
    fn the_summary_has_process_owner_verdict_and_gpu() {
        assert_eq!(
            summary(VerdictKind::CapacityThrash, &thrashing(), "user alice", "GPU0 (NVIDIA H200)"),
            "41207 python train.py (user alice) is thrashing GPU0 (NVIDIA H200): it refetches evicted memory."
        );
        let forgotten = Verdict { name: String::new(), ..thrashing() };
        let bounces = summary(VerdictKind::PingPong, &forgotten, "", "GPU0");
        assert_eq!(bounces, "41207 is thrashing: its memory bounces between CPUs and GPU0.");
    }

    #[test]
    fn a_verdict_caused_by_another_process_names_the_process() {
        let text = summary(VerdictKind::CapacityThrash, &victim(), "user alice", "a GPU");
        assert_eq!(text, "41207 python train.py (user alice) refetches memory on a GPU that 182 streams evicts.");
        let reason = reason(VerdictKind::CapacityThrash, &victim());
        assert!(reason.ends_with("9.0 GiB/s were evicted, 8.0 GiB/s of them for 182."), "{reason}");
    }

    #[test]
    fn the_reason_has_the_counts_of_the_window() {
        assert_eq!(
            reason(VerdictKind::CapacityThrash, &thrashing()),
            "In the last window (5.0 s) it fetched 10.0 GiB/s, 92 % of that refetched after an eviction; 9.0 GiB/s were evicted."
        );
    }

    #[test]
    fn every_kind_has_words_of_its_own() {
        let words = |kind: VerdictKind| [summary(kind, &thrashing(), "", "GPU0"), kind.label().to_owned()];
        for (at, kind) in VerdictKind::ALL.into_iter().enumerate() {
            assert_eq!(VerdictKind::named(kind.name()), Some(kind));
            for other in VerdictKind::ALL.into_iter().skip(at + 1) {
                assert!(words(kind).iter().zip(words(other)).all(|(one, other)| *one != other), "{kind:?} {other:?}");
            }
        }
    }
}
