//! Verification of a proposal: counts before it compared with counts after it.
//!
//! A program that benefits does more work per second, and so faults and migrates more; a paused one
//! does less. Rates are therefore compared per unit of the program's work. The unit is the first of
//! these measures that is known both before and after:
//!
//! 1. bytes passed, as measured by the policy; before the proposal, bytes that arrived
//! 2. bytes that arrived outside the affected memory
//! 3. time, which is exact only for a program with a constant pace

use model::Expected;

use super::{
    cost::{RelativeCost, seconds},
    meter::{Span, rate},
};
use crate::act::{
    intervals::Intervals,
    limits::{ACTIVE_MIN, IDLE_BELOW, PROMISE_MET_MIN, RETURNED_MIN, TOUCHED_BYTES_PER_REMOTE_BYTE},
};

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Finding {
    /// Benefit.
    Better,
    /// Harm, or no benefit, with the evidence.
    NotBetter(String),
    /// Too little activity for a comparison.
    Idle,
}

/// Whether the program works in this window as much as recently. A window with a pause is no basis
/// for a comparison.
pub(crate) fn is_active(window: &Span, recent: &Span) -> bool {
    Rates::of(window).activity() >= Rates::of(recent).activity() * ACTIVE_MIN
}

/// Whether faults, link bytes and induced evictions are each at least half of those without a
/// proposal. Before, memory is placed by the proposal that was in force, which is no baseline.
pub(crate) fn has_returned(window: &Span, without: &Span) -> bool {
    let (is, was) = (Rates::of(window), Rates::of(without));
    let figures: [fn(&Rates) -> f64; 3] = [|rates| rates.faults, |rates| rates.cost, |rates| rates.others_evicted];
    figures.iter().all(|figure| figure(&is) >= figure(&was) * RETURNED_MIN)
}

/// Compares the costs of the same work. `noise`: relative spread of the cost before the proposal;
/// `slower`: relative additional time that is accepted for fewer bytes over the link.
pub(crate) fn compare(
    before: &Span,
    after: &Span,
    pace: Pace,
    touched: &Intervals,
    expected: &Expected,
    noise: f64,
    slower: f64,
) -> Finding {
    let (was, is) = (Rates::of(before), Rates::of(after));
    // Remote accesses of the GPU show that the program works.
    let accesses_remotely =
        after.remote_bytes > 0 && after.remote_bytes >= touched.bytes() / TOUCHED_BYTES_PER_REMOTE_BYTE;
    if is.activity() < was.activity() * IDLE_BELOW && !accesses_remotely {
        // While memory arrives for other processes, inactivity is the promised benefit; otherwise
        // it is a pause.
        let others_before = rate(before.others_arrived_bytes, before.measured.window);
        let others_now = rate(after.others_arrived_bytes, after.measured.window);
        let is_pressed = others_before > was.arrived * IDLE_BELOW && others_now > others_before / 2.0;
        return if is_pressed { Finding::Better } else { Finding::Idle };
    }
    let Pace { factor, unit } = pace;
    let now = |rate: f64| rate / factor;
    let growth = |was: f64, is: f64| if was > 0.0 { now(is) / was - 1.0 } else { f64::INFINITY };
    let growth_max = noise.max(-expected.link_bytes_saved.at_least);
    if is.cost > 0.0 && growth(was.cost, is.cost) > growth_max {
        return Finding::NotBetter(change_bytes("bytes over the link", was.cost, now(is.cost), unit));
    }
    // Evictions of other processes' memory are a cost, too.
    if now(is.others_evicted) > was.others_evicted * (1.0 + noise) + was.cost.max(is.cost) * noise {
        return Finding::NotBetter(change_bytes(
            "bytes evicted of others",
            was.others_evicted,
            now(is.others_evicted),
            unit,
        ));
    }
    let is_met = |was: f64, is: f64, promised: f64| {
        let required = if promised > 0.0 { promised * PROMISE_MET_MIN } else { noise };
        was > 0.0 && now(is) <= was * (1.0 - required)
    };
    let fewer_faults = is_met(was.faults, is.faults, expected.faults_saved.at_least);
    let fewer_bytes = is_met(was.cost, is.cost, expected.link_bytes_saved.at_least);
    if fewer_faults || fewer_bytes {
        // Fewer faults in more batches, or fewer bytes with more faults, may cost more time than
        // they save.
        let cost = relative_cost(before, after, pace).time;
        let may_cost = (-expected.link_bytes_saved.at_least).max(if fewer_bytes { slower } else { 0.0 });
        return if cost < 1.0 + may_cost { Finding::Better } else { Finding::NotBetter(time_change(cost, unit)) };
    }
    Finding::NotBetter(format!(
        "{}, {}: less than half of the expected effect",
        change("GPU faults", was.faults, now(is.faults), unit),
        change_bytes("bytes over the link", was.cost, now(is.cost), unit),
    ))
}

