//! `parallel`: several lists of steps at the same time, each in a separate thread.

use super::{Execution, Flow, Plan, Step, Use, access::Kind, generate_list, parse_list, uses_of};
use crate::{
    dice::Dice,
    scenario::{
        Scope,
        table::{Fault, Table},
    },
};

pub(super) const PARALLEL: super::Kind = super::Kind { key: "parallel", parse, weight: 8, generate };

const MAX_THREADS: usize = 16;

#[derive(Debug)]
struct Parallel(Vec<Vec<Box<dyn Step>>>);

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let lists = table.lists_of_tables("parallel")?;
    if lists.len() < 2 || lists.len() > MAX_THREADS {
        return Err(format!("parallel needs from 2 to {MAX_THREADS} lists of steps, one for each thread").into());
    }
    let mut threads = Vec::new();
    for (at, list) in lists.into_iter().enumerate() {
        let mut scope = scope.nested(&format!("{}{}", scope.prefix, at + 1));
        scope.depth -= 1;
        threads.push(parse_list(list, &scope)?);
    }
    let uses: Vec<Vec<Use>> = threads.iter().map(|steps| uses_of(steps)).collect();
    for (at, one) in uses.iter().enumerate() {
        for (distance, other) in uses.iter().skip(at + 1).enumerate() {
            if let Some(allocation) = conflict(one, other) {
                let name = scope.allocations.get(allocation).map_or("", |allocation| &allocation.name);
                let (one, other) = (at + 1, at + distance + 2);
                let reason =
                    format!("threads {one} and {other} use the same part of {name:?}, and neither both only read it");
                return Err((reason + " nor both use only atomics: its contents would be undefined").into());
            }
        }
    }
    Ok(Box::new(Parallel(threads)))
}

/// Allocation that two threads use in conflict: the order of their accesses would determine the
/// values read. Reads do not conflict with reads, and sums do not depend on the order.
fn conflict(one: &[Use], other: &[Use]) -> Option<usize> {
    let conflicts = |a: &Use, b: &Use| a.part.overlaps(&b.part) && (a.kind != b.kind || a.kind == Kind::Write);
    one.iter().find(|a| other.iter().any(|b| conflicts(a, b))).map(|found| found.part.allocation)
}

impl Step for Parallel {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        let flows = on.in_threads(&self.0)?;
        Ok(flows.into_iter().find(|flow| *flow != Flow::Done).unwrap_or(Flow::Done))
    }

    fn not_simulated(&self) -> Option<&'static str> {
        Some("threads at the same time")
    }

    fn uses(&self) -> Vec<Use> {
        self.0.iter().flat_map(|steps| uses_of(steps)).collect()
    }
}

/// Generate threads that each use a separate allocation, or that all use atomics in one.
fn generate(dice: &mut Dice, plan: &Plan<'_>) -> Option<String> {
    if plan.depth > 1 || plan.in_thread {
        return None;
    }
    let mut threads = Vec::new();
    if plan.allocations.len() > 1 && dice.chance(70) {
        for allocation in plan.allocations.chunks(1) {
            let nested = Plan { allocations: allocation, depth: plan.depth + 1, in_thread: true, ..*plan };
            threads.push(format!("[{}]", generate_list(dice, &nested, 3).join(", ")));
        }
    } else {
        let (name, _) = plan.allocation(dice);
        threads.push(format!("[{{ cpu_atomic = \"{name}\", stride = 65536 }}]"));
        for _ in 0..dice.between(1, 3) {
            threads.push(format!("[{{ gpu_atomic = \"{name}\", stride = 32768, gpu = {} }}]", plan.gpu(dice)));
        }
    }
    Some(format!("{{ parallel = [{}] }}", threads.join(", ")))
}
