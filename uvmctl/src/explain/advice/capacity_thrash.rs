//! What is evicted is fetched again: more is in use than there is room for.

use model::api::Evictor;

use super::{Advice, Advised, Case, FEW_WRITES, leave_at_host, read_mostly};
use crate::text;

pub(super) fn advice(case: &Case<'_>) -> Advised {
    // What others push out says nothing of how it uses its memory.
    if let Some(evictor) = case.verdict.evictor.as_ref() {
        return Advised { helps: vec![from_other(case, evictor)], does_not_help: Vec::new() };
    }
    if let Some(apart) = apart(case) {
        return Advised { helps: vec![apart], does_not_help: Vec::new() };
    }
    let helps = [in_order(case), random(case), hot_set(case), only_read(case), strided(case), less(case)];
    let does_not_help = "cudaMemPrefetchAsync alone: the GPU is full, so prefetches evict as much as the faults do";
    Advised { helps: helps.into_iter().flatten().collect(), does_not_help: vec![does_not_help.to_owned()] }
}

fn from_other(case: &Case<'_>, evictor: &Evictor) -> Advice {
    let pid = evictor.pid;
    let action = format!(
        "run it apart from {pid} {}: one after the other, or on different GPUs; for remedies at {pid}: uvmctl explain {pid}",
        text::printable(&evictor.name)
    );
    let evidence = format!(
        "of the {}/s evicted from it, {}/s were for {pid}",
        rate(case, case.verdict.inputs.evicted_bytes),
        text::bytes(evictor.bytes_per_second)
    );
    Advice::new(action, evidence)
}

/// Of a walk that comes round again, what was used longest ago is what is needed next, and what is evicted.
fn in_order(case: &Case<'_>) -> Option<Advice> {
    let involved = case.busiest(&["cyclic", "sequential"])?;
    let out = case.without_room(involved);
    if out == Some(0) {
        return None;
    }
    let out = out.filter(|out| *out < involved.range.bytes);
    let part = match out {
        Some(out) => format!("the last {} of the {}", text::bytes(out), involved.name()),
        None => format!("the end of the {}, beyond the GPU's capacity,", involved.name()),
    };
    let all = text::bytes(involved.range.bytes);
    let bus = out.map_or_else(String::new, |out| {
        format!("; then {} of it cross the link in each pass instead of up to {all}", text::bytes(out))
    });
    let evidence = format!(
        "its pattern is {}, so each pass evicts what the next one needs: {} of its fetched bytes are refetched{bus}",
        involved.pattern_with_evidence(),
        text::percent(involved.range.refetch_ratio)
    );
    let unless = "each byte is used many times in one pass: accesses to resident memory raise no fault";
    Some(Advice::new(leave_at_host(&part), evidence).unless(unless))
}

fn random(case: &Case<'_>) -> Option<Advice> {
    let involved = case.busiest(&["random"])?;
    let inputs = &case.verdict.inputs;
    let a_fault = inputs.fetched_bytes.checked_div(inputs.fault_entries)?;
    let evidence = format!(
        "its pattern is {}; each GPU fault fetched {} on average, {} of it refetched",
        involved.pattern_with_evidence(),
        text::bytes(a_fault),
        text::percent(involved.range.refetch_ratio)
    );
    let unless = "most of the fetched bytes are used before their eviction, which raises no fault";
    Some(Advice::new(leave_at_host(&format!("the {}", involved.name())), evidence).unless(unless))
}

fn hot_set(case: &Case<'_>) -> Option<Advice> {
    let involved = case.busiest(&["hot_set"])?;
    let action = format!(
        "in the program: keep the hot part of the {} on the GPU, with cudaMemAdvise(SetPreferredLocation, GPU), and the rest at the host; `uvmctl heatmap {}` shows the hot part",
        involved.name(),
        case.process.pid
    );
    let evidence = format!("a small part of it has most of its faults ({})", involved.pattern_with_evidence());
    Some(Advice::new(action, evidence))
}

