//! Interface to overrides and the kill switch.

use std::{fmt, sync::Arc, time::Duration};

use api::rule::{self, EffectivePolicy, OverrideStatus, Overrides, PolicyState};
use model::{Decision, Process, Selector};
use serde::Serialize;
use tokio::{sync::Mutex, task, time};

use crate::{
    auth::Requester,
    problem::{Kind, Problem},
};

/// Maximum wait of a request for the disk; applies twice at most.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Store of overrides and the kill switch. Methods that make a change may wait for a disk, except
/// [`Self::switch_off`]; each change is atomic. Methods that only read never wait.
pub trait Control: Send + Sync {
    /// All overrides.
    fn overrides(&self) -> Overrides;

    /// Creates or replaces the override with the id of `rule`, on behalf of `by`. `precondition` is
    /// evaluated on the current override, and no other change happens in between.
    ///
    /// # Errors
    /// Reason why nothing has changed.
    fn put(
        &self,
        rule: model::Override,
        by: &Requester,
        precondition: &Precondition,
    ) -> Result<PutOutcome, ChangeError>;

    /// Removes an override.
    ///
    /// # Errors
    /// Reason why nothing has changed.
    fn remove(&self, id: &str, by: &Requester, precondition: &Precondition) -> Result<(), ChangeError>;

    /// Policy in effect for a process, and its reason.
    fn wanted(&self, process: &Process) -> EffectivePolicy;

    /// Whether a selector matches a process.
    fn is_match(&self, selector: &Selector, process: &Process) -> bool;

    /// State of acting.
    fn state(&self) -> PolicyState;

    /// Stops all acting at once, and has `by` written to the audit log, without waiting.
    ///
    /// # Errors
    /// Reason why acting goes on.
    fn switch_off(&self, by: &Requester) -> Result<(), ChangeError>;

    /// Saves the off state for the next start, if acting is still off. May wait for the disk.
    fn keep_off(&self);

    /// Number of times that acting was switched off.
    fn times_off(&self) -> u64;

    /// State of the advice journal; `None` without one.
    fn journal(&self) -> Option<AdviceJournal> {
        None
    }

    /// Resumes acting, unless the number of times that it was switched off exceeds `times_off`:
    /// that request was later.
    ///
    /// # Errors
    /// Reason why acting stays off.
    fn switch_on(&self, by: &Requester, times_off: u64) -> Result<(), ChangeError>;
}

/// State of the journal to which advice is written before it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdviceJournal {
    /// Whether writes to the disk succeed. No advice is given otherwise.
    pub is_writable: bool,
    /// Bytes of the journal that are damaged, or of a later version.
    pub unrecognised_bytes: u64,
    /// Lines that were dropped because too many waited for the disk. The journal is rewritten after
    /// that.
    pub dropped_lines: u64,
    /// Problems of the journal, as sentences.
    pub warnings: Vec<String>,
}

/// Whether the current override is the one that the requester expects.
pub type Precondition = Box<dyn Fn(Option<&OverrideStatus>) -> bool + Send>;

/// Outcome of putting an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// The override after the change.
    pub now: OverrideStatus,
    /// Whether no override had its id before.
    pub is_new: bool,
}

/// Reason why nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// No override has this id.
    NotFound,
    /// The override is in this file, which the API does not change.
    InFile(String),
    /// The precondition does not hold.
    PreconditionFailed,
    /// Another override has this id.
    Exists,
    /// The override is for one process, which does not exist: the reason.
    NoProcess(String),
    /// A field is invalid: its name, and the allowed values.
    Invalid(rule::Invalid),
    /// Too many overrides: the maximum.
    TooMany(usize),
    /// The change could not be saved, and is not in effect: the reason.
    NotSaved(String),
    /// The request could not be written to the audit log, and the change is not in effect: the
    /// reason.
    NotAudited(String),
}

/// Shared store of overrides, with one change at a time.
#[derive(Clone)]
pub struct Controls {
    control: Arc<dyn Control>,
    /// Held by the change in progress. Changes that wait hold no thread: while a disk stalls, other
    /// requests are served.
    turn: Arc<Mutex<()>>,
}

impl Controls {
    /// Controls over this store.
    pub fn new(control: impl Control + 'static) -> Self {
        Self { control: Arc::new(control), turn: Arc::default() }
    }

    pub(crate) fn now(&self) -> &dyn Control {
        self.control.as_ref()
    }

