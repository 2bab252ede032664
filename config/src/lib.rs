//! What can be chosen about uvmd, and the file that says it.
//!
//! An option has a default here, which a TOML file overrides, which the command line overrides. `uvmd.toml`, beside this crate's manifest, is the
//! file that is shipped: every option with its default and what it is for.
//!
//! * [`value`]: the values that options take
//! * [`load`](mod@load): from a file and settings to a [`Config`], or one clear message
//! * [`overrides`]: the file of overrides
//! * [`policy`]: the options about acting
//!
//! To parse a file has no effects, so that it can be done again while uvmd runs: [`Config::reloaded`].

mod error;
mod fragments;
pub mod load;
pub mod overrides;
pub mod policy;
mod read;
mod reload;
pub mod value;

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

pub use error::{ConfigError, Mistake};
pub use load::{Loaded, Setting, load, state_dir};
pub use policy::Policy;
use serde::{Deserialize, Serialize};
use value::{
    AbsolutePath, EndedMax, GroupName, HostNames, Hostname, Interval, Listen, LogFilter, LogFormat, OwnersMax,
    PairsMax, RecordRate, Retention, RingSize, SeriesMax, VerdictWindow, of_file,
};

/// The file that is read unless another is named.
pub const DEFAULT_FILE: &str = "/etc/uvmd/uvmd.toml";

/// Folder beside the file, whose files override it.
pub const FRAGMENTS: &str = "conf.d";

/// The socket, unless another is named.
pub const DEFAULT_SOCKET: &str = "/run/uvmd/uvmd.sock";

/// The file as it is shipped.
pub const SHIPPED_FILE: &str = include_str!("../uvmd.toml");

/// Everything that can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to serve over TCP, if anywhere.
    #[serde(deserialize_with = "of_file")]
    pub listen: Listen,
    /// Name of this node; the host's own where there is none.
    #[serde(deserialize_with = "of_file")]
    pub hostname: Option<Hostname>,
    /// What is served on that address.
    pub http: Http,
    /// The Unix socket.
    pub socket: Socket,
    /// Who may read everything.
    pub auth: Auth,
    /// The service's own log.
    pub log: Log,
    /// What is read and kept.
    pub collector: Collector,
    /// `/metrics`.
    pub metrics: Metrics,
    /// Records of single 2 MiB blocks.
    pub records: Records,
    /// What is wrong with processes.
    pub verdicts: Verdicts,
    /// What is done about it.
    pub policy: Policy,
}

/// What is served over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Names that clients may ask for; the machine's own where there are none.
    #[serde(deserialize_with = "of_file")]
    pub hosts: Option<HostNames>,
}

/// The Unix socket, on which the kernel tells who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Socket {
    /// Whether there is one.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// Where.
    #[serde(deserialize_with = "of_file")]
    pub path: AbsolutePath,
    /// Members of this group may read everything, as root may.
    #[serde(deserialize_with = "of_file")]
    pub group: Option<GroupName>,
    /// Members of this group may change things, too; those of `group` where there is none.
    #[serde(deserialize_with = "of_file")]
    pub write_group: Option<GroupName>,
}

/// Who may read everything, and who may change things, without being known to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// The file with the token to read with.
    #[serde(deserialize_with = "of_file")]
    pub token_file: Option<AbsolutePath>,
    /// The file with the token to read and to change things with.
    #[serde(deserialize_with = "of_file")]
    pub write_token_file: Option<AbsolutePath>,
    /// Whether those files' group may read them.
    #[serde(deserialize_with = "of_file")]
    pub token_file_group_readable: bool,
}

/// The service's own log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// What is logged.
    #[serde(deserialize_with = "of_file")]
    pub filter: LogFilter,
    /// How.
    #[serde(deserialize_with = "of_file")]
    pub format: LogFormat,
    /// Where to; standard error where there is none.
    #[serde(deserialize_with = "of_file")]
    pub file: Option<AbsolutePath>,
}

