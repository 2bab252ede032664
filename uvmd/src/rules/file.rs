//! The file of overrides, as it is followed. Who writes it in place leaves it empty, or cut off between two tables, for a moment: that is a file in order, with fewer
//! overrides, and whoever is excepted by the others would be acted on. So what it says is taken once two looks in a row have found the same.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use config::overrides;
use model::Override;
use tokio::{task, time};

use super::{Known, Rules};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The same when the service starts, and how many such looks it waits for.
const EVERY_AT_START: Duration = Duration::from_millis(100);
const LOOKS_AT_START: u32 = 10;

/// How the file is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Its size and when it was changed; `None` where there is no such file.
    stamp: Option<(u64, SystemTime)>,
    said: Result<Vec<Override>, String>,
}

impl Look {
    fn at(file: &Path) -> Self {
        let stamp = fs::metadata(file).and_then(|file| Ok((file.len(), file.modified()?))).ok();
        Self { stamp, said: overrides::load(file).map_err(|error| error.to_string()) }
    }
}

impl Rules {
    /// Follows the file, and the processes that overrides are for, for ever.
    pub(crate) async fn follow(self) {
        let mut looks = time::interval(EVERY);
        loop {
            looks.tick().await;
            let rules = self.clone();
            let look = move || {
                rules.look_at_file();
                rules.forget_ended();
            };
            if task::spawn_blocking(look).await.is_err() {
                return;
            }
        }
    }

    /// Waits for a moment until nobody is writing the file.
    pub(super) fn look_at_file_until_it_is_settled(&self) {
        for _ in 0..LOOKS_AT_START {
            if self.look_at_file() {
                return;
            }
            thread::sleep(EVERY_AT_START);
        }
        tracing::warn!("{} is being written all the time: it is not in force yet", self.0.file.display());
    }

    /// Looks at the file once, and tells whether it is as the look before found it, and so taken.
    pub(super) fn look_at_file(&self) -> bool {
        let look = Look::at(&self.0.file);
        let before = self.known().looked.replace(look.clone());
        let is_settled = before.as_ref() == Some(&look);
        if is_settled {
            self.take(look.said);
        }
        is_settled
    }

    /// One that is not in order changes nothing but what is told of it.
    fn take(&self, said: Result<Vec<Override>, String>) {
        let mut known = self.known();
        match said {
            Ok(of_file) => {
                if known.file_error.take().is_some() {
                    tracing::info!("{} is in order again", self.0.file.display());
                }
                if known.of_file.as_deref().unwrap_or_default() != of_file {
                    tracing::info!("{} overrides are in force of {}", of_file.len(), self.0.file.display());
                }
                if known.of_file.as_ref() != Some(&of_file) {
                    known.of_file = Some(of_file);
                    self.apply(&known);
                }
            }
            Err(error) => {
                let error = format!("{}: {error}", what_holds(&known));
                if known.file_error.as_ref() != Some(&error) {
                    tracing::warn!("{error}");
                }
                known.file_error = Some(error);
            }
        }
    }
}

const fn what_holds(known: &Known) -> &'static str {
    if known.of_file.is_some() {
        "the overrides that were in force still are"
    } else {
        "until it is known whom the file excepts, nobody is acted on by policy.mode"
    }
}
