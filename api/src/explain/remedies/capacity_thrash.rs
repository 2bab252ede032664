//! Remedies for capacity thrash: evicted memory is fetched again, as more is in use than the GPU
//! has.

use model::text;

use super::{Case, FEW_WRITES, Remedies, Remedy, leave_at_host, read_mostly};
use crate::Evictor;

pub(super) fn remedies(case: &Case<'_>) -> Remedies {
    // Evictions for another process do not depend on the victim's access pattern.
    if let Some(evictor) = case.verdict.evictor.as_ref() {
        return Remedies { effective: vec![separation_from_evictor(case, evictor)], ineffective: Vec::new() };
    }
    if let Some(separation) = separation(case) {
        return Remedies { effective: vec![separation], ineffective: Vec::new() };
    }
    let effective = [cyclic(case), random(case), hot_set(case), read_only(case), strided(case), reduction(case)];
    let ineffective = "cudaMemPrefetchAsync alone: the GPU is full, so prefetches evict as much as the faults do";
    Remedies { effective: effective.into_iter().flatten().collect(), ineffective: vec![ineffective.to_owned()] }
}

fn separation_from_evictor(case: &Case<'_>, evictor: &Evictor) -> Remedy {
    let pid = evictor.pid;
    let action = format!(
        "run it apart from {pid} {}: one after the other, or on different GPUs; for remedies at {pid}: uvmctl explain {pid}",
        evictor.name
    );
    let evidence = match evictor.bytes_per_second {
        0 => evictor.description(),
        rate => format!(
            "of the {}/s evicted from it, {}/s were for {pid}",
            case.rate(case.verdict.inputs.evicted_bytes, text::bytes),
            text::bytes(rate)
        ),
    };
    Remedy::new(action, evidence)
}

/// Advice for a cyclic walk: the memory used longest ago is needed next, and is evicted first.
fn cyclic(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.busiest(&["cyclic", "sequential"])?;
    let excess = case.excess_bytes(involved);
    if excess == Some(0) {
        return None;
    }
    let excess = excess.filter(|excess| *excess < involved.range.bytes);
    let part = match excess {
        Some(excess) => format!("the last {} of the {}", text::bytes(excess), involved.name()),
        None => format!("the end of the {}, beyond the GPU's capacity,", involved.name()),
    };
    let all = text::bytes(involved.range.bytes);
    let link = excess.map_or_else(String::new, |excess| {
        format!("; then {} of it cross the link in each pass instead of up to {all}", text::bytes(excess))
    });
    let evidence = format!(
        "its pattern is {}, so each pass evicts what the next one needs: {} of its fetched bytes are refetched{link}",
        involved.pattern_with_evidence(),
        text::percent(involved.range.refetch_ratio)
    );
    let unless = "each byte is used many times in one pass: accesses to resident memory raise no fault";
    Some(Remedy::new(leave_at_host(&part), evidence).unless(unless))
}

fn random(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.busiest(&["random"])?;
    let inputs = &case.verdict.inputs;
    let bytes_per_fault = inputs.fetched_bytes.checked_div(inputs.fault_entries)?;
    let evidence = format!(
        "its pattern is {}; each GPU fault fetched {} on average, {} of it refetched",
        involved.pattern_with_evidence(),
        text::bytes(bytes_per_fault),
        text::percent(involved.range.refetch_ratio)
    );
    let unless = "most of the fetched bytes are used before their eviction, which raises no fault";
    Some(Remedy::new(leave_at_host(&format!("the {}", involved.name())), evidence).unless(unless))
}

fn hot_set(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.busiest(&["hot_set"])?;
    let action = format!(
        "in the program: keep the hot part of the {} on the GPU, with cudaMemAdvise(SetPreferredLocation, GPU), and the rest at the host; `uvmctl heatmap {}` shows the hot part",
        involved.name(),
        case.process.pid
    );
    let evidence = format!("a small part of it has most of its faults ({})", involved.pattern_with_evidence());
    Some(Remedy::new(action, evidence))
}

/// Read-mostly advice for memory without writes: its eviction then needs no copy to the host.
fn read_only(case: &Case<'_>) -> Option<Remedy> {
    let inputs = &case.verdict.inputs;
    let writes = case.gpu_write_share().filter(|share| *share < FEW_WRITES)?;
    let copied_back = inputs.bytes_dtoh.min(inputs.evicted_bytes);
    (copied_back > 0).then(|| {
        let evidence = format!(
            "{} of its GPU faults were writes, and {}/s are copied to the host at their eviction; read-duplicated pages are not",
            text::percent(writes),
            case.rate(copied_back, text::bytes)
        );
        let unless = "the GPU writes to it: writes to resident memory may raise no fault, and each one collapses the duplicates";
        Remedy::new(read_mostly(case.involved().next()), evidence).unless(unless)
    })
}

