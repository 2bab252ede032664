//! `sleep_ms`: a pause.

use std::time::Duration;

use super::{Execution, Flow, Step};
use crate::{
    dice::Dice,
    scenario::{
        Scope,
        table::{Fault, Table},
    },
};

pub(super) const SLEEP: super::Kind =
    super::Kind { key: "sleep_ms", parse, weight: 3, generate: |dice, _plan| Some(generate(dice)) };

#[derive(Debug)]
struct Sleep(Duration);

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let nominal = Duration::from_millis(table.need("sleep_ms")?);
    Ok(Box::new(Sleep(scope.variation.pause(nominal, scope.process, &scope.prefix))))
}

impl Step for Sleep {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.sleep(self.0);
        Ok(if on.is_stopped() { Flow::Stopped } else { Flow::Done })
    }
}

fn generate(dice: &mut Dice) -> String {
    format!("{{ sleep_ms = {} }}", dice.between(0, 30))
}
