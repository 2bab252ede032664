//! Traces of the G10 artifact: iterations of large networks with kernel times of an A100.
//!
//! * graph, a pair of CSV files: `X.kernels.csv` with the columns `kernel_id`, `type`, `ideal_ms`,
//!   `pf_ms`, `input_pf_ms`, `workspace_tensor`, `inputs`, `outputs`, where ids are separated by
//!   blanks; and `X.tensors.csv` with `tensor_id`, `is_global`, `size_bytes`, `address_offset`
//! * times, as published: `KERNEL TIME ms` a line; and workspaces, `KERNEL BYTES B` a line. A graph
//!   contains these figures. Without a graph they have no tensors, and serve to replace the times
//!   of a graph by those of another run.
//!
//! Global tensors of the artifact are persistent here: its weights, and, in its transformers,
//! activations that it treats as weights. Those that no update writes have the role `other`.
//! Workspaces are outputs of their kernel.

use std::{
    io::BufRead,
    path::{Path, PathBuf},
};

use super::{
    error::{ImportError, Reason},
    text::{self, Lines, fields, milliseconds, number, number_u32},
};
use trace::{
    draft::{Draft, DraftKernel, Invalid},
    id::{Id, KernelId, Table, TensorId},
    iteration::{Iteration, Role, Tensor},
};

const KERNELS_HEADER: &str = "kernel_id,type,ideal_ms,pf_ms,input_pf_ms,workspace_tensor,inputs,outputs";
const TENSORS_HEADER: &str = "tensor_id,is_global,size_bytes,address_offset";

/// Graph with all its figures.
#[derive(Clone, Debug)]
pub struct Set {
    /// Iteration with the durations for all data on the GPU.
    pub iteration: Iteration,
    /// Durations on managed memory.
    pub faulting: Table<KernelId, Faulting>,
    /// Offset of a tensor in the region of global tensors, or in that of the others, which follows
    /// it. No address is reused.
    pub address_offset_bytes: Table<TensorId, u64>,
}

/// Durations of a kernel on managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faulting {
    /// Duration if inputs and outputs fault. One cold measurement, which may be less than the
    /// others, as published.
    pub all_ns: u64,
    /// Duration if only outputs fault; `InputPF` in the artifact.
    pub outputs_ns: u64,
}

/// Reads `X.kernels.csv`, and `X.tensors.csv` in the same folder.
///
/// # Errors
/// If a file cannot be read or is invalid: with the file and the line.
pub fn load(kernels: &Path) -> Result<Set, ImportError> {
    let tensors = tensors_of(kernels).ok_or_else(|| ImportError::new(kernels, None, Reason::NotKernels))?;
    parse((&tensors, text::open(&tensors)?), (kernels, text::open(kernels)?))
}

/// Path of `X.tensors.csv` for `X.kernels.csv`; both or none are compressed.
fn tensors_of(kernels: &Path) -> Option<PathBuf> {
    let name = kernels.file_name()?.to_str()?;
    let (stem, end) = name.strip_suffix(".gz").map_or((name, ""), |stem| (stem, ".gz"));
    let stem = stem.strip_suffix(".kernels.csv")?;
    Some(kernels.with_file_name(format!("{stem}.tensors.csv{end}")))
}

