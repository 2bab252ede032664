//! Whether a plan helped: what was before it against what came after.
//!
//! A program that is helped does more in a second, and so faults and moves more; one that pauses does less. So rates are compared per unit of the
//! program's work, by the first of these that can be told of both:
//!
//! 1. what it has come through, as its policy says; before, what arrived
//! 2. what arrived in memory that the plan leaves alone
//! 3. time, which is right only for a program that keeps its pace

use model::Expected;

use super::{
    intervals::Intervals,
    limits::{IDLE, KEPT_PROMISE},
    meter::{Span, rate},
};

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Finding {
    /// It helps.
    Better,
    /// It does harm, or none and no good either: what shows it.
    NotBetter(String),
    /// The program does too little to tell.
    Idle,
}

/// Compares; `touched` is the memory that the plan has touched, `noise` what the cost differed by before.
pub(crate) fn compare(before: &Span, after: &Span, touched: &Intervals, expected: &Expected, noise: f64) -> Finding {
    let (was, is) = (Rates::of(before), Rates::of(after));
    if is.activity() < was.activity() * IDLE {
        // Silence is what was promised where others go on pressing, and a pause where nobody does.
        let others_before = rate(before.others_arrived_bytes, before.measured.window);
        let others_now = rate(after.others_arrived_bytes, after.measured.window);
        return if others_before > was.arrived * IDLE && others_now > others_before / 2.0 {
            Finding::Better
        } else {
            Finding::Idle
        };
    }
    let (pace, by) = pace(before, after, touched);
    let now = |rate: f64| rate / pace;
    let grown = |was: f64, is: f64| if was > 0.0 { now(is) / was - 1.0 } else { f64::INFINITY };
    let may_grow = noise.max(-expected.link_bytes_saved.at_least);
    if is.cost > 0.0 && grown(was.cost, is.cost) > may_grow {
        return Finding::NotBetter(said("bytes over the link", was.cost, now(is.cost), by));
    }
    // What others lose for this process was theirs to use.
    if now(is.others_evicted) > was.others_evicted * (1.0 + noise) + was.cost.max(is.cost) * noise {
        return Finding::NotBetter(said("bytes evicted of others", was.others_evicted, now(is.others_evicted), by));
    }
    let kept = |was: f64, is: f64, promised: f64| {
        let wanted = if promised > 0.0 { promised * KEPT_PROMISE } else { noise };
        was > 0.0 && now(is) <= was * (1.0 - wanted)
    };
    let fewer_faults = kept(was.faults, is.faults, expected.faults_saved.at_least);
    let fewer_bytes = kept(was.cost, is.cost, expected.link_bytes_saved.at_least);
    if fewer_faults || fewer_bytes {
        return Finding::Better;
    }
    Finding::NotBetter(format!(
        "{}, {}: less than half of what it promised",
        said("GPU faults", was.faults, now(is.faults), by),
        said("bytes over the link", was.cost, now(is.cost), by),
    ))
}

/// By what factor the program goes faster, and by what that is told.
fn pace(before: &Span, after: &Span, touched: &Intervals) -> (f64, &'static str) {
    let was = Rates::of(before);
    if let Some(passed) = after.passed_bytes.filter(|_| was.arrived > 0.0) {
        let passed = rate(passed, after.measured.window);
        if passed > 0.0 {
            return (passed / was.arrived, "for what it came through");
        }
    }
    match (before.arrived_beside(touched), after.arrived_beside(touched)) {
        (Some(was), Some(is)) if was > 0.0 && is > 0.0 => (is / was, "for what arrived in memory left alone"),
        _ => (1.0, "a second"),
    }
}

fn said(what: &str, was: f64, is: f64, by: &str) -> String {
    format!("{what} went from {was:.0} to {is:.0} {by}")
}

/// Each a second.
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
            cost: rate(span.cost_bytes, measured.window),
            arrived: rate(inputs.bytes_htod.saturating_add(inputs.populated_bytes), measured.window),
            others_evicted: rate(measured.others_evicted_bytes, measured.window),
        }
    }

    /// What it does, in bytes: what goes over the link, and a page for each fault.
    fn activity(&self) -> f64 {
        const PAGE_BYTES: f64 = 4096.0;
        self.cost + self.arrived + self.faults * PAGE_BYTES
    }
}
