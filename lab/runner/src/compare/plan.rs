//! Plan of runs: a scenario under the driver, and under each policy at each rate, each with every
//! seed.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::policy::{DRIVER, HARMFUL, control_policies};
use crate::scenario::{Scenario, parse::parse};

/// Runs of a scenario in a separate guest, with all their inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) scenario: Text,
    pub(crate) runs: Vec<Run>,
    /// Options for uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// Name and text of a scenario's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) policy: String,
    pub(crate) seed: u64,
    /// Factor of all access rates.
    pub(crate) rate: f64,
}

/// Options of the command `plan`.
#[derive(Clone, Debug)]
pub(crate) struct PlanOptions {
    pub(crate) policies: Vec<String>,
    pub(crate) seeds: u64,
    pub(crate) rates: Vec<f64>,
    /// Scenarios on which the control policies run too.
    pub(crate) controls: Vec<String>,
    /// Options for uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// Requirements of a scenario on its guest.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// Managed bytes of all processes.
    pub(crate) managed_bytes: u64,
    pub(crate) gpu_mem_mib: u64,
    pub(crate) gpus: u32,
    pub(crate) nvlink: bool,
    pub(crate) driver_parameters: BTreeMap<String, u64>,
}

impl Guest {
    fn of(scenario: &Scenario) -> Self {
        let Scenario { gpu_mem_mib, gpu_count, nvlink, driver_parameters, .. } = scenario;
        Self {
            managed_bytes: scenario.managed_bytes(),
            gpu_mem_mib: *gpu_mem_mib,
            gpus: *gpu_count,
            nvlink: *nvlink,
            driver_parameters: driver_parameters.clone(),
        }
    }

    /// Parameters of the driver, as words of a command line.
    pub(crate) fn parameters(&self) -> String {
        let words: Vec<String> = self.driver_parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }
}

/// Plan and guest of each scenario.
pub(crate) fn plans(scenarios: Vec<Text>, options: &PlanOptions) -> anyhow::Result<Vec<(Guest, Plan)>> {
    let mut plans: Vec<(Guest, Plan)> = Vec::new();
    for Text { name, text } in scenarios {
        let scenario = parse(&name, &text)?;
        if plans.iter().any(|(_, plan)| plan.scenario.name == scenario.name) {
            bail!("two scenarios are named {:?}", scenario.name);
        }
        let runs = runs(&scenario.name, options);
        let guest = Guest::of(&scenario);
        plans.push((guest, Plan { scenario: Text { name: scenario.name, text }, runs, uvmd: options.uvmd.clone() }));
    }
    Ok(plans)
}

fn runs(scenario: &str, options: &PlanOptions) -> Vec<Run> {
    let PlanOptions { policies, seeds, rates, controls, .. } = options;
    let mut runs = Vec::new();
    let mut add = |policy: &str, rates: &[f64], seeds: u64| {
        for &rate in rates {
            runs.extend((1..=seeds).map(|seed| Run { policy: policy.to_owned(), seed, rate }));
        }
    };
    // The driver does not see rates: its remote accesses at other rates follow from those at one.
    add(DRIVER, &[1.0], *seeds);
    policies.iter().filter(|policy| *policy != DRIVER).for_each(|policy| add(policy, rates, *seeds));
    if controls.iter().any(|control| control == scenario) {
        control_policies().chain([HARMFUL]).for_each(|policy| add(policy, &[1.0], 1));
    }
    runs
}

impl Plan {
    /// Parse the text of a plan's file.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("is not a plan")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, gpu_mem_mib: u64) -> Text {
        let text = format!("name = \"{name}\"\ngpu_mem_mib = {gpu_mem_mib}\n[[process]]\nname = \"p\"\n");
        Text { name: name.to_owned(), text }
    }

    fn options() -> PlanOptions {
        let policies = vec!["driver".to_owned(), "cycle".to_owned()];
        PlanOptions { policies, seeds: 3, rates: vec![0.1, 1.0], controls: vec!["b".to_owned()], uvmd: Vec::new() }
    }

    #[test]
    fn each_scenario_has_a_guest_of_its_own() {
        let plans = plans(vec![text("a", 32), text("b", 32), text("c", 16)], &options()).unwrap();
        let of: Vec<(u64, &str)> =
            plans.iter().map(|(guest, plan)| (guest.gpu_mem_mib, plan.scenario.name.as_str())).collect();
        assert_eq!(of, [(32, "a"), (32, "b"), (16, "c")]);
        assert!(super::plans(vec![text("a", 32), text("a", 16)], &options()).is_err());
    }

    #[test]
    fn the_driver_runs_once_a_seed_and_a_policy_at_every_rate_too() {
        let runs = runs("a", &options());
        let of = |policy: &str| runs.iter().filter(|run| run.policy == policy).count();
        assert_eq!((of("driver"), of("cycle"), runs.len()), (3, 6, 9));
        assert_eq!(super::runs("b", &options()).len(), 9 + 3, "and controls once");
    }
}
