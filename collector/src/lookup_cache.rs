//! Cache of slow look-ups, which run on threads of their own: an answer is absent until its look-up is done.
//!
//! Plain threads, not the runtime's: one that hangs must not keep uvmd from ending, nor others from being looked up. After a while it is left
//! alone, and another thread works in its place; there may be so many of them, and no more. What it finds in the end is taken. A thread that has nothing
//! more to look up waits for a while: to start one costs more than most look-ups do.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::Hash,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// So few answers are kept, wanted or not.
const FEW: usize = 64;
/// Time that a thread waits for another look-up.
const IDLE: Duration = Duration::from_secs(10);
/// Threads that may hang. With one more the look-ups that run at a time become fewer.
const HUNG_MAX: usize = 16;

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
    /// Look-ups at a time.
    pub(crate) running_max: usize,
    /// After so long one hangs, and others need not wait for it any more.
    pub(crate) patience: Duration,
}

type Find<K, V> = Arc<dyn Fn(&K) -> Option<V> + Send + Sync>;

/// Cache of the answers found so far.
pub(crate) struct LookupCache<K, V> {
    find: Find<K, V>,
    pace: Pace,
    known: Arc<Mutex<Known<K, V>>>,
    /// There is something to do for a thread that waits.
    assigned: Arc<Condvar>,
}

struct Known<K, V> {
    answers: HashMap<K, Answer<V>>,
    /// Look-ups that run, and since when.
    running: Vec<(K, Instant)>,
    /// Look-ups that hang.
    hung: Vec<K>,
    /// Threads that have nothing to look up.
    idle: usize,
    /// Keys that wait for a look-up, and since when.
    queue: VecDeque<(K, Instant)>,
    /// With so many answers it is looked which are forgotten.
    forget_at: usize,
}

struct Answer<V> {
    /// Last value found, if any.
    value: Option<V>,
    due: Due,
    /// Look-ups in a row that found nothing.
    failures: u32,
    asked: Instant,
}

/// Look-ups that hang.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hung<K> {
    pub(crate) keys: Vec<K>,
    /// Whether so many do that nothing else is looked up.
    pub(crate) is_full: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    At(Instant),
    Running,
}

impl<K, V> LookupCache<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    pub(crate) fn new(pace: Pace, find: impl Fn(&K) -> Option<V> + Send + Sync + 'static) -> Self {
        let known = Known {
            answers: HashMap::new(),
            running: Vec::new(),
            hung: Vec::new(),
            idle: 0,
            queue: VecDeque::new(),
            forget_at: 0,
        };
        Self { find: Arc::new(find), pace, known: Arc::new(Mutex::new(known)), assigned: Arc::default() }
    }

    /// Known value. Begins a look-up where it is due.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let mut known = lock(&self.known);
        known.forget(now, self.pace.wanted);
        known.leave_alone(now, self.pace.patience);
        let Known { answers, running, idle, queue, .. } = &mut *known;
        let answer = answers.entry(key.clone()).or_insert_with(|| Answer {
            value: None,
            due: Due::At(now),
            failures: 0,
            asked: now,
        });
        answer.asked = now;
        let value = answer.value.clone();
        if matches!(answer.due, Due::At(at) if at <= now)
            && running.len() < self.pace.running_max
            && self.assign(key.clone(), now, *idle, queue)
        {
            answer.due = Due::Running;
            running.push((key.clone(), now));
        }
        value
    }

    /// Entries whose look-ups hang.
    pub(crate) fn hung(&self, now: Instant) -> Hung<K> {
        let mut known = lock(&self.known);
        known.leave_alone(now, self.pace.patience);
        // For which there is no room among those that are left alone.
        let stuck = known.running.iter().filter(|(_, since)| is_too_long(*since, now, self.pace.patience));
        let keys: Vec<_> = known.hung.iter().chain(stuck.map(|(key, _)| key)).cloned().collect();
        Hung { is_full: keys.len() >= HUNG_MAX + self.pace.running_max, keys }
    }

    /// Whether there was a thread to be had; if not, the next question tries again.
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

/// Looks this up, and then whatever is due.
fn look_up<K: Clone + Eq + Hash, V>(key: K, now: Instant, find: &Find<K, V>, pace: Pace, known: &Mutex<Known<K, V>>) {
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

/// Next look-up; `None` if nothing comes for a while, or others wait for it already.
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

impl<K: Clone + Eq + Hash, V> Known<K, V> {
    /// Takes the one that has been due for longest, where another may run. Were it whoever asks first, those who ask last might never have their
    /// turn.
    fn next(&mut self, now: Instant, pace: Pace) -> Option<K> {
        if self.running.len() >= pace.running_max {
            return None;
        }
        let due = self.answers.iter_mut().filter_map(|(key, answer)| match answer.due {
            Due::At(at) if at <= now && answer.is_wanted(now, pace.wanted) => Some((at, key, answer)),
            _ => None,
        });
        let (_, key, answer) = due.min_by_key(|(at, ..)| *at)?;
        answer.due = Due::Running;
        self.running.push((key.clone(), now));
        Some(key.clone())
    }

    /// A look-up has ended.
    fn finish(&mut self, key: &K, found: Option<V>, pace: Pace, started: Instant, ended: Instant) {
        self.running.retain(|(running, _)| running != key);
        let hung_before = self.hung.len();
        self.hung.retain(|hung| hung != key);
        if let Some(answer) = self.answers.get_mut(key) {
            answer.finish(found, pace, started);
            if self.hung.len() < hung_before {
                // It may hang again: the more seldom, the better.
                answer.due = Due::At(ended + pace.retry_max);
            }
        }
    }

    /// Goes on without those that run for too long.
    fn leave_alone(&mut self, now: Instant, patience: Duration) {
        let room = HUNG_MAX.saturating_sub(self.hung.len());
        let too_long = |(_, since): &mut (K, Instant)| is_too_long(*since, now, patience);
        self.hung.extend(self.running.extract_if(.., too_long).take(room).map(|(key, _)| key));
    }

    /// Forgets what nobody wants any more, once there is twice as much as there was when that was done last.
    fn forget(&mut self, now: Instant, wanted: Duration) {
        if self.answers.len() < self.forget_at {
            return;
        }
        self.answers.retain(|_, answer| answer.due == Due::Running || answer.is_wanted(now, wanted));
        self.forget_at = 2 * self.answers.len() + FEW;
    }
}

fn is_too_long(since: Instant, now: Instant, patience: Duration) -> bool {
    now.saturating_duration_since(since) >= patience
}

impl<V> Answer<V> {
    fn is_wanted(&self, now: Instant, wanted: Duration) -> bool {
        now.saturating_duration_since(self.asked) < wanted
    }

    /// An answer that is not found again is kept: the one who was asked may be down.
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
