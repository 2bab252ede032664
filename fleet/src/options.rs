//! Options of `uvmd-fleet`.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

/// Write pod names and policies of a Kubernetes cluster to files for uvmd on this node
///
/// Connects to the API server with the service account of its pod, or with $KUBECONFIG. Needs no
/// privilege on the node.
#[derive(Clone, Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Command; without one, the program runs.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Options of a run.
    #[command(flatten)]
    pub run: Run,
}

/// Commands that do not run the program.
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

    /// File of pod names to write, which uvmd reads as owners.names
    #[arg(long, value_name = "FILE", env = "UVMD_FLEET_NAMES", default_value = "/run/uvmd/fleet/owners.json")]
    pub names: PathBuf,

    /// File of overrides to write, compiled from `UvmPolicy` and `ClusterUvmPolicy`, which uvmd reads
    /// as `policy.overrides_file`; without it, policies are not watched
    #[arg(long, value_name = "FILE", env = "UVMD_FLEET_OVERRIDES")]
    pub overrides: Option<PathBuf>,

    /// Pod label to include in the names; may be given several times
    #[arg(long = "label", value_name = "KEY", env = "UVMD_FLEET_LABELS", value_delimiter = ',')]
    pub labels: Vec<String>,

    /// GPU model of this node, for the selector `gpuModels`; may be given several times [default:
    /// those that the driver lists]
    #[arg(long = "gpu-model", value_name = "NAME", env = "UVMD_FLEET_GPU_MODELS", value_delimiter = ',')]
    pub gpu_models: Vec<String>,

    /// Retention of the names of a deleted pod
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub retention: Duration,

    /// Interval of writes without a change, which show that the program is alive
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = humantime::parse_duration)]
    pub heartbeat: Duration,

    /// Level of the log
    #[arg(long, value_name = "LEVEL", env = "UVMD_FLEET_LOG", default_value = "info")]
    pub log: tracing::Level,
}
