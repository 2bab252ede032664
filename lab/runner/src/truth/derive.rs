//! Truth of each scope, from the counts of the driver and the hardware; and checks of its
//! consistency.

use gpu::swgpu::AccessCounters;

use super::{Counted, evictions::Evictions, facts::ProcessFacts, population::resident_bytes};
use crate::{
    figures::{
        BYTES_DTOD, BYTES_DTOH, BYTES_HTOD, CALL_BYTES, CALLS, CPU_FAULTS, EVICTED_BYTES, EVICTED_BYTES_CAUSED,
        FAULT_BYTES_IN, FAULT_BYTES_OUT, FAULT_ENTRIES, FAULT_INSTANCES, Field, INSTANCES_BY_ACCESS, LINK_BYTES_DTOD,
        LINK_BYTES_DTOH, LINK_BYTES_HTOD, POPULATED_BYTES, REMOTE_BYTES, REPLAYS, Relation, THRASHING_PAGES, THROTTLES,
        Truth,
    },
    scenario::Call,
    sys::{counters::ProcessCounters, ledger::Ledger},
};

const PAGE_BYTES: u64 = 4096;

/// Bytes of remote accesses.
#[derive(Clone, Copy, Default)]
struct Remote {
    htod: u64,
    dtoh: u64,
    dtod: u64,
}

impl Remote {
    fn of<'a>(accesses: impl IntoIterator<Item = &'a AccessCounters>) -> Self {
        let mut sum = Self::default();
        for access in accesses {
            sum.htod += access.remote_htod_millibytes;
            sum.dtoh += access.remote_dtoh_millibytes;
            sum.dtod += access.remote_from_peer_millibytes + access.remote_to_peer_millibytes;
        }
        let bytes = |millibytes: u64| (millibytes + 500) / 1000;
        Self { htod: bytes(sum.htod), dtoh: bytes(sum.dtoh), dtod: bytes(sum.dtod) }
    }

    fn bytes(self) -> u64 {
        self.htod + self.dtoh + self.dtod
    }
}

const WITHOUT_COUNTERS: &str = "the driver was not asked to count";
const KILLED: &str = "the process was killed before its own counts were read";
const OWN_CALLS: &str = "the application moved memory itself, which the driver does not tell from evictions";

const PREFETCHED: &str = "this driver's statistics omit what its prefetcher added to faults";
const MIXED: &str = "faults of several kinds may be merged";
const TEARDOWN: &str = "a process ended, and the driver counts the replays of its end";

/// Truth of a process: the driver's counters of it, the GPUs' ledgers, and its own counts of its
/// calls.
pub(crate) fn process_truth(gpus: &[Counted], processes: &[ProcessFacts], facts: &ProcessFacts) -> Truth {
    let mut truth = Truth::default();
    match &facts.counters {
        Some(counters) => {
            truth.figures.set(&FAULT_ENTRIES, counters.fault_entries);
            truth.figures.set(&CPU_FAULTS, counters.cpu_faults);
            truth.figures.set(&BYTES_HTOD, counters.bytes_htod);
            truth.figures.set(&BYTES_DTOH, counters.bytes_dtoh);
            truth.figures.set(&THRASHING_PAGES, counters.thrashing_pages);
            truth.figures.set(&THROTTLES, counters.throttles);
        }
        None => [&FAULT_ENTRIES, &CPU_FAULTS, &BYTES_HTOD, &BYTES_DTOH, &THRASHING_PAGES, &THROTTLES]
            .into_iter()
            .for_each(|field| truth.waive(field, WITHOUT_COUNTERS)),
    }
    if let Some(accesses) = &facts.accesses {
        let remote = Remote::of(accesses);
        truth.figures.set(&REMOTE_BYTES, remote.bytes());
        truth.figures.set(&LINK_BYTES_HTOD, facts.counters.map(|counters| counters.bytes_htod + remote.htod));
        truth.figures.set(&LINK_BYTES_DTOH, facts.counters.map(|counters| counters.bytes_dtoh + remote.dtoh));
    }
    match (resident_bytes(facts, None), facts.counters) {
        (Ok(bytes), Some(counters)) => {
            truth.figures.set(&POPULATED_BYTES, (bytes + counters.bytes_dtoh).checked_sub(counters.bytes_htod));
        }
        (Ok(_), None) => truth.waive(&POPULATED_BYTES, WITHOUT_COUNTERS),
        (Err(reason), _) => truth.waive(&POPULATED_BYTES, reason),
    }
    if let Some(pid) = facts.pid {
        evictions(gpus, processes).set_process(&mut truth, pid);
    }
    set_calls(&mut truth, facts.calls);
    truth
}

