//! Cache of slow look-ups, which run on separate threads: a value is absent until its look-up is
//! complete.
//!
//! Plain threads, not the runtime's: one that hangs must not block the exit of uvmd, nor other
//! look-ups. After a while another thread replaces it, up to a maximum. Its late result is stored.
//! An idle thread waits for a while: starting one costs more than most look-ups.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt,
    hash::Hash,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Number of entries that are always retained.
const FEW: usize = 64;
/// Time that a thread waits for another look-up.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum of hung threads that are replaced. Beyond it, fewer look-ups run at a time.
const HUNG_MAX: usize = 64;

/// Intervals of look-ups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Wait after a look-up that found nothing; doubled each time, up to `retry_max`.
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
    /// Maximum age of an answer.
    pub(crate) answer_max: Duration,
    /// Time without requests after which an entry may be forgotten.
    pub(crate) wanted: Duration,
    /// Maximum of simultaneous look-ups.
    pub(crate) running_max: usize,
    /// Duration after which a look-up counts as hung, and others no longer wait for it.
    pub(crate) timeout: Duration,
}

type Find<K, V> = Arc<dyn Fn(&K) -> Option<V> + Send + Sync>;

/// Cache of the answers found so far.
pub(crate) struct LookupCache<K, V> {
    find: Find<K, V>,
    pace: Pace,
    known: Arc<Mutex<Known<K, V>>>,
    /// Signal to idle threads.
    assigned: Arc<Condvar>,
}

struct Known<K, V> {
    answers: HashMap<K, Answer<V>>,
    /// Times at which look-ups are due, of entries that have been requested since they were last due.
    /// With many entries, a search through all of them would cost more than a look-up.
    due: BTreeSet<(Instant, K)>,
    /// Running look-ups, with their start.
    running: Vec<(K, Instant)>,
    /// Hung look-ups.
    hung: Vec<K>,
    /// Number of idle threads.
    idle: usize,
    /// Keys that wait for a look-up, with the time of the request.
    queue: VecDeque<(K, Instant)>,
    /// Number of entries at which unused ones are forgotten.
    forget_at: usize,
}

struct Answer<V> {
    /// Last value found, if any.
    value: Option<V>,
    due: Due,
    /// Whether that time is among those of [`Known::due`].
    is_scheduled: bool,
    /// Consecutive look-ups without a result.
    failures: u32,
    asked: Instant,
}

/// Entries with hung look-ups.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hung<K> {
    pub(crate) keys: Vec<K>,
    /// Whether there are so many that nothing else is looked up.
    pub(crate) is_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    At(Instant),
    Running,
}

impl<K, V> LookupCache<K, V>
where
    K: Clone + Eq + Hash + Ord + Send + 'static,
    V: Clone + Send + 'static,
{
    pub(crate) fn new(pace: Pace, find: impl Fn(&K) -> Option<V> + Send + Sync + 'static) -> Self {
        let known = Known {
            answers: HashMap::new(),
            due: BTreeSet::new(),
            running: Vec::new(),
            hung: Vec::new(),
            idle: 0,
            queue: VecDeque::new(),
            forget_at: 0,
        };
        Self { find: Arc::new(find), pace, known: Arc::new(Mutex::new(known)), assigned: Arc::default() }
    }

    /// Known value. Starts a look-up if one is due.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let mut known = lock(&self.known);
        known.forget(now, self.pace.wanted);
        known.leave_alone(now, self.pace.timeout);
        let Known { answers, due, running, idle, queue, .. } = &mut *known;
        let answer = answers.entry(key.clone()).or_insert_with(|| Answer {
            value: None,
            due: Due::At(now),
            is_scheduled: false,
            failures: 0,
            asked: now,
        });
        answer.asked = now;
        let value = answer.value.clone();
        if let Due::At(at) = answer.due {
            if at <= now && running.len() < self.pace.running_max && self.assign(key.clone(), now, *idle, queue) {
                answer.due = Due::Running;
                if answer.is_scheduled {
                    due.remove(&(at, key.clone()));
                    answer.is_scheduled = false;
                }
                running.push((key.clone(), now));
            } else if !answer.is_scheduled {
                answer.is_scheduled = due.insert((at, key.clone()));
            }
        }
        value
    }

    /// Entries whose look-ups hang.
    pub(crate) fn hung(&self, now: Instant) -> Hung<K> {
        let mut known = lock(&self.known);
        known.leave_alone(now, self.pace.timeout);
        // Without room among the replaced ones.
        let stuck = known.running.iter().filter(|(_, since)| is_too_long(*since, now, self.pace.timeout));
        let keys: Vec<_> = known.hung.iter().chain(stuck.map(|(key, _)| key)).cloned().collect();
        Hung { is_full: keys.len() >= HUNG_MAX + self.pace.running_max, keys }
    }

    /// Assigns a look-up to a thread. Returns whether there was one; if not, the next request
    /// retries.
    fn assign(&self, key: K, now: Instant, idle: usize, queue: &mut VecDeque<(K, Instant)>) -> bool {
        if idle > queue.len() {
            queue.push_back((key, now));
            self.assigned.notify_one();
            return true;
        }
        let (find, pace, known) = (Arc::clone(&self.find), self.pace, Arc::clone(&self.known));
        let assigned = Arc::clone(&self.assigned);
        let started = thread::Builder::new().name("look-up".to_owned()).spawn(move || {
            let mut work = Some((key, now));
            while let Some((key, now)) = work {
                look_up(key, now, &find, pace, &known);
                work = wait(&known, &assigned, pace);
            }
        });
        if let Err(error) = &started {
            tracing::warn!("no thread for a look-up: {error}");
        }
        started.is_ok()
    }
}

