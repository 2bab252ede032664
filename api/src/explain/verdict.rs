//! One verdict as a sentence, and its reason.

use model::{
    VerdictKind,
    text::{bytes, count, counted, nanoseconds, share},
};

use super::case;
use crate::{Evictor, Verdict};

/// Verdict as a sentence. `owner` is the owner of the process, `gpu` the GPU, and `peer` the other GPU
/// if blocks bounce between two, all in words.
#[must_use]
pub fn summary(kind: VerdictKind, verdict: &Verdict, owner: &str, gpu: &str, peer: &str) -> String {
    let Verdict { pid, name, ended_at, .. } = verdict;
    let sides = if verdict.inputs.is_between_gpus() { format!("{gpu} and {peer}") } else { format!("CPUs and {gpu}") };
    let finding =
        if ended_at.is_some() { ended(kind, gpu, &sides) } else { active(kind, verdict.evictor.as_ref(), gpu, &sides) };
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    let owner = if owner.is_empty() { String::new() } else { format!(" ({owner})") };
    format!("{pid}{name}{owner} {finding}.")
}

fn active(kind: VerdictKind, evictor: Option<&Evictor>, gpu: &str, sides: &str) -> String {
    match (kind, evictor) {
        (VerdictKind::CapacityThrash, Some(evictor)) => {
            format!("refetches memory on {gpu} that {} {} evicts", evictor.pid, evictor.name)
        }
        (VerdictKind::CapacityThrash, None) => format!("is thrashing {gpu}: it refetches evicted memory"),
        (VerdictKind::PingPong, _) => format!("is thrashing: its memory bounces between {sides}"),
        (VerdictKind::DriverThrottling, _) => {
            format!("is throttled by the driver, as its memory bounces between {sides}")
        }
        (VerdictKind::Streaming, _) => format!(
            "streams through more memory than {gpu} has room for, and refetches hardly any of it: no thrashing, but costly"
        ),
        (VerdictKind::FirstTouchStorm, _) => {
            format!("waits for faults on memory that it touches on {gpu} for the first time")
        }
    }
}

/// What the process did. The evictor of an ended verdict is unknown, so its summary blames nobody.
fn ended(kind: VerdictKind, gpu: &str, sides: &str) -> String {
    match kind {
        VerdictKind::CapacityThrash => format!("refetched memory that had been evicted from {gpu}"),
        VerdictKind::PingPong => format!("used memory that bounced between {sides}"),
        VerdictKind::DriverThrottling => {
            format!("was throttled by the driver, as its memory bounced between {sides}")
        }
        VerdictKind::Streaming => {
            format!("streamed through more memory than {gpu} has room for, and refetched hardly any of it")
        }
        VerdictKind::FirstTouchStorm => {
            format!("waited for faults on memory that it touched on {gpu} for the first time")
        }
    }
}

/// Reason of a verdict as a sentence: the counts of the last window that met its conditions.
#[must_use]
pub fn reason(kind: VerdictKind, verdict: &Verdict) -> String {
    let Verdict { inputs, evictor, window_seconds, .. } = verdict;
    let rate = |bytes: u64| format!("{}/s", case::rate(verdict, bytes, self::bytes));
    let events = |events: u64| format!("{}/s", case::rate(verdict, events, count));
    let of_fetched = |part: u64| share(part, inputs.fetched_bytes);
    // The eviction volume of docs/verdicts.md.
    let evicted =
        || format!("{} were evicted from or for it", rate(inputs.evicted_bytes.max(inputs.induced_eviction_bytes)));
    let counts = match kind {
        VerdictKind::CapacityThrash => {
            let for_evictor = evictor
                .as_ref()
                .filter(|evictor| evictor.bytes_per_second > 0)
                .map(|evictor| format!(", {}/s of its memory for {}", bytes(evictor.bytes_per_second), evictor.pid));
            format!(
                "it fetched {}, {} of that refetched after an eviction; {}{}",
                rate(inputs.copied_bytes()),
                of_fetched(inputs.refetched_bytes),
                evicted(),
                for_evictor.unwrap_or_default()
            )
        }
        VerdictKind::Streaming => {
            let refetched = if inputs.fetched_bytes > 0 {
                format!("; {} of the fetched bytes had been evicted", of_fetched(inputs.refetched_bytes))
            } else {
                String::new()
            };
            format!(
                "{} arrived at the GPU: {} fetched and {} populated{refetched}; {}",
                rate(inputs.copied_bytes().saturating_add(inputs.populated_bytes)),
                rate(inputs.copied_bytes()),
                rate(inputs.populated_bytes),
                evicted()
            )
        }
        VerdictKind::PingPong if inputs.is_between_gpus() => format!(
            "it took {} blocks/s of 2 MiB from other GPUs; it fetched {}, of which {} directly from GPUs; other GPUs had taken {} \
             of that before",
            case::rate(verdict, inputs.peer_bounces, count),
            rate(inputs.copied_bytes()),
            rate(inputs.bytes_dtod),
            of_fetched(inputs.peer_reclaimed_bytes)
        ),
        VerdictKind::PingPong => format!(
            "2 MiB blocks bounced {}; it fetched {}, and {} of that had been reclaimed by CPU faults ({})",
            events(inputs.bounces),
            rate(inputs.copied_bytes()),
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
            rate(inputs.copied_bytes())
        ),
    };
    format!("In the last window ({window_seconds:.1} s) {counts}.")
}

