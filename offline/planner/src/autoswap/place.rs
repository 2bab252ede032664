//! When chosen absences begin and end: the kernel that waits for a tensor to have left, and the kernel before which it begins to come back.

use super::{Problem, absence::Absence, load::Load};

/// An absence with its ends, as positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) absence: Absence,
    /// The first kernel without it.
    pub(super) release: usize,
    /// It comes back from before this kernel on. After [`Self::release`], and not after the next use.
    pub(super) fetch: usize,
}

/// An absence and the latest position from which it comes back in time, as far as links go.
#[derive(Clone, Copy)]
struct Coming {
    absence: Absence,
    fetch: usize,
}

/// No transfer holds anything up; what cannot be away for a while so is left out.
pub(super) fn without_overhead(problem: &Problem<'_>, chosen: &[Absence]) -> Vec<Placed> {
    let mut coming = latest(problem, chosen, Overcommitted::LeftOut);
    coming.sort_by_key(|of| of.absence.ready);
    let period_ns = problem.clock.period_ns();
    let (_, end_ns) = outs(problem, &coming, 0, i128::MAX);
    // What is still leaving at the end of an iteration holds up what leaves at the beginning of the next.
    let carried_ns = (end_ns - period_ns).max(0);
    outs(problem, &coming, carried_ns, carried_ns + period_ns).0
}

fn outs(problem: &Problem<'_>, coming: &[Coming], from_ns: i128, until_ns: i128) -> (Vec<Placed>, i128) {
    let mut free_ns = from_ns;
    let mut placed = Vec::new();
    for &Coming { absence, fetch } in coming {
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

/// Nothing is ever above the limit; kernels wait for that. `None` if too much is even with all that is chosen away all the time.
pub(super) fn within_limit(problem: &Problem<'_>, chosen: &[Absence], limit_bytes: u64) -> Option<Vec<Placed>> {
    let mut load = problem.live.clone();
    for absence in chosen {
        load.leave(Load::away_all_along(absence), absence.bytes);
    }
    if load.peak().1 > limit_bytes {
        return None;
    }
    let mut coming = latest(problem, chosen, Overcommitted::Late);
    coming.sort_by_key(|of| of.absence.ready);
    let (_, end_ns) = releases(problem, &coming, limit_bytes, &mut load.clone(), 0);
    let carried_ns = (end_ns - problem.clock.period_ns()).max(0);
    let (mut placed, _) = releases(problem, &coming, limit_bytes, &mut load, carried_ns);
    placed.sort_by_key(|of| std::cmp::Reverse(of.absence.next_use % problem.clock.kernels()));
    for of in &mut placed {
        let (absence, bytes) = (of.absence, of.absence.bytes);
        let room = limit_bytes.saturating_sub(bytes);
        of.fetch = of.fetch.max(of.release + 1);
        if let Some((_, last)) = load.beyond(Load::away(of.release, absence.next_use), room) {
            of.fetch = of.fetch.max(last / 2 + 1);
        }
        load.stay((2 * of.fetch, 2 * absence.next_use), bytes);
    }
    Some(placed)
}

/// When each is gone: once it has left, or at the first kernel that has no room for it, which waits.
fn releases(
    problem: &Problem<'_>,
    coming: &[Coming],
    limit_bytes: u64,
    load: &mut Load,
    from_ns: i128,
) -> (Vec<Placed>, i128) {
    let mut free_ns = from_ns;
    let mut placed = Vec::new();
    for &Coming { absence, fetch } in coming {
        let all = Load::away_all_along(&absence);
        let full = load.beyond(all, limit_bytes.saturating_sub(absence.bytes)).map(|(first, _)| (first - 1) / 2);
        let end_ns = free_ns.max(problem.clock.at(absence.ready)) + i128::from(absence.out_ns);
        let left = usize::try_from(problem.clock.first_from(end_ns)).unwrap_or(usize::MAX);
        if full.is_none() && left >= fetch {
            // There is room for it, and no time to be away.
            load.stay(all, absence.bytes);
            continue;
        }
        // Where it leaves for others only, it leaves no later than it has to.
        let release = left.min(full.unwrap_or(usize::MAX));
        load.stay((all.0, 2 * release + 1), absence.bytes);
        placed.push(Placed { absence, release, fetch });
        // A kernel that waits moves the clock: what it waited for has ended when it begins.
        free_ns = end_ns.min(problem.clock.at(release));
    }
    (placed, free_ns)
}

/// What becomes of tensors that no link brings back in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overcommitted {
    /// They do not leave.
    LeftOut,
    /// They come late.
    Late,
}

/// From which position on each must come to be back in time, one after the other.
fn latest(problem: &Problem<'_>, chosen: &[Absence], overcommitted: Overcommitted) -> Vec<Coming> {
    let mut by_use: Vec<_> = chosen.to_vec();
    by_use.sort_by_key(|of| std::cmp::Reverse((of.next_use % problem.clock.kernels(), of.ready)));
    let (_, first_ns) = ins(problem, &by_use, i128::MAX, i128::MIN, overcommitted);
    // What comes for the beginning of the next iteration takes the link from what comes for the end of this one.
    let until_ns = first_ns.min(0) + problem.clock.period_ns();
    ins(problem, &by_use, until_ns, first_ns.min(0), overcommitted).0
}

fn ins(
    problem: &Problem<'_>,
    by_use: &[Absence],
    until_ns: i128,
    from_ns: i128,
    overcommitted: Overcommitted,
) -> (Vec<Coming>, i128) {
    let (clock, kernels) = (&problem.clock, problem.clock.kernels());
    let mut taken_ns = until_ns;
    let mut coming = Vec::new();
    for &absence in by_use {
        let turns = absence.next_use / kernels * kernels;
        let start_ns = taken_ns.min(clock.at(absence.next_use % kernels)) - i128::from(absence.back_ns);
        let fetch = usize::try_from(clock.last_until(start_ns) + turns as i128).unwrap_or(0);
        let in_time = start_ns >= from_ns && fetch > absence.ready;
        if in_time || overcommitted == Overcommitted::Late {
            coming.push(Coming { absence, fetch: fetch.max(absence.ready + 1) });
            taken_ns = start_ns;
        }
    }
    (coming, taken_ns)
}
