//! Configuration of uvmd, and its file.
//!
//! Each option has a default here, which a TOML file overrides, which the command line overrides.
//! `uvmd.toml`, beside this crate's manifest, is the shipped file: every option with its default
//! and its purpose.
//!
//! * [`value`]: values of options
//! * [`load`](mod@load): from a file and settings to a [`Config`], or one clear message
//! * [`overrides`]: the file of overrides
//! * [`policy`]: options of acting
//! * [`WebConfig`]: TLS and users of the metrics listener, from a file of their own
//!
//! Parsing a file has no side effects, so that it can be repeated while uvmd runs:
//! [`Config::reloaded`].

mod error;
mod fragments;
pub mod load;
pub mod overrides;
pub mod policy;
mod read;
mod reload;
pub mod value;
mod web_config;

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

pub use error::{ConfigError, Mistake, SettingError};
pub use load::{Loaded, Setting, load, state_dir};
use model::ToolsLevel;
pub use policy::Policy;
use serde::{Deserialize, Serialize};
use value::{
    AbsolutePath, EndedMax, GroupName, HostNames, Hostname, Interval, Listen, LogFilter, LogFormat, OwnersMax,
    PairsMax, RecordRate, RecordingsMax, Retention, RingSize, SeriesMax, VerdictWindow, of_file,
};
pub use web_config::{BcryptHash, Tls, TlsVersion, UserName, WebConfig};

/// Default path of the configuration file.
pub const DEFAULT_FILE: &str = "/etc/uvmd/uvmd.toml";

/// Folder beside the file, whose files override it.
pub const FRAGMENTS: &str = "conf.d";

/// Default path of the socket.
pub const DEFAULT_SOCKET: &str = "/run/uvmd/uvmd.sock";

/// Shipped file.
pub const SHIPPED_FILE: &str = include_str!("../uvmd.toml");

/// Configuration of uvmd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// TCP address to serve on, if any.
    #[serde(deserialize_with = "of_file")]
    pub listen: Listen,
    /// Name of this node; the host's name by default.
    #[serde(deserialize_with = "of_file")]
    pub hostname: Option<Hostname>,
    /// Service over TCP.
    pub http: Http,
    /// Unix socket.
    pub socket: Socket,
    /// Permissions by token.
    pub auth: Auth,
    /// Log of the service.
    pub log: Log,
    /// Readings and their retention.
    pub collector: Collector,
    /// Names of owners.
    pub owners: Owners,
    /// `/metrics`.
    pub metrics: Metrics,
    /// Block records.
    pub records: Records,
    /// Recordings of calls.
    pub recordings: Recordings,
    /// Verdicts.
    pub verdicts: Verdicts,
    /// Policies and acting.
    pub policy: Policy,
}

/// Service over TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Host names that requests may use; the machine's names by default.
    #[serde(deserialize_with = "of_file")]
    pub hosts: Option<HostNames>,
}

/// Unix socket, whose peers the kernel identifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Socket {
    /// Whether the socket exists.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// Path of the socket.
    #[serde(deserialize_with = "of_file")]
    pub path: AbsolutePath,
    /// Group with read permission, as root has.
    #[serde(deserialize_with = "of_file")]
    pub group: Option<GroupName>,
    /// Group with write permission; `group` by default.
    #[serde(deserialize_with = "of_file")]
    pub write_group: Option<GroupName>,
}

/// Permissions by token, for clients that the kernel does not identify.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// File with the token for read permission.
    #[serde(deserialize_with = "of_file")]
    pub token_file: Option<AbsolutePath>,
    /// File with the token for read and write permission.
    #[serde(deserialize_with = "of_file")]
    pub write_token_file: Option<AbsolutePath>,
    /// Whether the group of those files may read them.
    #[serde(deserialize_with = "of_file")]
    pub token_file_group_readable: bool,
}

/// Log of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Filter.
    #[serde(deserialize_with = "of_file")]
    pub filter: LogFilter,
    /// Format.
    #[serde(deserialize_with = "of_file")]
    pub format: LogFormat,
    /// Path of the log; standard error by default.
    #[serde(deserialize_with = "of_file")]
    pub file: Option<AbsolutePath>,
}