/// Evictions of the GPUs, by their ledgers.
fn evictions<'a>(gpus: &'a [Counted], processes: &[ProcessFacts]) -> Evictions<'a> {
    let evicted = gpus.iter().map(evicted_bytes).sum();
    Evictions::new(gpus, evicted, moved_memory(processes).then_some(OWN_CALLS))
}

/// Evictions of a GPU by victim and taker, or the reason why they are unknown.
pub(crate) fn eviction_matrix<'a>(gpu: &'a Counted, processes: &[ProcessFacts]) -> Result<&'a Ledger, &'static str> {
    evictions(std::slice::from_ref(gpu), processes).ledger_of(gpu)
}

/// Bytes that left a GPU for other reasons than a fault.
fn evicted_bytes(gpu: &Counted) -> Option<u64> {
    gpu.driver.pages_out.checked_sub(gpu.driver.fault_pages_out).map(|pages| pages * PAGE_BYTES)
}

/// Instances count by the access of their entry, into which the driver merges others of one page. So
/// the driver's own count, by the access of each, is the same where all are of one kind.
fn set_by_access(truth: &mut Truth, gpus: &[Counted]) {
    let of = |at: usize| gpus.iter().filter_map(|gpu| gpu.driver.by_access.get(at)).sum::<u64>();
    let is_mixed = (0..INSTANCES_BY_ACCESS.len()).filter(|at| of(*at) > 0).count() > 1;
    let are_others = gpus.iter().any(|gpu| gpu.driver.non_replayable_faults > 0);
    for (at, field) in INSTANCES_BY_ACCESS.iter().enumerate() {
        if is_mixed || are_others {
            truth.waive(field, MIXED);
        } else {
            truth.figures.set(field, of(at));
        }
    }
}

fn set_replays(truth: &mut Truth, replays: u64, processes: &[ProcessFacts]) {
    truth.figures.set(&REPLAYS, replays);
    if processes.iter().any(|facts| facts.ended) {
        truth.loosen(&REPLAYS, Relation::AtMost, TEARDOWN);
    }
}

/// Bytes that faults brought to a GPU. Without calls of the application that is all that came.
fn fault_bytes_in(gpu: &Counted, processes: &[ProcessFacts]) -> u64 {
    let by_cause = !gpu.driver.omits_prefetched || moved_memory(processes);
    PAGE_BYTES * if by_cause { gpu.driver.fault_pages_in } else { gpu.driver.pages_in }
}

/// Makes bounds of the figures that the driver's statistics of faults leave open, if those omit
/// prefetched pages. A fault that moves memory moves its own page at least: where no page left a
/// GPU because of faults, no prefetched one did.
fn loosen_without_prefetched(truth: &mut Truth, gpus: &[Counted], processes: &[ProcessFacts]) {
    if !gpus.iter().any(|gpu| gpu.driver.omits_prefetched) {
        return;
    }
    if moved_memory(processes) {
        truth.loosen(&FAULT_BYTES_IN, Relation::AtLeast, PREFETCHED);
    }
    if gpus.iter().any(|gpu| gpu.driver.fault_pages_out > 0) {
        truth.loosen(&FAULT_BYTES_OUT, Relation::AtLeast, PREFETCHED);
        truth.loosen(&EVICTED_BYTES, Relation::AtMost, PREFETCHED);
        truth.loosen(&EVICTED_BYTES_CAUSED, Relation::AtMost, PREFETCHED);
    }
}

