//! Overrides, and the switch of all acting. Files and the API have the same form.

mod matchable;
mod parameters;
mod parse;

use std::collections::BTreeMap;

pub use matchable::check_matchable;
use model::{
    Budget, Following, FollowingState, MemoryRange, PlannedIteration, ProbeFigures, Selector,
    policy::{Promise, of_plans},
    text::{bytes, counted},
};
pub use parameters::check_parameters;
pub use parse::{Field, ID_MAX_BYTES, Invalid, one_of};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::object::object;

/// Mode, policy and budget of the processes that a selector matches. Body of `PUT /api/v1/overrides/{id}` and `POST /api/v1/overrides`, and `[[override]]` in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Unique name, of 1 to 64 letters, digits, `.`, `_` and `-`. Derived from the other fields where a request omits it.
    #[serde(default)]
    pub id: Option<String>,
    /// Selector of the processes; every process by default.
    #[serde(default, rename = "match", deserialize_with = "object")]
    pub selector: Selector,
    /// Mode: `observe` does nothing, `shadow` reports what `act` would do, `act` does it.
    pub mode: String,
    /// Name of the policy; `auto-live` by default, which chooses one.
    #[serde(default)]
    pub policy: Option<String>,
    /// Parameters of the policy, by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Limits of migration.
    #[serde(default, deserialize_with = "object")]
    pub budget: Budget,
    /// Precedence: of the overrides that match a process, the highest is selected. 0 by default.
    #[serde(default)]
    pub priority: i32,
    /// Time of expiry; never by default.
    #[serde(default, deserialize_with = "instant")]
    pub expires_at: Option<String>,
}

/// An override and its state. Body of `GET /api/v1/overrides/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OverrideStatus {
    /// The override, as given.
    pub r#override: Override,
    /// Source: `file`, `fleet` (policies of the cluster), or `api`. Only the latter can be changed over the API.
    pub source: String,
    /// Whether it has expired.
    pub expired: bool,
    /// Running processes with managed memory that it matches now. In responses to a change alone; null elsewhere, and if these could not be counted in time.
    #[serde(default)]
    pub matching_processes: Option<u64>,
}

impl Override {
    /// Whether it is what somebody asked for, who may have left it open which process of an id is meant.
    #[must_use]
    pub fn is_as_asked(&self, asked: &Self) -> bool {
        let start_ticks = asked.selector.start_ticks.and(self.selector.start_ticks);
        *asked == Self { selector: Selector { start_ticks, ..self.selector.clone() }, ..self.clone() }
    }
}

impl OverrideStatus {
    /// Copy without the address range, which requires read permission.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        self.r#override.selector.range = None;
        self
    }
}

/// Body of `GET /api/v1/overrides`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Overrides {
    /// Overrides, in order of precedence.
    pub overrides: Vec<OverrideStatus>,
    /// Error of a file of overrides, of which an earlier version is in effect; null if all are valid.
    pub file_error: Option<String>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// Overrides that follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// Policy in effect for a process, and the candidates. Body of `GET /api/v1/processes/{pid}/override`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectivePolicy {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot; `pid` and this identify the process.
    pub start_ticks: u64,
    /// Short name (comm).
    pub name: String,
    /// Selected override; null where none matches and the configuration's default applies.
    pub override_id: Option<String>,
    /// Mode.
    pub mode: String,
    /// Policy.
    pub policy: String,
    /// Parameters of the policy.
    pub parameters: BTreeMap<String, String>,
    /// Limits of migration.
    pub budget: Budget,
    /// Address range. Requires read permission; null without.
    pub range: Option<MemoryRange>,
    /// Minimum size of an allocation, exclusive.
    pub allocation_larger_than_bytes: Option<u64>,
    /// Reason of the selection, as a sentence.
    pub reason: String,
    /// Whether uvmd may act at all, as [`PolicyState::active`].
    pub active: bool,
    /// Every override, in order of precedence.
    pub candidates: Vec<Candidate>,
    /// Restrictions that currently prevent action, beside `mode` and `active`, as of the last second.
    #[serde(default)]
    pub restrictions: Vec<Restriction>,
    /// What following its recorded calls has come to; null for policies that plan no iterations.
    #[serde(default)]
    pub plan: Option<PlanState>,
}

/// State of following the recorded calls of a process for a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanState {
    /// State: `unavailable` (its calls cannot be followed), `watching` (no iteration is confirmed), `probing` (probes find out which memory launches access), `planning` (planners compute, or wait for their turn), `refused` (there is no plan for it) or `planned`.
    pub state: String,
    /// Reason, as a sentence; null for `planned`.
    pub reason: Option<String>,
    /// The plan in words, or the state without one, with the number of iterations.
    #[serde(default)]
    pub description: String,
    /// Iterations that have begun since iterations are known; null while they are not.
    pub iterations: Option<u64>,
    /// Planner of the plan; null without one.
    pub planner: Option<String>,
    /// What the plan promises to lower: `link_bytes` or `faults`; null without one.
    #[serde(default)]
    pub promise: Option<Promise>,
    /// Bytes over the link of an iteration with it, in both directions; null without one.
    pub planned_bytes: Option<u64>,
    /// VA blocks of 2 MiB that an iteration with it leaves to faults; null without one.
    #[serde(default)]
    pub planned_faulted_blocks: Option<u64>,
    /// What probes of launches have found (`policy.touch_probe`); null without any.
    #[serde(default)]
    pub probes: Option<ProbeFigures>,
}

