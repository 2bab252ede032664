//! Registry of live policies: one row each, with everything that others read of a policy.
//!
//! The rows are a macro, so that each names its implementation too, though this crate knows none: `policy` expands them to constructors, and this
//! module to [`POLICIES`]. Configuration, command line, API, documents and the lab read the names here.

use serde::{Deserialize, Serialize};

/// One live policy.
#[derive(Debug)]
pub struct Policy {
    /// Its name in overrides, metrics and the audit log, in kebab-case.
    pub name: &'static str,
    /// Kind of choice.
    pub choice: Choice,
    /// What its plans promise, of a policy of plans: moves at the launches of iterations, which the helper in the process follows. Such a
    /// policy has no implementation beside its methods.
    pub promise: Option<Promise>,
    /// Help: its action in a few words.
    pub help: &'static str,
    /// Names of the actions that it may order ([`crate::Action::name`]). The guard denies any other; withdrawals need no permission.
    pub actions: &'static [&'static str],
    /// Parameters that an override may set.
    pub parameters: &'static [Parameter],
}

/// Choice of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Chooses among the others: [`CHOOSER`].
    Chooser,
    /// By the chooser, or by its name.
    Automatic,
    /// By its name alone.
    ByName,
    /// By its name alone, and known to harm in some case: comparisons are checked by it.
    Control,
}

/// What a plan lowers, for which it is confirmed or rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Promise {
    /// Bytes over the link for the process, in both directions.
    #[default]
    LinkBytes,
    /// GPU faults of the process.
    Faults,
}

/// A parameter of a policy.
#[derive(Debug)]
pub struct Parameter {
    /// Its name in overrides. Parameters of the same name are one parameter of all policies that have it.
    pub name: &'static str,
    /// Its permitted values.
    pub form: Form,
}

/// Permitted values of a parameter.
#[derive(Debug)]
pub enum Form {
    /// Whole numbers in this range.
    Number(u64, u64),
    /// These words, of which the first is the default.
    Word(&'static [&'static str]),
}

/// Blocks that must change sides in a window before `ping-pong` acts.
pub const BOUNCES: Parameter = Parameter { name: "bounces", form: Form::Number(1, 1_000_000) };
/// Memory beyond the working set: fetched and evicted, or mapped remotely.
pub const REST: Parameter = Parameter { name: "rest", form: Form::Word(&["stream", "remote"]) };
/// Memory that `stream` keeps ahead of a walk, in MiB; at least four blocks.
pub const AHEAD_MIB: Parameter = Parameter { name: "ahead_mib", form: Form::Number(8, 1 << 24) };

/// The rows of all policies, for the macro `$consumer`, in the order in which they are listed: name, implementation in `policy`, [`Choice`],
/// [`Promise`] of a policy of plans, actions, parameters, help.
#[macro_export]
#[expect(clippy::crate_in_macro_def, reason = "implementations are paths of the crate that expands the rows")]
macro_rules! live_policies {
    ($consumer:ident) => {
        $consumer! {
            policies {
                "auto-live", [], Chooser, [], [], [],
                    "chooses the policy with the best expected or measured effect";
                "observe", [crate::act::live::policies::controls::Observe], ByName, [], [], [],
                    "does nothing";
                "ping-pong", [crate::act::live::policies::pingpong::PingPong], Automatic, [], ["prefer_host", "accessed_by"], [BOUNCES],
                    "keeps memory that CPU and GPU use in turn on the host";
                "stream", [crate::act::live::policies::stream::Stream], Automatic, [], ["touch", "migrate_to_gpu"], [AHEAD_MIB],
                    "prefetches ahead of a sequential walk";
                "cycle", [crate::act::live::policies::cycle::Cycle], Automatic, [], ["touch", "migrate_to_gpu", "prefer_host", "accessed_by"], [REST],
                    "keeps a part of a cyclic working set on the GPU";
                "hot-cold", [crate::act::live::policies::hot_cold::HotCold], Automatic, [], ["touch", "migrate_to_gpu", "prefer_host", "accessed_by"], [REST],
                    "keeps the hot part of the working set on the GPU";
                "tenants", [crate::act::live::policies::tenants::Tenants], Automatic, [], ["touch", "migrate_to_gpu"], [],
                    "keeps the working set of a victim on the GPU despite its evictors";
                "auto-plan", [], ByName, [LinkBytes], ["migrate_to_gpu", "migrate_to_host"], [],
                    "plans the moves of training iterations, by the planner with the fewest link bytes";
                "autoswap", [], ByName, [LinkBytes], ["migrate_to_gpu", "migrate_to_host"], [],
                    "plans the moves of training iterations as AutoSwap does";
                "appobmem", [], ByName, [LinkBytes], ["migrate_to_gpu", "migrate_to_host"], [],
                    "plans the moves of training iterations as AppObMem does";
                "g10", [], ByName, [LinkBytes], ["migrate_to_gpu", "migrate_to_host"], [],
                    "plans the moves of training iterations as G10 does";
                "pump", [], ByName, [Faults], ["migrate_to_gpu"], [],
                    "prefetches ahead of the launches of training iterations as PUMP does";
            }
            controls {
                "pin-host", [crate::act::live::policies::controls::PinHost], Control, [], ["prefer_host", "accessed_by", "migrate_to_host"], [],
                    "pins all memory to the host";
                "prefetch-all", [crate::act::live::policies::controls::PrefetchAll], Control, [], ["migrate_to_gpu"], [],
                    "prefetches all memory repeatedly";
                "harmful", [crate::act::live::policies::controls::Harmful], Control, [], ["migrate_to_host"], [],
                    "evicts the hottest memory repeatedly";
                "harmful-plan", [], Control, [LinkBytes], ["migrate_to_host"], [],
                    "evicts memory after each launch of an iteration that uses it";
            }
        }
    };
}

