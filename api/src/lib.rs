//! JSON bodies of the HTTP API, shared by the server and its clients, and [verdicts in words](explain).
//! Bytes and counts are plain numbers with the unit in the name; times are RFC 3339. No I/O.
//!
//! Types of plain numbers are those of `model`. Types that name GPUs, processes and times have a form
//! of their own here.

mod counts;
pub mod decision;
mod eviction;
pub mod explain;
pub mod fleet_overrides;
mod gpu;
mod history;
mod memory;
pub mod object;
mod ops;
mod owner;
pub mod owner_names;
mod process;
mod report;
pub mod rule;
mod site;
mod status;
mod verdict;

pub use counts::{Counts, CountsSummary, Distribution};
pub use eviction::{EvictionPair, Evictions, Party};
pub use gpu::{Gpu, GpuDetail, GpuId, Gpus};
pub use history::{History, HistorySample};
pub use memory::{Block, HeatCell, HeatMap, HeatRange, Pattern, Range, RangeCounts, Ranges};
pub use ops::{Op, OpAction, OpPointer, OpTarget, Ops, QuotaHolder};
pub use owner::{
    Owner, OwnerDetail, OwnerEviction, OwnerGpu, OwnerProcess, OwnerTotals, OwnerVerdict, Owners, PodNames,
};
pub use process::{
    DecisionSummary, Diagnosis, Evictor, Process, ProcessDetail, ProcessGpu, ProcessSummaries, ProcessSummary,
    Processes, VerdictSummary,
};
pub use report::{OwnerReport, ReportedUsage, StepReport};
pub use site::{Site, Sites};
pub use status::{
    CheckedProcess, Configuration, Crosscheck, Degradation, Probe, QuotaRefusals, Source, Status, Warning,
};
pub use verdict::{Check, InvolvedRange, Remedies, Remedy, UnavailableKind, Verdict, VerdictVictim, Verdicts};

pub use model::{CopiedBytes, Residency, Reuse, verdict::Inputs as VerdictInputs};
