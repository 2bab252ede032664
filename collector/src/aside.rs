//! Look-ups that may take their time, on threads of their own: what is not known yet is not shown yet.
//!
//! Plain threads, not the runtime's: one that hangs must not keep uvmd from ending.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// So few answers are kept, wanted or not.
const FEW: usize = 64;

/// How often to look up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long to wait after a look-up that found nothing; twice as long each time, up to `retry_max`.
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
    /// How old an answer may become.
    pub(crate) answer_max: Duration,
    /// What nobody asked for that long is forgotten, sooner or later.
    pub(crate) wanted: Duration,
    /// Look-ups at a time.
    pub(crate) running_max: usize,
}

type Find<K, V> = Arc<dyn Fn(&K) -> Option<V> + Send + Sync>;

/// Answers found so far.
pub(crate) struct Aside<K, V> {
    find: Find<K, V>,
    pace: Pace,
    known: Arc<Mutex<Known<K, V>>>,
}

struct Known<K, V> {
    answers: HashMap<K, Answer<V>>,
    /// Look-ups that run.
    running: usize,
    /// With so many answers it is looked which are forgotten.
    forget_at: usize,
}

struct Answer<V> {
    /// What was found last, if anything ever was.
    value: Option<V>,
    due: Due,
    /// Look-ups in a row that found nothing.
    failures: u32,
    asked: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    At(Instant),
    Running,
}

impl<K, V> Aside<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    pub(crate) fn new(pace: Pace, find: impl Fn(&K) -> Option<V> + Send + Sync + 'static) -> Self {
        let known = Known { answers: HashMap::new(), running: 0, forget_at: 0 };
        Self { find: Arc::new(find), pace, known: Arc::new(Mutex::new(known)) }
    }

    /// What is known by now. Begins to look it up where that is due.
    pub(crate) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let mut known = lock(&self.known);
        known.forget(now, self.pace.wanted);
        let Known { answers, running, .. } = &mut *known;
        let answer = answers.entry(key.clone()).or_insert_with(|| Answer {
            value: None,
            due: Due::At(now),
            failures: 0,
            asked: now,
        });
        answer.asked = now;
        let value = answer.value.clone();
        if matches!(answer.due, Due::At(at) if at <= now)
            && *running < self.pace.running_max
            && self.start(key.clone(), now)
        {
            answer.due = Due::Running;
            *running += 1;
        }
        value
    }

    /// Whether there was a thread to be had; if not, the next question tries again.
    fn start(&self, key: K, now: Instant) -> bool {
        let (find, pace, known) = (Arc::clone(&self.find), self.pace, Arc::clone(&self.known));
        let started = thread::Builder::new().name("look-up".to_owned()).spawn(move || {
            let began = Instant::now();
            let (mut next, mut started) = (Some(key), now);
            while let Some(key) = next {
                let found = find(&key);
                let mut known = lock(&known);
                if let Some(answer) = known.answers.get_mut(&key) {
                    answer.finish(found, pace, started);
                }
                started = now + began.elapsed();
                next = known.next(started, pace.wanted);
                if next.is_none() {
                    known.running = known.running.saturating_sub(1);
                }
            }
        });
        if let Err(error) = &started {
            tracing::warn!("no thread for a look-up: {error}");
        }
        started.is_ok()
    }
}