macro_rules! rows {
    (
        policies { $first:literal, $first_row:tt, $first_choice:ident, $first_promise:tt, $first_actions:tt, $first_parameters:tt, $first_help:literal;
            $($name:literal, $row:tt, $choice:ident, $promise:tt, $actions:tt, $parameters:tt, $help:literal;)* }
        controls { $($control:literal, $control_row:tt, $control_choice:ident, $control_promise:tt, $control_actions:tt, $control_parameters:tt, $control_help:literal;)* }
    ) => {
        /// All policies, controls last.
        pub const POLICIES: &[Policy] = &[
            row!($first, $first_choice, $first_promise, $first_actions, $first_parameters, $first_help),
            $(row!($name, $choice, $promise, $actions, $parameters, $help),)*
            $(row!($control, $control_choice, $control_promise, $control_actions, $control_parameters, $control_help),)*
        ];

        /// The policies that an operator names, in words; controls are not among them.
        pub const NAMES: &str = concat!("one of \"", $first, "\"", $(", \"", $name, "\""),*);
    };
}

macro_rules! row {
    ($name:literal, $choice:ident, $promise:tt, $actions:tt, $parameters:tt, $help:literal) => {
        Policy {
            name: $name,
            choice: Choice::$choice,
            promise: promise!($promise),
            help: $help,
            actions: &$actions,
            parameters: &$parameters,
        }
    };
}

macro_rules! promise {
    ([]) => {
        None
    };
    ([$promise:ident]) => {
        Some(Promise::$promise)
    };
}

live_policies!(rows);

/// The policy that chooses among the others: the default of overrides.
pub const CHOOSER: &str = "auto-live";

/// The policy of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}

/// The policy of plans that chooses among planners.
pub const PLAN_CHOOSER: &str = "auto-plan";

/// Policy of plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanPolicy {
    /// Its name.
    pub name: &'static str,
    /// What its plans promise.
    pub promise: Promise,
}

/// The policy of plans of this name; `None` if it is another kind of policy.
#[must_use]
pub fn of_plans(name: &str) -> Option<PlanPolicy> {
    let policy = named(name)?;
    Some(PlanPolicy { name: policy.name, promise: policy.promise? })
}

/// Parameters that an override may set for the policy of this name; for [`CHOOSER`], those of all its candidates.
pub fn parameters(name: &str) -> impl Iterator<Item = &'static Parameter> {
    let is_selected =
        move |policy: &&Policy| policy.name == name || (name == CHOOSER && policy.choice == Choice::Automatic);
    POLICIES.iter().filter(is_selected).flat_map(|policy| policy.parameters)
}

impl Form {
    /// Whether this value is permitted.
    #[must_use]
    pub fn permits(&self, value: &str) -> bool {
        match self {
            Self::Number(least, most) => value.parse().is_ok_and(|number: u64| (*least..=*most).contains(&number)),
            Self::Word(words) => words.contains(&value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Action, Advice, GpuUuid, Place};

    #[test]
    fn names_are_unique_and_kebab_case() {
        let names: BTreeSet<_> = POLICIES.iter().map(|policy| policy.name).collect();
        assert_eq!(names.len(), POLICIES.len());
        for name in names {
            assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
        }
    }

    #[test]
    fn there_is_one_chooser_and_it_is_the_default() {
        let choosers: Vec<_> = POLICIES.iter().filter(|policy| policy.choice == Choice::Chooser).collect();
        assert_eq!(choosers.iter().map(|policy| policy.name).collect::<Vec<_>>(), [CHOOSER]);
    }

    #[test]
    fn controls_are_in_no_list_for_operators() {
        for policy in POLICIES {
            assert_eq!(NAMES.contains(&format!("{:?}", policy.name)), policy.choice != Choice::Control, "{policy:?}");
        }
    }

    #[test]
    fn plans_promise_link_bytes_or_faults_and_are_never_chosen() {
        let plans: Vec<_> = POLICIES.iter().filter_map(|policy| of_plans(policy.name)).collect();
        let by_faults: Vec<&str> =
            plans.iter().filter(|plan| plan.promise == Promise::Faults).map(|plan| plan.name).collect();
        assert_eq!(by_faults, ["pump"]);
        assert!(plans.iter().any(|plan| plan.name == PLAN_CHOOSER) && of_plans(CHOOSER).is_none());
        for policy in POLICIES.iter().filter(|policy| policy.promise.is_some()) {
            assert!(matches!(policy.choice, Choice::ByName | Choice::Control), "{policy:?}");
        }
    }

    #[test]
    fn permitted_actions_are_actions() {
        let gpu = GpuUuid([0; 16]);
        let places = [Place::Host, Place::Gpu(gpu)];
        let advice =
            places.map(Advice::PreferredLocation).into_iter().chain([Advice::AccessedBy(gpu), Advice::ReadDuplication]);
        let actions =
            places.map(Action::Migrate).into_iter().chain([Action::Touch(gpu)]).chain(advice.map(Action::Advise));
        let names: BTreeSet<_> = actions.map(Action::name).collect();
        for policy in POLICIES {
            assert!(policy.actions.iter().all(|action| names.contains(action)), "{policy:?}");
        }
    }
}
