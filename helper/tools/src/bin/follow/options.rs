//! Options of the command line.

use std::{env, ffi::OsString, path::PathBuf};

use anyhow::{Context, bail};
use helper_tools::DEFAULT_GPU;

pub(crate) struct Options {
    pub(crate) policies: Vec<String>,
    pub(crate) gpu: [u8; 16],
    pub(crate) gpu_mib: u64,
    pub(crate) capacity_mib: Option<u64>,
    pub(crate) plan_after: u64,
    pub(crate) off_after: u64,
    pub(crate) pause: u64,
    pub(crate) link: Option<PathBuf>,
    pub(crate) helper: OsString,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

impl Options {
    pub(crate) fn of_arguments() -> anyhow::Result<Self> {
        let mut arguments = env::args_os().skip(1).peekable();
        let (mut policies, mut gpu, mut gpu_mib) = (vec!["foresight".to_owned()], DEFAULT_GPU, None);
        let mut capacity_mib = None;
        let (mut plan_after, mut off_after, mut pause, mut link) = (0, u64::MAX, 2, None);
        while let Some(name) = arguments.next_if(|argument| argument.to_string_lossy().starts_with("--")) {
            let value = arguments.next().with_context(|| format!("{} needs a value", name.display()))?;
            let text = value.to_string_lossy();
            match &*name.to_string_lossy() {
                "--policies" => policies = text.split(',').map(str::to_owned).collect(),
                "--gpu" => gpu = uuid(&text)?,
                "--gpu-mib" => gpu_mib = Some(text.parse()?),
                "--capacity-mib" => capacity_mib = Some(text.parse()?),
                "--plan-after" => plan_after = text.parse()?,
                "--off-after" => off_after = text.parse()?,
                "--pause" => pause = text.parse()?,
                "--link" => link = Some(value.into()),
                other => bail!("unknown option {other}"),
            }
        }
        let (Some(helper), Some(program)) = (arguments.next(), arguments.next()) else {
            bail!("usage: follow [OPTION...] HELPER PROGRAM [ARGUMENT...]");
        };
        let gpu_mib = gpu_mib.context("--gpu-mib is missing")?;
        let arguments = arguments.collect();
        Ok(Self {
            policies,
            gpu,
            gpu_mib,
            capacity_mib,
            plan_after,
            off_after,
            pause,
            link,
            helper,
            program,
            arguments,
        })
    }
}

/// Parses a UUID in its usual form.
fn uuid(text: &str) -> anyhow::Result<[u8; 16]> {
    let digits: String = text.trim_start_matches("GPU-").chars().filter(|digit| *digit != '-').collect();
    if digits.len() != 32 {
        bail!("{text} is no UUID");
    }
    Ok(u128::from_str_radix(&digits, 16)?.to_be_bytes())
}
