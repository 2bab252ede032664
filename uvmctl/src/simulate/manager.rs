//! What manages memory in a run, by the name that it is asked for.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use planner::{Schedule, Unplannable};
use sim::{AutoPlan, RunError, Setup};
use trace::Iteration;

const AUTO_PLAN: &str = "auto-plan";

/// Short for the one that its authors end with.
const VDNN: (&str, &str) = ("vdnn", "vdnn-dyn");

/// As on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// Memory without end.
    Ideal,
    /// The driver alone.
    Driver,
    /// The best of all that are tried.
    AutoPlan,
    /// A planner of the registry, by its name.
    Planner(String),
}

/// What was planned.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// `None` where nothing ever has to move.
    pub(crate) schedule: Option<Schedule>,
    /// Who made it in the end, where that was open.
    pub(crate) by: Option<String>,
}

/// Takes the names that there are.
pub(crate) fn parser() -> impl TypedValueParser<Value = Manager> {
    let planners = planner::all();
    let names = ["ideal", "driver", AUTO_PLAN].into_iter().chain(planners.iter().map(|planner| planner.name()));
    let (short, whole) = VDNN;
    let values = names.map(move |name| PossibleValue::new(name).aliases((name == whole).then_some(short)));
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "ideal" => Manager::Ideal,
        "driver" => Manager::Driver,
        AUTO_PLAN => Manager::AutoPlan,
        short if short == VDNN.0 => Manager::Planner(VDNN.1.to_owned()),
        _ => Manager::Planner(name),
    })
}

impl Manager {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Ideal => "ideal",
            Self::Driver => "driver",
            Self::AutoPlan => AUTO_PLAN,
            Self::Planner(name) => name,
        }
    }

    /// What it wants moved; or why it cannot plan there, which is a result as well.
    pub(crate) fn plan(&self, iteration: &Iteration, setup: &Setup<'_>) -> Result<Result<Plan, Unplannable>, RunError> {
        let plan = |schedule| Plan { schedule: Some(schedule), by: None };
        Ok(match self {
            Self::Ideal => Ok(Plan::default()),
            Self::Driver => Ok(plan(Schedule::default())),
            Self::AutoPlan => {
                let AutoPlan { schedule, by, .. } = sim::auto_plan(iteration, setup)?;
                Ok(Plan { by: Some(by), ..plan(schedule) })
            }
            Self::Planner(name) => match setup.planners().into_iter().find(|planner| planner.name() == name) {
                Some(planner) => planner.plan(iteration, &setup.for_planners()).map(plan),
                None => Ok(Plan::default()),
            },
        })
    }
}
