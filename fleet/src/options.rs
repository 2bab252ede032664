//! Options of `uvmd-fleet`.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

/// Names of pods and policies of a Kubernetes cluster, as files for uvmd on this node.
///
/// It talks to the API server by the service account of its pod, or by $KUBECONFIG. It needs no
/// privilege on the node.
#[derive(Clone, Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// What to do in place of running.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Options of a run.
    #[command(flatten)]
    pub run: Run,
}

/// What to do in place of running.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Print the custom resource definitions, for kubectl apply
    Crds,
}

/// Options of a run.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// Name of this node in the cluster: spec.nodeName of its pods
    #[arg(long, env = "NODE_NAME", required = false, default_value = "")]
    pub node: String,

    /// File of names that uvmd reads: its option owners.names
    #[arg(long, value_name = "FILE", env = "UVMD_FLEET_NAMES", default_value = "/run/uvmd/fleet/owners.json")]
    pub names: PathBuf,

    /// File of overrides to compile `UvmPolicy` and `ClusterUvmPolicy` to; none without this option
    #[arg(long, value_name = "FILE", env = "UVMD_FLEET_OVERRIDES")]
    pub overrides: Option<PathBuf>,

    /// Label of pods that names carry; may be given several times
    #[arg(long = "label", value_name = "KEY", env = "UVMD_FLEET_LABELS", value_delimiter = ',')]
    pub labels: Vec<String>,

    /// Models of the GPUs of this node, as policies select them; may be given several times
    #[arg(long = "gpu-model", value_name = "NAME", env = "UVMD_FLEET_GPU_MODELS", value_delimiter = ',')]
    pub gpu_models: Vec<String>,

    /// Retention of the names of a pod that is gone
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub retention: Duration,

    /// Interval of writes without a change, which show that the program runs
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    pub heartbeat: Duration,

    /// Level of the log
    #[arg(long, value_name = "LEVEL", env = "UVMD_FLEET_LOG", default_value = "info")]
    pub log: tracing::Level,
}
