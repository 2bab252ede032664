//! Expired overrides: they stay expired, even if a user or a time server sets the clock back.
//!
//! Each request reads the clock first, and expired overrides are recorded before it is answered. An
//! expired override of the API is deleted. One of the file, which uvmd does not change, is
//! remembered as long as the file has it. Both are on the disk within a second.

use std::{
    fmt,
    sync::atomic::Ordering,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use model::{Override, text};

use super::{Expired, Known, Rules, bound, change::end_of};

/// Source of the time of day.
pub(crate) struct Clock(Box<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    pub(crate) fn new(read: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }
}

impl Default for Clock {
    /// Clock of the node.
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Time in nanoseconds since 1970, up to the year 2554.
fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn is_over(rule: &Override, now: SystemTime) -> bool {
    rule.expires_at.is_some_and(|end| end <= now)
}

impl Known {
    /// Whether this override of the file has expired.
    fn has_expired(&self, rule: &Override) -> bool {
        let expired = self.expired_of_file.get(&rule.id);
        expired.is_some_and(|end| rule.expires_at.is_some_and(|at| text::time(at) == *end))
    }

    /// Expired overrides that the file still has.
    pub(super) fn expired_now_of_file(&self) -> impl Iterator<Item = &Override> {
        self.of_file.iter().flatten().filter(|rule| self.has_expired(rule))
    }

    /// Next expiry, in nanoseconds since 1970; the maximum if there is none.
    pub(super) fn next_expiry_ns(&self) -> u64 {
        let of_file = self.of_file.iter().flatten().filter(|rule| !self.has_expired(rule));
        of_file.chain(&self.of_api).filter_map(|rule| rule.expires_at).map(unix_ns).min().unwrap_or(u64::MAX)
    }

    /// Removes records of overrides that the file no longer has, or has with another expiry.
    pub(super) fn forget_expired_of_former_files(&mut self) {
        let ids: Vec<String> = self.expired_now_of_file().map(|rule| rule.id.clone()).collect();
        let before = self.expired_of_file.len();
        self.expired_of_file.retain(|id, _| ids.contains(id));
        self.is_persist_pending |= self.expired_of_file.len() < before;
    }
}

impl Rules {
    /// Current time; records overrides that have expired.
    pub(super) fn now(&self) -> SystemTime {
        let Clock(read) = &self.0.clock;
        let now = read();
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
        known.is_persist_pending |= !of_file.is_empty() || !of_api.is_empty();
        known.expired_of_file.extend(of_file);
        self.apply(&known);
    }

    /// Writes expired overrides that are not on the disk yet; after a failure, the next check
    /// retries. May wait for the disk.
    pub(super) fn persist_expired(&self) {
        let _changing = self.changing();
        let (of_api, expired_of_file) = {
            let mut known = self.known();
            if !std::mem::take(&mut known.is_persist_pending) {
                return;
            }
            (known.of_api.clone(), known.expired_of_file.clone())
        };
        if let Err(error) = bound::write(&self.0.state_file, &of_api, &expired_of_file) {
            let mut known = self.known();
            known.is_persist_pending = true;
            if !std::mem::replace(&mut known.is_persist_failing, true) {
                tracing::warn!("an expired override may be in effect again after a restart: {error:#}");
            }
            return;
        }
        self.known().is_persist_failing = false;
    }
}
