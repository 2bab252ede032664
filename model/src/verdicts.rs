//! Verdicts and usage at one moment, as the judge publishes them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    Usage, Verdict, VerdictTimeKey,
    verdict::{Unjudged, Victim},
};

/// All verdicts at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdicts {
    /// Current verdicts, the one with most traffic first.
    pub active: Vec<Verdict>,
    /// Ended verdicts, the latest first; the oldest are dropped.
    pub ended: Vec<Verdict>,
    /// Victims and evictors, most bytes first.
    pub victims: Vec<Victim>,
    /// Windows that could not be judged, the latest first; the oldest are dropped.
    pub unjudged: Vec<Unjudged>,
    /// Number of windows that could not be judged, since the start.
    pub unjudged_windows: u64,
    /// Time for which verdicts held, of the owners that are listed. It only grows for as long as an owner is.
    pub verdict_time: BTreeMap<VerdictTimeKey, Duration>,
    /// Usage of the owners that are listed.
    pub usage: Arc<Usage>,
}
