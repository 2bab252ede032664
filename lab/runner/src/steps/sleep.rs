//! `sleep_ms`: nothing for a while.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Flow, Step};
use crate::{
    dice::Dice,
    scenario::{
        Scope,
        table::{Fault, Table},
    },
    work::Work,
};

pub(super) const SLEEP: super::Kind =
    super::Kind { key: "sleep_ms", parse, weight: 3, generate: |dice, _plan| Some(generate(dice)) };

/// Between two looks at whether to stop.
const NAP: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Sleep(Duration);

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let written = Duration::from_millis(table.need("sleep_ms")?);
    Ok(Box::new(Sleep(scope.variation.pause(written, scope.process, &scope.prefix))))
}

impl Step for Sleep {
    fn run(&self, work: &Work<'_>) -> anyhow::Result<Flow> {
        let end = Instant::now() + self.0;
        while !work.is_stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Flow::Done);
            }
            thread::sleep(left.min(NAP));
        }
        Ok(Flow::Stopped)
    }
}

fn generate(dice: &mut Dice) -> String {
    format!("{{ sleep_ms = {} }}", dice.between(0, 30))
}
