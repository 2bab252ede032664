//! File of overrides that `uvmd-fleet` writes and uvmd reads: a JSON list of [`Override`](rule::Override).
//!
//! uvmd takes the file as a claim: [`check`] permits what policies of a cluster compile to, and nothing
//! else. Each override is for one pod, and comes after those of the node.

use std::{collections::HashSet, ops::RangeInclusive};

use model::Selector;

use crate::{
    owner_names::{is_container_id, is_uid},
    rule::{self, Invalid},
};

/// Maximum bytes of the file.
pub const BYTES_MAX: u64 = 1 << 20;
/// Maximum of overrides.
pub const OVERRIDES_MAX: usize = 2_000;
/// Beginning of the ids. No other override may have it, so none can hide another.
pub const ID_PREFIX: &str = "fleet-";
/// Priorities of policies: below those that people give overrides of the node.
pub const PRIORITIES: RangeInclusive<i32> = -11_000..=-9_000;

/// Reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Too many overrides.
    #[error("{0} overrides, at most {OVERRIDES_MAX}")]
    TooMany(usize),
    /// One that uvmd would refuse of anyone.
    #[error("[{index}].{invalid}")]
    Invalid {
        /// Position of the override.
        index: usize,
        /// Its error.
        invalid: Invalid,
    },
    /// One that a policy of a cluster cannot compile to.
    #[error("[{index}].{field}: not {expected}")]
    NotPermitted {
        /// Position of the override.
        index: usize,
        /// Field.
        field: &'static str,
        /// Valid values.
        expected: &'static str,
    },
    /// Two overrides with one id.
    #[error("[{index}].id: an earlier override has it, too")]
    Duplicate {
        /// Position of the second.
        index: usize,
    },
}

/// Overrides of the file, if all of them are permitted.
///
/// # Errors
/// First violation.
pub fn check(given: Vec<rule::Override>) -> Result<Vec<model::Override>, Refusal> {
    if given.len() > OVERRIDES_MAX {
        return Err(Refusal::TooMany(given.len()));
    }
    let mut ids = HashSet::with_capacity(given.len());
    let mut all = Vec::with_capacity(given.len());
    for (index, given) in given.into_iter().enumerate() {
        let rule = check_one(index, given)?;
        if !ids.insert(rule.id.clone()) {
            return Err(Refusal::Duplicate { index });
        }
        all.push(rule);
    }
    Ok(all)
}

fn check_one(index: usize, given: rule::Override) -> Result<model::Override, Refusal> {
    let invalid = |invalid| Refusal::Invalid { index, invalid };
    let rule = model::Override::try_from(given).map_err(invalid)?;
    rule::check_parameters(&rule.policy, &rule.parameters).map_err(invalid)?;
    let is = |field, permitted: bool, expected| {
        if permitted { Ok(()) } else { Err(Refusal::NotPermitted { index, field, expected }) }
    };
    is("id", rule.id.starts_with(ID_PREFIX), "one that begins with \"fleet-\"")?;
    let Selector { pod, container, .. } = &rule.selector;
    // One without it would match processes of the node.
    is("match.pod", pod.as_deref().is_some_and(is_uid), "the whole UID of a pod: a UUID or 32 digits, in lower case")?;
    is("match.container", container.as_deref().is_none_or(is_container_id), "an id of 64 hexadecimal digits")?;
    let permitted = Selector { pod: pod.clone(), container: container.clone(), ..Selector::default() };
    is("match", rule.selector == permitted, "a pod, or one of its containers")?;
    is("priority", PRIORITIES.contains(&rule.priority), "from -11000 to -9000")?;
    Ok(rule)
}

/// Checks that an id of another source does not begin with [`ID_PREFIX`].
///
/// # Errors
/// If it does.
pub fn check_foreign_id(id: &str) -> Result<(), Invalid> {
    if !id.starts_with(ID_PREFIX) {
        return Ok(());
    }
    let detail = format!("{id:?} begins with {ID_PREFIX:?}, as ids of uvmd-fleet alone do");
    Err(Invalid { field: "id".into(), detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";

    fn given(change: impl FnOnce(&mut rule::Override)) -> rule::Override {
        let mut given = rule::Override {
            id: Some("fleet-ml.train".to_owned()),
            selector: Selector { pod: Some(UID.to_owned()), ..Selector::default() },
            mode: "act".to_owned(),
            priority: -10_000,
            ..rule::Override::default()
        };
        change(&mut given);
        given
    }

    #[test]
    fn overrides_of_policies_are_permitted() {
        let of_container = |given: &mut rule::Override| {
            given.id = Some("fleet-ml.container".to_owned());
            given.selector.container = Some("a".repeat(64));
            given.priority = -9_000;
        };
        let of_static_pod = |given: &mut rule::Override| {
            given.id = Some("fleet-ml.static".to_owned());
            given.selector.pod = Some("0123456789abcdef".repeat(2));
            given.priority = -11_000;
        };
        let all = vec![given(|_| {}), given(of_container), given(of_static_pod)];
        assert_eq!(check(all).unwrap().len(), 3);
    }

    #[test]
    fn what_no_policy_compiles_to_is_refused_by_field() {
        let pod = |pod: &'static str| given(|given| given.selector.pod = Some(pod.to_owned()));
        let priority = |priority| given(|given| given.priority = priority);
        for (given, field) in [
            (given(|given| given.id = None), "id"),
            (given(|given| given.id = Some("mine".to_owned())), "id"),
            (given(|given| given.selector = Selector::default()), "match.pod"),
            (pod("*"), "match.pod"),
            (pod("3f2a9c1e"), "match.pod"),
            (pod("3f2a9c1e-1111-2222-3333-44444444444*"), "match.pod"),
            (given(|given| given.selector.container = Some("a".repeat(12))), "match.container"),
            (given(|given| given.selector.uid = Some(0)), "match"),
            (given(|given| given.selector.executable = Some("*".to_owned())), "match"),
            (given(|given| given.selector.allocation_larger_than_bytes = Some(1)), "match"),
            (priority(i32::MAX), "priority"),
            (priority(-8_999), "priority"),
            (priority(-11_001), "priority"),
            (given(|given| given.parameters = [("x".to_owned(), "y".to_owned())].into()), "parameters.x"),
        ] {
            let refusal = check(vec![given.clone()]).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("[0].{field}: ")), "{given:?}: {refusal}");
        }
        assert_eq!(check(vec![given(|_| {}), given(|_| {})]), Err(Refusal::Duplicate { index: 1 }));
        assert_eq!(check(vec![given(|_| {}); 2_001]), Err(Refusal::TooMany(2_001)));
    }

    #[test]
    fn other_sources_cannot_take_an_id_of_fleet() {
        assert_eq!(check_foreign_id("fleet.wide"), Ok(()));
        assert_eq!(
            check_foreign_id("fleet-x").unwrap_err().to_string(),
            "id: \"fleet-x\" begins with \"fleet-\", as ids of uvmd-fleet alone do"
        );
    }
}
