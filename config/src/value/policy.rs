//! Mode, policy and actuator.

use model::{ActuatorChoice, Mode, policy};
use serde::{Serialize, Serializer};

use super::Value;

/// Mode of acting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeName(pub Mode);

impl Value for ModeName {
    const ALLOWED: &'static str = "\"observe\", \"shadow\" or \"act\"";

    fn of_text(text: &str) -> Option<Self> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).map(Self)
    }
}

impl Serialize for ModeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

/// Name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyName(pub String);

impl Value for PolicyName {
    const ALLOWED: &'static str = policy::NAMES;

    fn of_text(text: &str) -> Option<Self> {
        policy::named(text).is_some().then(|| Self(text.to_owned()))
    }
}

/// Choice of the actuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActuatorName(pub ActuatorChoice);

impl Value for ActuatorName {
    const ALLOWED: &'static str = "\"auto\", \"ioctl\" or \"helper\"";

    fn of_text(text: &str) -> Option<Self> {
        ActuatorChoice::ALL.into_iter().find(|choice| choice.name() == text).map(Self)
    }
}

impl Serialize for ActuatorName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_policy_and_actuator_is_allowed_and_listed_in_the_error() {
        for mode in Mode::ALL {
            assert_eq!(ModeName::of_text(mode.name()), Some(ModeName(mode)));
            assert!(ModeName::ALLOWED.contains(mode.name()));
        }
        for policy in policy::POLICIES {
            assert!(PolicyName::of_text(policy.name).is_some(), "{policy:?}");
        }
        for choice in ActuatorChoice::ALL {
            assert_eq!(ActuatorName::of_text(choice.name()), Some(ActuatorName(choice)));
            assert!(ActuatorName::ALLOWED.contains(choice.name()));
        }
        assert_eq!(ActuatorName::of_text("none"), None);
        assert_eq!((ModeName::of_text("on"), PolicyName::of_text("none")), (None, None));
    }
}