impl From<&Following> for PlanState {
    fn from(following: &Following) -> Self {
        let planned = match &following.state {
            FollowingState::Planned(planned) => Some(planned),
            _ => None,
        };
        let probes = match &following.state {
            FollowingState::Planned(planned) => planned.probes,
            FollowingState::Probing(probed) => Some(probed.figures),
            FollowingState::Unavailable(_)
            | FollowingState::Watching
            | FollowingState::Planning(_)
            | FollowingState::Refused(_) => None,
        };
        let promise = planned.and_then(|_| of_plans(following.policy)).map(|policy| policy.promise);
        Self {
            state: following.state.name().to_owned(),
            reason: following.state.reason().map(str::to_owned),
            description: description(following, promise),
            iterations: following.iteration.map(|iteration| iteration.number),
            planner: planned.map(|planned| planned.planner.to_owned()),
            promise,
            planned_bytes: planned.map(PlannedIteration::link_bytes),
            planned_faulted_blocks: planned.map(|planned| planned.faulted_blocks),
            probes,
        }
    }
}

/// Plan of the iterations of a process, or the state on the way to one.
fn description(following: &Following, promise: Option<Promise>) -> String {
    let plan = match &following.state {
        FollowingState::Planned(planned) => {
            let outlook = match promise {
                Some(Promise::Faults) => format!("{} left to faults", counted(planned.faulted_blocks, "block")),
                Some(Promise::LinkBytes) | None => format!("{} over the link", bytes(planned.link_bytes())),
            };
            format!("{}, {outlook} in an iteration", planned.planner)
        }
        state => state.name().to_owned(),
    };
    let iterations =
        following.iteration.map(|iteration| format!(", {} so far", counted(iteration.number, "iteration")));
    plan + &iterations.unwrap_or_default()
}

/// A restriction that currently prevents action on a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Restriction {
    /// UUID of the GPU; null for all GPUs.
    pub gpu_uuid: Option<String>,
    /// Scope: `everything`, `advice`, `some_memory`, `moves`, `moves_to_gpu`, `moves_to_host`, `remote_mappings`, or a policy.
    pub scope: String,
    /// Scope in words: `No advice`.
    #[serde(default)]
    pub label: String,
    /// Reason, as a sentence.
    pub reason: String,
}

impl From<&model::Restriction> for Restriction {
    fn from(restriction: &model::Restriction) -> Self {
        Self {
            gpu_uuid: restriction.gpu.map(|gpu| gpu.to_string()),
            scope: restriction.scope.name().to_owned(),
            label: restriction.scope.label(),
            reason: restriction.reason.clone(),
        }
    }
}

/// An override as a candidate for a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Candidate {
    /// Name of the override.
    pub id: String,
    /// Whether it matches the process.
    pub matches: bool,
    /// Whether it is selected.
    pub selected: bool,
    /// Reason for or against it.
    pub reason: String,
}

/// State of acting on this node. Body of `GET /api/v1/policy`, and of the answers to `POST /api/v1/policy/off` and `/on`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyState {
    /// Whether uvmd may act now: acting is enabled and not switched off.
    pub active: bool,
    /// Whether the configuration enables acting (`policy.enabled`).
    pub enabled: bool,
    /// Switches that are off; empty where none is.
    pub disabled_by: Vec<DisabledBy>,
    /// Whether a switch over the API is not on the disk yet: a restart would undo it.
    #[serde(default)]
    pub persist_pending: bool,
    /// Reason why uvmd does not act, as a sentence; null while it may.
    #[serde(default)]
    pub inactive_reason: Option<String>,
    /// Warning about a switch that is not on the disk yet, as a sentence; null without one.
    #[serde(default)]
    pub persist_warning: Option<String>,
    /// Mode of processes that no override matches.
    pub default_mode: String,
    /// Policy of processes that no override matches.
    pub default_policy: String,
    /// Number of overrides that have not expired.
    pub overrides: u64,
    /// Error of a file of overrides; null if all are valid.
    pub file_error: Option<String>,
}

impl PolicyState {
    /// Copy with its sentences.
    #[must_use]
    pub fn described(self) -> Self {
        let warning = "the switch is not saved yet: a restarted uvmd would act again";
        let persist_warning = self.persist_pending.then(|| warning.to_owned());
        Self { inactive_reason: self.why_inactive(), persist_warning, ..self }
    }