/// Cost of the same work with the proposal in force, relative to the cost before it.
pub(crate) fn relative_cost(before: &Span, after: &Span, pace: Pace) -> RelativeCost {
    let takes: fn(&Span) -> f64 = |span| seconds(span.measured.own_link_bytes, span.measured.replays);
    let ratio = |of: fn(&Span) -> f64| {
        let per_second = |span: &Span| of(span) / span.measured.window.as_secs_f64();
        let (was, is) = (per_second(before), per_second(after) / pace.factor);
        if was > 0.0 { is / was } else { 1.0 }
    };
    RelativeCost { time: ratio(takes), link_bytes: ratio(|span| span.measured.own_link_bytes as f64) }
}

/// Pace of a program while a proposal is in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Pace relative to that before the proposal.
    pub(crate) factor: f64,
    /// Unit of work from which the factor was derived, for messages.
    unit: &'static str,
}

impl Pace {
    /// Pace from the counts before the proposal and those while it is in force. `touched`: memory
    /// that it has affected.
    pub(crate) fn of(before: &Span, after: &Span, touched: &Intervals) -> Self {
        let was = Rates::of(before);
        if let Some(passed) = after.passed_bytes.filter(|_| was.arrived > 0.0) {
            let passed = rate(passed, after.measured.window);
            if passed > 0.0 {
                return Self { factor: passed / was.arrived, unit: "per passed byte" };
            }
        }
        match (before.arrivals_outside(touched), after.arrivals_outside(touched)) {
            (Some(was), Some(is)) if was > 0.0 && is > 0.0 => {
                Self { factor: is / was, unit: "per byte that arrived in untouched memory" }
            }
            _ => Self { factor: 1.0, unit: "per second" },
        }
    }
}

fn change(what: &str, was: f64, is: f64, unit: &str) -> String {
    format!("{what} went from {was:.0} to {is:.0} {unit}")
}

fn change_bytes(what: &str, was: f64, is: f64, unit: &str) -> String {
    const MIB: f64 = 1_048_576.0;
    format!("{what} went from {:.1} to {:.1} MiB {unit}", was / MIB, is / MIB)
}

fn time_change(cost: f64, unit: &str) -> String {
    format!("the modelled time of link and fault batches {unit} is {:.0} % of that before", cost * 100.0)
}

/// Rates per second.
struct Rates {
    faults: f64,
    cost: f64,
    arrived: f64,
    others_evicted: f64,
}

impl Rates {
    fn of(span: &Span) -> Self {
        let measured = &span.measured;
        let inputs = &measured.inputs;
        Self {
            faults: rate(inputs.fault_entries, measured.window),
            cost: rate(measured.own_link_bytes, measured.window),
            arrived: rate(inputs.bytes_htod.saturating_add(inputs.populated_bytes), measured.window),
            others_evicted: rate(measured.others_evicted_bytes, measured.window),
        }
    }

