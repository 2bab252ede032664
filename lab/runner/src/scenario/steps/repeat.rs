//! `repeat`: steps repeated a number of times; `repeat_for_ms`: steps repeated until a time has
//! elapsed.

use std::time::Duration;

use super::{Execution, Flow, Plan, Step, Use, generate_list, parse_list, run_list, uses_of};
use crate::{
    dice::Dice,
    scenario::{
        Scope,
        table::{Fault, Table},
    },
};

pub(super) const REPEAT: super::Kind = super::Kind { key: "repeat", parse, weight: 8, generate };

pub(super) const REPEAT_FOR: super::Kind =
    super::Kind { key: "repeat_for_ms", parse: parse_for, weight: 2, generate: generate_for };

#[derive(Debug)]
struct Repeat {
    until: Until,
    steps: Vec<Box<dyn Step>>,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Times(u32),
    Elapsed(Duration),
}

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let times: u64 = table.need("repeat")?;
    let times = u32::try_from(times).ok().filter(|times| *times > 0);
    let times = times.ok_or("repeat must be from 1 to 4294967295")?;
    repeat(Until::Times(times), table, scope)
}

fn parse_for(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let elapsed = Duration::from_millis(table.need("repeat_for_ms")?);
    repeat(Until::Elapsed(elapsed), table, scope)
}

fn repeat(until: Until, table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let steps = parse_list(table.tables("steps")?, scope)?;
    if steps.is_empty() {
        return Err("repeat needs steps = [...] with at least one step".into());
    }
    Ok(Box::new(Repeat { until, steps }))
}

impl Step for Repeat {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        let begin = on.now();
        let continues = |done: u64| match self.until {
            Until::Times(times) => done < times.into(),
            Until::Elapsed(elapsed) => on.now().duration_since(begin) < elapsed,
        };
        for _ in (0_u64..).take_while(|done| continues(*done)) {
            let flow = run_list(&self.steps, on)?;
            if flow != Flow::Done {
                return Ok(flow);
            }
        }
        Ok(Flow::Done)
    }

    fn not_simulated(&self) -> Option<&'static str> {
        match self.until {
            Until::Times(_) => self.steps.iter().find_map(|step| step.not_simulated()),
            Until::Elapsed(_) => Some("steps that end by the clock"),
        }
    }

    fn uses(&self) -> Vec<Use> {
        uses_of(&self.steps)
    }
}

fn generate(dice: &mut Dice, plan: &Plan<'_>) -> Option<String> {
    let steps = generate_steps(dice, plan)?;
    Some(format!("{{ repeat = {}, steps = [{steps}] }}", dice.between(1, 4)))
}

fn generate_for(dice: &mut Dice, plan: &Plan<'_>) -> Option<String> {
    let steps = generate_steps(dice, plan)?;
    Some(format!("{{ repeat_for_ms = {}, steps = [{steps}] }}", dice.between(0, 40)))
}

fn generate_steps(dice: &mut Dice, plan: &Plan<'_>) -> Option<String> {
    let nested = Plan { depth: plan.depth + 1, ..*plan };
    let steps = if plan.depth < 2 { generate_list(dice, &nested, 3) } else { Vec::new() };
    (!steps.is_empty()).then(|| steps.join(", "))
}
