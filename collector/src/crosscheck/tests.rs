use std::sync::{Arc, Mutex};

use model::{
    ComparisonResult::{Agreed, Disagreed, Inconclusive},
    DegradedReason,
};

use super::*;

const PROCESS: ProcessId = ProcessId { pid: 7, start_ticks: 1 };
const TARGET: Target = Target { process: PROCESS, uid: 1000, generation: 3 };

/// The driver's counters, of a test.
#[derive(Clone, Default)]
pub(crate) struct TestTracking(Arc<Mutex<TestState>>);

#[derive(Default)]
struct TestState {
    target: Option<Target>,
    figures: Counters,
    failure: Option<Progress>,
    begun: usize,
}

impl TestTracking {
    pub(crate) fn set(&self, figures: Counters) {
        self.0.lock().unwrap().figures = figures;
    }

    pub(crate) fn target(&self) -> Option<Target> {
        self.0.lock().unwrap().target
    }

    fn exit(&self) {
        self.0.lock().unwrap().target = None;
    }

    fn fail(&self, reason: Option<&str>) {
        self.0.lock().unwrap().failure = Some(Progress::Failed { reason: reason.map(str::to_owned) });
    }

    fn begun(&self) -> usize {
        self.0.lock().unwrap().begun
    }
}

impl Tracking for TestTracking {
    fn begin(&mut self, target: &Target) {
        let mut state = self.0.lock().unwrap();
        state.begun += 1;
        state.target = Some(*target);
    }

    fn look(&mut self) -> Progress {
        let mut state = self.0.lock().unwrap();
        match state.failure.take() {
            Some(failed) => {
                state.target = None;
                failed
            }
            None if state.target.is_some() => Progress::Counting,
            None => Progress::Idle,
        }
    }

    fn read(&self) -> Option<Counters> {
        let state = self.0.lock().unwrap();
        state.target.map(|_| state.figures)
    }

    fn end(&mut self) {
        self.0.lock().unwrap().target = None;
    }
}

/// Cross-check whose time passes by the call.
struct Check {
    tracking: TestTracking,
    crosscheck: Crosscheck,
    now: Instant,
}

impl Check {
    fn new() -> Self {
        let tracking = TestTracking::default();
        let crosscheck = Crosscheck::new(Box::new(tracking.clone()), Crosschecks::default());
        Self { tracking, crosscheck, now: Instant::now() }
    }

    /// Check in which both sources have been read once.
    fn begun() -> Self {
        let mut check = Self::new();
        check.look(0);
        check.look(0);
        check.read(0, 0, 0);
        check
    }

    fn look(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.crosscheck.look(self.now, || Some(TARGET));
    }

    /// Reads both sources a second later, which have counted these CPU faults.
    fn read(&mut self, driver: u64, probes: u64, dropped_events: u64) -> bool {
        self.look(1);
        let cpu_faults = |cpu_faults| Counters { cpu_faults, ..Counters::default() };
        self.tracking.set(cpu_faults(driver));
        let before = self.crosscheck.begin_reading(self.now);
        if let Some(before) = before {
            self.crosscheck.end_reading(before, cpu_faults(probes), dropped_events, self.now);
        }
        before.is_some()
    }

    /// Comparisons of CPU faults.
    fn results(&self) -> [u64; 3] {
        [Agreed, Disagreed, Inconclusive].map(|result| self.crosscheck.done().of(CheckedFigure::CpuFaults, result))
    }
}

#[test]
fn process_is_checked_for_ten_seconds_of_a_minute() {
    let mut check = Check::new();
    let attached: Vec<_> = (0..130)
        .filter(|_| {
            check.look(1);
            check.tracking.target().is_some()
        })
        .collect();
    // Attached at a look, counting at the next one.
    let expected: Vec<_> = [0..11, 60..71, 120..130].into_iter().flatten().collect();
    assert_eq!(attached, expected);
}

#[test]
fn equal_sources_agree_whatever_the_probes_counted_before() {
    let mut check = Check::new();
    check.look(0);
    check.look(0);
    for second in 0..9 {
        assert!(check.read(second * 5, 1000 + second * 5, 0));
    }
    assert_eq!(check.results(), [8, 0, 0]);
    assert_eq!(check.crosscheck.done().with(Agreed), 32);
    assert_eq!((check.crosscheck.done().checks, check.crosscheck.done().last_process), (1, Some(PROCESS)));
    assert_eq!(check.crosscheck.warnings().count() + check.crosscheck.degradations().count(), 0);
}

