//! The file's own shape, as serde reads it. What it means, and whether it can be done, is [`super::parse`]'s business.

use serde::Deserialize;
use toml::Spanned;

use super::{Kind, size::Bytes};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: Spanned<String>,
    pub(super) description: Option<String>,
    pub(super) gpu_mem_mib: Option<Spanned<u64>>,
    #[serde(default)]
    pub(super) process: Vec<Spanned<Process>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Process {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) alloc: Vec<Spanned<Allocation>>,
    #[serde(default)]
    pub(super) steps: Vec<Spanned<Step>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Allocation {
    pub(super) name: Spanned<String>,
    pub(super) size: Option<Bytes>,
    pub(super) mib: Option<u64>,
    pub(super) kib: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// One table of `steps`: one key that names the step, and its options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    cpu_read: Option<String>,
    cpu_write: Option<String>,
    gpu_read: Option<String>,
    gpu_write: Option<String>,
    verify: Option<String>,
    repeat: Option<u64>,
    sleep_ms: Option<u64>,
    exit: Option<Exit>,

    pub(super) offset: Option<Bytes>,
    pub(super) length: Option<Bytes>,
    pub(super) stride: Option<Bytes>,
    pub(super) order: Option<Order>,
    pub(super) seed: Option<u64>,
    pub(super) window: Option<u64>,
    pub(super) steps: Option<Vec<Spanned<Step>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    Sequential,
    Random,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "exit must be true or an exit code from 0 to 255")]
enum Exit {
    Flag(bool),
    Code(u8),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Cpu,
    Gpu,
}

/// What a step's table asks for.
pub(super) enum Action<'a> {
    Access(By, Kind, &'a str),
    Verify(&'a str),
    Repeat(u64),
    Sleep(u64),
    Exit(u8),
}

impl Step {
    /// The one action the table names; else why it names none. A new kind of step is a new line here.
    pub(super) fn action(&self) -> Result<Action<'_>, String> {
        let exit = match self.exit {
            Some(Exit::Flag(false)) => return Err("exit = false does nothing; leave it out".to_owned()),
            Some(Exit::Flag(true)) => Some(0),
            Some(Exit::Code(code)) => Some(code),
            None => None,
        };
        let actions: Vec<(&str, Action<'_>)> = [
            self.cpu_read.as_deref().map(|name| ("cpu_read", Action::Access(By::Cpu, Kind::Read, name))),
            self.cpu_write.as_deref().map(|name| ("cpu_write", Action::Access(By::Cpu, Kind::Write, name))),
            self.gpu_read.as_deref().map(|name| ("gpu_read", Action::Access(By::Gpu, Kind::Read, name))),
            self.gpu_write.as_deref().map(|name| ("gpu_write", Action::Access(By::Gpu, Kind::Write, name))),
            self.verify.as_deref().map(|name| ("verify", Action::Verify(name))),
            self.repeat.map(|times| ("repeat", Action::Repeat(times))),
            self.sleep_ms.map(|milliseconds| ("sleep_ms", Action::Sleep(milliseconds))),
            exit.map(|code| ("exit", Action::Exit(code))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let names: Vec<&str> = actions.iter().map(|(name, _)| *name).collect();
        let names = names.join(" and ");
        let mut actions = actions.into_iter();
        match (actions.next(), actions.next()) {
            (Some((name, action)), None) => self.only_options_of(name, &action).map(|()| action),
            (None, _) => Err("names no step: one of cpu_read, cpu_write, gpu_read, gpu_write, verify, repeat, \
                              sleep_ms, exit is needed"
                .to_owned()),
            (Some(_), Some(_)) => Err(format!("names more than one step: {names}")),
        }
    }

    /// An option that a step has no use for is a mistake.
    fn only_options_of(&self, name: &str, action: &Action<'_>) -> Result<(), String> {
        let access = matches!(action, Action::Access(..));
        let repeat = matches!(action, Action::Repeat(_));
        let options = [
            ("offset", self.offset.is_some(), access),
            ("length", self.length.is_some(), access),
            ("stride", self.stride.is_some(), access),
            ("order", self.order.is_some(), access),
            ("seed", self.seed.is_some(), access),
            ("window", self.window.is_some(), access),
            ("steps", self.steps.is_some(), repeat),
        ];
        match options.into_iter().find(|(_, given, allowed)| *given && !allowed) {
            Some((option, ..)) => Err(format!("{name} takes no {option}")),
            None => Ok(()),
        }
    }
}
