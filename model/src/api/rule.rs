//! What operators want done, for whom: overrides, and the switch for all of them. In a file and over the API they have the same form.

mod parse;

use std::collections::BTreeMap;

pub use parse::{Field, Invalid, one_of};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::decision::MemoryRange;

/// For these processes, go so far, by this policy. Body of `PUT /api/v1/overrides/{id}` and `POST /api/v1/overrides`, and `[[override]]` in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Its name, of 1 to 64 letters, digits, `.`, `_` and `-`, no two the same. Where a request leaves it out, it is made of the rest.
    #[serde(default)]
    pub id: Option<String>,
    /// For whom; for everybody unless given.
    #[serde(default, rename = "match")]
    pub selector: Selector,
    /// `observe`: nothing is done; `shadow`: what would be done is told; `act`: it is done.
    pub mode: String,
    /// By which policy; `auto-live`, which chooses, unless given.
    #[serde(default)]
    pub policy: Option<String>,
    /// What the policy is told, by name.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// What may be moved.
    #[serde(default)]
    pub budget: Budget,
    /// Of those that fit a process, the one with the highest is in force; 0 unless given.
    #[serde(default)]
    pub priority: i32,
    /// When it ends by itself; never unless given.
    #[serde(default)]
    pub expires: Option<String>,
}

/// Which processes, and what of their memory: all that is given must fit. In texts `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// The process with this id, as uvmd sees it.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Of the process with that id, when it began, in clock ticks since the boot: another that has the id later is not meant. An override made over the API
    /// that leaves it out is for the process that has the id now.
    #[serde(default)]
    pub start_ticks: Option<u64>,
    /// By its short name, or by the path of its executable where there is a `/` in it. A process sets both itself: this is no security boundary.
    #[serde(default)]
    pub executable: Option<String>,
    /// Of this user.
    #[serde(default)]
    pub uid: Option<u32>,
    /// In this cgroup, or below it.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// In this container, by its id or the beginning of it.
    #[serde(default)]
    pub container: Option<String>,
    /// In this pod, by UID.
    #[serde(default)]
    pub pod: Option<String>,
    /// Of this Slurm job.
    #[serde(default)]
    pub job: Option<String>,
    /// Only memory in this range. Read with read authority; null without.
    #[serde(default)]
    pub range: Option<MemoryRange>,
    /// Only allocations larger than this: a number, or text with a unit, such as `64 MiB`.
    #[serde(default, deserialize_with = "bytes")]
    pub allocation_larger_than_bytes: Option<u64>,
}

/// What may be moved for a process at most: numbers, or texts with a unit, such as `4 GiB`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Bytes a second.
    #[serde(default, deserialize_with = "bytes")]
    pub bytes_per_second: Option<u64>,
    /// Bytes in all.
    #[serde(default, deserialize_with = "bytes")]
    pub bytes: Option<u64>,
}

/// An override, and how it stands. Body of `GET /api/v1/overrides/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StandingOverride {
    /// It, as it was given.
    pub r#override: Override,
    /// Where it is from: `file`, or `api`. Only the latter can be changed over the API.
    pub source: String,
    /// Whether its time is over.
    pub expired: bool,
}

impl Override {
    /// Whether it is what somebody asked for, who may have left it open which process of an id is meant.
    #[must_use]
    pub fn is_as_asked(&self, asked: &Self) -> bool {
        let start_ticks = asked.selector.start_ticks.and(self.selector.start_ticks);
        *asked == Self { selector: Selector { start_ticks, ..self.selector.clone() }, ..self.clone() }
    }
}

impl StandingOverride {
    /// As those see it who may not see addresses.
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
    /// In the order in which they are in force where several fit.
    pub overrides: Vec<StandingOverride>,
    /// What is wrong with the file of overrides, so that an earlier state of it is in force; null if nothing is.
    pub file_error: Option<String>,
    /// Where the next page begins: asks for it as `continue`. Null on the last one.
    #[serde(default)]
    pub r#continue: Option<String>,
    /// How many overrides follow this page.
    #[serde(default)]
    pub remaining: u64,
}