/// Runs this look-up, and then all that are due.
fn look_up<K: Clone + Eq + Hash + Ord, V>(
    key: K,
    now: Instant,
    find: &Find<K, V>,
    pace: Pace,
    known: &Mutex<Known<K, V>>,
) {
    let began = Instant::now();
    let (mut next, mut started) = (Some(key), now);
    while let Some(key) = next {
        let found = find(&key);
        let mut known = lock(known);
        let ended = now + began.elapsed();
        known.finish(&key, found, pace, started, ended);
        started = ended;
        next = known.next(started, pace);
    }
}

/// Next look-up; `None` if there is none for a while, or other threads wait for it already.
fn wait<K, V>(known: &Mutex<Known<K, V>>, assigned: &Condvar, pace: Pace) -> Option<(K, Instant)> {
    let mut known = lock(known);
    if known.idle >= pace.running_max {
        return None;
    }
    known.idle += 1;
    let (mut known, _) = assigned
        .wait_timeout_while(known, IDLE, |known| known.queue.is_empty())
        .unwrap_or_else(PoisonError::into_inner);
    known.idle -= 1;
    known.queue.pop_front()
}

impl<K: Clone + Eq + Hash + Ord, V> Known<K, V> {
    /// Takes the entry due for longest, if another look-up may run. By the order of requests, late
    /// ones might starve.
    fn next(&mut self, now: Instant, pace: Pace) -> Option<K> {
        if self.running.len() >= pace.running_max {
            return None;
        }
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.due.pop_first() else { break };
            let Some(answer) = self.answers.get_mut(&key) else { continue };
            answer.is_scheduled = false;
            // The next request for an unused one schedules it again.
            if answer.is_wanted(now, pace.wanted) {
                answer.due = Due::Running;
                self.running.push((key.clone(), now));
                return Some(key);
            }
        }
        None
    }

    /// Records the end of a look-up.
    fn finish(&mut self, key: &K, found: Option<V>, pace: Pace, started: Instant, ended: Instant) {
        self.running.retain(|(running, _)| running != key);
        let hung_before = self.hung.len();
        self.hung.retain(|hung| hung != key);
        if let Some(answer) = self.answers.get_mut(key) {
            answer.finish(found, pace, started);
            if self.hung.len() < hung_before {
                // It may hang again, so the longest interval applies.
                answer.due = Due::At(ended + pace.retry_max);
            }
            if let Due::At(at) = answer.due {
                answer.is_scheduled = self.due.insert((at, key.clone()));
            }
        }
    }

    /// Replaces the look-ups that run for too long.
    fn leave_alone(&mut self, now: Instant, timeout: Duration) {
        let room = HUNG_MAX.saturating_sub(self.hung.len());
        let too_long = |(_, since): &mut (K, Instant)| is_too_long(*since, now, timeout);
        self.hung.extend(self.running.extract_if(.., too_long).take(room).map(|(key, _)| key));
    }

    /// Forgets unused entries, once there are twice as many as after the last time.
    fn forget(&mut self, now: Instant, wanted: Duration) {
        if self.answers.len() < self.forget_at {
            return;
        }
        self.answers.retain(|_, answer| answer.due == Due::Running || answer.is_wanted(now, wanted));
        self.due.retain(|(_, key)| self.answers.contains_key(key));
        self.forget_at = 2 * self.answers.len() + FEW;
    }
}

fn is_too_long(since: Instant, now: Instant, timeout: Duration) -> bool {
    now.saturating_duration_since(since) >= timeout
}

impl<V> Answer<V> {
    fn is_wanted(&self, now: Instant, wanted: Duration) -> bool {
        now.saturating_duration_since(self.asked) < wanted
    }

    /// Records a result. An earlier value is retained if none is found: its source may be down.
    fn finish(&mut self, found: Option<V>, pace: Pace, started: Instant) {
        let wait = if found.is_some() {
            self.failures = 0;
            self.value = found;
            pace.answer_max
        } else {
            let wait = pace.retry_min.saturating_mul(2_u32.saturating_pow(self.failures)).min(pace.retry_max);
            self.failures = self.failures.saturating_add(1);
            wait
        };
        self.due = Due::At(started + wait);
    }
}

impl<K, V> fmt::Debug for LookupCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LookupCache").field("pace", &self.pace).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
