//! Overrides in effect: those of the files, which are followed, and those of the API, which
//! persist. [`policy::rules`] decides what they mean.
//!
//! * `file`: files of the administrator and their observation; `fleet`: that of `uvmd-fleet`
//! * `change`: changes over the API; `stored`: overrides of the API on the disk
//! * `expiry`: expired overrides in the log and on the disk

mod change;
mod expiry;
mod file;
mod fleet;
mod stored;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use api::{
    fleet_overrides::BYTES_MAX,
    rule::{OverrideStatus, Overrides},
};
pub(crate) use change::Announce;
use config::{Policy, overrides::Files};
pub(crate) use expiry::Clock;
use model::{Budget, Directive, Override, Process};
use policy::rules::{Explained, Fallback, RuleSet, Rules as Ordered, Subject};

use crate::{audit::Audit, claimed_file::ClaimedFile, state_file::StateFile};

use file::FileState;

pub(crate) use file::load_settled;

/// Overrides in effect. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Rules(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state_file: StateFile,
    /// Held briefly, and never during a read or write: the acting loop and requests wait for it.
    known: Mutex<Known>,
    /// Held during a change over the API, which may wait for the disk.
    changing: Mutex<()>,
    /// File of `uvmd-fleet`, if one is configured; locked during a read.
    fleet_file: Option<Mutex<ClaimedFile>>,
    ordered: RwLock<Arc<Ordered>>,
    audit: Audit,
    clock: Clock,
    /// Next expiry of an override, in nanoseconds since 1970.
    next_expiry_ns: AtomicU64,
}

/// Overrides, and the state of the files.
#[derive(Debug)]
struct Known {
    file: PathBuf,
    set: RuleSet,
    /// Last state of the files.
    last_state: Option<FileState>,
    /// Files applied last, or the reason why they could not be read.
    taken: Option<Result<Files, String>>,
    /// Error of the file; its overrides are then of an earlier version.
    file_error: Option<String>,
    /// Path of the fleet's file.
    fleet_path: Option<PathBuf>,
    /// Error of the fleet's file, likewise.
    fleet_error: Option<String>,
    /// Whether an expiry is not on the disk yet.
    is_persist_pending: bool,
    /// Whether the disk failed that, which is logged once.
    is_persist_failing: bool,
    /// Quarantined state file, and its error: exceptions are then unknown.
    quarantined: Option<String>,
}

impl Rules {
    /// Reads the file and the persistent overrides of former runs. An invalid file does not prevent
    /// monitoring: it is reported. An invalid state file is quarantined.
    ///
    /// # Errors
    /// If the state file cannot be read or quarantined. It stays unchanged: its exceptions must not
    /// be acted on.
    pub(crate) fn open(policy: &Policy, is_state_usable: bool, audit: Audit, clock: Clock) -> anyhow::Result<Self> {
        let state_file = StateFile::new(&policy.state_dir.0, "overrides.json");
        let text = match state_file.text() {
            // No process is acted on then, and nothing is persistent.
            Err(error) if !is_state_usable => {
                tracing::warn!("overrides of the API are not in effect: {error:#}");
                None
            }
            text => text?,
        };
        let of_former_runs = text.map(|text| stored::parse(&state_file, &text)).transpose();
        let (of_former_runs, quarantined) = match of_former_runs {
            Ok(of_former_runs) => (Some(of_former_runs.unwrap_or_default()), None),
            Err(error) => {
                let quarantine = state_file.quarantine()?;
                let why = format!(
                    "earlier overrides of the API are not in effect: {error:#}; see {}; until one is created or uvmd restarts, policy.mode acts on no process",
                    quarantine.display()
                );
                tracing::warn!("{why}");
                (None, Some(why))
            }
        };
        let set = RuleSet::new(fallback(policy), of_former_runs);
        let fleet_path = policy.fleet_overrides_file.as_ref().map(|path| path.0.clone());
        let set = if fleet_path.is_some() { set.with_fleet() } else { set };
        let fleet_file = fleet_path.clone().map(|path| Mutex::new(ClaimedFile::new(path, BYTES_MAX)));
        let rules = Self(Arc::new(Shared {
            state_file,
            fleet_file,
            ordered: RwLock::new(Arc::new(set.rules())),
            known: Mutex::new(Known {
                file: policy.overrides_file.0.clone(),
                set,
                last_state: None,
                taken: None,
                file_error: None,
                fleet_path,
                fleet_error: None,
                is_persist_pending: false,
                is_persist_failing: false,
                quarantined,
            }),
            changing: Mutex::default(),
            audit,
            clock,
            next_expiry_ns: AtomicU64::new(u64::MAX),
        }));
        rules.apply(&rules.known());
        rules.check_fleet();
        rules.check_file_until_it_is_settled();
        Ok(rules)
    }

