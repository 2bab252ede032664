//! `advise`: advice of the application about its use of memory, as with `cudaMemAdvise`.

use serde::Deserialize;

use super::{Execution, Flow, Plan, Step};
use crate::{
    dice::Dice,
    scenario::{
        Call, Part, Place, Scope,
        part::PAGE_BYTES,
        table::{Fault, Table},
    },
};

pub(super) const ADVISE: super::Kind =
    super::Kind { key: "advise", parse, weight: 12, generate: |dice, plan| Some(generate(dice, plan)) };

#[derive(Debug)]
struct Advise {
    part: Part,
    advice: Call,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be \"cpu\", \"gpu0\", \"gpu1\", or false for none")]
enum Location {
    At(Place),
    Nowhere(bool),
}

fn parse(table: &mut Table<'_>, scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    let preferred = match table.take("preferred_location")? {
        None => None,
        Some(Location::At(place)) => Some(Call::SetPreferredLocation { to: scope.place(place)? }),
        Some(Location::Nowhere(false)) => Some(Call::UnsetPreferredLocation),
        Some(Location::Nowhere(true)) => return Err("preferred_location = true: must be a place, or false".into()),
    };
    let mut accessed_by = |key: &str, call: fn(Place) -> Call| -> Result<Option<Call>, Fault> {
        table.take(key)?.map(|by| Ok(call(scope.place(by)?))).transpose()
    };
    let calls = [
        preferred,
        accessed_by("accessed_by", |by| Call::SetAccessedBy { by })?,
        accessed_by("unset_accessed_by", |by| Call::UnsetAccessedBy { by })?,
        table
            .take("read_duplication")?
            .map(|on| if on { Call::EnableReadDuplication } else { Call::DisableReadDuplication }),
    ];
    let calls: Vec<Call> = calls.into_iter().flatten().collect();
    let [advice] = calls.as_slice() else {
        let options = "preferred_location, accessed_by, unset_accessed_by and read_duplication";
        return Err(format!("advise needs one of {options}, not {}", calls.len()).into());
    };
    Ok(Box::new(Advise { part: Part::take(table, "advise", scope, PAGE_BYTES)?, advice: *advice }))
}

impl Step for Advise {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.call(self.part, self.advice)?;
        Ok(Flow::Done)
    }

    fn not_simulated(&self) -> Option<&'static str> {
        Some("advice")
    }
}

fn generate(dice: &mut Dice, plan: &Plan<'_>) -> String {
    let (name, pages) = plan.pages(dice);
    let advice = match dice.between(1, 7) {
        1 | 2 => format!("preferred_location = \"{}\"", plan.place(dice)),
        3 => "preferred_location = false".to_owned(),
        4 => format!("accessed_by = \"{}\"", plan.place(dice)),
        5 => format!("unset_accessed_by = \"{}\"", plan.place(dice)),
        _ => format!("read_duplication = {}", dice.chance(60)),
    };
    format!("{{ advise = \"{name}\", {advice}{pages} }}")
}