/// What is wanted for a process, and why. Body of `GET /api/v1/processes/{pid}/override`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wanted {
    /// Process id.
    pub pid: u32,
    /// With `pid` it names the process.
    pub start_ticks: u64,
    /// Its short name.
    pub name: String,
    /// By which override; null where none fits, and the configuration's default holds.
    pub asked_by: Option<String>,
    /// How far to go.
    pub mode: String,
    /// By which policy.
    pub policy: String,
    /// What the policy is told.
    pub parameters: BTreeMap<String, String>,
    /// What may be moved.
    pub budget: Budget,
    /// Only memory in this range. Needs read authority; null without.
    pub range: Option<MemoryRange>,
    /// Only allocations larger than this.
    pub allocation_larger_than_bytes: Option<u64>,
    /// Why, as a sentence.
    pub why: String,
    /// Whether anything is done at all: what [`PolicyState::on`] says.
    pub on: bool,
    /// Every override that was looked at, in order of precedence.
    pub considered: Vec<Considered>,
    /// What keeps more from being done, beside `mode` and `on`, as of the last second.
    #[serde(default)]
    pub hindrances: Vec<Hindrance>,
}

/// What keeps uvmd from doing more for a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hindrance {
    /// At which GPU; null where it is at all of them.
    pub gpu_uuid: Option<String>,
    /// What is not done: `everything`, `advice`, `some_memory`, `moves`, `moves_to_gpu`, `moves_to_host`, `remote_mappings`, or a policy.
    pub hindered: String,
    /// Why, as a sentence.
    pub why: String,
}

impl From<&crate::Hindrance> for Hindrance {
    fn from(hindrance: &crate::Hindrance) -> Self {
        Self {
            gpu_uuid: hindrance.gpu.map(|gpu| gpu.to_string()),
            hindered: hindrance.hindered.name().to_owned(),
            why: hindrance.why.clone(),
        }
    }
}

/// What became of an override that was looked at for a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Considered {
    /// Its name.
    pub id: String,
    /// Whether it fits the process.
    pub fits: bool,
    /// Whether it is the one in force.
    pub in_force: bool,
    /// Why, or why not.
    pub why: String,
}

/// Whether uvmd acts. Body of `GET /api/v1/policy`, and of the answers to `POST /api/v1/policy/off` and `/on`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyState {
    /// Whether it may act now: it is enabled, and nobody has switched it off.
    pub on: bool,
    /// Whether the configuration lets it act at all (`policy.enabled`).
    pub enabled: bool,
    /// Who has switched it off; empty where nobody has.
    pub off_by: Vec<SwitchedOff>,
    /// Whether it was switched off over the API and the disk has not taken that yet: until then it would be on again after a restart.
    #[serde(default)]
    pub persist_pending: bool,
    /// How far it goes for whom no override fits.
    pub default_mode: String,
    /// And by which policy.
    pub default_policy: String,
    /// How many overrides are in force or could be.
    pub overrides: u64,
    /// What is wrong with the file of overrides; null if nothing is.
    pub file_error: Option<String>,
}

/// One who switched it off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SwitchedOff {
    /// `file`: the file of the configuration's `policy.kill_switch` is there; `api`: somebody asked for it.
    pub how: String,
    /// Who, in words.
    pub by: String,
    /// Since when.
    pub since: String,
}

/// A number of bytes, or text with a unit.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Bytes;

    impl de::Visitor<'_> for Bytes {
        type Value = Option<u64>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number of bytes, or text with a unit, such as \"64 MiB\"")
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Self::Value, E> {
            Ok(Some(bytes))
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Self::Value, E> {
            let invalid = |_| E::invalid_value(de::Unexpected::Signed(bytes), &self);
            u64::try_from(bytes).map(Some).map_err(invalid)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let invalid = |_| E::invalid_value(de::Unexpected::Str(text), &self);
            super::text::parse_bytes(text).map(Some).map_err(invalid)
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }

    deserializer.deserialize_any(Bytes)
}
