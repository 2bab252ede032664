//! What is wanted for which processes: the overrides of the file, which is followed, and those made over the API, which are kept.

mod bound;
mod file;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::SystemTime,
};

use config::Policy;
use model::{
    Budget, Mode, Override, Process, Wish,
    api::rule::{Overrides, StandingOverride},
};
use policy::{
    act::parameter,
    rules::{Explained, Fallback, Rules as Ordered, Subject},
};
use sys::private;
use web::{Condition, Put, Refused};

use crate::kept::Kept;

use file::Look;

/// Overrides made over the API.
const MAX: usize = 1000;

/// Overrides that are in force. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Rules(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: PathBuf,
    kept: Kept,
    fallback: Fallback,
    /// Held for moments only, and never while something is read or written: who acts and who asks waits for it.
    known: Mutex<Known>,
    /// Held while the API's change, which may wait for the disk.
    changing: Mutex<()>,
    ordered: RwLock<Arc<Ordered>>,
}

/// Where overrides are from.
#[derive(Debug, Default)]
struct Known {
    /// `None` until the file was in order for the first time: who is excepted there is not known then.
    of_file: Option<Vec<Override>>,
    /// How the file was found last.
    looked: Option<Look>,
    /// What is wrong with the file now, so that these are of an earlier state of it.
    file_error: Option<String>,
    of_api: Vec<Override>,
    /// What was set aside, and why: who was excepted is not known then.
    set_aside: Option<String>,
}

impl Rules {
    /// What the file says, and what was kept of former runs. A file that is not in order does not keep uvmd from watching: it is told of, and what was
    /// kept is set aside.
    ///
    /// # Errors
    /// If what was kept cannot be read, or not be set aside. It stays as it is: whoever was excepted there must not be acted on.
    pub(crate) fn open(policy: &Policy) -> anyhow::Result<Self> {
        let kept = Kept::new(&policy.state_dir.0, "overrides.json");
        let text = match kept.text() {
            // Nobody is acted on, and nothing is kept there either.
            Err(error) if !policy.enabled && private::check_folder(&policy.state_dir.0).is_err() => {
                tracing::warn!("no override that was made over the API is in force: {error:#}");
                None
            }
            text => text?,
        };
        let (of_api, set_aside) = match text.map(|text| bound::parse(&kept, &text)).transpose() {
            Ok(of_api) => (of_api.unwrap_or_default(), None),
            Err(error) => {
                let aside = kept.set_aside()?;
                let why = format!(
                    "no override that was made over the API before is in force: {error:#}; see {}; until one is made, or uvmd is started again, \
                     nobody is acted on by policy.mode",
                    aside.display()
                );
                tracing::warn!("{why}");
                (Vec::new(), Some(why))
            }
        };
        let fallback = Fallback {
            mode: policy.mode.0,
            policy: policy.policy.0.clone(),
            budget: Budget {
                bytes_per_second: Some(policy.process_bytes_per_second.bytes),
                bytes: policy.process_bytes.map(|size| size.bytes),
            },
            mode_max: policy.mode_max(),
        };
        let rules = Self(Arc::new(Shared {
            file: policy.overrides_file.0.clone(),
            kept,
            ordered: RwLock::new(Arc::new(Ordered::new(Vec::new(), fallback.clone()))),
            fallback,
            known: Mutex::new(Known { of_api, set_aside, ..Known::default() }),
            changing: Mutex::default(),
        }));
        rules.apply(&rules.known());
        rules.look_at_file_until_it_is_settled();
        Ok(rules)
    }

    /// What is wanted for a process, whose executable is at this path.
    pub(crate) fn wish(&self, process: &Process, executable: Option<&Path>, now: SystemTime) -> Wish {
        self.ordered().wish(Subject { process, executable }, now)
    }

    /// The same, with the reasons.
    pub(crate) fn explain(&self, process: &Process, executable: Option<&Path>, now: SystemTime) -> Explained {
        self.ordered().explain(Subject { process, executable }, now)
    }

    /// Whether more is wanted for anybody than to watch.
    pub(crate) fn may_want(&self) -> bool {
        let wants = |mode: Mode| mode != Mode::Observe;
        let now = SystemTime::now();
        let ordered = self.ordered();
        wants(self.0.fallback.mode) || ordered.ordered().iter().any(|rule| wants(rule.mode) && !is_over(rule, now))
    }

    /// All of them, in order of precedence.
    pub(crate) fn overrides(&self) -> Overrides {
        let known = self.known();
        let (ordered, now) = (self.ordered(), SystemTime::now());
        let overrides = ordered.ordered().iter().map(|rule| standing(rule, &known, now)).collect();
        let errors: Vec<&str> = known.set_aside.iter().chain(&known.file_error).map(String::as_str).collect();
        Overrides { overrides, file_error: (!errors.is_empty()).then(|| errors.join("; ")) }
    }

    /// What holds where none fits.
    pub(crate) fn fallback(&self) -> Fallback {
        self.fallback_beside(&self.known())
    }

