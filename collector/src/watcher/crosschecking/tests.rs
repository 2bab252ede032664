use std::{
    collections::{BTreeMap, HashSet},
    future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use abi::{CountKey, Kind, Lifecycle, LifecycleKind, Probe, Tally, Tenant};
use model::{ComparisonResult, DegradedReason, DriverInfo, Snapshot, SourceState};
use sys::{driver::Module, fake::Machine};
use tokio::time;

use super::*;
use crate::{
    Config,
    crosscheck::tests::TestTracking,
    figures,
    ledger::Generation,
    source::{ReadError, Reading, Source},
};

const PROCESS: u32 = 7;
const SPACE: Generation = 3;

/// Probes of a test: CPU faults of one VA space.
#[derive(Clone, Default)]
struct TestProbes(Arc<Mutex<TestState>>);

#[derive(Default)]
struct TestState {
    cpu_faults: u64,
    lifecycles: Vec<Lifecycle>,
}

/// The same, with the parts that a source lends.
struct TestSource {
    probes: TestProbes,
    driver: DriverInfo,
    figures: figures::Figures,
    missing: BTreeMap<Probe, String>,
}

impl Source for TestSource {
    fn backend(&self) -> &'static str {
        "ebpf"
    }

    fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    fn procfs_ids_are_eightfold(&self) -> bool {
        false
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(future::pending())
    }

    fn lifecycles(&mut self) -> Vec<Lifecycle> {
        std::mem::take(&mut self.probes.0.lock().unwrap().lifecycles)
    }

    fn read(&mut self, _tenants: &mut Tenants, _now: Duration) -> Result<Reading, ReadError> {
        let key = CountKey { generation: SPACE, gpu: 0, kind: Kind::CpuFault as u16, detail: 0 };
        let tally = Tally { events: self.probes.0.lock().unwrap().cpu_faults, amount: 0 };
        Ok(Reading { counts: vec![(key, tally)], ..Reading::default() })
    }

    fn forget(
        &mut self,
        _gone: &HashSet<Generation>,
        _tenants: &mut Tenants,
        _shares_until_ns: &dyn Fn(Tenant) -> u64,
    ) -> Result<(), ReadError> {
        Ok(())
    }

    fn figures(&self) -> &figures::Figures {
        &self.figures
    }

    fn probes(&self) -> Option<&BTreeMap<Probe, String>> {
        Some(&self.missing)
    }
}

/// Node with one process, which has a VA space.
struct Node {
    watcher: Watcher,
    probes: TestProbes,
    tracking: TestTracking,
    _machine: Machine,
}

impl Node {
    fn new() -> Self {
        let machine = Machine::new();
        let config = Config { roots: machine.roots.clone(), crosscheck: true, ..Config::default() };
        let mut watcher = Watcher::new(config).unwrap();
        let (probes, tracking) = (TestProbes::default(), TestTracking::default());
        let source = TestSource {
            probes: probes.clone(),
            driver: DriverInfo::default(),
            figures: figures::Figures::default(),
            missing: BTreeMap::new(),
        };
        let module = Module { version: Some("550.163.01".to_owned()), instance: 1 };
        watcher.state = State::Counting(Counting { module, since: SystemTime::now(), source: Box::new(source) });
        watcher.crosscheck = Some(Crosscheck::new(Box::new(tracking.clone()), Crosschecks::default()));
        let mut node = Self { watcher, probes, tracking, _machine: machine };
        node.event(SPACE, LifecycleKind::Registered);
        node
    }

    fn event(&mut self, generation: Generation, kind: LifecycleKind) {
        let record =
            Lifecycle { generation, kind: kind as u32, tgid: PROCESS, tid: PROCESS, uid: 1000, ..Lifecycle::default() };
        self.probes.0.lock().unwrap().lifecycles.push(record);
        self.watcher.take_lifecycles();
    }

    /// Reads both sources a second later, which have counted these CPU faults.
    async fn read(&mut self, driver: u64, probes: u64) {
        time::advance(Duration::from_secs(1)).await;
        self.watcher.look_at_crosscheck();
        self.tracking.set(Counters { cpu_faults: driver, ..Counters::default() });
        self.probes.0.lock().unwrap().cpu_faults = probes;
        self.watcher.read();
    }

    fn snapshot(&self) -> Snapshot {
        self.watcher.snapshot()
    }
}

fn result(snapshot: &Snapshot, result: ComparisonResult) -> u64 {
    snapshot.source.crosschecks.as_ref().unwrap().with(result)
}

#[tokio::test(start_paused = true)]
async fn probes_that_miss_faults_are_named_until_the_driver_is_reloaded() {
    let mut node = Node::new();
    for reading in 0..3 {
        node.read(reading * 10, reading * 10).await;
    }
    assert_eq!(node.tracking.target().unwrap().process.pid, PROCESS);
    // Attached at the first look, read at the second one.
    assert_eq!(result(&node.snapshot(), ComparisonResult::Agreed), 4);
    assert!(node.snapshot().source.degraded.is_empty());
    for reading in 3..9 {
        node.read(reading * 10, reading * 9).await;
    }
    let source = node.snapshot().source;
    let [degraded] = &source.degraded[..] else { panic!("{source:?}") };
    assert_eq!((degraded.reason, degraded.pid), (DegradedReason::SourcesDisagree, Some(PROCESS)));
    let text = "cross-check of process 7: the probes counted 18 CPU faults, the driver 20 (";
    assert!(degraded.description.starts_with(text), "{}", degraded.description);
    node.watcher.detach(None);
    let source = node.snapshot().source;
    assert!(matches!(source.state, SourceState::Waiting { .. }) && source.degraded.is_empty());
    assert_eq!(source.crosschecks.unwrap().with(ComparisonResult::Disagreed), 3);
}

#[tokio::test(start_paused = true)]
async fn process_with_a_verdict_is_not_checked() {
    let mut node = Node::new();
    node.read(0, 0).await;
    let process = node.tracking.target().unwrap().process;
    // Its verdict began after the check.
    node.watcher.exempt(Arc::new([process].into()));
    assert_eq!(node.tracking.target(), None);
    for _ in 0..100 {
        node.read(0, 0).await;
    }
    assert_eq!(node.tracking.target(), None);
    node.watcher.exempt(Exempt::default());
    node.read(0, 0).await;
    assert!(node.tracking.target().is_some());
}

#[tokio::test(start_paused = true)]
async fn check_ends_when_the_process_opens_another_va_space() {
    let mut node = Node::new();
    node.read(0, 0).await;
    node.read(0, 0).await;
    node.event(SPACE + 1, LifecycleKind::Registered);
    node.read(5, 9).await;
    assert_eq!(node.tracking.target(), None);
    assert_eq!(result(&node.snapshot(), ComparisonResult::Disagreed), 0);
}
