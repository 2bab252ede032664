//! Errors of the kernel on loading the probes.

use std::{error::Error, io};

use aya::{
    BtfError,
    programs::{ProgramError, links::LinkError},
};

use crate::refusal::Refusal;

/// Reason why VA spaces older than the probes cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// An object without the iterator.
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    /// Types of the kernel that cannot be read.
    #[error("{}", chain(.0))]
    Types(#[from] BtfError),
    /// A kernel that does not load the iterator.
    #[error("{}", chain(.0))]
    Program(#[from] ProgramError),
    /// A kernel that does not open the iterator.
    #[error("{}", chain(.0))]
    Link(#[from] LinkError),
    /// A kernel that does not run the iterator.
    #[error("{0}")]
    Read(#[source] io::Error),
}

pub(super) fn not_loaded<E: Error + 'static>(error: &E) -> Refusal {
    io_error(error).and_then(not_permitted).unwrap_or_else(|| Refusal::Load(chain(error)))
}

pub(super) fn not_permitted(cause: &io::Error) -> Option<Refusal> {
    (cause.kind() == io::ErrorKind::PermissionDenied).then_some(Refusal::NotPermitted)
}

/// Kernel error at the root of an error.
pub(super) fn io_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// Complete error chain in one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let parts: Vec<_> = causes(error).map(ToString::to_string).collect();
    parts.join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// End of the verifier's log, which has the reason.
pub(super) fn tail(log: &str) -> String {
    const LINES: usize = 8;
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_log_is_truncated_to_its_end() {
        let lines: Vec<_> = (0..100).map(|line| format!("line {line}\n")).collect();
        let log = lines.join("\n");
        let tail = tail(&log);
        assert!(tail.starts_with("line 92 |") && tail.ends_with("line 99"), "{tail}");
        assert_eq!(super::tail(""), "");
    }
}