    fn fallback_beside(&self, known: &Known) -> Fallback {
        let mut fallback = self.0.fallback.clone();
        if known.set_aside.is_some() || known.of_file.is_none() {
            fallback.mode = fallback.mode.min(Mode::Shadow);
        }
        fallback
    }

    /// Puts an override in the place of the one of its name. May wait for the disk.
    pub(crate) fn put(&self, rule: &Override, fits: &Condition) -> Result<Put, Refused> {
        parameter::check(&rule.policy, &rule.parameters).map_err(Refused::Meaningless)?;
        let rule = &bound::to_process(rule)?;
        let _changing = self.changing();
        let (there, of_api) = self.beside(&rule.id, fits)?;
        let is_new = there.is_none();
        if there.is_none_or(|there| there != *rule) {
            let of_api: Vec<_> = of_api.into_iter().chain([rule.clone()]).collect();
            if of_api.len() > MAX {
                return Err(Refused::Full(MAX));
            }
            self.keep(of_api)?;
        }
        Ok(Put { now: standing(rule, &self.known(), SystemTime::now()), is_new })
    }

    /// Takes an override away. May wait for the disk.
    pub(crate) fn remove(&self, id: &str, fits: &Condition) -> Result<(), Refused> {
        let _changing = self.changing();
        let (there, of_api) = self.beside(id, fits)?;
        there.ok_or(Refused::Unknown)?;
        self.keep(of_api)
    }

    /// What has this name, if it may be changed, and what is kept beside it.
    fn beside(&self, id: &str, fits: &Condition) -> Result<(Option<Override>, Vec<Override>), Refused> {
        let known = self.known();
        let there = self.check(&known, id, fits)?;
        let of_api = lasting(&known, id).collect();
        Ok((there, of_api))
    }

    /// What has this name, if it is not the file's and is as whoever asks thinks.
    fn check(&self, known: &Known, id: &str, fits: &Condition) -> Result<Option<Override>, Refused> {
        if known.is_of_file(id) {
            return Err(Refused::InFile(self.0.file.display().to_string()));
        }
        let there = known.of_api.iter().find(|rule| rule.id == id);
        let told = there.map(|rule| standing(rule, known, SystemTime::now()));
        if fits(told.as_ref()) { Ok(there.cloned()) } else { Err(Refused::Changed) }
    }

    /// For who holds `changing`. What ended meanwhile is forgotten with the next look.
    fn keep(&self, of_api: Vec<Override>) -> Result<(), Refused> {
        bound::write(&self.0.kept, &of_api).map_err(|error| Refused::NotKept(format!("{error:#}")))?;
        let mut known = self.known();
        known.of_api = of_api;
        known.set_aside = None;
        self.apply(&known);
        Ok(())
    }

    /// What was made for a process that has ended is for nobody any more. On the disk it goes with the next change.
    fn forget_ended(&self) {
        self.forget(bound::has_ended);
    }

    /// Asks while nobody waits, as that may take its time.
    fn forget(&self, has_ended: impl FnMut(&Override) -> bool) {
        let mut ended: Vec<_> =
            self.known().of_api.iter().filter(|rule| rule.selector.pid.is_some()).cloned().collect();
        ended.retain(has_ended);
        if ended.is_empty() {
            return;
        }
        let mut known = self.known();
        // What was put meanwhile, even under the same name, is for another process.
        known.of_api.retain(|rule| {
            let has_ended = ended.contains(rule);
            if has_ended {
                tracing::info!("override {} is gone: the process that it was for has ended", rule.id);
            }
            !has_ended
        });
        self.apply(&known);
    }

    fn apply(&self, known: &Known) {
        let (hidden, of_api): (Vec<_>, Vec<_>) = known.of_api.iter().partition(|rule| known.is_of_file(&rule.id));
        for hidden in hidden {
            tracing::warn!(
                "the override {} of {} is in force, and not the API's of that name",
                hidden.id,
                self.0.file.display()
            );
        }
        let all = known.of_file.iter().flatten().chain(of_api).cloned().collect();
        let ordered = Arc::new(Ordered::new(all, self.fallback_beside(known)));
        *self.0.ordered.write().unwrap_or_else(PoisonError::into_inner) = ordered;
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
    fn is_of_file(&self, id: &str) -> bool {
        self.of_file.iter().flatten().any(|rule| rule.id == id)
    }
}

fn is_over(rule: &Override, now: SystemTime) -> bool {
    rule.expires.is_some_and(|end| end <= now)
}

/// What is kept beside the one of this name: those whose time is over are forgotten when something changes.
fn lasting<'a>(known: &'a Known, id: &'a str) -> impl Iterator<Item = Override> + 'a {
    let now = SystemTime::now();
    known.of_api.iter().filter(move |rule| rule.id != id && !is_over(rule, now)).cloned()
}

fn standing(rule: &Override, known: &Known, now: SystemTime) -> StandingOverride {
    StandingOverride {
        r#override: rule.into(),
        source: if known.is_of_file(&rule.id) { "file" } else { "api" }.to_owned(),
        expired: is_over(rule, now),
    }
}

#[cfg(test)]
mod tests;