    /// Makes a change, one at a time, in a thread that may wait for a disk.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&dyn Control) -> Result<T, ChangeError> + Send + 'static,
    ) -> Result<T, Problem> {
        let stalled = |effect| {
            let detail = format!("nothing could be written to the disk for {} s: {effect}", TIMEOUT.as_secs());
            move |_| Problem::new(Kind::DiskStalled, detail)
        };
        let turn = time::timeout(TIMEOUT, Arc::clone(&self.turn).lock_owned()).await;
        let turn = turn.map_err(stalled("an earlier change is still pending, and this one is not made"))?;
        let control = Arc::clone(&self.control);
        let changing = task::spawn_blocking(move || {
            let _turn = turn;
            change(control.as_ref())
        });
        let changed = time::timeout(TIMEOUT, changing).await;
        let failed = |_| Problem::new(Kind::InternalError, "uvmd failed: its log has the cause".to_owned());
        changed.map_err(stalled("the change is made once that is done"))?.map_err(failed)?.map_err(Problem::from)
    }

    /// Switches acting on. A request to switch it off while this one waits takes precedence.
    pub(crate) async fn switch_on(&self, by: Requester) -> Result<(), Problem> {
        let times_off = self.control.times_off();
        self.change(move |control| control.switch_on(&by, times_off)).await
    }

    /// Switches acting off without delay, and saves that state. A stalled disk is not waited for:
    /// acting is off, and is saved as off once the disk works; the state reports that until then.
    pub(crate) async fn switch_off(&self, by: &Requester) -> Result<(), Problem> {
        self.control.switch_off(by)?;
        let Self { control, turn } = self.clone();
        let saving = task::spawn(async move {
            let turn = turn.lock_owned().await;
            task::spawn_blocking(move || {
                let _turn = turn;
                control.keep_off();
            })
            .await
        });
        // Acting is off, whatever the outcome.
        let _ = time::timeout(TIMEOUT, saving).await;
        Ok(())
    }
}

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Controls")
    }
}

impl From<ChangeError> for Problem {
    fn from(refused: ChangeError) -> Self {
        let (kind, detail) = match refused {
            ChangeError::NotFound => (Kind::NotFound, "there is no override of this name".to_owned()),
            ChangeError::InFile(file) => (Kind::OverrideInFile, format!("this override is in {file}: change it there")),
            ChangeError::PreconditionFailed => (
                Kind::PreconditionFailed,
                "the override does not match the request's If-Match or If-None-Match".to_owned(),
            ),
            ChangeError::Exists => (Kind::OverrideExists, "another override has this id: PUT replaces it".to_owned()),
            ChangeError::NoProcess(reason) => return Self::of_field("match.pid", reason),
            ChangeError::Invalid(rule::Invalid { field, detail }) => return Self::of_field(&field, detail),
            ChangeError::TooMany(max) => {
                (Kind::TooManyOverrides, format!("there are {max} overrides already, the maximum"))
            }
            ChangeError::NotSaved(reason) => {
                (Kind::ChangeNotSaved, format!("the change could not be saved, and is not in effect: {reason}"))
            }
            ChangeError::NotAudited(reason) => (
                Kind::ChangeNotAudited,
                format!("the change could not be written to the audit log, and is not in effect: {reason}"),
            ),
        };
        Self::new(kind, detail)
    }
}

/// Store that rejects every change.
#[derive(Debug)]
pub(crate) struct NoControl;

const READ_ONLY: &str = "this service accepts no changes";

impl Control for NoControl {
    fn overrides(&self) -> Overrides {
        Overrides::default()
    }

    fn put(&self, _: model::Override, _: &Requester, _: &Precondition) -> Result<PutOutcome, ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }

    fn remove(&self, _: &str, _: &Requester, _: &Precondition) -> Result<(), ChangeError> {
        Err(ChangeError::NotFound)
    }

    fn wanted(&self, process: &Process) -> EffectivePolicy {
        EffectivePolicy {
            pid: process.id.pid,
            start_ticks: process.id.start_ticks,
            name: process.name.clone(),
            mode: "observe".to_owned(),
            policy: "observe".to_owned(),
            reason: READ_ONLY.to_owned(),
            ..EffectivePolicy::default()
        }
    }

    fn is_match(&self, _: &Selector, _: &Process) -> bool {
        false
    }

    fn state(&self) -> PolicyState {
        PolicyState {
            default_mode: "observe".to_owned(),
            default_policy: "observe".to_owned(),
            ..PolicyState::default()
        }
    }

    fn switch_off(&self, _: &Requester) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }

    fn keep_off(&self) {}

    fn times_off(&self) -> u64 {
        0
    }

    fn switch_on(&self, _: &Requester, _: u64) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(READ_ONLY.to_owned()))
    }
}

/// Source of decisions, the newest first.
#[derive(Clone)]
pub struct DecisionSource(Arc<dyn Fn() -> Arc<[Decision]> + Send + Sync>);

impl DecisionSource {
    /// Source that calls `decisions`.
    pub fn new(decisions: impl Fn() -> Arc<[Decision]> + Send + Sync + 'static) -> Self {
        Self(Arc::new(decisions))
    }

    pub(crate) fn now(&self) -> Arc<[Decision]> {
        let Self(decisions) = self;
        decisions()
    }
}

impl fmt::Debug for DecisionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecisionSource")
    }
}

/// Entity tag of an override or another object, by its content. It is quoted, as in the header
/// `ETag`.
#[must_use]
pub fn etag(of: &impl Serialize) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    // Serialization fails for keys that are not text alone, and there are none.
    serde_json::to_string(of).unwrap_or_default().hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
