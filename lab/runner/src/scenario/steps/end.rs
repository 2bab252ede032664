//! `exit`, `kill`: the end of the process.

use serde::Deserialize;

use super::{Execution, Flow, Step};
use crate::scenario::{
    Scope,
    table::{Fault, Table},
};

// Weight 0: the generator of scenarios appends at most one of them to a process.
pub(super) const EXIT: super::Kind = super::Kind { key: "exit", parse: exit, weight: 0, generate: |_, _| None };
pub(super) const KILL: super::Kind = super::Kind { key: "kill", parse: kill, weight: 0, generate: |_, _| None };

#[derive(Debug)]
struct Exit {
    code: u8,
}

#[derive(Debug)]
struct Kill;

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "must be true or an exit code from 0 to 255")]
enum Code {
    Flag(bool),
    Code(u8),
}

fn exit(table: &mut Table<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    match table.need("exit")? {
        Code::Flag(false) => Err("exit = false does nothing; omit it".into()),
        Code::Flag(true) => Ok(Box::new(Exit { code: 0 })),
        Code::Code(code) => Ok(Box::new(Exit { code })),
    }
}

fn kill(table: &mut Table<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Step>, Fault> {
    if !table.need::<bool>("kill")? {
        return Err("kill = false does nothing; omit it".into());
    }
    Ok(Box::new(Kill))
}

impl Step for Exit {
    fn run(&self, _on: &dyn Execution) -> anyhow::Result<Flow> {
        Ok(Flow::Exit { code: self.code })
    }

    fn not_simulated(&self) -> Option<&'static str> {
        Some("a process that ends")
    }

    fn ends_process(&self) -> bool {
        true
    }
}

impl Step for Kill {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.kill()?;
        Ok(Flow::Stopped)
    }

    fn not_simulated(&self) -> Option<&'static str> {
        Some("a process that ends")
    }

    fn ends_process(&self) -> bool {
        true
    }
}
