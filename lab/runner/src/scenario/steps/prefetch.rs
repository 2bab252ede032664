//! `prefetch`: migration of pages by the application, as with `cudaMemPrefetchAsync`.

use super::{Execution, Flow, Plan, Step};
use crate::{
    dice::Dice,
    scenario::{
        Call, Part, Place, Scope,
        part::PAGE_BYTES,
        table::{Fault, Table},
    },
};

pub(super) const PREFETCH: super::Kind =
    super::Kind { key: "prefetch", parse, weight: 10, generate: |dice, plan| Some(generate(dice, plan)) };

#[derive(Debug)]
struct Prefetch {
    part: Part,
    to: Place,
}

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let to = scope.place(table.need("to")?)?;
    Ok(Box::new(Prefetch { part: Part::take(table, "prefetch", scope, PAGE_BYTES)?, to }))
}

impl Step for Prefetch {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.call(self.part, Call::Migrate { to: self.to })?;
        Ok(Flow::Done)
    }
}

fn generate(dice: &mut Dice, plan: &Plan<'_>) -> String {
    let (name, pages) = plan.pages(dice);
    format!("{{ prefetch = \"{name}\", to = \"{}\"{pages} }}", plan.place(dice))
}