    /// Directive of a process with this executable.
    pub(crate) fn directive(&self, process: &Process, executable: Option<&Path>) -> Directive {
        let now = self.now();
        self.ordered().directive(Subject { process, executable }, now)
    }

    /// Directive with its reasons.
    pub(crate) fn explain(&self, process: &Process, executable: Option<&Path>) -> Explained {
        let now = self.now();
        self.ordered().explain(Subject { process, executable }, now)
    }

    /// Whether any process may be in another mode than observe.
    pub(crate) fn may_act(&self) -> bool {
        let now = self.now();
        self.ordered().may_act(now)
    }

    /// All overrides, in order of precedence.
    pub(crate) fn overrides(&self) -> Overrides {
        let now = self.now();
        let known = self.known();
        let ordered = self.ordered();
        let status = |rule| status(rule, &known, ordered.has_expired(rule, now));
        let overrides = ordered.ordered().iter().map(status).collect();
        let errors = known.quarantined.iter().chain(&known.file_error).chain(&known.fleet_error);
        let errors: Vec<&str> = errors.map(String::as_str).collect();
        let file_error = (!errors.is_empty()).then(|| errors.join("; "));
        Overrides { overrides, file_error, ..Overrides::default() }
    }

    /// Default without a matching override.
    pub(crate) fn fallback(&self) -> Fallback {
        self.known().set.fallback()
    }

    fn apply(&self, known: &Known) {
        for hidden in known.set.hidden() {
            tracing::warn!(
                "the override {} of {} is in effect instead of the API's of that name",
                hidden.id,
                known.file_of(&hidden.id).display()
            );
        }
        let next_expiry_ns = known.set.next_expiry().map_or(u64::MAX, expiry::unix_ns);
        self.0.next_expiry_ns.store(next_expiry_ns, Ordering::Relaxed);
        *self.0.ordered.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known.set.rules());
    }

    fn ordered(&self) -> Arc<Ordered> {
        Arc::clone(&self.0.ordered.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// File of an override that is in one.
    fn file_of(&self, id: &str) -> &Path {
        self.fleet_path.as_deref().filter(|_| self.set.is_of_fleet(id)).unwrap_or(&self.file)
    }
}

/// Default of the configuration.
fn fallback(policy: &Policy) -> Fallback {
    Fallback {
        mode: policy.mode.0,
        policy: policy.policy.0.clone(),
        budget: Budget {
            bytes_per_second: Some(policy.process_bytes_per_second.bytes),
            bytes: policy.process_bytes.map(|size| size.bytes),
        },
        mode_max: policy.mode_max(),
    }
}

fn status(rule: &Override, known: &Known, expired: bool) -> OverrideStatus {
    OverrideStatus {
        r#override: rule.into(),
        source: if known.set.is_of_fleet(&rule.id) {
            "fleet"
        } else if known.set.is_in_files(&rule.id) {
            "file"
        } else {
            "api"
        }
        .to_owned(),
        expired,
        matching_processes: None,
    }
}

#[cfg(test)]
mod tests;
