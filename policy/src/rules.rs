//! Selection of the override that applies to a process, with its reason.
//!
//! Overrides have one order for all processes: by priority, then by specificity, then by id. The
//! first that matches and has not expired is selected; without one, the default applies.
//!
//! * [`RuleSet`]: overrides by source, and their changes
//! * [`bind`], [`has_ended`]: overrides for one process
//! * `matching`: match of a selector; `order`: precedence

mod binding;
mod matching;
mod order;
mod rule_set;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    time::SystemTime,
};

pub use binding::{NoProcess, bind, has_ended};
use model::{Budget, Directive, Mode, Override, Process, Selector};
pub use rule_set::{Expired, NewlyExpired, RuleSet};

/// Overrides in order of precedence, and the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    ordered: Vec<Override>,
    /// Ids of expired overrides, regardless of the clock.
    expired: BTreeSet<String>,
    fallback: Fallback,
}

/// Default without a matching override, or for fields that it does not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Mode.
    pub mode: Mode,
    /// Policy.
    pub policy: String,
    /// Migration budget of one process.
    pub budget: Budget,
    /// Maximum mode.
    pub mode_max: Mode,
}

/// Subject of the rules.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Process.
    pub process: &'a Process,
    /// Path of its executable, if readable.
    pub executable: Option<&'a Path>,
}

/// Directive of a process, with the candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Directive.
    pub directive: Directive,
    /// Reason, as a sentence.
    pub why: String,
    /// All overrides, in order of precedence.
    pub candidates: Vec<Candidate>,
}

/// Override as a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Id.
    pub id: String,
    /// Match.
    pub result: MatchResult,
}

/// Result of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchResult {
    /// Selected.
    Selected,
    /// It matches, and another takes precedence.
    Outranked {
        /// Selected override.
        by: String,
        /// Reason of the precedence.
        because: &'static str,
    },
    /// Expired.
    Expired,
    /// It does not match.
    Differs {
        /// Criterion that differs, as in an override: `match.pod`.
        key: &'static str,
        /// Value of the process, in words.
        is: String,
    },
}

impl MatchResult {
    /// Whether it matches the process, selected or not.
    #[must_use]
    pub const fn is_match(&self) -> bool {
        matches!(self, Self::Selected | Self::Outranked { .. })
    }
}

impl fmt::Display for MatchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Selected => f.write_str("selected"),
            Self::Outranked { by, because } => write!(f, "it matches, but {by} {because}"),
            Self::Expired => f.write_str("it has expired"),
            Self::Differs { key, is } => write!(f, "{key} does not match: {is}"),
        }
    }
}

/// Whether a selector matches a process, regardless of other overrides.
#[must_use]
pub fn is_match(selector: &Selector, subject: Subject<'_>) -> bool {
    matching::mismatch(selector, subject).is_none()
}

/// Whether the expiry of an override has passed.
fn has_passed(rule: &Override, now: SystemTime) -> bool {
    rule.expires_at.is_some_and(|end| end <= now)
}

impl Rules {
    /// Rules of these overrides, in any order.
    #[must_use]
    pub fn new(mut overrides: Vec<Override>, fallback: Fallback) -> Self {
        overrides.sort_by(order::precedence);
        Self { ordered: overrides, expired: BTreeSet::new(), fallback }
    }

    /// The same rules, with these overrides expired, regardless of the clock: it may have been set
    /// back since.
    #[must_use]
    pub fn with_expired(self, expired: BTreeSet<String>) -> Self {
        Self { expired, ..self }
    }

    /// Whether an override has expired.
    #[must_use]
    pub fn has_expired(&self, rule: &Override, now: SystemTime) -> bool {
        self.expired.contains(&rule.id) || has_passed(rule, now)
    }

    /// Whether any process may be in another mode than observe.
    #[must_use]
    pub fn may_act(&self, now: SystemTime) -> bool {
        let acts = |mode: Mode| mode != Mode::Observe;
        acts(self.fallback.mode) || self.ordered.iter().any(|rule| acts(rule.mode) && !self.has_expired(rule, now))
    }

    /// Overrides in order of precedence.
    #[must_use]
    pub fn ordered(&self) -> &[Override] {
        &self.ordered
    }

    /// Directive of a process.
    #[must_use]
    pub fn directive(&self, subject: Subject<'_>, now: SystemTime) -> Directive {
        let matches = |each: &&Override| !self.has_expired(each, now) && is_match(&each.selector, subject);
        self.directive_of(self.ordered.iter().find(matches))
    }

    /// Directive with its reasons.
    #[must_use]
    pub fn explain(&self, subject: Subject<'_>, now: SystemTime) -> Explained {
        let mut selected: Option<&Override> = None;
        let mut candidates = Vec::with_capacity(self.ordered.len());
        for each in &self.ordered {
            let result = match (matching::mismatch(&each.selector, subject), selected) {
                (Some((key, is)), _) => MatchResult::Differs { key, is },
                (None, _) if self.has_expired(each, now) => MatchResult::Expired,
                (None, Some(first)) => {
                    MatchResult::Outranked { by: first.id.clone(), because: order::precedence_reason(first, each) }
                }
                (None, None) => {
                    selected = Some(each);
                    MatchResult::Selected
                }
            };
            candidates.push(Candidate { id: each.id.clone(), result });
        }
        Explained { directive: self.directive_of(selected), why: self.why(selected, &candidates), candidates }
    }

    fn directive_of(&self, selected: Option<&Override>) -> Directive {
        let Fallback { mode, policy, budget, mode_max } = &self.fallback;
        let Some(rule) = selected else {
            return Directive {
                override_id: None,
                mode: *mode.min(mode_max),
                policy: policy.clone(),
                parameters: BTreeMap::new(),
                budget: *budget,
                range: None,
                allocation_larger_than_bytes: None,
            };
        };
        Directive {
            override_id: Some(rule.id.clone()),
            mode: rule.mode.min(*mode_max),
            policy: rule.policy.clone(),
            parameters: rule.parameters.clone(),
            budget: Budget {
                bytes_per_second: rule.budget.bytes_per_second.or(budget.bytes_per_second),
                bytes: rule.budget.bytes.or(budget.bytes),
            },
            range: rule.selector.range,
            allocation_larger_than_bytes: rule.selector.allocation_larger_than_bytes,
        }
    }

    fn why(&self, selected: Option<&Override>, candidates: &[Candidate]) -> String {
        let requested = selected.map_or(self.fallback.mode, |rule| rule.mode);
        let who = match (selected, candidates.iter().filter(|each| each.result.is_match()).count()) {
            (None, _) if candidates.is_empty() => {
                "there is no override: the configuration's default applies".to_owned()
            }
            (None, _) => "no override matches: the configuration's default applies".to_owned(),
            (Some(rule), 0 | 1) => format!("{} is the only override that matches", rule.id),
            (Some(rule), fitting) => {
                let because = candidates.iter().find_map(|each| match &each.result {
                    MatchResult::Outranked { because, .. } => Some(*because),
                    _ => None,
                });
                format!("of {fitting} that match, {} {}", rule.id, because.unwrap_or("comes first"))
            }
        };
        if requested > self.fallback.mode_max {
            format!("{who}; its mode is {}, but policy.enabled is not true", requested.name())
        } else {
            who
        }
    }
}