/// Truth of one GPU, by its number.
pub(crate) fn gpu_truth(gpus: &[Counted], number: usize, processes: &[ProcessFacts]) -> Truth {
    let mut truth = Truth::default();
    let Some(gpu @ Counted { driver, thrashing, .. }) = gpus.get(number) else { return truth };
    let received = received(gpus, number);
    let sent: u64 = (0..gpus.len()).filter(|other| *other != number).map(|other| self::received(gpus, other)).sum();
    truth.figures.set(&FAULT_INSTANCES, driver.replayable_faults + driver.non_replayable_faults);
    set_by_access(&mut truth, std::slice::from_ref(gpu));
    truth.figures.set(&BYTES_HTOD, (driver.pages_in * PAGE_BYTES).checked_sub(received));
    truth.figures.set(&BYTES_DTOH, (driver.pages_out * PAGE_BYTES).checked_sub(sent));
    truth.figures.set(&BYTES_DTOD, received);
    truth.figures.set(&FAULT_BYTES_IN, fault_bytes_in(gpu, processes));
    truth.figures.set(&EVICTED_BYTES, evicted_bytes(gpu));
    truth.figures.set(&THROTTLES, thrashing.throttles);
    set_replays(&mut truth, driver.replays, processes);
    match processes.iter().map(|facts| resident_bytes(facts, Some(number))).sum::<Result<u64, _>>() {
        Ok(bytes) => {
            let (arrived, left) = (driver.pages_in * PAGE_BYTES, driver.pages_out * PAGE_BYTES);
            truth.figures.set(&POPULATED_BYTES, (bytes + left).checked_sub(arrived));
        }
        Err(reason) => truth.waive(&POPULATED_BYTES, reason),
    }
    loosen_without_prefetched(&mut truth, std::slice::from_ref(gpu), processes);
    evictions(std::slice::from_ref(gpu), processes).set_total(&mut truth);
    if moved_memory(processes) {
        truth.waive(&EVICTED_BYTES, OWN_CALLS);
    }
    truth
}

/// Truth over all processes and GPUs.
pub(crate) fn total_truth(gpus: &[Counted], processes: &[ProcessFacts]) -> Truth {
    let mut truth = Truth::default();
    let by_gpu: Vec<Truth> = (0..gpus.len()).map(|number| gpu_truth(gpus, number, processes)).collect();
    let sum = |field: &Field| by_gpu.iter().map(|gpu| gpu.figures.get(field)).sum::<Option<u64>>();
    for field in
        [&FAULT_INSTANCES, &BYTES_HTOD, &BYTES_DTOH, &BYTES_DTOD, &FAULT_BYTES_IN, &EVICTED_BYTES, &POPULATED_BYTES]
    {
        truth.figures.set(field, sum(field));
    }
    truth.figures.set(&EVICTED_BYTES_CAUSED, truth.figures.get(&EVICTED_BYTES));
    truth.figures.set(&FAULT_BYTES_OUT, gpus.iter().map(|gpu| gpu.driver.fault_pages_out * PAGE_BYTES).sum::<u64>());
    for (field, reason) in
        by_gpu.iter().flat_map(|gpu| &gpu.waived).filter(|(field, _)| **field == POPULATED_BYTES.name)
    {
        truth.waived.insert(field, reason);
    }
    loosen_without_prefetched(&mut truth, gpus, processes);
    evictions(gpus, processes).set_total(&mut truth);
    set_by_access(&mut truth, gpus);
    set_replays(&mut truth, gpus.iter().map(|gpu| gpu.driver.replays).sum(), processes);
    if moved_memory(processes) {
        truth.waive(&EVICTED_BYTES, OWN_CALLS);
        truth.waive(&EVICTED_BYTES_CAUSED, OWN_CALLS);
    }
    let counters = processes.iter().map(|facts| facts.counters).collect::<Option<Vec<_>>>();
    if let Some(counters) = counters {
        truth.figures.set(&FAULT_ENTRIES, counters.iter().map(|each| each.fault_entries).sum::<u64>());
        truth.figures.set(&CPU_FAULTS, counters.iter().map(|each| each.cpu_faults).sum::<u64>());
        truth.figures.set(&THROTTLES, counters.iter().map(|each| each.throttles).sum::<u64>());
    } else {
        truth.waive(&FAULT_ENTRIES, WITHOUT_COUNTERS);
        truth.waive(&CPU_FAULTS, WITHOUT_COUNTERS);
        truth.loosen(&THROTTLES, Relation::AtMost, WITHOUT_COUNTERS);
    }
    let remote = Remote::of(gpus.iter().map(|gpu| &gpu.hardware.access));
    truth.figures.set(&REMOTE_BYTES, remote.bytes());
    for (link, copied, remote) in [
        (&LINK_BYTES_HTOD, &BYTES_HTOD, remote.htod),
        (&LINK_BYTES_DTOH, &BYTES_DTOH, remote.dtoh),
        (&LINK_BYTES_DTOD, &BYTES_DTOD, remote.dtod),
    ] {
        truth.figures.set(link, sum(copied).map(|bytes| bytes + remote));
    }
    let calls = processes.iter().map(|facts| facts.calls).collect::<Option<Vec<_>>>();
    let add = |sums: [(u64, u64); Call::KINDS], calls: [(u64, u64); Call::KINDS]| {
        let mut sums = sums;
        sums.iter_mut().zip(calls).for_each(|(sum, call)| *sum = (sum.0 + call.0, sum.1 + call.1));
        sums
    };
    set_calls(&mut truth, calls.map(|calls| calls.into_iter().fold([(0, 0); Call::KINDS], add)));
    truth
}

