//! What manages memory in a run, by the name that it is asked for.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use policy::planner::{self, Schedule, Unplannable};
use sim::Setup;
use trace::Iteration;

/// As on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// Memory without end.
    Ideal,
    /// The driver alone.
    Driver,
    /// A planner of the registry, by its name.
    Planner(String),
}

/// Takes the names that there are.
pub(crate) fn parser() -> impl TypedValueParser<Value = Manager> {
    let planners = planner::all();
    let names = ["ideal", "driver"].into_iter().chain(planners.iter().map(|planner| planner.name()));
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "ideal" => Manager::Ideal,
        "driver" => Manager::Driver,
        _ => Manager::Planner(name),
    })
}

impl Manager {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Ideal => "ideal",
            Self::Driver => "driver",
            Self::Planner(name) => name,
        }
    }

    /// What it wants moved; `None` where nothing ever has to.
    pub(crate) fn plan(&self, iteration: &Iteration, setup: &Setup<'_>) -> Result<Option<Schedule>, Unplannable> {
        match self {
            Self::Ideal => Ok(None),
            Self::Driver => Ok(Some(Schedule::default())),
            Self::Planner(name) => {
                let planner = planner::by_name(name);
                planner.map(|planner| planner.plan(iteration, &setup.for_planners())).transpose()
            }
        }
    }
}