/// What is read and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Collector {
    /// How often the counters are read when nobody asks.
    #[serde(deserialize_with = "of_file")]
    pub interval: Interval,
    /// How long a process is listed after its end.
    #[serde(deserialize_with = "of_file")]
    pub ended_retention: Retention,
    /// How many ended processes are kept at most.
    #[serde(deserialize_with = "of_file")]
    pub max_ended: EndedMax,
    /// How many owners have sums of their own.
    #[serde(deserialize_with = "of_file")]
    pub max_owners: OwnersMax,
    /// How many pairs of owners have sums of what one pushed out for the other.
    #[serde(deserialize_with = "of_file")]
    pub max_eviction_pairs: PairsMax,
    /// How long an owner keeps them while it is idle.
    #[serde(deserialize_with = "of_file")]
    pub owner_retention: Retention,
}

/// `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Series for each process, labelled with its pid.
    #[serde(deserialize_with = "of_file")]
    pub per_process: bool,
    /// How many processes may have some.
    #[serde(deserialize_with = "of_file")]
    pub max_processes: SeriesMax,
}

impl Metrics {
    /// How many processes may have series of their own, if any may.
    #[must_use]
    pub fn processes(self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.max_processes.0 as usize).filter(|_| self.per_process)
    }
}

/// Records of single 2 MiB blocks, which tell where in memory things happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Records {
    /// Whether there are any.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// Records a second at most on each CPU; what comes beyond is left out.
    #[serde(deserialize_with = "of_file")]
    pub max_per_second: RecordRate,
    /// The ring that carries them out of the kernel.
    #[serde(deserialize_with = "of_file")]
    pub ring_size: RingSize,
}

/// Verdicts: what is wrong with processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verdicts {
    /// The least time that a window of evidence lasts.
    #[serde(deserialize_with = "of_file")]
    pub window: VerdictWindow,
}

impl Config {
    /// What is in order, and is perhaps not meant: a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Self { listen, socket, auth, policy, .. } = self;
        let mut warnings = Vec::new();
        if policy.enabled && policy.mode.0 == model::Mode::Act {
            warnings.push("policy.mode is \"act\": processes of all users without an override are acted on".to_owned());
        }
        let listen = match listen {
            Listen::None if socket.enabled => return warnings,
            Listen::None => {
                warnings.push("listen is \"none\" and socket.enabled is false: nobody can read anything".to_owned());
                return warnings;
            }
            Listen::On(address) if address.ip().is_loopback() => return warnings,
            Listen::On(address) => address,
        };
        warnings.push(format!(
            "{listen} is not loopback: anyone who can reach it can read process names, users and cgroups"
        ));
        for (option, token) in
            [("auth.token_file", &auth.token_file), ("auth.write_token_file", &auth.write_token_file)]
        {
            if token.is_some() {
                warnings.push(format!(
                    "the token of {option} is sent in the clear to {listen}, which is not loopback: whoever can listen in on the network \
                     knows it then; let clients come through a tunnel"
                ));
            }
        }
        warnings
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Who may read is a decision: until it is made, nobody beyond this machine.
            listen: Listen::On(SocketAddr::from((Ipv4Addr::LOCALHOST, 9477))),
            hostname: None,
            http: Http::default(),
            socket: Socket::default(),
            auth: Auth::default(),
            log: Log::default(),
            collector: Collector::default(),
            metrics: Metrics::default(),
            records: Records::default(),
            verdicts: Verdicts::default(),
            policy: Policy::default(),
        }
    }
}

impl Default for Socket {
    fn default() -> Self {
        Self { enabled: true, path: AbsolutePath(DEFAULT_SOCKET.into()), group: None, write_group: None }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: LogFilter::default(), format: LogFormat::Auto, file: None }
    }
}

impl Default for Collector {
    fn default() -> Self {
        Self {
            interval: value::Time(Duration::from_secs(1)),
            ended_retention: value::Time(Duration::from_mins(5)),
            max_ended: value::Number(1024),
            max_owners: value::Number(256),
            max_eviction_pairs: value::Number(1024),
            owner_retention: value::Time(Duration::from_hours(1)),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        // Pids as labels make a new series for each process that ever ran.
        Self { per_process: false, max_processes: value::Number(50) }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self { enabled: true, max_per_second: value::Number(100_000), ring_size: RingSize { bytes: 4 << 20 } }
    }
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { window: value::Time(Duration::from_secs(2)) }
    }
}
