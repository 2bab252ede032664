//! Which runs: every scenario under the driver, under each policy at each rate, each with every seed; grouped by the guests that they need.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::policy::{CONTROLS, DRIVER, HARMFUL};
use crate::scenario::{Scenario, parse::parse};

/// The runs of one guest, with all that they need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<Text>,
    pub(crate) runs: Vec<Run>,
    /// Words for uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// A scenario's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// An index into the plan's scenarios.
    pub(crate) scenario: usize,
    pub(crate) policy: String,
    pub(crate) seed: u64,
    /// The factor of all access rates.
    pub(crate) rate: f64,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) policies: Vec<String>,
    pub(crate) seeds: u64,
    pub(crate) rates: Vec<f64>,
    /// On which scenarios the policies run that must fail.
    pub(crate) controls: Vec<String>,
    /// Words for uvmd's command line.
    pub(crate) uvmd: Vec<String>,
}

/// What a guest must be like for a scenario.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Guest {
    pub(crate) gpu_mem_mib: u64,
    pub(crate) gpus: u32,
    pub(crate) nvlink: bool,
    pub(crate) driver_parameters: BTreeMap<String, u64>,
}

impl Guest {
    fn of(scenario: &Scenario) -> Self {
        let Scenario { gpu_mem_mib, gpu_count, nvlink, driver_parameters, .. } = scenario;
        let driver_parameters = driver_parameters.clone();
        Self { gpu_mem_mib: *gpu_mem_mib, gpus: *gpu_count, nvlink: *nvlink, driver_parameters }
    }

    /// As words of a command line.
    pub(crate) fn parameters(&self) -> String {
        let words: Vec<String> = self.driver_parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }
}

/// The plans, a guest each, with the memory in bytes that is managed in the largest of its scenarios.
pub(crate) fn plans(scenarios: Vec<Text>, wanted: &Wanted) -> anyhow::Result<Vec<(Guest, u64, Plan)>> {
    let mut guests: BTreeMap<Guest, (u64, Vec<Text>)> = BTreeMap::new();
    for Text { name, text } in scenarios {
        let scenario = parse(&name, &text)?;
        if guests.values().any(|(_, texts)| texts.iter().any(|text| text.name == scenario.name)) {
            bail!("two scenarios are named {:?}", scenario.name);
        }
        let (managed_bytes, texts) = guests.entry(Guest::of(&scenario)).or_default();
        *managed_bytes = scenario.managed_bytes().max(*managed_bytes);
        texts.push(Text { name: scenario.name, text });
    }
    let plan = |(guest, (managed_bytes, scenarios)): (Guest, (u64, Vec<Text>))| {
        let runs = runs(&scenarios, wanted);
        (guest, managed_bytes, Plan { scenarios, runs, uvmd: wanted.uvmd.clone() })
    };
    Ok(guests.into_iter().map(plan).collect())
}

fn runs(scenarios: &[Text], wanted: &Wanted) -> Vec<Run> {
    let Wanted { policies, seeds, rates, controls, .. } = wanted;
    let mut runs = Vec::new();
    for (scenario, text) in scenarios.iter().enumerate() {
        let mut add = |policy: &str, rates: &[f64], seeds: u64| {
            for &rate in rates {
                runs.extend((1..=seeds).map(|seed| Run { scenario, policy: policy.to_owned(), seed, rate }));
            }
        };
        // The driver does not see rates: what it would have accessed remotely at another is known from one.
        add(DRIVER, &[1.0], *seeds);
        policies.iter().filter(|policy| *policy != DRIVER).for_each(|policy| add(policy, rates, *seeds));
        if controls.contains(&text.name) {
            CONTROLS.into_iter().chain([HARMFUL]).for_each(|policy| add(policy, &[1.0], 1));
        }
    }
    runs
}

impl Plan {
    /// The scenario's name.
    pub(crate) fn name_of(&self, run: &Run) -> &str {
        self.scenarios.get(run.scenario).map_or("", |text| text.name.as_str())
    }

    /// From a file's text.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("is no plan")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, gpu_mem_mib: u64) -> Text {
        let text = format!("name = \"{name}\"\ngpu_mem_mib = {gpu_mem_mib}\n[[process]]\nname = \"p\"\n");
        Text { name: name.to_owned(), text }
    }

    fn wanted() -> Wanted {
        let policies = vec!["driver".to_owned(), "cycle".to_owned()];
        Wanted { policies, seeds: 3, rates: vec![0.1, 1.0], controls: vec!["b".to_owned()], uvmd: Vec::new() }
    }

    #[test]
    fn scenarios_for_the_same_machine_share_a_guest() {
        let plans = plans(vec![text("a", 32), text("b", 16), text("c", 32)], &wanted()).unwrap();
        let names: Vec<Vec<&str>> =
            plans.iter().map(|(_, _, plan)| plan.scenarios.iter().map(|text| text.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["b"], vec!["a", "c"]]);
        assert!(super::plans(vec![text("a", 32), text("a", 16)], &wanted()).is_err());
    }

    #[test]
    fn the_driver_runs_once_a_seed_and_a_policy_at_every_rate_too() {
        let runs = runs(&[text("a", 32)], &wanted());
        let of = |policy: &str| runs.iter().filter(|run| run.policy == policy).count();
        assert_eq!((of("driver"), of("cycle"), runs.len()), (3, 6, 9));
        assert_eq!(super::runs(&[text("b", 32)], &wanted()).len(), 9 + 3, "and controls once");
    }
}