impl<K: Clone + Eq + Hash, V> Known<K, V> {
    /// Takes the one that has been due for longest. Were it whoever asks first, those who ask last might never have their turn.
    fn next(&mut self, now: Instant, wanted: Duration) -> Option<K> {
        let due = self.answers.iter_mut().filter_map(|(key, answer)| match answer.due {
            Due::At(at) if at <= now && answer.is_wanted(now, wanted) => Some((at, key, answer)),
            _ => None,
        });
        let (_, key, answer) = due.min_by_key(|(at, ..)| *at)?;
        answer.due = Due::Running;
        Some(key.clone())
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

impl<K, V> fmt::Debug for Aside<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("pace", &self.pace).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const MINUTE: Duration = Duration::from_mins(1);

    /// Look-ups that the test answers one by one.
    struct Service {
        aside: Aside<u32, String>,
        asked: mpsc::Receiver<(u32, mpsc::Sender<Option<&'static str>>)>,
        start: Instant,
    }

    fn service(running_max: usize) -> Service {
        let (ask, asked) = mpsc::channel();
        let pace = Pace { retry_min: MINUTE, retry_max: 3 * MINUTE, answer_max: HOUR, wanted: HOUR, running_max };
        let aside = Aside::new(pace, move |key: &u32| {
            let (answer, answered) = mpsc::channel::<Option<&str>>();
            ask.send((*key, answer)).ok()?;
            answered.recv().ok()?.map(str::to_owned)
        });
        Service { aside, asked, start: Instant::now() }
    }

    impl Service {
        fn get(&self, key: u32, after: Duration) -> Option<String> {
            self.aside.get(&key, self.start + after)
        }

        fn is_asked(&self) -> Option<(u32, mpsc::Sender<Option<&'static str>>)> {
            self.asked.recv_timeout(Duration::from_millis(100)).ok()
        }

        /// Answers the look-up that runs, and waits until that is noted.
        fn answer(&self, found: Option<&'static str>) {
            let (key, answer) = self.asked.recv_timeout(Duration::from_secs(10)).expect("a look-up");
            answer.send(found).unwrap();
            while lock(&self.aside.known).answers[&key].due == Due::Running {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn nobody_waits_for_an_answer_and_it_is_asked_for_once() {
        let service = service(4);
        assert_eq!(service.get(7, Duration::ZERO), None);
        assert_eq!(service.get(7, Duration::ZERO), None);
        service.answer(Some("alice"));
        assert_eq!(service.get(7, MINUTE).as_deref(), Some("alice"));
        assert!(service.is_asked().is_none());
    }

    #[test]
    fn what_was_not_found_is_looked_up_again_at_growing_distances() {
        let service = service(4);
        let mut at = Duration::ZERO;
        for minutes in [1, 2, 3, 3] {
            service.get(7, at);
            service.answer(None);
            at += minutes * MINUTE;
            service.get(7, at.checked_sub(Duration::from_secs(1)).unwrap());
            assert!(service.is_asked().is_none(), "before {minutes} minutes");
        }
        service.get(7, at);
        service.answer(Some("bob"));
        assert_eq!(service.get(7, at).as_deref(), Some("bob"));
    }

    #[test]
    fn an_old_answer_is_shown_until_there_is_a_new_one() {
        let service = service(4);
        service.get(7, Duration::ZERO);
        service.answer(Some("alice"));
        assert_eq!(service.get(7, HOUR).as_deref(), Some("alice"));
        service.answer(None);
        assert_eq!(service.get(7, HOUR + MINUTE).as_deref(), Some("alice"));
        service.answer(Some("carol"));
        assert_eq!(service.get(7, HOUR + MINUTE).as_deref(), Some("carol"));
    }

    #[test]
    fn no_more_look_ups_run_at_a_time_than_allowed() {
        let service = service(2);
        for key in 1..=3 {
            service.get(key, Duration::ZERO);
        }
        let running = [service.is_asked().unwrap(), service.is_asked().unwrap()];
        service.get(3, Duration::ZERO);
        assert!(service.is_asked().is_none());
        drop(running);
        assert_eq!(service.is_asked().unwrap().0, 3);
    }

    #[test]
    fn whoever_has_waited_longest_is_looked_up_next() {
        let service = service(1);
        service.get(1, 3 * MINUTE);
        let (_, answer) = service.is_asked().unwrap();
        for (key, minute) in [(7, 2), (9, 0), (8, 1)] {
            service.get(key, minute * MINUTE);
        }
        drop(answer);
        let order = [(); 3].map(|()| service.is_asked().unwrap().0);
        assert_eq!(order, [9, 8, 7]);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten_even_when_every_look_up_hangs() {
        let service = service(1);
        for key in 0..1000 {
            service.get(key, key * MINUTE);
        }
        // Those of the last hour, and that which hangs.
        let known = lock(&service.aside.known);
        assert!(known.answers.len() < 2 * (60 + 1) + FEW, "{}", known.answers.len());
        assert!(known.answers.contains_key(&0) && known.answers.contains_key(&999));
    }
}
