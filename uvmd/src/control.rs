//! What operators change over the API: overrides, and the kill switch.

use model::{
    Process,
    api::rule::{Considered, Overrides, PolicyState, Wanted},
};
use policy::rules::{Explained, Fit};
use sys::Roots;
use web::{Condition, Put, Refused};

use crate::{rules::Rules, switch::Switch};

/// Both.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) rules: Rules,
    pub(crate) switch: Switch,
    /// Whether the configuration lets uvmd act at all.
    pub(crate) enabled: bool,
}

impl web::Control for Control {
    fn overrides(&self) -> Overrides {
        self.rules.overrides()
    }

    fn put(&self, rule: model::Override, by: &str, fits: &Condition) -> Result<Put, Refused> {
        let put = self.rules.put(&rule, fits)?;
        tracing::info!("override {}: {} by {}, as {by} wants", rule.id, rule.mode.name(), rule.policy);
        Ok(put)
    }

    fn remove(&self, id: &str, by: &str, fits: &Condition) -> Result<(), Refused> {
        self.rules.remove(id, fits)?;
        tracing::info!("override {id} is gone, as {by} wants");
        Ok(())
    }

    fn wanted(&self, process: &Process) -> Wanted {
        let path = Roots::default().proc.join(process.id.pid.to_string()).join("exe");
        let executable = std::fs::read_link(path).ok();
        let Explained { wish, why, considered } =
            self.rules.explain(process, executable.as_deref(), std::time::SystemTime::now());
        Wanted {
            pid: process.id.pid,
            start_ticks: process.id.start_ticks,
            name: process.name.clone(),
            asked_by: wish.asked_by,
            mode: wish.mode.name().to_owned(),
            policy: wish.policy,
            parameters: wish.parameters,
            budget: wish.budget.into(),
            range: wish.range.map(Into::into),
            allocation_larger_than_bytes: wish.allocation_larger_than_bytes,
            why,
            on: self.is_on(),
            considered: considered.into_iter().map(|each| told(each.id, &each.fit)).collect(),
        }
    }

    fn state(&self) -> PolicyState {
        let Overrides { overrides, file_error } = self.rules.overrides();
        let fallback = self.rules.fallback();
        PolicyState {
            on: self.is_on(),
            enabled: self.enabled,
            off_by: self.switch.off_by(),
            default_mode: fallback.mode.name().to_owned(),
            default_policy: fallback.policy,
            overrides: overrides.iter().filter(|each| !each.expired).count() as u64,
            file_error,
        }
    }

    fn switch_off(&self, by: &str) -> Result<(), Refused> {
        self.switch.off(by);
        Ok(())
    }

    fn keep_off(&self) {
        self.switch.keep_off();
    }

    fn times_off(&self) -> u64 {
        self.switch.times_off()
    }

    fn switch_on(&self, by: &str, times_off: u64) -> Result<(), Refused> {
        self.switch.on(by, times_off).map_err(|error| Refused::NotKept(format!("{error:#}")))
    }
}

impl Control {
    fn is_on(&self) -> bool {
        self.enabled && self.switch.is_on()
    }
}

fn told(id: String, fit: &Fit) -> Considered {
    Considered { id, fits: fit.fits(), in_force: *fit == Fit::InForce, why: fit.to_string() }
}
