//! What operators change, as whoever keeps it sees it.

use std::{fmt, sync::Arc, time::Duration};

use model::{
    Decision, Process,
    api::rule::{self, EffectivePolicy, OverrideStatus, Overrides, PolicyState},
};
use serde::Serialize;
use tokio::{sync::Mutex, task, time};

use crate::{
    auth::Requester,
    problem::{Kind, Problem},
};

/// How long a request waits for the disk, twice at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Keeps overrides, and the switch. What changes something may wait for a disk, but for [`Self::switch_off`]; each change is whole or has not happened. What
/// only tells waits for nothing.
pub trait Control: Send + Sync {
    /// All overrides.
    fn overrides(&self) -> Overrides;

    /// Puts this in the place of the override of its name, or beside the others if there is none; `by` is who asks for it. `fits` is asked about what is
    /// there now, and nothing else changes it meanwhile.
    ///
    /// # Errors
    /// Why nothing has changed.
    fn put(&self, rule: model::Override, by: &Requester, fits: &Precondition) -> Result<PutOutcome, ChangeError>;

    /// Takes an override away.
    ///
    /// # Errors
    /// Why nothing has changed.
    fn remove(&self, id: &str, by: &Requester, fits: &Precondition) -> Result<(), ChangeError>;

    /// What is wanted for a process, and why.
    fn wanted(&self, process: &Process) -> EffectivePolicy;

    /// Whether anything may be done.
    fn state(&self) -> PolicyState;

    /// Stops all acting, at once, and has who asked for that written down: this waits for nothing either.
    ///
    /// # Errors
    /// Why that is not so.
    fn switch_off(&self, by: &Requester) -> Result<(), ChangeError>;

    /// Has it stay off when the service is started again, if it still is off. May wait for the disk.
    fn keep_off(&self);

    /// How often acting was switched off.
    fn times_off(&self) -> u64;

    /// How the journal of advice is; `None` where there is none.
    fn journal(&self) -> Option<AdviceJournal> {
        None
    }

    /// Lets acting go on, unless it was switched off again since it had been so often: whoever asked for that did so later.
    ///
    /// # Errors
    /// Why that is not so.
    fn switch_on(&self, by: &Requester, times_off: u64) -> Result<(), ChangeError>;
}

/// How the journal is in which advice is written down before it is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdviceJournal {
    /// Whether the disk takes what is written. Else no advice is given.
    pub is_writable: bool,
    /// Bytes of it that are damaged, or of a later version.
    pub unrecognised_bytes: u64,
    /// Lines that were dropped because too many waited for the disk. It is written anew after that.
    pub dropped_lines: u64,
    /// What is wrong, in sentences.
    pub warnings: Vec<String>,
}

/// Whether what is there is what whoever asks thinks.
pub type Precondition = Box<dyn Fn(Option<&OverrideStatus>) -> bool + Send>;

/// What came of putting an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// What is there now.
    pub now: OverrideStatus,
    /// There was none of its name.
    pub is_new: bool,
}

/// Why nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// There is no override of this name.
    NotFound,
    /// It is in the file, which is not changed from here.
    InFile(String),
    /// The condition does not hold.
    PreconditionFailed,
    /// Another one has this name.
    Exists,
    /// It is for one process, and there is no such process: why.
    NoProcess(String),
    /// A part of it means nothing: which, and what is allowed.
    Invalid(rule::Invalid),
    /// There are too many.
    TooMany(usize),
    /// It could not be kept, and so is not in force: why.
    NotSaved(String),
    /// That somebody asked for it could not be written to the audit log, and so it is not in force: why.
    NotAudited(String),
}

/// What keeps them; where there is nothing, nothing can be changed.
#[derive(Clone)]
pub struct Controls {
    control: Arc<dyn Control>,
    /// Held by the change that is being made. Those that wait for it hold no thread: while a disk is stuck, others are served.
    turn: Arc<Mutex<()>>,
}

impl Controls {
    /// Kept by this.
    pub fn new(control: impl Control + 'static) -> Self {
        Self { control: Arc::new(control), turn: Arc::default() }
    }

    pub(crate) fn now(&self) -> &dyn Control {
        self.control.as_ref()
    }

