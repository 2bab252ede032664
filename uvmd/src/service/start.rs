//! Start before anything is served: lock of the state folder, and withdrawal of advice of a former
//! run. An occupied port does not leave a program under advice that no uvmd maintains.

use config::{Config, Policy};
use sys::private::Lock;
use web::Warnings;

use super::limits;
use crate::{
    acting::Actuation,
    audit::{Audit, Denials, Rotation},
    instance,
    rules::{Clock, Rules},
    switch::Switch,
};

/// Result of the start.
pub(super) struct Start {
    pub(super) audit: Audit,
    pub(super) denials: Denials,
    pub(super) rules: Rules,
    pub(super) switch: Switch,
    pub(super) actuation: Actuation,
    pub(super) warnings: Warnings,
    /// Lock of the state folder, held until the end.
    pub(super) lock: Option<Lock>,
}

impl Start {
    pub(super) fn new(config: &Config) -> anyhow::Result<Self> {
        let Config { policy, verdicts, .. } = config;
        let warnings = Warnings::default();
        let lock = instance::lock(&policy.state_dir.0, policy.enabled, &warnings)?;
        let switch = Switch::open(&policy.kill_switch.0, &policy.state_dir.0);
        let settings = settings(policy);
        let limits = limits(policy, verdicts.window.0);
        let mut actuation = Actuation::start(limits, settings, &switch, policy.enabled, &policy.state_dir.0)?;
        actuation.withdraw_leftovers();
        // After the withdrawal: these may wait for a disk, or fail the start.
        let (audit, rules) = match records(policy, lock.is_some(), &warnings) {
            Ok(records) => records,
            Err(reason) => {
                actuation.end().unwrap_or_else(|left| tracing::error!("{left}"));
                return Err(reason);
            }
        };
        let denials = Denials::new(audit.clone());
        Ok(Self { audit, denials, rules, switch, actuation, warnings, lock })
    }
}

/// Settings of the actuator.
const fn settings(policy: &Policy) -> actuator::Settings {
    actuator::Settings {
        part_bytes: policy.migrate_chunk_size.bytes,
        host_reserve_bytes: policy.host_reserve.bytes,
        actuator: policy.actuator.0,
    }
}

/// Audit log, and overrides that persist if `is_persistent`.
fn records(policy: &Policy, is_persistent: bool, warnings: &Warnings) -> anyhow::Result<(Audit, Rules)> {
    let rotation = Rotation { file_bytes_max: policy.audit_log_size.bytes, files_max: policy.audit_log_files.0 };
    let audit = Audit::start(&policy.audit_log(), rotation, policy.enabled, warnings.clone())?;
    let rules = Rules::open(policy, is_persistent, audit.clone(), Clock::default())?;
    Ok((audit, rules))
}