/// What is copied back only because it is evicted need not be, if nobody changed it.
fn only_read(case: &Case<'_>) -> Option<Advice> {
    let inputs = &case.verdict.inputs;
    let writes = case.gpu_write_share().filter(|share| *share < FEW_WRITES)?;
    let copied_back = inputs.bytes_dtoh.min(inputs.evicted_bytes);
    (copied_back > 0).then(|| {
        let evidence = format!(
            "{} of its GPU faults were writes, and {}/s are copied to the host at their eviction; read-duplicated pages are not",
            text::percent(writes),
            rate(case, copied_back)
        );
        let unless = "the GPU writes to it: writes to resident memory may raise no fault, and each one collapses the duplicates";
        Advice::new(read_mostly(case.involved().next()), evidence).unless(unless)
    })
}

fn strided(case: &Case<'_>) -> Option<Advice> {
    let involved = case.busiest(&["strided"])?;
    let stride = involved.range.pattern.stride_bytes?;
    let action =
        format!("in the program: change the layout of the {} so that one pass uses contiguous memory", involved.name());
    let evidence = format!(
        "it is accessed every {} ({}), and memory migrates in 4 KiB to 2 MiB, used or not",
        text::bytes(stride.unsigned_abs()),
        involved.pattern_with_evidence()
    );
    Some(Advice::new(action, evidence))
}

/// Alone it would fit: then it is not for its own sake that it thrashes, and how it uses its memory is no matter.
fn apart(case: &Case<'_>) -> Option<Advice> {
    let (managed, room, others) = (case.process.managed_bytes?, case.managed_capacity_bytes()?, case.others_bytes()?);
    (managed <= room).then(|| {
        let evidence = format!(
            "it has {} of managed memory, and the GPU has room for {}; the other processes on it have {}",
            text::bytes(managed),
            text::bytes(room),
            text::bytes(others)
        );
        Advice::new("run it and the other processes on this GPU one after another, or on different GPUs", evidence)
    })
}

fn less(case: &Case<'_>) -> Option<Advice> {
    let about = case.involved_bytes().or(case.process.managed_bytes)?;
    let shared = if case.others_bytes().is_some() { " for all processes on this GPU" } else { "" };
    let (room, evidence) = if let Some(room) = case.managed_capacity_bytes() {
        (room, format!("there is room for {}{shared}", text::bytes(room)))
    } else {
        let resident = case.resident_bytes()?;
        (resident, format!("{} are in GPU memory now", text::bytes(resident)))
    };
    // Nothing at all is no measure of what there is room for.
    let out = about.checked_sub(room).filter(|out| *out > 0 && room > 0)?;
    let action = format!("use up to {} less at a time, for example by a smaller batch", text::bytes(out));
    let evidence = format!("the ranges involved have {}, and {evidence}", text::bytes(about));
    Some(Advice::new(action, evidence).unless("part of it is not in use: then a smaller reduction is enough"))
}

