//! Service with three processes, one of them with a secret, whose overrides can be changed.

use std::{
    collections::BTreeMap,
    future,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use api::rule::{self, Overrides, PolicyState, OverrideStatus, EffectivePolicy};
use model::{Access as MemoryAccess, Block, Blocks, Counters, Gpu, GpuKey, GpuUuid, HeatCell, HeatMap, HeatRange, Process, ProcessId, Selector, Snapshot, SourceState, SourceStatus};
use web::{
    Access, Source, Precondition, Control, Controls, Grant, VerdictSource, Node, PutOutcome, ChangeError, Requester, Service, Snapshots, Sources,
    Token,
};

pub(super) const ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9477));
pub(super) const READ_TOKEN: &[u8] = b"read-0123456789ab";
pub(super) const WRITE_TOKEN: &[u8] = b"write-0123456789ab";
/// Part of a command line.
pub(super) const SECRET: &[u8] = b"s3cr3t-argument";

/// State that clients may change.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    overrides: BTreeMap<String, OverrideStatus>,
    is_off: bool,
    times_off: u64,
    changes: usize,
}

/// More than one client needs.
const OVERRIDES_MAX: usize = 64;

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the state to its initial one.
    pub(super) fn reset(&self) {
        *self.state() = State::default();
    }

    /// Number of changes since.
    pub(super) fn changes(&self) -> usize {
        self.state().changes
    }
}

impl Control for Board {
    fn overrides(&self) -> Overrides {
        Overrides { overrides: self.state().overrides.values().cloned().collect(), ..Overrides::default() }
    }

    fn put(&self, rule: model::Override, _: &Requester, fits: &Precondition) -> Result<PutOutcome, ChangeError> {
        let mut state = self.state();
        if !fits(state.overrides.get(&rule.id)) {
            return Err(ChangeError::PreconditionFailed);
        }
        if state.overrides.len() >= OVERRIDES_MAX {
            return Err(ChangeError::TooMany(OVERRIDES_MAX));
        }
        let now = OverrideStatus { r#override: rule::Override::from(&rule), source: "api".to_owned(), ..OverrideStatus::default() };
        let is_new = state.overrides.insert(rule.id, now.clone()).is_none();
        state.changes += 1;
        Ok(PutOutcome { now, is_new })
    }

    fn remove(&self, id: &str, _: &Requester, fits: &Precondition) -> Result<(), ChangeError> {
        let mut state = self.state();
        let there = state.overrides.get(id).ok_or(ChangeError::NotFound)?;
        if !fits(Some(there)) {
            return Err(ChangeError::PreconditionFailed);
        }
        state.overrides.remove(id);
        state.changes += 1;
        Ok(())
    }

    fn wanted(&self, process: &Process) -> EffectivePolicy {
        let ProcessId { pid, start_ticks } = process.id;
        EffectivePolicy { pid, start_ticks, name: process.name.clone(), range: Some((1 << 21, 1 << 22).into()), ..EffectivePolicy::default() }
    }

    fn is_match(&self, selector: &Selector, process: &Process) -> bool {
        selector.pid.is_none_or(|pid| pid == process.id.pid)
    }

    fn state(&self) -> PolicyState {
        PolicyState { active: !self.state().is_off, enabled: true, ..PolicyState::default() }
    }

    fn switch_off(&self, _: &Requester) -> Result<(), ChangeError> {
        let mut state = self.state();
        state.is_off = true;
        state.times_off += 1;
        state.changes += 1;
        Ok(())
    }

    fn keep_off(&self) {}

    fn times_off(&self) -> u64 {
        self.state().times_off
    }

    fn switch_on(&self, _: &Requester, times_off: u64) -> Result<(), ChangeError> {
        let mut state = self.state();
        state.changes += 1;
        state.is_off &= state.times_off != times_off;
        Ok(())
    }
}

/// Service, and its changeable state.
pub(super) fn new() -> (Service, Board) {
    let token = |text| Token::parse(text).expect("it is one");
    let node = Node {
        version: "1.2.3",
        commit: "0123456789ab",
        hostname: "gpu-17".to_owned(),
        processes_in_metrics: Some(std::num::NonZeroUsize::MIN),
        access: Access::by_tokens([(Grant::Read, token(READ_TOKEN)), (Grant::Write, token(WRITE_TOKEN))]),
        ..Node::default()
    };
    let snapshot = Arc::new(snapshot());
    let board = Board::default();
    let sources = Sources {
        heat: Source::new(|_| future::ready(Some(Some(heat())))),
        verdicts: VerdictSource::new(Arc::default),
        controls: Controls::new(board.clone()),
        ..Snapshots::new(move || future::ready(Some(Arc::clone(&snapshot)))).into()
    };
    (Service::new(node, sources), board)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn snapshot() -> Snapshot {
    let mut snapshot =
        Snapshot::empty(at(60), SourceStatus::new(SourceState::Counting { since: at(0) }));
    let gpu = GpuKey::Known(GpuUuid([7; 16]));
    snapshot.gpus.insert(gpu, Gpu { id: Some(1), name: Some("H200".to_owned()), ..Gpu::default() });
    let mut counters = Counters::default();
    counters.fault_entries[MemoryAccess::Write] = 300;
    let process = |pid, name: &str, ended| Process {
        gpus: BTreeMap::from([(gpu, counters.clone())]),
        exited_at: ended,
        command_line: Some(String::from_utf8_lossy(SECRET).into_owned()),
        blocks: Blocks { busiest: vec![Block::new(0x7f00_0000_0000, at(59))], known: 1, ..Blocks::default() },
        ..Process::new(ProcessId { pid, start_ticks: 100 }, name)
    };
    snapshot.processes = vec![process(7, "trainer", None), process(8, "\u{1b}[2J", None), process(9, "gone", Some(at(50)))];
    snapshot.gpu_totals = BTreeMap::from([(gpu, counters)]);
    snapshot
}

fn heat() -> HeatMap {
    let range = HeatRange { begin: 1 << 21, end: 1 << 22, cell_bytes: 1 << 21, cells: vec![HeatCell::default()] };
    HeatMap { ranges: vec![range], ranges_omitted: 0 }
}
