//! `uvmd-fleet`: what a Kubernetes cluster knows about the pods of this node, as files for uvmd.
//!
//! uvmd is root, and has no credentials. This program has those of a service account, and no
//! privilege. Between them are files, which uvmd takes as claims.
//!
//! * [`run`](mod@run): watch of the API server, and writes
//! * [`pod`], [`names`]: a pod, and its names; [`registry`]: all of the node
//! * [`names_file`], [`file`]: the file of names
//! * [`contact`]: whether the API server answers; [`pause`]: pauses between attempts
//! * [`resources`]: custom resources; [`compile`]: policies compiled to overrides; [`share`]: room in
//!   their file; [`policies`]: their watch and file; [`status`]: their status
//! * [`options`]: the command line

pub mod compile;
pub mod contact;
pub mod file;
pub mod names;
pub mod names_file;
pub mod options;
pub mod pause;
pub mod pod;
pub mod policies;
pub mod registry;
pub mod resources;
pub mod run;
pub mod share;
pub mod status;
