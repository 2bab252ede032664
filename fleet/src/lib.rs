//! `uvmd-fleet`: pod names and policies of a Kubernetes cluster, as files for uvmd on this node.
//!
//! uvmd is root, and has no credentials. This program has those of a service account, and no
//! privilege. uvmd reads its files as claims, within bounds.
//!
//! * [`run`](mod@run): main loop
//! * [`pod`], [`names`]: a pod, and its names; [`registry`]: all pods of the node
//! * [`names_file`], [`file`]: the file of names, and its atomic replacement
//! * [`contact`]: contact with the API server; [`backoff`]: back-off between attempts
//! * [`resources`]: custom resources; [`compile`]: policies compiled to overrides; [`share`]: room
//!   in their file; [`policies`]: their watch and file; [`status`]: their status
//! * [`options`]: the command line

pub mod backoff;
pub mod compile;
pub mod contact;
pub mod file;
mod hash;
pub mod names;
pub mod names_file;
pub mod options;
pub mod pod;
pub mod policies;
pub mod registry;
pub mod resources;
pub mod run;
pub mod share;
pub mod status;