    fn why_inactive(&self) -> Option<String> {
        if self.active {
            return None;
        }
        let by = |off: &DisabledBy| format!("by {} since {}", off.actor, off.disabled_at);
        let by: Vec<String> = self.disabled_by.iter().map(by).collect();
        let switched_off = (!by.is_empty()).then(|| format!("acting is switched off {}", by.join(" and ")));
        let not_enabled = (!self.enabled).then(|| {
            "uvmd does not act: policy.enabled is false in its configuration, which limits the mode to shadow"
                .to_owned()
        });
        Some(not_enabled.into_iter().chain(switched_off).collect::<Vec<_>>().join("; "))
    }
}

/// A switch that is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DisabledBy {
    /// `file`: the file `policy.kill_switch` exists; `api`: a request.
    pub source: String,
    /// Who switched it off, in words.
    pub actor: String,
    /// Time of the switch.
    pub disabled_at: String,
}

/// A time as text, or as TOML has it without quotes.
fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    /// Name of the one field of a time in the data model of the crate `toml`.
    const TOML_TIME: &str = "$__toml_private_datetime";

    struct Time;

    impl<'de> de::Visitor<'de> for Time {
        type Value = Option<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a time, such as \"2027-01-01T00:00:00Z\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(text.to_owned()))
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: de::MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
            match fields.next_key::<String>()? {
                Some(name) if name == TOML_TIME => fields.next_value().map(Some),
                _ => Err(de::Error::invalid_type(de::Unexpected::Map, &self)),
            }
        }
    }

    deserializer.deserialize_any(Time)
}

#[cfg(test)]
mod tests {
    use model::{GpuUuid, IterationBegin, PlanReport, PlannedIteration, ProcessId, RestrictionScope};

    use super::*;

    fn planned() -> PlannedIteration {
        PlannedIteration {
            version: 1,
            planner: "pump",
            launches: 55,
            duration_ns: 1,
            moves: 26,
            to_gpu_bytes: 32 << 20,
            to_host_bytes: 20 << 20,
            faulted_bytes: 0,
            evicted_bytes: 0,
            faulted_blocks: 12,
            driver_bytes: 0,
            driver_faulted_blocks: 33,
            peak_bytes: 0,
            room_bytes: 0,
            lead: None,
            coverage_percent: None,
            probes: None,
            ranges: Vec::new(),
        }
    }

    fn described(policy: &'static str, state: FollowingState, iterations: Option<u64>) -> String {
        let iteration = iterations.map(|number| IterationBegin { number, at_ns: 1 });
        let following = Following { gpu: GpuUuid([1; 16]), policy, state, iteration, report: PlanReport::default() };
        PlanState::from(&following).description
    }

    #[test]
    fn a_plan_is_described_by_what_it_promises_and_else_by_its_state() {
        let text = described("auto-plan", FollowingState::Planned(planned()), Some(37));
        assert_eq!(text, "pump, 52.0 MiB over the link in an iteration, 37 iterations so far");
        let text = described("pump", FollowingState::Planned(planned()), None);
        assert_eq!(text, "pump, 12 blocks left to faults in an iteration");
        assert_eq!(described("auto-plan", FollowingState::Planning("x"), Some(12)), "planning, 12 iterations so far");
        assert_eq!(
            described("auto-plan", FollowingState::Refused(String::new()), Some(1)),
            "refused, 1 iteration so far"
        );
        assert_eq!(described("auto-plan", FollowingState::Watching, None), "watching");
    }

    #[test]
    fn a_restriction_has_its_scope_in_words() {
        let label = |scope| {
            let process = ProcessId { pid: 1, start_ticks: 1 };
            Restriction::from(&model::Restriction { process, gpu: None, scope, reason: String::new() }).label
        };
        assert_eq!(label(RestrictionScope::MovesToGpu), "No moves to the GPU");
        assert_eq!(label(RestrictionScope::Policy("cycle")), "No cycle");
    }

    #[test]
    fn a_state_without_acting_has_its_reason() {
        let by = |actor: &str| DisabledBy {
            actor: actor.to_owned(),
            disabled_at: "2026-11-21T14:00:00.000Z".to_owned(),
            ..DisabledBy::default()
        };
        let active = PolicyState { active: true, enabled: true, ..PolicyState::default() };
        assert_eq!(active.clone().described(), active);
        let disabled_by = vec![by("uid 0"), by("the file /run/off")];
        let off = PolicyState { active: false, persist_pending: true, disabled_by, ..active }.described();
        assert_eq!(
            off.inactive_reason.as_deref(),
            Some(
                "acting is switched off by uid 0 since 2026-11-21T14:00:00.000Z and by the file /run/off since \
                 2026-11-21T14:00:00.000Z"
            )
        );
        assert!(off.persist_warning.is_some());
        let not_enabled =
            "uvmd does not act: policy.enabled is false in its configuration, which limits the mode to shadow";
        let never = PolicyState::default().described();
        assert_eq!(never.inactive_reason.as_deref(), Some(not_enabled));
        // With policy.enabled alone, uvmd would still not act.
        let both = PolicyState { disabled_by: vec![by("uid 0")], ..PolicyState::default() }.described();
        let expected = format!("{not_enabled}; acting is switched off by uid 0 since 2026-11-21T14:00:00.000Z");
        assert_eq!(both.inactive_reason, Some(expected));
    }
}
