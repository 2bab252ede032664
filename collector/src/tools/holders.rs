//! Holders by user.

use std::{
    collections::{BTreeMap, BTreeSet},
    future, io,
    os::fd::{AsFd, BorrowedFd},
    task::Poll,
    time::{Duration, Instant},
};

use model::{Degradation, DegradedReason};
use sys::{
    actor::{ActorError, Spawner},
    executable::Program,
    trackers::{Event, Holder, HolderError},
    uvm::{Uuid, tracker::Layout},
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{ledger::Generation, refusal::Refusal};

/// Maximum of holders with one user each. Further users share one.
const OWN_MAX: usize = 16;
/// Requests without a reply at which a holder gets no further VA space: a channel takes some 200.
const OUTSTANDING_MAX: usize = 64;
/// User of the shared holder, which is no user.
const SHARED: u32 = u32::MAX;
/// Time for which a user whose holder hung has no other one, and after which another spawner is
/// started.
const RETRY: Duration = Duration::from_mins(1);

/// All holders, and the spawner that starts them. It belongs to the thread that made this.
pub(super) struct Holders {
    program: Program,
    spawner: Option<Spawner>,
    by_user: BTreeMap<u32, Of>,
    /// VA spaces of holders that are gone.
    lost: Vec<Generation>,
    /// Reason why no tracker can be made, as one sentence.
    no_tracker: Option<String>,
    /// Users whose holder hung, and when.
    hung: BTreeMap<u32, Instant>,
    /// When a spawner or a holder could not be started, and why.
    not_started: Option<(Instant, String)>,
    /// Holders that have reported a queue that is half full.
    half_full: BTreeSet<u32>,
}

/// Holder of a user.
struct Of {
    holder: Holder,
    spaces: BTreeSet<Generation>,
    /// When it had a VA space last.
    used: Instant,
}

impl Holders {
    pub(super) fn start(program: &Program) -> Result<Self, Refusal> {
        let spawner = Spawner::start(program).map_err(|error| Refusal::NoHolder(error.to_string()))?;
        Ok(Self {
            program: program.clone(),
            spawner: Some(spawner),
            by_user: BTreeMap::new(),
            lost: Vec::new(),
            no_tracker: None,
            hung: BTreeMap::new(),
            not_started: None,
            half_full: BTreeSet::new(),
        })
    }

    /// Whether all holders have room for the requests about one more VA space.
    pub(super) fn have_room(&self) -> bool {
        self.by_user.values().all(|of| of.holder.outstanding() <= OUTSTANDING_MAX)
    }

    /// Whether the holder of a user, if there is one, has room for a request.
    pub(super) fn has_room_for(&self, uid: u32) -> bool {
        let of = self.by_user.get(&uid).or_else(|| self.by_user.get(&SHARED));
        of.is_none_or(|of| of.holder.outstanding() <= OUTSTANDING_MAX)
    }

    /// Key of a user's holder: the user, or `SHARED`.
    fn key(&self, uid: u32) -> u32 {
        if self.hung.contains_key(&uid) {
            return uid;
        }
        let own = self.by_user.keys().filter(|uid| **uid != SHARED).count();
        if self.by_user.contains_key(&uid) || own < OWN_MAX { uid } else { SHARED }
    }

    /// Has a VA space held and counted: `ask` makes the requests to the holder of this user. `false` if
    /// it cannot be.
    pub(super) fn hold(
        &mut self,
        uid: u32,
        generation: Generation,
        ask: impl FnOnce(&mut Holder) -> Result<(), HolderError>,
    ) -> bool {
        let key = self.key(uid);
        if self.hung.contains_key(&key) || !self.has(key) {
            return false;
        }
        let Some(of) = self.by_user.get_mut(&key) else { return false };
        of.spaces.insert(generation);
        // What was asked for before an error is released.
        let asked = ask(&mut of.holder);
        let is_asked = self.check(key, asked);
        if is_asked {
            self.no_tracker = None;
        } else {
            self.release(uid, generation);
        }
        is_asked
    }

    /// Counts a held VA space at one more processor.
    pub(super) fn count(&mut self, uid: u32, generation: Generation, page: u32, layout: Layout, processor: Uuid) {
        self.ask(uid, generation, |holder| holder.count(generation, page, layout, processor));
    }

    /// Closes the trackers of a VA space.
    pub(super) fn release(&mut self, uid: u32, generation: Generation) {
        self.ask(uid, generation, |holder| holder.release(generation));
    }

    fn ask(&mut self, uid: u32, generation: Generation, ask: impl FnOnce(&mut Holder) -> Result<(), HolderError>) {
        let key = [uid, SHARED]
            .into_iter()
            .find(|key| self.by_user.get(key).is_some_and(|of| of.spaces.contains(&generation)));
        let Some((key, of)) = key.and_then(|key| Some((key, self.by_user.get_mut(&key)?))) else {
            self.lost.push(generation);
            return;
        };
        let asked = ask(&mut of.holder);
        self.check(key, asked);
    }

    /// Has the records of all that has completed written, by way of this VA space, and waits for
    /// that at most this long. Returns the outcomes meanwhile.
    pub(super) fn flush(&mut self, uid: u32, generation: Generation, at_most: Duration) -> Vec<Event> {
        self.ask(uid, generation, |holder| holder.flush(generation));
        let mut events = Vec::new();
        let deadline = Instant::now() + at_most;
        while !events.iter().any(|event| matches!(event, Event::Flushed)) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(of) = self.by_user.values().find(|of| of.spaces.contains(&generation)) else { break };
            if left.is_zero() {
                break;
            }
            of.holder.wait(left);
            events.extend(self.events());
        }
        events
    }

    /// Outcomes since the last call.
    pub(super) fn events(&mut self) -> Vec<Event> {
        self.hung.retain(|_, at| at.elapsed() < RETRY);
        // One without VA spaces leaves its place to another user.
        self.by_user.retain(|_, of| {
            if !of.spaces.is_empty() {
                of.used = Instant::now();
            }
            of.used.elapsed() < RETRY
        });
        let mut all = Vec::new();
        let mut failed = Vec::new();
        for (key, of) in &mut self.by_user {
            match of.holder.events() {
                Ok(events) => {
                    for event in events {
                        match event {
                            Event::HalfFull => {
                                self.half_full.insert(*key);
                                continue;
                            }
                            Event::Released { space } => {
                                of.spaces.remove(&space);
                            }
                            _ => {}
                        }
                        all.push(event);
                    }
                }
                Err(error) => failed.push((*key, error)),
            }
        }
        for (key, error) in failed {
            self.check(key, Err(error));
        }
        all
    }

    /// Completes when there may be outcomes.
    pub(super) async fn ready(&self) {
        let channels = self.by_user.values().filter_map(|of| readable(of.holder.as_fd()).ok()).collect::<Vec<_>>();
        future::poll_fn(|context| {
            if channels.iter().any(|channel| channel.poll_read_ready(context).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Whether a queue was half full since the last call of [`Self::rearm`].
    pub(super) fn have_half_full(&self) -> bool {
        !self.half_full.is_empty()
    }

    /// Has queues reported again that are half full.
    pub(super) fn rearm(&mut self) {
        for key in std::mem::take(&mut self.half_full) {
            if let Some(of) = self.by_user.get_mut(&key) {
                let asked = of.holder.rearm();
                self.check(key, asked);
            }
        }
    }

    /// VA spaces whose holder is gone since the last call.
    pub(super) fn lost(&mut self) -> Vec<Generation> {
        std::mem::take(&mut self.lost)
    }

    /// Reason why no tracker can be made, as one sentence.
    pub(super) fn warning(&self) -> Option<String> {
        let not_started = self.not_started.as_ref().filter(|(at, _)| at.elapsed() < RETRY).map(|(_, reason)| reason);
        self.no_tracker.as_ref().or(not_started).cloned()
    }

    /// Users whose holder hung.
    pub(super) fn hung(&self) -> impl Iterator<Item = u32> + '_ {
        self.hung.keys().copied()
    }

    /// Whether there is a holder, which is started if needed.
    fn has(&mut self, key: u32) -> bool {
        if self.by_user.contains_key(&key) {
            return true;
        }
        // A start may take seconds, in which nothing else is done.
        if self.not_started.as_ref().is_some_and(|(at, _)| at.elapsed() < RETRY) {
            return false;
        }
        match self.start_holder() {
            Ok(holder) => {
                tracing::debug!(uid = key, pid = holder.pid(), "a holder was started");
                self.by_user.insert(key, Of { holder, spaces: BTreeSet::new(), used: Instant::now() });
                true
            }
            Err(error) => {
                let reason =
                    format!("new VA spaces are not counted for a minute, as no process can hold trackers: {error}");
                tracing::error!("{reason}");
                // Holders exit with their spawner.
                if matches!(error, ActorError::SpawnerGone(_)) {
                    self.spawner = None;
                }
                self.not_started = Some((Instant::now(), reason));
                false
            }
        }
    }

    fn start_holder(&mut self) -> Result<Holder, ActorError> {
        let spawner = match self.spawner.take() {
            Some(spawner) => spawner,
            None => Spawner::start(&self.program)?,
        };
        Holder::start(self.spawner.insert(spawner))
    }

    /// Removes a holder that is of no more use, and with it all its trackers.
    fn check(&mut self, key: u32, asked: Result<(), HolderError>) -> bool {
        let error = match asked {
            Ok(()) => return true,
            // Not the holder's fault, and no better with another one.
            Err(HolderError::Device(error)) => {
                let reason = format!(
                    "no VA space can be counted: {error}; `nvidia-modprobe -c 0 -u` makes the device, and uvmd-tools.conf permits it"
                );
                if self.no_tracker.as_ref() != Some(&reason) {
                    tracing::error!("{reason}");
                }
                self.no_tracker = Some(reason);
                return false;
            }
            Err(error) => error,
        };
        tracing::error!(uid = key, "{error}");
        let mut hangs = matches!(error, HolderError::Hangs);
        if let Some(of) = self.by_user.remove(&key) {
            // One whose channel is full hangs as well. One that is stopped does not hang in the driver.
            hangs |= !matches!(error, HolderError::Stopped) && of.holder.outstanding() > 0 && !of.holder.has_exited();
            of.holder.kill();
            self.lost.extend(of.spaces);
        }
        if hangs {
            self.hung.insert(key, Instant::now());
        }
        false
    }
}

/// Descriptor whose readability is awaited.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe for types that may change their descriptor; a borrowed one cannot"
)]
fn readable(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// State of a user whose holder hung.
pub(super) fn degradation(uid: u32, user: Option<String>) -> Degradation {
    let (uid, who) = match (uid, &user) {
        (SHARED, _) => (None, "the users beyond the first 16".to_owned()),
        (uid, Some(user)) => (Some(uid), format!("user {user} (uid {uid})")),
        (uid, None) => (Some(uid), format!("uid {uid}")),
    };
    Degradation {
        reason: DegradedReason::HolderHangs,
        uid,
        user,
        pid: None,
        description: format!(
            "{who}: the process that holds trackers hung in the driver and was killed; these processes are not counted for a minute"
        ),
    }
}
