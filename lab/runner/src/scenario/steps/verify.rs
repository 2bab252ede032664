//! `verify`: the CPU reads and compares every byte of an allocation.

use super::{Execution, Flow, Plan, Step, Use, access};
use crate::{
    dice::Dice,
    scenario::{
        Part, Scope, WORD_BYTES,
        table::{Fault, Table},
    },
};

pub(super) const VERIFY: super::Kind =
    super::Kind { key: "verify", parse, weight: 4, generate: |dice, plan| Some(generate(dice, plan)) };

#[derive(Debug)]
struct Verify(Part);

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    if let Some(option) = ["offset", "length"].into_iter().find(|option| table.has(option)) {
        return Err(format!("verify takes no {option}").into());
    }
    Ok(Box::new(Verify(Part::take(table, "verify", scope, WORD_BYTES)?)))
}

impl Step for Verify {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.verify(self.0.allocation)?;
        Ok(Flow::Done)
    }

    fn uses(&self) -> Vec<Use> {
        vec![Use { part: self.0, kind: access::Kind::Read }]
    }
}

fn generate(dice: &mut Dice, plan: &Plan<'_>) -> String {
    format!("{{ verify = \"{}\" }}", plan.allocation(dice).0)
}
