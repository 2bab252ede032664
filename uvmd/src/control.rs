//! What operators change over the API: overrides, and the kill switch; and what comes of that for a process.

use model::{
    Process,
    api::rule::{Considered, Hindrance, Overrides, PolicyState, Wanted},
};
use policy::rules::{Explained, Fit};
use sys::Roots;
use web::{Condition, Put, Refused};

use crate::{acting::Told, rules::Rules, switch::Switch};

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) rules: Rules,
    pub(crate) switch: Switch,
    /// Whether the configuration lets uvmd act at all.
    pub(crate) enabled: bool,
    /// What the loop that acts tells.
    pub(crate) told: Told,
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
            considered: considered.into_iter().map(|each| looked_at(each.id, &each.fit)).collect(),
            hindrances: self.hindrances(process),
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
    fn hindrances(&self, process: &Process) -> Vec<Hindrance> {
        let all = self.told.hindrances();
        all.iter().filter(|each| each.process == process.id).map(Hindrance::from).collect()
    }

    fn is_on(&self) -> bool {
        self.enabled && self.switch.is_on()
    }
}

fn looked_at(id: String, fit: &Fit) -> Considered {
    Considered { id, fits: fit.fits(), in_force: *fit == Fit::InForce, why: fit.to_string() }
}

#[cfg(test)]
mod tests {
    use config::{Policy, value::AbsolutePath};
    use model::{GpuUuid, Hindered, ProcessId};
    use web::Control as _;

    use super::*;
    use crate::acting::Board;

    #[test]
    fn what_keeps_more_from_being_done_is_told_of_the_process_that_is_asked_about() {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy {
            overrides_file: AbsolutePath(folder.path().join("overrides.toml")),
            state_dir: AbsolutePath(folder.path().join("state")),
            ..Policy::default()
        };
        let (mut board, told) = Board::new();
        let control = Control {
            rules: Rules::open(&policy).unwrap(),
            switch: Switch::open(&folder.path().join("off"), folder.path()),
            enabled: true,
            told,
        };
        let id = |pid| ProcessId { pid, start_ticks: 1 };
        let hindrance = |pid, hindered| model::Hindrance {
            process: id(pid),
            gpu: Some(GpuUuid([1; 16])),
            hindered,
            why: "it advises the driver itself".to_owned(),
        };
        board.hindered(|| vec![hindrance(7, Hindered::Advice), hindrance(8, Hindered::Policy("cycle"))]);
        let told = |pid| control.wanted(&Process::new(id(pid), "x")).hindrances;
        let expected = Hindrance {
            gpu_uuid: Some("GPU-01010101-0101-0101-0101-010101010101".to_owned()),
            hindered: "advice".to_owned(),
            why: "it advises the driver itself".to_owned(),
        };
        assert_eq!(told(7), [expected]);
        assert_eq!(told(8)[0].hindered, "cycle");
        assert_eq!(told(9), []);
    }
}
