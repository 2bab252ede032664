//! Data of managed memory: identifiers, counters, snapshots, verdicts, decisions. No I/O.
//!
//! * [`counters`]: counters by process and GPU; [`single_counts!`]: table of most
//! * [`capabilities`]: quantities that the running driver lets uvmd count; [`quantity`]: all of them
//! * [`terms`]: dimensions of the counters
//! * [`distribution`]: distributions of quantities
//! * [`block`], [`range`], [`memory`], [`heat`]: the parts of a process's memory
//! * [`residency`]: the part in GPU memory
//! * [`site`]: instructions that raise CPU faults
//! * [`eviction`]: evictions by victim and evictor
//! * [`owner`]: container, pod, job or service of a process
//! * [`owner_names`]: names of pods
//! * [`dropped`]: reasons of dropped events
//! * [`fatal_error`]: the driver's error after which it refuses new programs
//! * [`snapshot`]: the state at one moment, as the collector publishes it
//! * [`history`]: recent counts, second by second
//! * [`verdict`]: verdicts and their evidence; [`verdicts`]: all of one moment
//! * [`usage`]: usage by owner and job step, which outlives processes and verdicts
//! * [`rule`]: overrides of mode, policy and limits; [`selector`]: of which processes
//! * [`order`]: proposals, orders of calls, and their outcomes
//! * [`decision`]: decisions and their course
//! * [`following`]: processes whose calls are followed, and their plans of moves at launches
//! * [`restriction`]: restrictions that prevent actions
//! * [`text`]: times, addresses and quantities as text

pub mod block;
pub mod capabilities;
pub mod counters;
pub mod crosscheck;
pub mod decision;
pub mod degraded;
pub mod distribution;
pub mod dropped;
pub mod eviction;
pub mod fatal_error;
pub mod following;
pub mod heat;
pub mod history;
pub mod id;
pub mod memory;
pub mod memory_range;
pub mod order;
pub mod owner;
pub mod owner_names;
pub mod policy;
pub mod quantity;
pub mod range;
pub mod residency;
pub mod restriction;
pub mod rule;
pub mod selector;
mod single_counts;
pub mod site;
pub mod snapshot;
pub mod terms;
pub mod text;
pub mod usage;
pub mod verdict;
pub mod verdicts;

pub use block::{Block, Blocks, CopiedBytes};
pub use capabilities::Capabilities;
pub use counters::{Batches, Counters};
pub use crosscheck::{CheckedFigure, ComparisonResult, Crosschecks};
pub use decision::{Decision, Mode, Stage};
pub use degraded::{Degradation, DegradedReason, QuotaRefusals};
pub use distribution::Distribution;
pub use dropped::DropReason;
pub use eviction::{EvictionCause, EvictionPair, OwnerEvictions, Party};
pub use fatal_error::FatalError;
pub use following::{
    ArmFigures, Following, FollowingState, IterationBegin, LaunchLead, LeadBucket, PlanCommand, PlanCounters,
    PlanEvidence, PlanReport, PlannedIteration, ProbeFigures, ProbedIteration, Publication,
};
pub use heat::{HeatCell, HeatMap, HeatRange, HeatRequest};
pub use history::{History, HistoryOf, HistoryRequest, Sample};
pub use id::{GpuKey, GpuUuid, ProcessId, ShortGpuUuid};
pub use memory::{BlockSums, Memory};
pub use memory_range::MemoryRange;
pub use order::{
    Action, Actuator, ActuatorChoice, ActuatorKind, Advice, AdviceCalls, Call, CallResult, DecisionId, Expected,
    Interrupt, LinkBytes, LinkMeter, Order, Outcome, Place, Proposal, Share, Step,
};
pub use owner::{Container, Job, Owner, OwnerKey, OwnerTotals, Pod};
pub use owner_names::{NamesSource, OwnerNames, PodNames};
pub use quantity::{Quantity, ToolsLevel};
pub use range::{Pattern, PatternKind, PeerReuse, Range, RangeCounts, Ranges, Reuse};
pub use residency::Residency;
pub use restriction::{Restriction, RestrictionScope};
pub use rule::{Budget, Directive, Override};
pub use selector::{Criterion, Selector};
pub use site::{CodeModule, CodePlace, Site, SiteCounts, Sites};
pub use snapshot::{
    DriverInfo, Gpu, GpuSource, ManagedGrowth, ProbeStatus, Process, RecordFigures, Snapshot, SourceState, SourceStatus,
};
pub use terms::{Access, ApiCall, Cause, Direction, RemoteCause};
pub use usage::{OwnerUsage, StepUsage, Traffic, Usage, WorstVerdict};
pub use verdict::{Verdict, VerdictKind, VerdictTimeKey};
pub use verdicts::Verdicts;
