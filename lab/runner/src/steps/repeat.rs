//! `repeat`: the same steps again and again.

use super::{Flow, Step, Use, generate_list, parse_list, run_list, uses_of};
use crate::{
    dice::Dice,
    generate::Plan,
    scenario::{
        Scope,
        table::{Fault, Table},
    },
    work::Work,
};

pub(super) const REPEAT: super::Kind = super::Kind { key: "repeat", parse, weight: 8, generate };

#[derive(Debug)]
struct Repeat {
    times: u32,
    steps: Vec<Box<dyn Step>>,
}

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let times: u64 = table.need("repeat")?;
    let times = u32::try_from(times).ok().filter(|times| *times > 0);
    let times = times.ok_or("repeat must be from 1 to 4294967295")?;
    let steps = parse_list(table.tables("steps")?, scope)?;
    if steps.is_empty() {
        return Err("repeat needs steps = [...] with at least one step".into());
    }
    Ok(Box::new(Repeat { times, steps }))
}

impl Step for Repeat {
    fn run(&self, work: &Work<'_>) -> anyhow::Result<Flow> {
        for _ in 0..self.times {
            let flow = run_list(&self.steps, work)?;
            if flow != Flow::Done {
                return Ok(flow);
            }
        }
        Ok(Flow::Done)
    }

    fn uses(&self) -> Vec<Use> {
        uses_of(&self.steps)
    }
}

fn generate(dice: &mut Dice, plan: &Plan<'_>) -> Option<String> {
    let inside = Plan { depth: plan.depth + 1, ..*plan };
    let steps = if plan.depth < 2 { generate_list(dice, &inside, 3) } else { Vec::new() };
    (!steps.is_empty()).then(|| format!("{{ repeat = {}, steps = [{}] }}", dice.between(1, 4), steps.join(", ")))
}