#[cfg(test)]
mod tests {
    use model::verdict::Inputs;

    use super::*;

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
            summary(VerdictKind::CapacityThrash, &thrashing(), "user alice", "GPU0 (NVIDIA H200)", ""),
            "41207 python train.py (user alice) is thrashing GPU0 (NVIDIA H200): it refetches evicted memory."
        );
        let forgotten = Verdict { name: String::new(), ..thrashing() };
        let bounces = summary(VerdictKind::PingPong, &forgotten, "", "GPU0", "");
        assert_eq!(bounces, "41207 is thrashing: its memory bounces between CPUs and GPU0.");
        let mut between_gpus = forgotten;
        between_gpus.inputs.peer_bounces = 1000;
        between_gpus.inputs.peer_reclaimed_bytes = 25 * GIB;
        let bounces = summary(VerdictKind::PingPong, &between_gpus, "", "GPU0", "GPU1");
        assert_eq!(bounces, "41207 is thrashing: its memory bounces between GPU0 and GPU1.");
        let words = reason(VerdictKind::PingPong, &between_gpus);
        assert_eq!(
            words,
            "In the last window (5.0 s) it took 200 blocks/s of 2 MiB from other GPUs; it fetched 10.0 GiB/s, of which 0 B/s \
             directly from GPUs; other GPUs had taken 50 % of that before."
        );
    }

    #[test]
    fn a_verdict_caused_by_another_process_names_the_process() {
        let text = summary(VerdictKind::CapacityThrash, &victim(), "user alice", "a GPU", "");
        assert_eq!(text, "41207 python train.py (user alice) refetches memory on a GPU that 182 streams evicts.");
        let reason = reason(VerdictKind::CapacityThrash, &victim());
        let ending = "9.0 GiB/s were evicted from or for it, 8.0 GiB/s of its memory for 182.";
        assert!(reason.ends_with(ending), "{reason}");
    }

    #[test]
    fn the_reason_has_the_counts_of_the_window() {
        assert_eq!(
            reason(VerdictKind::CapacityThrash, &thrashing()),
            "In the last window (5.0 s) it fetched 10.0 GiB/s, 92 % of that refetched after an eviction; 9.0 GiB/s were \
             evicted from or for it."
        );
    }

    #[test]
    fn memory_of_others_that_is_evicted_for_the_process_counts_as_evicted() {
        let mut verdict = thrashing();
        (verdict.inputs.evicted_bytes, verdict.inputs.induced_eviction_bytes) = (0, 40 * GIB);
        for kind in [VerdictKind::CapacityThrash, VerdictKind::Streaming] {
            let reason = reason(kind, &verdict);
            assert!(reason.ends_with("8.0 GiB/s were evicted from or for it."), "{reason}");
        }
    }

    #[test]
    fn a_stream_of_writes_has_its_populated_bytes() {
        let inputs = Inputs { populated_bytes: 50 * GIB, evicted_bytes: 45 * GIB, ..Inputs::default() };
        assert_eq!(
            reason(VerdictKind::Streaming, &Verdict { inputs, ..thrashing() }),
            "In the last window (5.0 s) 10.0 GiB/s arrived at the GPU: 0 B/s fetched and 10.0 GiB/s populated; 9.0 GiB/s \
             were evicted from or for it."
        );
        let inputs = Inputs { populated_bytes: 25 * GIB, refetched_bytes: 5 * GIB, ..thrashing().inputs };
        assert_eq!(
            reason(VerdictKind::Streaming, &Verdict { inputs, ..thrashing() }),
            "In the last window (5.0 s) 15.0 GiB/s arrived at the GPU: 10.0 GiB/s fetched and 5.0 GiB/s populated; 10 % of \
             the fetched bytes had been evicted; 9.0 GiB/s were evicted from or for it."
        );
    }

    #[test]
    fn an_ended_verdict_is_in_the_past_and_blames_nobody() {
        let ended = Verdict { ended_at: Some("2026-11-21T14:06:23Z".to_owned()), ..thrashing() };
        let words = |kind| summary(kind, &ended, "user alice", "GPU0", "");
        assert_eq!(
            words(VerdictKind::CapacityThrash),
            "41207 python train.py (user alice) refetched memory that had been evicted from GPU0."
        );
        for kind in VerdictKind::ALL {
            let words = words(kind);
            assert!(
                [" is ", " its memory bounces ", "thrash"].iter().all(|present| !words.contains(present)),
                "{words}"
            );
        }
    }

    #[test]
    fn every_kind_has_words_of_its_own() {
        let words = |kind: VerdictKind| [summary(kind, &thrashing(), "", "GPU0", ""), kind.label().to_owned()];
        for (at, kind) in VerdictKind::ALL.into_iter().enumerate() {
            assert_eq!(VerdictKind::named(kind.name()), Some(kind));
            for other in VerdictKind::ALL.into_iter().skip(at + 1) {
                assert!(words(kind).iter().zip(words(other)).all(|(one, other)| *one != other), "{kind:?} {other:?}");
            }
        }
    }
}
