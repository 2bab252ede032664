//! Remedies for ping-pong and driver throttling: memory bounces between a CPU and a GPU, or between
//! two GPUs, and the driver may throttle both.

use model::text;

use super::{Case, FEW_WRITES, Remedies, Remedy, leave_at_host, read_mostly};

const PAGE_BYTES: u64 = 4096;

pub(super) fn remedies(case: &Case<'_>) -> Remedies {
    if case.verdict.inputs.is_between_gpus() {
        let effective = [read_duplication_of_gpus(case), one_location(case), partition(case)];
        return Remedies { effective: effective.into_iter().flatten().collect(), ineffective: Vec::new() };
    }
    let effective = [read_duplication(case), host_residency(case), bulk_prefetch(case), separate_allocation(case)];
    Remedies { effective: effective.into_iter().flatten().collect(), ineffective: Vec::new() }
}

fn read_duplication(case: &Case<'_>) -> Option<Remedy> {
    let (gpu, cpu) = (case.gpu_write_share()?, case.cpu_write_share()?);
    (gpu < FEW_WRITES && cpu < FEW_WRITES).then(|| {
        let evidence = format!(
            "{} of its GPU faults and {} of its CPU faults were writes: read duplication lets both sides read without migration",
            text::percent(gpu),
            text::percent(cpu)
        );
        let unless = "either side writes to it: writes to resident memory may raise no fault, and each one collapses the duplicates";
        Remedy::new(read_mostly(case.involved().next()), evidence).unless(unless)
    })
}

fn read_duplication_of_gpus(case: &Case<'_>) -> Option<Remedy> {
    let gpu = case.gpu_write_share()?;
    (gpu < FEW_WRITES).then(|| {
        let evidence = format!(
            "{} of its GPU faults were writes: read duplication gives each GPU a copy of its own, and nothing migrates",
            text::percent(gpu)
        );
        let unless =
            "a GPU writes to it: writes to resident memory may raise no fault, and each one collapses the duplicates";
        Remedy::new(read_mostly(case.involved().next()), evidence).unless(unless)
    })
}

/// One place for memory that two GPUs use, mapped by both: at a GPU if they copy directly, else at the
/// host.
fn one_location(case: &Case<'_>) -> Option<Remedy> {
    let inputs = &case.verdict.inputs;
    let bytes_per_bounce = inputs.peer_reclaimed_bytes.checked_div(inputs.peer_bounces)?;
    let what = what(case);
    let moved = format!(
        "in the last window the GPU took 2 MiB blocks from other GPUs {} times, with {} on average that it had before",
        text::count(inputs.peer_bounces),
        text::bytes(bytes_per_bounce)
    );
    let (action, evidence) = if inputs.bytes_dtod > 0 {
        let action = format!(
            "in the program: leave {what} at the GPU that uses it most, with cudaMemAdvise(SetPreferredLocation, that GPU) and \
             cudaMemAdvise(SetAccessedBy, the other one)"
        );
        (
            action,
            format!(
                "{moved}; the GPUs copy to each other directly, so that one can access the other's memory in place"
            ),
        )
    } else {
        let evidence = format!(
            "{moved}; all copies went through the host, as between GPUs without peer access: at the host nothing migrates, and both access \
             it over their links"
        );
        (leave_at_host(&what), evidence)
    };
    Some(Remedy::new(action, evidence).unless("a GPU uses the same bytes many times between two bounces"))
}

/// Parts for each GPU, or a hand-over in bulk.
fn partition(case: &Case<'_>) -> Option<Remedy> {
    let inputs = &case.verdict.inputs;
    (inputs.peer_bounces > 0).then(|| {
        let action = format!(
            "in the program: partition {} in multiples of 2 MiB, a part for each GPU; or, where all of it changes GPUs between kernels, prefetch \
             it with cudaMemPrefetchAsync to the next GPU",
            what(case)
        );
        let evidence = format!("now {} GPU faults per second move it between GPUs", case.rate(inputs.fault_entries, text::count));
        Remedy::new(action, evidence)
    })
}

/// The busiest range in words.
fn what(case: &Case<'_>) -> String {
    case.involved().next().map_or_else(|| "it".to_owned(), |involved| format!("the {}", involved.name()))
}

fn host_residency(case: &Case<'_>) -> Option<Remedy> {
    let inputs = &case.verdict.inputs;
    let bytes_per_bounce = inputs.cpu_reclaimed_bytes.checked_div(inputs.bounces)?;
    let what = what(case);
    let evidence = format!(
        "in the last window 2 MiB blocks bounced {} times, each time with {} fetched by the GPU; at the host nothing migrates, and the GPU accesses it over the link",
        text::count(inputs.bounces),
        text::bytes(bytes_per_bounce)
    );
    let unless =
        "the GPU uses the same bytes many times between two bounces: accesses to resident memory raise no fault";
    Some(Remedy::new(leave_at_host(&what), evidence).unless(unless))
}