/// Readings and their retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Collector {
    /// Source of counts.
    #[serde(deserialize_with = "of_file")]
    pub source: value::Source,
    /// Level of the driver's tools.
    #[serde(deserialize_with = "of_file")]
    pub tools_level: ToolsLevel,
    /// Cross-check of the probes.
    #[serde(deserialize_with = "of_file")]
    pub crosscheck: value::Crosscheck,
    /// Interval of readings without a request.
    #[serde(deserialize_with = "of_file")]
    pub interval: Interval,
    /// Retention of an exited process.
    #[serde(deserialize_with = "of_file")]
    pub ended_retention: Retention,
    /// Maximum of exited processes retained.
    #[serde(deserialize_with = "of_file")]
    pub max_ended: EndedMax,
    /// Maximum of owners with sums.
    #[serde(deserialize_with = "of_file")]
    pub max_owners: OwnersMax,
    /// Maximum of owner pairs with sums of evictions.
    #[serde(deserialize_with = "of_file")]
    pub max_eviction_pairs: PairsMax,
    /// Retention of the sums of an idle owner.
    #[serde(deserialize_with = "of_file")]
    pub owner_retention: Retention,
}

/// Names of owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Owners {
    /// File with the names of pods, as uvmd-fleet writes it.
    #[serde(deserialize_with = "of_file")]
    pub names: Option<AbsolutePath>,
}

/// `/metrics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// TCP address to serve the metrics alone on, if any.
    #[serde(deserialize_with = "of_file")]
    pub listen: Listen,
    /// File with TLS and users of that address.
    #[serde(deserialize_with = "of_file")]
    pub web_config_file: Option<AbsolutePath>,
    /// Whether each process has series, labelled with its pid.
    #[serde(deserialize_with = "of_file")]
    pub per_process: bool,
    /// Maximum of processes with series.
    #[serde(deserialize_with = "of_file")]
    pub max_processes: SeriesMax,
}

impl Metrics {
    /// Maximum of processes with series; `None` if they have none.
    #[must_use]
    pub fn processes(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.max_processes.0 as usize).filter(|_| self.per_process)
    }
}

/// Block records, which report addresses of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Records {
    /// Whether block records are written.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// Maximum of records per second and CPU; further ones are sampled out.
    #[serde(deserialize_with = "of_file")]
    pub max_per_second: RecordRate,
    /// Size of the ring through which they leave the kernel.
    #[serde(deserialize_with = "of_file")]
    pub ring_size: RingSize,
}

/// Recordings of calls, of programs with the helper in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recordings {
    /// Whether the calls that programs record are read.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// Maximum of recordings of the node.
    #[serde(deserialize_with = "of_file")]
    pub max: RecordingsMax,
    /// Maximum of recordings of a user's processes.
    #[serde(deserialize_with = "of_file")]
    pub max_per_user: RecordingsMax,
}

/// Verdicts about processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verdicts {
    /// Minimum length of a window of evidence.
    #[serde(deserialize_with = "of_file")]
    pub window: VerdictWindow,
}

impl Config {
    /// Warnings about valid but possibly unintended settings, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Self { listen, socket, auth, metrics, policy, .. } = self;
        let mut warnings = Vec::new();
        if policy.enabled && policy.mode.0 == model::Mode::Act {
            warnings.push("policy.mode is \"act\": processes of all users without an override are acted on".to_owned());
        }
        if let (Listen::On(all), Listen::On(alone)) = (listen, metrics.listen)
            && *all == alone
            && all.port() != 0
        {
            warnings.push(format!("metrics.listen cannot be served: listen has the same address, {all}"));
        }
        if metrics.listen == Listen::None && metrics.web_config_file.is_some() {
            warnings.push("metrics.web_config_file has no effect without metrics.listen".to_owned());
        }
        let listen = match listen {
            Listen::None if socket.enabled => return warnings,
            Listen::None if metrics.listen != Listen::None => {
                warnings.push(
                    "listen is \"none\" and socket.enabled is false: nobody can read anything but metrics".to_owned(),
                );
                return warnings;
            }
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
            // Remote access requires a decision: by default, only this machine has it.
            listen: Listen::On(SocketAddr::from((Ipv4Addr::LOCALHOST, 9477))),
            hostname: None,
            http: Http::default(),
            socket: Socket::default(),
            auth: Auth::default(),
            log: Log::default(),
            collector: Collector::default(),
            owners: Owners::default(),
            metrics: Metrics::default(),
            records: Records::default(),
            recordings: Recordings::default(),
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
            source: value::Source::Auto,
            tools_level: ToolsLevel::default(),
            crosscheck: value::Crosscheck::Off,
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
        // Pid labels create a new series for each process that ever ran.
        Self { listen: Listen::None, web_config_file: None, per_process: false, max_processes: value::Number(50) }
    }
}

impl Default for Records {
    fn default() -> Self {
        Self { enabled: true, max_per_second: value::Number(100_000), ring_size: RingSize { bytes: 4 << 20 } }
    }
}

impl Default for Recordings {
    fn default() -> Self {
        Self { enabled: true, max: value::Number(16), max_per_user: value::Number(8) }
    }
}

impl Default for Verdicts {
    fn default() -> Self {
        Self { window: value::Time(Duration::from_secs(2)) }
    }
}