#[test]
fn one_disagreement_is_a_warning_and_three_of_a_figure_are_a_state() {
    let mut check = Check::begun();
    check.read(10, 9, 0);
    assert_eq!(check.crosscheck.warnings().count(), 0, "it may be counted later");
    check.read(10, 9, 0);
    let warnings: Vec<_> = check.crosscheck.warnings().collect();
    assert_eq!(
        warnings,
        ["cross-check of process 7: the probes counted 9 CPU faults, the driver 10 (`cpu_faults`; disagreements: 1)"]
    );
    // The fault that was missed is not found again.
    check.read(10, 9, 0);
    assert_eq!(check.results(), [1, 1, 1]);
    for _ in 0..2 {
        check.read(20, 18, 0);
    }
    assert_eq!(check.crosscheck.degradations().count(), 0);
    for _ in 0..2 {
        check.read(30, 26, 0);
    }
    assert_eq!(check.results(), [1, 3, 3]);
    let [degradation] = check.crosscheck.degradations().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(
        (degradation.reason, degradation.pid, degradation.uid),
        (DegradedReason::SourcesDisagree, Some(7), Some(1000))
    );
    assert!(degradation.description.contains("the probes counted 8 CPU faults"), "{degradation:?}");
    assert_eq!(check.crosscheck.warnings().count(), 0);
}

#[test]
fn event_that_one_source_counts_a_second_later_is_no_disagreement() {
    let mut check = Check::begun();
    check.read(9, 10, 0);
    check.read(10, 10, 0);
    check.read(10, 11, 0);
    check.read(11, 11, 0);
    assert_eq!(check.results(), [2, 0, 2]);
}

#[test]
fn comparison_is_inconclusive_if_the_probes_dropped_events() {
    let mut check = Check::begun();
    check.read(10, 9, 1);
    check.read(20, 19, 1);
    assert_eq!(check.results(), [1, 0, 1]);
}

#[test]
fn exit_of_the_process_is_no_disagreement() {
    let mut check = Check::begun();
    let before = check.crosscheck.begin_reading(check.now + Duration::from_secs(1)).unwrap();
    check.tracking.exit();
    let probes = Counters { cpu_faults: 99, ..Counters::default() };
    check.crosscheck.end_reading(before, probes, 0, check.now);
    assert_eq!(check.results(), [0, 0, 0]);
    check.look(1);
    assert!(!check.read(0, 0, 0), "there is a check");
    check.look(60);
    assert_eq!(check.tracking.begun(), 2);
}

#[test]
fn sources_are_compared_once_a_second_however_often_they_are_read() {
    let mut check = Check::begun();
    for _ in 0..50 {
        check.now += Duration::from_millis(50);
        if check.crosscheck.begin_reading(check.now).is_some() {
            check.crosscheck.end_reading(Counters::default(), Counters::default(), 0, check.now);
        }
    }
    assert_eq!(check.results(), [2, 0, 0]);
}

#[test]
fn process_without_a_tracker_leaves_its_turn_to_another_one_soon() {
    let mut check = Check::new();
    check.look(1);
    check.tracking.fail(None);
    check.look(1);
    check.look(4);
    assert_eq!(check.tracking.begun(), 1);
    check.look(1);
    assert_eq!(check.tracking.begun(), 2);
    assert_eq!(check.crosscheck.warnings().count(), 0);
}

#[test]
fn reason_that_concerns_all_processes_is_a_warning_until_one_is_checked() {
    let mut check = Check::new();
    check.look(1);
    check.tracking.fail(Some("no device"));
    check.look(1);
    assert_eq!(check.crosscheck.warnings().collect::<Vec<_>>(), ["no device"]);
    check.look(59);
    assert_eq!(check.tracking.begun(), 1);
    check.look(1);
    assert_eq!(check.tracking.begun(), 2);
    // The next one can be checked.
    check.read(0, 0, 0);
    assert_eq!(check.crosscheck.warnings().count(), 0);
}