/// Reads a graph from two texts; the paths are for messages and for the iteration's name.
///
/// # Errors
/// If a text is invalid: with the line.
pub fn parse(tensors: (&Path, impl BufRead), kernels: (&Path, impl BufRead)) -> Result<Set, ImportError> {
    let mut draft = Draft { name: name(kernels.0), ..Draft::default() };
    let mut address_offset_bytes = Table::default();
    let mut lines = Lines::new(tensors.0, tensors.1);
    header(&mut lines, TENSORS_HEADER)?;
    while let Some(line) = lines.next()? {
        let parsed = tensor(line, draft.tensors.len());
        let (tensor, offset) = parsed.map_err(|reason| lines.error(reason))?;
        draft.tensor(tensor);
        address_offset_bytes.push(offset);
    }

    let mut faulting = Table::default();
    let (mut kernel_lines, mut lines) = (Vec::new(), Lines::new(kernels.0, kernels.1));
    header(&mut lines, KERNELS_HEADER)?;
    while let Some(line) = lines.next()? {
        let parsed = kernel(line, draft.kernels.len());
        let row = parsed.map_err(|reason| lines.error(reason))?;
        assign_roles(&mut draft.tensors, &row);
        draft.kernel(row.kernel);
        faulting.push(row.faulting);
        kernel_lines.push(lines.number());
    }
    let iteration = draft.check().map_err(|invalid| match invalid {
        Invalid::UnknownTensor { kernel, .. }
        | Invalid::SharedWorkspace { kernel, .. }
        | Invalid::WorkspaceRead { kernel, .. } => {
            ImportError::new(kernels.0, kernel_lines.get(kernel.index()).copied(), invalid)
        }
        Invalid::EmptyTensor { .. } | Invalid::PersistentWorkspace { .. } | Invalid::TooManyBytes => {
            ImportError::new(tensors.0, None, invalid)
        }
        Invalid::NoKernels
        | Invalid::TooMany
        | Invalid::TooLong
        | Invalid::Locations { .. }
        | Invalid::OutsideAllocation { .. } => ImportError::new(kernels.0, None, invalid),
    })?;
    Ok(Set { iteration, faulting, address_offset_bytes })
}

/// Name of the iteration: `ResNet152/1280` for `.../ResNet152/1280.kernels.csv`.
fn name(kernels: &Path) -> String {
    let text = |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).unwrap_or_default().to_owned();
    let file = text(kernels.file_name());
    let batch = file.split('.').next().unwrap_or_default();
    let model = text(kernels.parent().and_then(Path::file_name));
    if model.is_empty() { batch.to_owned() } else { format!("{model}/{batch}") }
}

fn header<R: BufRead>(lines: &mut Lines<'_, R>, expected: &'static str) -> Result<(), ImportError> {
    let found =
        lines.next()?.map(|line| if line == expected { Ok(()) } else { Err(Reason::field("header", line, expected)) });
    found.unwrap_or(Err(Reason::Empty)).map_err(|reason| lines.error(reason))
}

fn in_order(entry: &'static str, expected: usize, found: u32) -> Result<(), Reason> {
    let (expected, found) = (expected as u64, u64::from(found));
    if expected == found { Ok(()) } else { Err(Reason::OutOfOrder { entry, expected, found }) }
}

fn tensor(line: &str, index: usize) -> Result<(Tensor, u64), Reason> {
    let [id, global, bytes, offset] = fields(line.split(','))?;
    in_order("tensor", index, number_u32("tensor_id", id)?)?;
    let persistent = match global {
        "0" => false,
        "1" => true,
        other => return Err(Reason::field("is_global", other, "0 or 1")),
    };
    let bytes = match number("size_bytes", bytes)? {
        0 => return Err(Reason::Iteration(Invalid::EmptyTensor { tensor: TensorId::new(index) })),
        bytes => bytes,
    };
    Ok((Tensor { name: String::new(), bytes, role: Role::Other, persistent }, number("address_offset", offset)?))
}

struct Row {
    kernel: DraftKernel,
    workspace: Option<TensorId>,
    faulting: Faulting,
}

