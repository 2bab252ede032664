//! Begin and end of selected absences: the kernel that waits for the end of the migration to the
//! host, and the kernel before which the fetch begins.

use super::{Problem, absence::Absence, load::Load};

/// An absence with its ends, as positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) absence: Absence,
    /// The first kernel without it.
    pub(super) release: usize,
    /// The kernel before which its fetch begins: after [`Self::release`], and not after the next
    /// use.
    pub(super) fetch: usize,
}

/// An absence, and the latest position from which its fetch is in time on the link.
#[derive(Clone, Copy)]
struct LatestFetch {
    absence: Absence,
    fetch: usize,
}

/// Places absences without any wait; omits those that are impossible so.
pub(super) fn without_overhead(problem: &Problem<'_>, selected: &[Absence]) -> Vec<Placed> {
    let mut fetches = latest_fetches(problem, selected, Overcommit::Skip);
    fetches.sort_by_key(|of| of.absence.ready);
    let period_ns = problem.clock.period_ns();
    let (_, end_ns) = place_outs(problem, &fetches, 0, i128::MAX);
    // Transfers that run at the end of an iteration delay those at the beginning of the next.
    let carried_ns = (end_ns - period_ns).max(0);
    place_outs(problem, &fetches, carried_ns, carried_ns + period_ns).0
}

fn place_outs(problem: &Problem<'_>, fetches: &[LatestFetch], from_ns: i128, until_ns: i128) -> (Vec<Placed>, i128) {
    let mut free_ns = from_ns;
    let mut placed = Vec::new();
    for &LatestFetch { absence, fetch } in fetches {
        let end_ns = free_ns.max(problem.clock.at(absence.ready)) + i128::from(absence.out_ns);
        let release = problem.clock.first_from(end_ns);
        if end_ns <= until_ns
            && let Ok(release) = usize::try_from(release)
            && release < fetch
        {
            placed.push(Placed { absence, release, fetch });
            free_ns = end_ns;
        }
    }
    (placed, free_ns)
}

/// Places absences so that the load never exceeds the limit; kernels wait for that. `None` if the
/// load exceeds the limit even with all selected tensors absent throughout.
pub(super) fn within_limit(problem: &Problem<'_>, selected: &[Absence], limit_bytes: u64) -> Option<Vec<Placed>> {
    let mut load = problem.live.clone();
    for absence in selected {
        load.subtract(Load::longest_slots(absence), absence.bytes);
    }
    if load.peak().1 > limit_bytes {
        return None;
    }
    let mut fetches = latest_fetches(problem, selected, Overcommit::Late);
    fetches.sort_by_key(|of| of.absence.ready);
    let (_, end_ns) = place_releases(problem, &fetches, limit_bytes, &mut load.clone(), 0);
    let carried_ns = (end_ns - problem.clock.period_ns()).max(0);
    let (mut placed, _) = place_releases(problem, &fetches, limit_bytes, &mut load, carried_ns);
    placed.sort_by_key(|of| std::cmp::Reverse(of.absence.next_use % problem.clock.kernels()));
    for of in &mut placed {
        let (absence, bytes) = (of.absence, of.absence.bytes);
        let most_bytes = limit_bytes.saturating_sub(bytes);
        of.fetch = of.fetch.max(of.release + 1);
        if let Some((_, last)) = load.range_above(Load::absent_slots(of.release, absence.next_use), most_bytes) {
            of.fetch = of.fetch.max(last / 2 + 1);
        }
        load.add((2 * of.fetch, 2 * absence.next_use), bytes);
    }
    Some(placed)
}

/// Release of each absence: at the end of its transfer, or at the first kernel that exceeds the
/// limit with it, which waits.
fn place_releases(
    problem: &Problem<'_>,
    fetches: &[LatestFetch],
    limit_bytes: u64,
    load: &mut Load,
    from_ns: i128,
) -> (Vec<Placed>, i128) {
    let mut free_ns = from_ns;
    let mut placed = Vec::new();
    for &LatestFetch { absence, fetch } in fetches {
        let longest = Load::longest_slots(&absence);
        let first_full =
            load.range_above(longest, limit_bytes.saturating_sub(absence.bytes)).map(|(first, _)| (first - 1) / 2);
        let end_ns = free_ns.max(problem.clock.at(absence.ready)) + i128::from(absence.out_ns);
        let evicted = usize::try_from(problem.clock.first_from(end_ns)).unwrap_or(usize::MAX);
        if first_full.is_none() && evicted >= fetch {
            // The tensor fits, and its time is too short for an absence.
            load.add(longest, absence.bytes);
            continue;
        }
        // An absence that only serves others begins no later than necessary.
        let release = evicted.min(first_full.unwrap_or(usize::MAX));
        load.add((longest.0, 2 * release + 1), absence.bytes);
        placed.push(Placed { absence, release, fetch });
        // A kernel that waits moves the clock: the transfer has ended when the kernel begins.
        free_ns = end_ns.min(problem.clock.at(release));
    }
    (placed, free_ns)
}

/// Treatment of absences whose fetch cannot be in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overcommit {
    /// The tensor stays on the GPU.
    Skip,
    /// The fetch is late.
    Late,
}

/// Latest position at which each fetch can begin to be in time, with one transfer after another.
fn latest_fetches(problem: &Problem<'_>, selected: &[Absence], overcommit: Overcommit) -> Vec<LatestFetch> {
    let mut by_use: Vec<_> = selected.to_vec();
    by_use.sort_by_key(|of| std::cmp::Reverse((of.next_use % problem.clock.kernels(), of.ready)));
    let (_, first_ns) = latest_ins(problem, &by_use, i128::MAX, i128::MIN, overcommit);
    // Fetches for the beginning of the next iteration take link time from those for the end of this
    // one.
    let until_ns = first_ns.min(0) + problem.clock.period_ns();
    latest_ins(problem, &by_use, until_ns, first_ns.min(0), overcommit).0
}

fn latest_ins(
    problem: &Problem<'_>,
    by_use: &[Absence],
    until_ns: i128,
    from_ns: i128,
    overcommit: Overcommit,
) -> (Vec<LatestFetch>, i128) {
    let (clock, kernels) = (&problem.clock, problem.clock.kernels());
    let mut busy_from_ns = until_ns;
    let mut fetches = Vec::new();
    for &absence in by_use {
        let turns = absence.next_use / kernels * kernels;
        let start_ns = busy_from_ns.min(clock.at(absence.next_use % kernels)) - i128::from(absence.back_ns);
        let fetch = usize::try_from(clock.last_until(start_ns) + turns as i128).unwrap_or(0);
        let in_time = start_ns >= from_ns && fetch > absence.ready;
        if in_time || overcommit == Overcommit::Late {
            fetches.push(LatestFetch { absence, fetch: fetch.max(absence.ready + 1) });
            busy_from_ns = start_ns;
        }
    }
    (fetches, busy_from_ns)
}
