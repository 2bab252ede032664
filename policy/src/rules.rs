//! Which override applies to a process, and why.
//!
//! Overrides have one order, whichever process is asked about: by priority, then by how much they say about a process, then by name. The first
//! that fits and whose time is not over is in force; where there is none, the default is.

mod fit;
mod order;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    time::SystemTime,
};

use model::{Budget, Directive, Mode, Override, Process};

/// Overrides, in order of precedence, and what holds where none fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    ordered: Vec<Override>,
    /// Names of those whose time is over, whatever the clock says.
    expired: BTreeSet<String>,
    fallback: Fallback,
}

/// What holds where no override fits, or where it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// How far to go.
    pub mode: Mode,
    /// By which policy.
    pub policy: String,
    /// What may be moved for one process.
    pub budget: Budget,
    /// How far to go at most, whatever is asked for.
    pub mode_max: Mode,
}

/// Whom the rules are asked about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// What is known of the process.
    pub process: &'a Process,
    /// The path of its executable, where that could be read.
    pub executable: Option<&'a Path>,
}

/// What is wanted for a process, and what was looked at to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What is wanted.
    pub directive: Directive,
    /// Why, as a sentence.
    pub why: String,
    /// Every override, in order of precedence.
    pub candidates: Vec<Candidate>,
}

/// What became of one override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub id: String,
    /// What.
    pub fit: Fit,
}

/// Whether an override applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is the one in force.
    InForce,
    /// It fits, and another comes first.
    Outranked {
        /// The one in force.
        by: String,
        /// What put it first.
        because: &'static str,
    },
    /// Its time is over.
    Expired,
    /// It is for others.
    Differs {
        /// What differs, as it is called in an override: `match.pod`.
        key: &'static str,
        /// What the process is, in words.
        is: String,
    },
}

impl Fit {
    /// Whether it fits the process, in force or not.
    #[must_use]
    pub const fn fits(&self) -> bool {
        matches!(self, Self::InForce | Self::Outranked { .. })
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce => f.write_str("it is the first that matches"),
            Self::Outranked { by, because } => write!(f, "it matches, but {by} {because}"),
            Self::Expired => f.write_str("it has expired"),
            Self::Differs { key, is } => write!(f, "{key} does not match: {is}"),
        }
    }
}

impl Rules {
    /// Of these overrides, in any order.
    #[must_use]
    pub fn new(mut overrides: Vec<Override>, fallback: Fallback) -> Self {
        overrides.sort_by(order::precedence);
        Self { ordered: overrides, expired: BTreeSet::new(), fallback }
    }

    /// The same, with the time of the overrides of these names over, whatever the clock says: it may have been set back since.
    #[must_use]
    pub fn with_expired(self, expired: BTreeSet<String>) -> Self {
        Self { expired, ..self }
    }

    /// Whether an override's time is over.
    #[must_use]
    pub fn is_over(&self, rule: &Override, now: SystemTime) -> bool {
        self.expired.contains(&rule.id) || rule.expires_at.is_some_and(|end| end <= now)
    }

    /// The overrides, in order of precedence.
    #[must_use]
    pub fn ordered(&self) -> &[Override] {
        &self.ordered
    }

    /// What is wanted for a process.
    #[must_use]
    pub fn directive(&self, subject: Subject<'_>, now: SystemTime) -> Directive {
        let fits = |each: &&Override| !self.is_over(each, now) && fit::mismatch(&each.selector, subject).is_none();
        self.directive_of(self.ordered.iter().find(fits))
    }

    /// The same, with the reasons.
    #[must_use]
    pub fn explain(&self, subject: Subject<'_>, now: SystemTime) -> Explained {
        let mut in_force: Option<&Override> = None;
        let mut candidates = Vec::with_capacity(self.ordered.len());
        for each in &self.ordered {
            let fit = match (fit::mismatch(&each.selector, subject), in_force) {
                (Some((key, is)), _) => Fit::Differs { key, is },
                (None, _) if self.is_over(each, now) => Fit::Expired,
                (None, Some(first)) => Fit::Outranked { by: first.id.clone(), because: order::because(first, each) },
                (None, None) => {
                    in_force = Some(each);
                    Fit::InForce
                }
            };
            candidates.push(Candidate { id: each.id.clone(), fit });
        }
        Explained { directive: self.directive_of(in_force), why: self.why(in_force, &candidates), candidates }
    }

    fn directive_of(&self, in_force: Option<&Override>) -> Directive {
        let Fallback { mode, policy, budget, mode_max } = &self.fallback;
        let Some(rule) = in_force else {
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

    fn why(&self, in_force: Option<&Override>, candidates: &[Candidate]) -> String {
        let asked = in_force.map_or(self.fallback.mode, |rule| rule.mode);
        let who = match (in_force, candidates.iter().filter(|each| each.fit.fits()).count()) {
            (None, _) if candidates.is_empty() => {
                "there is no override: the configuration's default applies".to_owned()
            }
            (None, _) => "no override matches: the configuration's default applies".to_owned(),
            (Some(rule), 0 | 1) => format!("{} is the only override that matches", rule.id),
            (Some(rule), fitting) => {
                let because = candidates.iter().find_map(|each| match &each.fit {
                    Fit::Outranked { because, .. } => Some(*because),
                    _ => None,
                });
                format!("of {fitting} that match, {} {}", rule.id, because.unwrap_or("comes first"))
            }
        };
        if asked > self.fallback.mode_max {
            format!("{who}; its mode is {}, but policy.enabled is not true", asked.name())
        } else {
            who
        }
    }
}
