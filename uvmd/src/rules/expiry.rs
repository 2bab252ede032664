//! Overrides whose time is over: they stay so, whatever becomes of the clock, which anybody may set back who can, or a time server may.
//!
//! Whoever asks has the clock looked at first, and what is over by it is noted before anything is answered: one of the API is gone for good, one of the
//! file, which is not uvmd's to change, is remembered for as long as the file has it. Both are on the disk within a second.

use std::{
    fmt,
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use model::{Override, text};

use super::{Expired, Known, Rules, bound, change::end_of};

/// Shows the time of day.
pub(crate) struct Clock(Box<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    pub(crate) fn new(show: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Box::new(show))
    }
}

impl Default for Clock {
    /// The node's.
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// In nanoseconds since 1970, up to the year 2554.
fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn is_over(rule: &Override, now: SystemTime) -> bool {
    rule.expires_at.is_some_and(|end| end <= now)
}

impl Known {
    /// Whether this one of the file was seen to be over.
    fn has_expired(&self, rule: &Override) -> bool {
        let expired = self.expired_of_file.get(&rule.id);
        expired.is_some_and(|end| rule.expires_at.is_some_and(|at| text::time(at) == *end))
    }

    /// Overrides of the file as it is that were seen to be over.
    pub(super) fn expired_now_of_file(&self) -> impl Iterator<Item = &Override> {
        self.of_file.iter().flatten().filter(|rule| self.has_expired(rule))
    }

    /// Next expiry, in nanoseconds since 1970; never without one.
    pub(super) fn next_expiry_ns(&self) -> u64 {
        let of_file = self.of_file.iter().flatten().filter(|rule| !self.has_expired(rule));
        of_file.chain(&self.of_api).filter_map(|rule| rule.expires_at).map(unix_ns).min().unwrap_or(u64::MAX)
    }

    /// Forgets those that the file has no more, or says otherwise now.
    pub(super) fn forget_expired_of_former_files(&mut self) {
        let ids: Vec<String> = self.expired_now_of_file().map(|rule| rule.id.clone()).collect();
        let before = self.expired_of_file.len();
        self.expired_of_file.retain(|id, _| ids.contains(id));
        self.is_unkept |= self.expired_of_file.len() < before;
    }
}

impl Rules {
    /// The time; what is over by it is noted.
    pub(super) fn now(&self) -> SystemTime {
        let Clock(show) = &self.0.clock;
        let now = show();
        if unix_ns(now) >= self.0.next_expiry_ns.load(Ordering::Relaxed) {
            self.expire(now);
        }
        now
    }

    fn expire(&self, now: SystemTime) {
        let mut known = self.known();
        let of_file = known.of_file.iter().flatten().filter(|rule| is_over(rule, now) && !known.has_expired(rule));
        let of_file: Vec<Override> = of_file.cloned().collect();
        for rule in &of_file {
            tracing::info!("override {} of the file has expired", rule.id);
            self.0.audit.write(None, &end_of(rule, "expired"));
        }
        let of_file: Expired =
            of_file.into_iter().filter_map(|rule| Some((rule.id, text::time(rule.expires_at?)))).collect();
        let of_api: Vec<Override> = known.of_api.extract_if(.., |rule| is_over(rule, now)).collect();
        for rule in &of_api {
            tracing::info!("override {} has expired and is deleted", rule.id);
            self.0.audit.write(None, &end_of(rule, "expired"));
        }
        known.is_unkept |= !of_file.is_empty() || !of_api.is_empty();
        known.expired_of_file.extend(of_file);
        self.apply(&known);
    }

    /// Has on the disk which have expired, where it has not been told yet; a disk that refuses is asked again with the next look. May wait for it.
    pub(super) fn keep_expired(&self) {
        let _changing = self.changing();
        let (of_api, expired_of_file) = {
            let mut known = self.known();
            if !std::mem::take(&mut known.is_unkept) {
                return;
            }
            (known.of_api.clone(), known.expired_of_file.clone())
        };
        if let Err(error) = bound::write(&self.0.state_file, &of_api, &expired_of_file) {
            let mut known = self.known();
            known.is_unkept = true;
            if !std::mem::replace(&mut known.is_keeping_refused, true) {
                tracing::warn!("an expired override may be in effect again after a restart: {error:#}");
            }
            return;
        }
        self.known().is_keeping_refused = false;
    }
}
