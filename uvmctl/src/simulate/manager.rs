//! Memory managers of a simulation, by name.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use planner::{Schedule, Unplannable};
use sim::{AutoPlan, RunError, Setup};
use trace::Iteration;

const AUTO_PLAN: &str = "auto-plan";

/// Alias for the final variant of the authors of vDNN.
const VDNN: (&str, &str) = ("vdnn", "vdnn-dyn");

/// Memory manager, as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// Unlimited memory.
    Ideal,
    /// The driver alone.
    Driver,
    /// Best plan of all planners tried.
    AutoPlan,
    /// A planner of the registry, by its name.
    Planner(String),
}

/// Plan of a manager.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Schedule; `None` for unlimited memory.
    pub(crate) schedule: Option<Schedule>,
    /// Planner that auto-plan selected.
    pub(crate) by: Option<String>,
}

/// Parser of the managers' names.
pub(crate) fn parser() -> impl TypedValueParser<Value = Manager> {
    let planners = planner::all();
    let names = ["ideal", "driver", AUTO_PLAN].into_iter().chain(planners.iter().map(|planner| planner.name()));
    let (alias, planner) = VDNN;
    let values = names.map(move |name| PossibleValue::new(name).aliases((name == planner).then_some(alias)));
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "ideal" => Manager::Ideal,
        "driver" => Manager::Driver,
        AUTO_PLAN => Manager::AutoPlan,
        alias if alias == VDNN.0 => Manager::Planner(VDNN.1.to_owned()),
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

    /// Plans an iteration. The inner error is the reason why it cannot, which is part of the
    /// report.
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
