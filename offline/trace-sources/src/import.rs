//! Importers of other programs' traces.
//!
//! * [`g10`]: kernel times and tensors of the G10 artifact
//! * [`singa`]: memory logs of SINGA
//! * [`kineto`]: traces of PyTorch's profiler
//! * [`lab`]: logs of the lab's CUDA driver, with the memory that operations accessed
//! * [`minimalloc`]: instances of dynamic storage allocation
//! * [`error`]: errors in files, with file and line
//!
//! Every importer reads a file once, line by line or event by event, and decompresses gzip. Its
//! memory is bounded by the contents of the trace. No importer trusts a count or a size that a file
//! states about itself.

pub mod error;
pub mod g10;
pub mod kineto;
pub mod lab;
pub mod minimalloc;
mod own;
pub mod singa;
mod text;

use std::path::Path;

pub use error::{ImportError, Reason};

use trace::{circle::Circle, iteration::Iteration, ops::OpStream};

/// Contents of a file.
#[derive(Clone, Debug)]
pub enum Trace {
    /// Iteration.
    Iteration(Iteration),
    /// Operations of a run.
    Ops(OpStream),
    /// Blocks without their uses.
    Circle(Circle),
}

/// Reads a trace of any known kind, detected from the contents. For `X.kernels.csv` of G10,
/// `X.tensors.csv` must be in the same folder.
///
/// # Errors
/// If the file cannot be read, is of no known kind, or is invalid: with the line.
pub fn load(path: &Path) -> Result<Trace, ImportError> {
    let head = text::head(path)?;
    let first = head.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if first.starts_with(['{', '[']) {
        let has = |members: &[&str]| members.iter().any(|member| head.contains(&format!("\"{member}\"")));
        return if !has(&["traceEvents"]) && has(&["tensors", "kernels"]) {
            own::load_iteration(path).map(Trace::Iteration)
        } else if !has(&["traceEvents"]) && has(&["blocks", "ops"]) {
            own::load_ops(path).map(Trace::Ops)
        } else {
            // The events of a profiler may follow a description of the machine, or be the top-level
            // list.
            kineto::load(path, None).map(|run| Trace::Ops(run.stream))
        };
    }
    if first.starts_with("kernel_id,") {
        return g10::load(path).map(|set| Trace::Iteration(set.iteration));
    }
    if first.starts_with("MALLOC: ") || first.starts_with("FREE: ") {
        return singa::load_log(path).map(Trace::Ops);
    }
    if ["Malloc ", "Free ", "Read ", "Mutable ", "Layer "].iter().any(|op| first.starts_with(op)) {
        return singa::load_ops(path, &[]).map(Trace::Ops);
    }
    if first.split(',').any(|column| column.trim() == "lower") {
        return minimalloc::load(path).map(Trace::Circle);
    }
    Err(ImportError::new(path, Some(1), Reason::UnknownKind))
}