/// Bytes that a GPU received from others. Each copy is counted at the GPU whose engine made it;
/// there are two GPUs at most.
fn received(gpus: &[Counted], number: usize) -> u64 {
    let count = |(at, gpu): (usize, &Counted)| {
        if at == number { gpu.hardware.copied_from_peer_bytes } else { gpu.hardware.copied_to_peer_bytes }
    };
    gpus.iter().enumerate().map(count).sum()
}

/// Whether an application moved memory itself; true if unknown.
fn moved_memory(processes: &[ProcessFacts]) -> bool {
    processes.iter().any(|facts| facts.calls.is_none_or(|calls| calls.iter().any(|(calls, _)| *calls > 0)))
}

fn set_calls(truth: &mut Truth, calls: Option<[(u64, u64); Call::KINDS]>) {
    for (at, (count, bytes)) in CALLS.iter().zip(&CALL_BYTES).enumerate() {
        if let Some((calls, call_bytes)) = calls.and_then(|calls| calls.get(at).copied()) {
            truth.figures.set(count, calls);
            truth.figures.set(bytes, call_bytes);
        } else {
            truth.waive(count, KILLED);
            truth.waive(bytes, KILLED);
        }
    }
}

/// Contradictions within the truth: every figure that has a second source is checked against it.
pub(crate) fn inconsistencies(gpus: &[Counted], processes: &[ProcessFacts]) -> Vec<String> {
    let mut found = Vec::new();
    let mut must = |holds: bool, message: String| {
        if !holds {
            found.push(format!("the truth disagrees with itself: {message}"));
        }
    };
    let truth = total_truth(gpus, processes).figures;
    let (htod, dtoh) = (truth.get(&BYTES_HTOD).unwrap_or(0), truth.get(&BYTES_DTOH).unwrap_or(0));
    let instances = truth.get(&FAULT_INSTANCES).unwrap_or(0);
    if let Some(counters) = processes.iter().map(|facts| facts.counters).collect::<Option<Vec<ProcessCounters>>>() {
        let sum = |figure: fn(&ProcessCounters) -> u64| counters.iter().map(figure).sum::<u64>();
        let (entries, in_bytes, out_bytes) =
            (sum(|each| each.fault_entries), sum(|each| each.bytes_htod), sum(|each| each.bytes_dtoh));
        must(in_bytes == htod, format!("{htod} bytes to the GPUs, but the processes' sum is {in_bytes}"));
        must(out_bytes == dtoh, format!("{dtoh} bytes from the GPUs, but the processes' sum is {out_bytes}"));
        let least = instances.saturating_sub(gpus.iter().map(|gpu| gpu.driver.duplicates).sum());
        must(
            (least..=instances).contains(&entries),
            format!("{entries} fault entries, but from {least} to {instances} instances"),
        );
    }
    let hardware = |figure: fn(&Counted) -> u64| gpus.iter().map(figure).sum::<u64>();
    let copied = hardware(|gpu| gpu.hardware.copied_htod_bytes);
    must(copied == htod, format!("{htod} bytes to the GPUs, but their copy engines moved {copied}"));
    let copied = hardware(|gpu| gpu.hardware.copied_dtoh_bytes);
    must(copied == dtoh, format!("{dtoh} bytes from the GPUs, but their copy engines moved {copied}"));
    let packets = hardware(|gpu| gpu.hardware.fault_packets);
    must(packets >= instances, format!("{instances} faults, but the GPUs raised {packets}"));
    let unknown = hardware(|gpu| gpu.hardware.unknown_methods);
    if unknown > 0 {
        found.push(format!("the software GPU met {unknown} methods it does not know"));
    }
    let errors = hardware(|gpu| gpu.hardware.errors);
    if errors > 0 {
        found.push(format!("the software GPU met {errors} errors"));
    }
    found
}

#[cfg(test)]
mod tests;