    /// Changes something, one after another, in a thread that may wait for a disk.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&dyn Control) -> Result<T, ChangeError> + Send + 'static,
    ) -> Result<T, Problem> {
        let stuck = |what| {
            let detail = format!("nothing could be written to the disk for {} s: {what}", PATIENCE.as_secs());
            move |_| Problem::new(Kind::DiskStalled, detail)
        };
        let turn = time::timeout(PATIENCE, Arc::clone(&self.turn).lock_owned()).await;
        let turn = turn.map_err(stuck("an earlier change is still pending, and this one is not made"))?;
        let control = Arc::clone(&self.control);
        let changing = task::spawn_blocking(move || {
            let _turn = turn;
            change(control.as_ref())
        });
        let changed = time::timeout(PATIENCE, changing).await;
        let failed = |_| Problem::new(Kind::InternalError, "uvmd failed: its log has the cause".to_owned());
        changed.map_err(stuck("the change is made once that is done"))?.map_err(failed)?.map_err(Problem::from)
    }

    /// Switches on. Who switches off while this waits for its turn comes after it.
    pub(crate) async fn switch_on(&self, by: Requester) -> Result<(), Problem> {
        let times_off = self.control.times_off();
        self.change(move |control| control.switch_on(&by, times_off)).await
    }

    /// Switches off, which nothing holds up, and has that kept. A disk that is stuck is not waited for: it is off, and is kept once
    /// that can be done; the state says so until then.
    pub(crate) async fn switch_off(&self, by: &Requester) -> Result<(), Problem> {
        self.control.switch_off(by)?;
        let Self { control, turn } = self.clone();
        let keeping = task::spawn(async move {
            let turn = turn.lock_owned().await;
            task::spawn_blocking(move || {
                let _turn = turn;
                control.keep_off();
            })
            .await
        });
        // It is off whatever becomes of this.
        let _ = time::timeout(PATIENCE, keeping).await;
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
            ChangeError::NoProcess(why) => return Self::of_field("match.pid", why),
            ChangeError::Invalid(rule::Invalid { field, detail }) => return Self::of_field(&field, detail),
            ChangeError::TooMany(max) => {
                (Kind::TooManyOverrides, format!("there are {max} overrides already, the maximum"))
            }
            ChangeError::NotSaved(why) => {
                (Kind::ChangeNotSaved, format!("the change could not be saved, and is not in effect: {why}"))
            }
            ChangeError::NotAudited(why) => (
                Kind::ChangeNotAudited,
                format!("the change could not be written to the audit log, and is not in effect: {why}"),
            ),
        };
        Self::new(kind, detail)
    }
}

/// Keeps nothing.
#[derive(Debug)]
pub(crate) struct NoControl;

const NOTHING: &str = "this service accepts no changes";

impl Control for NoControl {
    fn overrides(&self) -> Overrides {
        Overrides::default()
    }

    fn put(&self, _: model::Override, _: &Requester, _: &Precondition) -> Result<PutOutcome, ChangeError> {
        Err(ChangeError::NotSaved(NOTHING.to_owned()))
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
            reason: NOTHING.to_owned(),
            ..EffectivePolicy::default()
        }
    }

    fn state(&self) -> PolicyState {
        PolicyState {
            default_mode: "observe".to_owned(),
            default_policy: "observe".to_owned(),
            ..PolicyState::default()
        }
    }

    fn switch_off(&self, _: &Requester) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(NOTHING.to_owned()))
    }

    fn keep_off(&self) {}

    fn times_off(&self) -> u64 {
        0
    }

    fn switch_on(&self, _: &Requester, _: u64) -> Result<(), ChangeError> {
        Err(ChangeError::NotSaved(NOTHING.to_owned()))
    }
}

/// Tells what was decided, the newest first.
#[derive(Clone)]
pub struct DecisionSource(Arc<dyn Fn() -> Arc<[Decision]> + Send + Sync>);

impl DecisionSource {
    /// Decisions that `decisions` tells.
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

/// What an override, or anything else, is known by: another one has another. It is quoted, as in the header `ETag`.
#[must_use]
pub fn etag(of: &impl Serialize) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    // Nothing in it has keys that are no text.
    serde_json::to_string(of).unwrap_or_default().hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
