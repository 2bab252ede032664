//! Room in the file of overrides, and its division where not all of them fit.

use std::collections::BTreeMap;

use api::{
    fleet_overrides::{BYTES_MAX, OVERRIDES_MAX},
    rule,
};

use crate::resources::{self, Key};

/// Room of the file: below the limits of uvmd.
pub const ROOM: Room = Room { overrides: OVERRIDES_MAX, bytes: BYTES_MAX / 8 * 7 };

/// Maximum size of the file.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Overrides.
    pub overrides: usize,
    /// Bytes of its text.
    pub bytes: u64,
}

/// Overrides of one pod: the file has all of them or none.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Namespace of the pod.
    pub namespace: String,
    /// Class: a lower one comes first.
    pub class: Class,
    /// Policies that the overrides are from.
    pub selected: Vec<Key>,
    /// Overrides.
    pub overrides: Vec<rule::Override>,
}

/// Class of a claim. What restricts uvmd comes before what lets it act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Annotation of the pod.
    OptOut,
    /// All its overrides observe.
    Observe,
    /// Any other.
    Other,
}

/// Divides claims into those that the room has a place for, and the others. Within a class the
/// namespaces take turns, so that one with many pods leaves room for the others.
///
/// # Errors
/// If an override cannot be written.
pub fn divide(claims: Vec<Claim>, room: Room) -> serde_json::Result<(Vec<Claim>, Vec<Claim>)> {
    let mut turns = BTreeMap::<(Class, String), usize>::new();
    let mut queue = Vec::with_capacity(claims.len());
    for claim in claims {
        let turn = turns.entry((claim.class, claim.namespace.clone())).or_default();
        queue.push((*turn, claim));
        *turn += 1;
    }
    queue.sort_by(|(turn, one), (other_turn, other)| {
        (one.class, turn, &one.namespace).cmp(&(other.class, other_turn, &other.namespace))
    });
    // Brackets of the list.
    let (mut overrides, mut bytes) = (0, 2);
    let (mut placed, mut omitted) = (Vec::new(), Vec::new());
    for (_, claim) in queue {
        let claimed_bytes = text(&claim.overrides)?.len() as u64;
        let fits = overrides + claim.overrides.len() <= room.overrides && bytes + claimed_bytes <= room.bytes;
        if fits {
            overrides += claim.overrides.len();
            bytes += claimed_bytes;
            placed.push(claim);
        } else {
            omitted.push(claim);
        }
    }
    Ok((placed, omitted))
}

/// Text of the file: overrides without absent fields.
///
/// # Errors
/// If they cannot be written.
pub fn text(overrides: &[rule::Override]) -> serde_json::Result<Vec<u8>> {
    let mut value = serde_json::to_value(overrides)?;
    resources::prune(&mut value);
    serde_json::to_vec(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str, number: usize, class: Class) -> Claim {
        let rule = rule::Override {
            id: Some(format!("{namespace}-{number}")),
            mode: "act".to_owned(),
            ..rule::Override::default()
        };
        Claim { namespace: namespace.to_owned(), class, selected: Vec::new(), overrides: vec![rule] }
    }

    fn ids(claims: &[Claim]) -> Vec<&str> {
        claims.iter().flat_map(|claim| &claim.overrides).filter_map(|rule| rule.id.as_deref()).collect()
    }

    fn claims() -> Vec<Claim> {
        let mut claims: Vec<Claim> = (0..5).map(|number| claim("big", number, Class::Other)).collect();
        claims.push(claim("small", 0, Class::Other));
        claims.push(claim("small", 1, Class::Observe));
        claims.push(claim("small", 2, Class::OptOut));
        claims
    }

    #[test]
    fn opt_outs_come_first_and_namespaces_take_turns() {
        let (placed, omitted) = divide(claims(), Room { overrides: 5, ..ROOM }).unwrap();
        assert_eq!(ids(&placed), ["small-2", "small-1", "big-0", "small-0", "big-1"]);
        assert_eq!(ids(&omitted), ["big-2", "big-3", "big-4"]);
    }

    #[test]
    fn text_stays_within_the_bytes() {
        for bytes in [2, 100, 200, 1000] {
            let (placed, _) = divide(claims(), Room { bytes, ..ROOM }).unwrap();
            let overrides: Vec<_> = placed.into_iter().flat_map(|claim| claim.overrides).collect();
            assert!(text(&overrides).unwrap().len() as u64 <= bytes);
        }
        assert_eq!(divide(claims(), ROOM).unwrap().0.len(), 8);
    }

    #[test]
    fn text_is_read_as_the_same_overrides_and_has_no_nulls() {
        let overrides = claims().remove(0).overrides;
        let text = String::from_utf8(text(&overrides).unwrap()).unwrap();
        assert!(!text.contains("null") && !text.contains('\n'), "{text}");
        assert_eq!(serde_json::from_str::<Vec<rule::Override>>(&text).unwrap(), overrides);
    }
}
