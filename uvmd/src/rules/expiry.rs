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

use super::{Rules, change::end_of, stored};

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
pub(super) fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
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
        let expired = known.set.expire(now);
        for rule in &expired.file_overrides {
            tracing::info!("override {} of the file has expired", rule.id);
            self.0.audit.write(None, &end_of(rule, "expired"));
        }
        for rule in &expired.api_overrides {
            tracing::info!("override {} has expired and is deleted", rule.id);
            self.0.audit.write(None, &end_of(rule, "expired"));
        }
        known.is_persist_pending |= !expired.is_empty();
        self.apply(&known);
    }

    /// Writes expired overrides that are not on the disk yet; after a failure, the next check
    /// retries. May wait for the disk.
    pub(super) fn persist_expired(&self) {
        let _changing = self.changing();
        let (api_overrides, expired_of_file) = {
            let mut known = self.known();
            if !std::mem::take(&mut known.is_persist_pending) {
                return;
            }
            (known.set.api_overrides().to_vec(), known.set.expired_of_file().clone())
        };
        if let Err(error) = stored::write(&self.0.state_file, &api_overrides, &expired_of_file) {
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