    /// Work in bytes per second: bytes over the link, arrivals, and a page per fault.
    fn activity(&self) -> f64 {
        const PAGE_BYTES: f64 = 4096.0;
        self.cost + self.arrived + self.faults * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{Share, decision::Measured, verdict::Inputs};

    use super::*;

    const EXPECTED: Expected = Expected {
        link_bytes_saved: Share { at_least: 0.0, at_most: 1.0 },
        faults_saved: Share { at_least: 0.8, at_most: 1.0 },
    };

    fn span(faults: u64, own_link_bytes: u64, arrived_bytes: u64) -> Span {
        let inputs = Inputs { fault_entries: faults, bytes_htod: arrived_bytes, ..Inputs::default() };
        let replays = faults / 10;
        Span::counted(Measured {
            window: Duration::from_secs(2),
            inputs,
            own_link_bytes,
            replays,
            ..Measured::default()
        })
    }

    fn find(before: &Span, after: &Span, expected: &Expected) -> Finding {
        let touched = Intervals::default();
        compare(before, after, Pace::of(before, after, &touched), &touched, expected, 0.1, 0.0)
    }

    #[test]
    fn fewer_faults_at_equal_bytes_are_better() {
        assert_eq!(find(&span(1000, 10_000_000, 0), &span(100, 10_900_000, 0), &EXPECTED), Finding::Better);
        assert!(matches!(
            find(&span(1000, 10_000_000, 0), &span(100, 11_200_000, 0), &EXPECTED),
            Finding::NotBetter(_)
        ));
    }

    #[test]
    fn fewer_faults_in_more_batches_are_not_better() {
        let mut after = span(100, 10_000_000, 0);
        after.measured.replays = 200;
        assert!(matches!(find(&span(1000, 10_000_000, 0), &after, &EXPECTED), Finding::NotBetter(_)));
    }

    #[test]
    fn half_of_the_expected_savings_is_sufficient() {
        assert_eq!(find(&span(1000, 10_000_000, 0), &span(590, 10_000_000, 0), &EXPECTED), Finding::Better);
        assert!(matches!(
            find(&span(1000, 10_000_000, 0), &span(610, 10_000_000, 0), &EXPECTED),
            Finding::NotBetter(_)
        ));
    }

    #[test]
    fn expected_cost_is_no_reason_for_a_rollback() {
        let costs = Expected { link_bytes_saved: Share { at_least: -0.5, at_most: 0.0 }, ..EXPECTED };
        assert_eq!(find(&span(1000, 10_000_000, 0), &span(100, 14_000_000, 0), &costs), Finding::Better);
        assert!(matches!(find(&span(1000, 10_000_000, 0), &span(100, 16_000_000, 0), &costs), Finding::NotBetter(_)));
    }

    #[test]
    fn permitted_bytes_scale_with_the_programs_progress() {
        let before = span(1000, 10_000_000, 10_000_000);
        let faster = Span { passed_bytes: Some(40_000_000), ..span(400, 41_000_000, 41_000_000) };
        assert_eq!(find(&before, &faster, &EXPECTED), Finding::Better);
        let faster_without_saving = Span { passed_bytes: Some(10_000_000), ..faster };
        assert!(matches!(find(&before, &faster_without_saving, &EXPECTED), Finding::NotBetter(_)));
    }

    #[test]
    fn inactivity_is_an_improvement_only_under_pressure_of_others() {
        let pressed = |span: Span, bytes| Span { others_arrived_bytes: bytes, ..span };
        let before = pressed(span(1000, 10_000_000, 10_000_000), 50_000_000);
        assert_eq!(find(&before, &pressed(span(0, 0, 0), 50_000_000), &EXPECTED), Finding::Better);
        assert_eq!(find(&before, &span(0, 0, 0), &EXPECTED), Finding::Idle);
        assert_eq!(find(&span(1000, 10_000_000, 0), &pressed(span(0, 0, 0), 50_000_000), &EXPECTED), Finding::Idle);
    }

    #[test]
    fn remote_accesses_distinguish_an_active_program_from_a_paused_one() {
        let before = span(1000, 10_000_000, 10_000_000);
        let mut touched = Intervals::default();
        touched.insert(0, 4 << 20);
        let remote_span = |remote_bytes| Span { remote_bytes, ..span(0, remote_bytes, 0) };
        let find =
            |after: &Span| compare(&before, after, Pace::of(&before, after, &touched), &touched, &EXPECTED, 0.1, 0.0);
        assert_eq!(find(&remote_span(32 * 1024)), Finding::Better, "a word of each page once");
        assert_eq!(find(&remote_span(100)), Finding::Idle);
    }

    #[test]
    fn window_with_a_pause_is_no_baseline() {
        let recent = span(1000, 10_000_000, 10_000_000);
        assert!(is_active(&recent, &recent));
        assert!(is_active(&span(700, 7_000_000, 7_000_000), &recent), "no two windows are the same");
        assert!(!is_active(&span(100, 1_000_000, 1_000_000), &recent), "the pause began in this window");
        assert!(is_active(&span(0, 0, 0), &span(0, 0, 0)), "what fits works unseen");
    }

    #[test]
    fn evictions_of_other_processes_are_a_cost() {
        let mut after = span(100, 5_000_000, 0);
        after.measured.others_evicted_bytes = 2_000_000;
        assert!(matches!(find(&span(1000, 10_000_000, 0), &after, &EXPECTED), Finding::NotBetter(_)));
    }
}