fn strided(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.busiest(&["strided"])?;
    let stride = involved.range.pattern.stride_bytes?;
    let action =
        format!("in the program: change the layout of the {} so that one pass uses contiguous memory", involved.name());
    let evidence = format!(
        "it is accessed every {} ({}), and memory migrates in 4 KiB to 2 MiB, used or not",
        text::bytes(stride.unsigned_abs()),
        involved.pattern_with_evidence()
    );
    Some(Remedy::new(action, evidence))
}

/// Separation of a process that would fit alone: others cause the thrashing, so its access pattern
/// does not matter.
fn separation(case: &Case<'_>) -> Option<Remedy> {
    let (managed, capacity, others) =
        (case.process.managed_bytes?, case.managed_capacity_bytes()?, case.others_bytes()?);
    (managed <= capacity).then(|| {
        let evidence = format!(
            "it has {} of managed memory, and the GPU has room for {}; the other processes on it have {}",
            text::bytes(managed),
            text::bytes(capacity),
            text::bytes(others)
        );
        Remedy::new("run it and the other processes on this GPU one after another, or on different GPUs", evidence)
    })
}

fn reduction(case: &Case<'_>) -> Option<Remedy> {
    let involved = case.involved_bytes().or(case.process.managed_bytes)?;
    let shared = if case.others_bytes().is_some() { " for all processes on this GPU" } else { "" };
    let (capacity, evidence) = if let Some(capacity) = case.managed_capacity_bytes() {
        (capacity, format!("there is room for {}{shared}", text::bytes(capacity)))
    } else {
        let resident = case.resident_bytes()?;
        (resident, format!("{} are in GPU memory now", text::bytes(resident)))
    };
    // Resident memory of 0 is no measure of the capacity.
    let excess = involved.checked_sub(capacity).filter(|excess| *excess > 0 && capacity > 0)?;
    let action = format!("use up to {} less at a time, for example by a smaller batch", text::bytes(excess));
    let evidence = format!("the ranges involved have {}, and {evidence}", text::bytes(involved));
    Some(Remedy::new(action, evidence).unless("part of it is not in use: then a smaller reduction is enough"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::remedies::testing::{Fixture, GIB, actions, effective};

    fn thrashing(pattern: &str) -> Fixture {
        let mut known = Fixture::new("capacity_thrash");
        known.involved(0x1000_0000, 48 * GIB, pattern, 0.92).resident(31 * GIB);
        known.verdict.inputs.fetched_bytes = 40 * GIB;
        known.verdict.inputs.fault_entries = 80 * 1024;
        known
    }

    #[test]
    fn the_excess_of_a_cyclic_walk_stays_at_the_host() {
        let advice = effective(&thrashing("cyclic"));
        assert!(
            advice[0].action.contains("leave the last 17.0 GiB of the 48.0 GiB at 0x10000000 at the host"),
            "{advice:?}"
        );
        assert!(advice[0].evidence.contains("cyclic, which fits 98 % of 1.2k steps"), "{advice:?}");
        assert!(advice[0].evidence.contains("92 % of its fetched bytes"), "{advice:?}");
        assert!(advice[0].unless.as_ref().unwrap().contains("raise no fault"), "{advice:?}");
    }

    #[test]
    fn an_unknown_excess_is_not_quantified() {
        let mut known = thrashing("cyclic");
        known.ranges = None;
        let actions = actions(&known);
        assert!(actions[0].contains("beyond the GPU's capacity"), "{actions:?}");
        assert_eq!(actions.len(), 1, "and no figure to reduce by: {actions:?}");
    }

    #[test]
    fn the_excess_is_relative_to_the_gpus_capacity() {
        let mut known = thrashing("cyclic");
        known.process.managed_bytes = Some(48 * GIB);
        known.card(40 * GIB, 70 * GIB);
        let advice = effective(&known);
        assert!(advice[0].action.contains("leave the last 8.0 GiB"), "{advice:?}");
        assert_eq!(advice[1].action, "use up to 8.0 GiB less at a time, for example by a smaller batch");
        assert_eq!(
            advice[1].evidence,
            "the ranges involved have 48.0 GiB, and there is room for 40.0 GiB for all processes on this GPU"
        );
        known.gpu.as_mut().unwrap().managed_capacity_bytes = Some(42 * GIB);
        assert!(actions(&known)[1].contains("6.0 GiB less"), "{:?}", actions(&known));
    }

    #[test]
    fn with_unknown_capacity_the_excess_is_relative_to_resident_memory() {
        let mut known = thrashing("unknown");
        (known.ranges, known.process.managed_bytes) = (None, Some(48 * GIB));
        assert_eq!(actions(&known), [""; 0], "nothing is known of what is there");
        known.process.resident = Some(model::Residency::exactly(40 * GIB));
        assert_eq!(actions(&known), ["use up to 8.0 GiB less at a time, for example by a smaller batch"]);
    }

    #[test]
    fn random_accesses_use_the_host_because_of_bytes_per_fault() {
        let advice = effective(&thrashing("random"));
        assert!(advice[0].action.contains("leave the 48.0 GiB at 0x10000000 at the host"), "{advice:?}");
        assert!(advice[0].evidence.contains("each GPU fault fetched 512 KiB on average"), "{advice:?}");
    }

    #[test]
    fn the_hot_part_of_a_hot_set_stays_on_the_gpu() {
        let actions = actions(&thrashing("hot_set"));
        assert!(actions[0].contains("keep the hot part") && actions[0].contains("uvmctl heatmap 41207"), "{actions:?}");
    }

    #[test]
    fn a_stride_is_fixed_by_layout() {
        let mut known = thrashing("strided");
        known.verdict.ranges.as_mut().unwrap()[0].pattern.stride_bytes = Some(-(4 << 20));
        let advice = effective(&known);
        assert!(advice[0].evidence.contains("every 4.0 MiB"), "{advice:?}");
    }

    #[test]
    fn an_unknown_pattern_yields_no_advice_on_patterns() {
        let actions = actions(&thrashing("unknown"));
        assert_eq!(actions, ["use up to 17.0 GiB less at a time, for example by a smaller batch"]);
    }

    #[test]
    fn read_mostly_requires_few_writes_and_copies_to_the_host() {
        let mut known = thrashing("unknown");
        known.faults(99, 1);
        (known.verdict.inputs.evicted_bytes, known.verdict.inputs.bytes_dtoh) = (20 * GIB, 20 * GIB);
        let advice = effective(&known);
        assert!(advice[0].action.contains("SetReadMostly"), "{advice:?}");
        assert!(advice[0].evidence.contains("1 % of its GPU faults were writes, and 4.0 GiB/s"), "{advice:?}");
        known.faults(50, 50);
        assert!(!actions(&known).concat().contains("ReadMostly"), "a half of its faults are writes");
        known.faults(99, 1);
        known.verdict.inputs.bytes_dtoh = 0;
        assert!(!actions(&known).concat().contains("ReadMostly"), "nothing is copied back");
    }

    #[test]
    fn a_process_that_fits_alone_is_separated_from_others() {
        let mut known = thrashing("unknown");
        known.process.managed_bytes = Some(60 * GIB);
        known.card(80 * GIB, 100 * GIB);
        let advice = effective(&known);
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert!(advice[0].action.contains("one after another"), "{advice:?}");
        assert!(advice[0].evidence.contains("the other processes on it have 40.0 GiB"), "{advice:?}");
        known.card(50 * GIB, 100 * GIB);
        assert!(!actions(&known).concat().contains("one after another"), "it does not fit alone either");
        known.card(80 * GIB, 60 * GIB);
        assert!(!actions(&known).concat().contains("one after another"), "it is alone");
    }

    #[test]
    fn a_range_that_fits_is_not_left_at_the_host_in_part() {
        let mut known = thrashing("cyclic");
        known.process.managed_bytes = Some(90 * GIB);
        known.card(80 * GIB, 100 * GIB);
        assert_eq!(actions(&known), [""; 0]);
    }

    #[test]
    fn a_victim_is_referred_to_its_evictor() {
        let mut known = thrashing("cyclic");
        known.verdict.inputs.evicted_bytes = 20 * GIB;
        known.verdict.evictor =
            Some(Evictor { pid: 182, name: "streams".to_owned(), bytes_per_second: 3 * GIB, ..Evictor::default() });
        let advice = effective(&known);
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert!(
            advice[0].action.contains("apart from 182 streams") && advice[0].action.contains("uvmctl explain 182"),
            "{advice:?}"
        );
        assert!(advice[0].evidence.contains("of the 4.0 GiB/s evicted from it, 3.0 GiB/s were for 182"), "{advice:?}");
    }

    #[test]
    fn prefetching_is_never_advised() {
        for pattern in ["cyclic", "sequential", "random", "hot_set", "strided", "unknown"] {
            let known = thrashing(pattern);
            assert!(!actions(&known).concat().contains("Prefetch"), "{pattern}");
            assert!(remedies(&known.case()).ineffective[0].contains("cudaMemPrefetchAsync"));
        }
    }
}