fn kernel(line: &str, index: usize) -> Result<Row, Reason> {
    let [id, name, ideal, all, outputs_only, workspace, inputs, outputs] = fields(line.split(','))?;
    in_order("kernel", index, number_u32("kernel_id", id)?)?;
    let ids = |field, text: &str| {
        text.split_ascii_whitespace().map(|id| number_u32(field, id).map(TensorId)).collect::<Result<Vec<_>, _>>()
    };
    let outputs = ids("outputs", outputs)?;
    let workspace = ids("workspace_tensor", workspace)?;
    let ([] | [_]) = workspace[..] else {
        return Err(Reason::FieldCount { expected: 1, found: workspace.len() });
    };
    let workspace = workspace.first().copied();
    if let Some(TensorId(id)) = workspace.filter(|id| !outputs.contains(id)) {
        return Err(Reason::WorkspaceNotOutput { id });
    }
    let kernel = DraftKernel {
        name: name.to_owned(),
        duration_ns: milliseconds("ideal_ms", ideal)?,
        inputs: ids("inputs", inputs)?,
        outputs,
    };
    let faulting =
        Faulting { all_ns: milliseconds("pf_ms", all)?, outputs_ns: milliseconds("input_pf_ms", outputs_only)? };
    Ok(Row { kernel, workspace, faulting })
}

/// Derives the roles of a kernel's tensors from its name, as the graph has no roles.
fn assign_roles(tensors: &mut [Tensor], Row { kernel, workspace, .. }: &Row) {
    let update = kernel.name.contains("Apply_Grad");
    let default_role = match kernel.name.as_str() {
        name if name.starts_with("LoadData") => Role::Input,
        name if name.contains("Backward") || name.contains("MultiGredient") => Role::Gradient,
        _ => Role::Activation,
    };
    for &id in &kernel.outputs {
        let Some(tensor) = tensors.get_mut(id.index()) else { continue };
        tensor.role = match tensor.role {
            _ if *workspace == Some(id) => Role::Workspace,
            _ if tensor.persistent && update => Role::Weight,
            Role::Other if !tensor.persistent => default_role,
            role => role,
        };
    }
}

/// Reads published times, in ns: a line for each kernel, in order.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load_times(path: &Path) -> Result<Table<KernelId, u64>, ImportError> {
    parse_column(path, text::open(path)?, "ms", |value| milliseconds("time", value))
}

/// Reads published workspaces, in bytes: a line for each kernel, in order; 0 for those that have
/// none.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load_workspaces(path: &Path) -> Result<Table<KernelId, u64>, ImportError> {
    parse_column(path, text::open(path)?, "B", |value| number("workspace", value))
}

/// Reads published times from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line.
pub fn parse_times(path: &Path, text: impl BufRead) -> Result<Table<KernelId, u64>, ImportError> {
    parse_column(path, text, "ms", |value| milliseconds("time", value))
}

fn parse_column(
    path: &Path,
    text: impl BufRead,
    unit: &'static str,
    value: impl Fn(&str) -> Result<u64, Reason>,
) -> Result<Table<KernelId, u64>, ImportError> {
    let mut lines = Lines::new(path, text);
    let mut column: Table<KernelId, u64> = Table::default();
    while let Some(line) = lines.next()? {
        let parsed = fields(line.split_ascii_whitespace()).and_then(|[id, figure, found_unit]| {
            in_order("kernel", column.len(), number_u32("kernel", id)?)?;
            if found_unit == unit { value(figure) } else { Err(Reason::field("unit", found_unit, unit)) }
        });
        column.push(parsed.map_err(|reason| lines.error(reason))?);
    }
    if column.is_empty() { Err(lines.error(Reason::Empty)) } else { Ok(column) }
}

impl Set {
    /// Iteration of the graph with the times of another run.
    ///
    /// # Errors
    /// If the number of times is not that of kernels.
    pub fn with_times(&self, path: &Path, times: &Table<KernelId, u64>) -> Result<Iteration, ImportError> {
        let (expected, found) = (self.iteration.kernels().len(), times.len());
        if expected != found {
            let other = PathBuf::from(self.iteration.name());
            return Err(ImportError::new(
                path,
                None,
                Reason::CountsDiffer { entry: "kernels", expected, found, other },
            ));
        }
        let iteration = self.iteration.with_durations(|id, _| times[id]);
        iteration.map_err(|invalid| ImportError::new(path, None, invalid))
    }
}
