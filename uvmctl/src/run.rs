//! `uvmctl run`: a program with the helper in it.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use sys::{Roots, executable, seccomp};

use crate::terminal;

/// Exit codes before the program runs, as those of env(1).
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

const FILE: &str = "libuvmd_helper.so";
const PRELOAD: &str = "LD_PRELOAD";
/// Variable with the number of seccomp filters that the helper is on under.
const FILTERS: &str = "UVMD_HELPER_FILTERS";

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Work of the helper
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,

    /// File of the helper [default: that in ../lib/uvmd, from the folder of uvmctl]
    #[arg(long, value_name = "PATH", env = "UVMD_HELPER_LIBRARY")]
    helper: Option<PathBuf>,

    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Record the program's calls to the CUDA driver
    #[default]
    Record,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
        }
    }
}

/// Becomes the program; returns if that fails.
pub(crate) fn run(options: &Options) -> ExitCode {
    let Options { mode, helper, program } = options;
    let failed = |code: u8, error: &anyhow::Error| {
        terminal::note(&format!("{error:#}"));
        ExitCode::from(code)
    };
    let Some((name, arguments)) = program.split_first() else { return ExitCode::from(FAILED) };
    let folders = env::var_os("PATH").unwrap_or_default();
    let Some(path) = executable::find(Path::new(name), env::split_paths(&folders)) else {
        return failed(NOT_FOUND, &anyhow::anyhow!("{} is not found", Path::new(name).display()));
    };
    let preload = match preload(&path, helper.as_deref()) {
        Ok(preload) => preload,
        Err(error) => return failed(FAILED, &error),
    };
    // Without /proc, the helper is off, too.
    let filters = seccomp::own(&Roots::default()).ok().flatten();
    if let Some(note) = note_of_filters(filters, env::var_os(FILTERS).as_deref()) {
        terminal::note(&note);
    }
    let mut command = process::Command::new(&path);
    command.arg0(name).args(arguments).env(PRELOAD, preload).env("UVMD_HELPER", mode.name());
    let error = command.exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    failed(code, &anyhow::Error::new(error).context(format!("{} does not run", path.display())))
}

/// Libraries to preload: the helper, before those that are preloaded anyway.
fn preload(program: &Path, helper: Option<&Path>) -> anyhow::Result<OsString> {
    match executable::is_preloadable(program) {
        // The program runs all the same, if it may be executed and not read.
        Err(error @ executable::NotPreloadable::Unreadable(..)) => terminal::note(&format!("{error}")),
        checked => checked?,
    }
    let helper = match helper {
        Some(helper) => helper.to_owned(),
        None => beside(&env::current_exe().context("the folder of uvmctl is unknown")?)
            .with_context(|| format!("no {FILE} is beside uvmctl: name it with --helper"))?,
    };
    let helper = helper.canonicalize().with_context(|| format!("no helper {}", helper.display()))?;
    chained(&helper, env::var_os(PRELOAD).as_deref())
}

/// Note that the helper is off under the seccomp filters that the program begins with, unless the operator
/// admits them.
fn note_of_filters(filters: Option<u64>, admitted: Option<&OsStr>) -> Option<String> {
    let admitted = admitted.and_then(OsStr::to_str).and_then(|number| number.parse().ok()).unwrap_or(0);
    let Some(filters) = filters else {
        return Some(
            "it is unknown how many seccomp filters there are, so the helper is off in the program".to_owned(),
        );
    };
    let (plural, them) = if filters == 1 { ("", "it") } else { ("s", "them") };
    (filters > admitted).then(|| {
        format!(
            "under {filters} seccomp filter{plural}, the helper is off in the program; {FILTERS}={filters} admits {them} (docs/helper.md)"
        )
    })
}

/// Helper of an installed uvmctl, or of one in a build's folder.
fn beside(uvmctl: &Path) -> Option<PathBuf> {
    let folder = uvmctl.parent()?.parent()?;
    ["lib/uvmd", "helper"].map(|below| folder.join(below).join(FILE)).into_iter().find(|path| path.is_file())
}

fn chained(helper: &Path, others: Option<&OsStr>) -> anyhow::Result<OsString> {
    if helper.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        bail!("{} has a space or colon, which {PRELOAD} takes for the end of a path", helper.display());
    }
    let mut all = helper.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_is_before_other_preloaded_libraries() {
        let all = |others: Option<&str>| chained(Path::new("/lib/h.so"), others.map(OsStr::new)).unwrap();
        assert_eq!(all(None), "/lib/h.so");
        assert_eq!(all(Some("")), "/lib/h.so");
        assert_eq!(all(Some("/lib/a.so /lib/b.so")), "/lib/h.so:/lib/a.so /lib/b.so");
        assert!(chained(Path::new("/my lib/h.so"), None).is_err());
    }

    #[test]
    fn filters_that_are_not_admitted_are_noted() {
        let note = |filters, admitted: Option<&str>| note_of_filters(filters, admitted.map(OsStr::new));
        assert_eq!(note(Some(0), None), None);
        assert_eq!(note(Some(1), Some("1")), None);
        assert_eq!(note(Some(1), Some("2")), None);
        let text = note(Some(1), None).unwrap();
        assert_eq!(
            text,
            "under 1 seccomp filter, the helper is off in the program; UVMD_HELPER_FILTERS=1 admits it (docs/helper.md)"
        );
        assert!(note(Some(2), Some("1")).unwrap().contains("under 2 seccomp filters"));
        assert!(note(Some(1), Some("all")).is_some());
        assert!(note(None, Some("9")).is_some());
    }

    #[test]
    fn helper_is_found_where_the_packages_put_it() {
        let folder = tempfile::tempdir().unwrap();
        let uvmctl = folder.path().join("bin/uvmctl");
        assert_eq!(beside(&uvmctl), None);
        let lib = folder.path().join("lib/uvmd");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join(FILE), "").unwrap();
        assert_eq!(beside(&uvmctl), Some(lib.join(FILE)));
    }
}