fn rate(case: &Case<'_>, bytes: u64) -> String {
    crate::rates::per_second(Some(case.per_second(bytes)), text::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::advice::testing::{GIB, Known, actions, helps};

    fn thrashing(pattern: &str) -> Known {
        let mut known = Known::new("capacity_thrash");
        known.involved(0x1000_0000, 48 * GIB, pattern, 0.92).resident(31 * GIB);
        known.verdict.inputs.fetched_bytes = 40 * GIB;
        known.verdict.inputs.fault_entries = 80 * 1024;
        known
    }

    #[test]
    fn of_a_cyclic_walk_the_part_without_room_stays_at_the_host() {
        let advice = helps(&thrashing("cyclic"));
        assert!(
            advice[0].action.contains("leave the last 17.0 GiB of the 48.0 GiB at 0x10000000 at the host"),
            "{advice:?}"
        );
        assert!(advice[0].evidence.contains("cyclic, which fits 98 % of 1.2k steps"), "{advice:?}");
        assert!(advice[0].evidence.contains("92 % of its fetched bytes"), "{advice:?}");
        assert!(advice[0].unless.as_ref().unwrap().contains("raise no fault"), "{advice:?}");
    }

    #[test]
    fn how_much_finds_no_room_is_not_said_where_it_is_not_known() {
        let mut known = thrashing("cyclic");
        known.ranges = None;
        let actions = actions(&known);
        assert!(actions[0].contains("beyond the GPU's capacity"), "{actions:?}");
        assert_eq!(actions.len(), 1, "and no figure to reduce by: {actions:?}");
    }

    #[test]
    fn what_is_too_much_is_measured_by_the_card_and_not_by_what_others_leave() {
        let mut known = thrashing("cyclic");
        known.process.managed_bytes = Some(48 * GIB);
        known.card(40 * GIB, 70 * GIB);
        let advice = helps(&known);
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
    fn where_the_card_is_not_known_what_is_there_now_tells_how_much_is_too_much() {
        let mut known = thrashing("unknown");
        (known.ranges, known.process.managed_bytes) = (None, Some(48 * GIB));
        assert_eq!(actions(&known), [""; 0], "nothing is known of what is there");
        known.process.resident = Some(model::Residency::exactly(40 * GIB));
        assert_eq!(actions(&known), ["use up to 8.0 GiB less at a time, for example by a smaller batch"]);
    }

    #[test]
    fn random_accesses_reach_over_the_bus_and_the_bytes_a_fault_moves_say_why() {
        let advice = helps(&thrashing("random"));
        assert!(advice[0].action.contains("leave the 48.0 GiB at 0x10000000 at the host"), "{advice:?}");
        assert!(advice[0].evidence.contains("each GPU fault fetched 512 KiB on average"), "{advice:?}");
    }

    #[test]
    fn of_a_hot_set_the_hot_part_stays_on_the_gpu() {
        let actions = actions(&thrashing("hot_set"));
        assert!(actions[0].contains("keep the hot part") && actions[0].contains("uvmctl heatmap 41207"), "{actions:?}");
    }

    #[test]
    fn a_stride_is_a_matter_of_layout() {
        let mut known = thrashing("strided");
        known.verdict.ranges.as_mut().unwrap()[0].pattern.stride_bytes = Some(-(4 << 20));
        let advice = helps(&known);
        assert!(advice[0].evidence.contains("every 4.0 MiB"), "{advice:?}");
    }

    #[test]
    fn without_a_pattern_no_advice_rests_on_one() {
        let actions = actions(&thrashing("unknown"));
        assert_eq!(actions, ["use up to 17.0 GiB less at a time, for example by a smaller batch"]);
    }

    #[test]
    fn read_mostly_is_for_who_hardly_writes_and_is_copied_back() {
        let mut known = thrashing("unknown");
        known.faults(99, 1);
        (known.verdict.inputs.evicted_bytes, known.verdict.inputs.bytes_dtoh) = (20 * GIB, 20 * GIB);
        let advice = helps(&known);
        assert!(advice[0].action.contains("SetReadMostly"), "{advice:?}");
        assert!(advice[0].evidence.contains("1 % of its GPU faults were writes, and 4.0 GiB/s"), "{advice:?}");
        known.faults(50, 50);
        assert!(!actions(&known).concat().contains("ReadMostly"), "a half of its faults are writes");
        known.faults(99, 1);
        known.verdict.inputs.bytes_dtoh = 0;
        assert!(!actions(&known).concat().contains("ReadMostly"), "nothing is copied back");
    }

    #[test]
    fn who_would_fit_alone_is_kept_apart_from_the_others() {
        let mut known = thrashing("unknown");
        known.process.managed_bytes = Some(60 * GIB);
        known.card(80 * GIB, 100 * GIB);
        let advice = helps(&known);
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
    fn a_victim_is_told_whom_to_look_at_and_not_to_change_what_it_does() {
        let mut known = thrashing("cyclic");
        known.verdict.inputs.evicted_bytes = 20 * GIB;
        known.verdict.evictor =
            Some(Evictor { pid: 182, name: "streams".to_owned(), bytes_per_second: 3 * GIB, ..Evictor::default() });
        let advice = helps(&known);
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
            assert!(advice(&known.case()).does_not_help[0].contains("cudaMemPrefetchAsync"));
        }
    }
}