/// Bulk prefetch at a change of phases that each use all of a range.
fn bulk_prefetch(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.busiest(&["sequential", "cyclic"])?;
    let inputs = &case.verdict.inputs;
    let action = format!(
        "in the program: prefetch the {} where its phases change: with cudaMemPrefetchAsync to the GPU before a kernel, and to cudaCpuDeviceId before the CPU uses it",
        involved.name()
    );
    let evidence = format!(
        "its pattern is {}, and it migrates by {} GPU faults and {} CPU faults per second",
        involved.pattern_with_evidence(),
        case.rate(inputs.fault_entries, text::count),
        case.rate(inputs.cpu_faults, text::count)
    );
    Some(Remedy::new(action, evidence).unless("the CPU and the GPU use it at the same time"))
}

/// Separate allocation for a few shared pages of a large one.
fn separate_allocation(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.involved().next()?;
    let inputs = &case.verdict.inputs;
    let shared = inputs.thrashing_pages.saturating_mul(PAGE_BYTES);
    (shared > 0 && shared < involved.range.bytes / 10).then(|| {
        let action = format!(
            "in the program: move the data shared by CPU and GPU from the {} to an allocation of its own (cudaHostAlloc, or managed memory preferred at the host)",
            involved.name()
        );
        let evidence = format!(
            "the driver's detector found {} of it thrashing in the last window",
            text::bytes(shared)
        );
        Remedy::new(action, evidence)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::remedies::testing::{Fixture, GIB, actions, effective};

    fn alternating(pattern: &str) -> Fixture {
        let mut known = Fixture::new("ping_pong");
        known.involved(0x1000_0000, 2 * GIB, pattern, 0.0);
        known.verdict.inputs.bounces = 1000;
        known.verdict.inputs.cpu_reclaimed_bytes = 1000 << 16;
        (known.verdict.inputs.fault_entries, known.verdict.inputs.cpu_faults) = (5000, 10_000);
        known
    }

    #[test]
    fn bouncing_memory_stays_at_the_host() {
        let advice = effective(&alternating("random"));
        assert_eq!(advice.len(), 1);
        assert!(advice[0].action.contains("leave the 2.0 GiB at 0x10000000 at the host"), "{advice:?}");
        assert!(advice[0].evidence.contains("1.0k times, each time with 64.0 KiB"), "{advice:?}");
    }

    #[test]
    fn sequential_memory_can_migrate_in_bulk() {
        let advice = effective(&alternating("sequential"));
        assert!(advice[1].action.contains("cudaMemPrefetchAsync"), "{advice:?}");
        assert!(advice[1].evidence.contains("1.0k GPU faults and 2.0k CPU faults per second"), "{advice:?}");
        assert!(!actions(&alternating("random")).concat().contains("Prefetch"));
    }

    #[test]
    fn memory_that_bounces_between_gpus_gets_one_place_or_parts() {
        let mut known = alternating("random");
        (known.verdict.inputs.bounces, known.verdict.inputs.cpu_reclaimed_bytes) = (0, 0);
        known.verdict.inputs.peer_bounces = 1000;
        known.verdict.inputs.peer_reclaimed_bytes = 1000 << 16;
        let advice = effective(&known);
        assert_eq!(advice.len(), 2, "{advice:?}");
        assert!(advice[0].action.contains("leave the 2.0 GiB at 0x10000000 at the host"), "{advice:?}");
        assert!(advice[0].evidence.contains("all copies went through the host"), "{advice:?}");
        assert!(advice[1].action.contains("partition the 2.0 GiB at 0x10000000"), "{advice:?}");
        known.verdict.inputs.bytes_dtod = 1000 << 16;
        let advice = effective(&known);
        assert!(advice[0].action.contains("SetPreferredLocation, that GPU"), "{advice:?}");
        known.faults(100, 0).cpu_faults(100, 100);
        assert!(actions(&known)[0].contains("SetReadMostly"), "writes of CPUs do not matter");
    }

    #[test]
    fn read_duplication_requires_reads_on_both_sides() {
        let mut known = alternating("random");
        known.faults(100, 0).cpu_faults(100, 1);
        assert!(actions(&known)[0].contains("SetReadMostly"));
        known.cpu_faults(100, 100);
        assert!(!actions(&known).concat().contains("ReadMostly"));
    }

    #[test]
    fn a_few_shared_pages_get_a_separate_allocation() {
        let mut known = alternating("unknown");
        known.verdict.inputs.thrashing_pages = 16;
        let advice = effective(&known);
        assert!(advice[1].action.contains("allocation of its own"), "{advice:?}");
        assert!(advice[1].evidence.contains("64.0 KiB of it thrashing"), "{advice:?}");
        known.verdict.inputs.thrashing_pages = 2 * GIB / PAGE_BYTES;
        assert!(!actions(&known).concat().contains("allocation of its own"), "all of it is shared");
    }

    #[test]
    fn without_bounces_there_is_no_advice() {
        let mut known = Fixture::new("driver_throttling");
        known.verdict.inputs.throttles = 5;
        assert_eq!(actions(&known), [""; 0]);
    }
}
