use std::sync::mpsc;

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Look-ups that the test completes one by one.
struct Service {
    cache: LookupCache<u32, String>,
    asked: mpsc::Receiver<(u32, mpsc::Sender<Option<&'static str>>)>,
    start: Instant,
}

fn service(running_max: usize) -> Service {
    let (ask, asked) = mpsc::channel();
    let pace = Pace {
        retry_min: MINUTE,
        retry_max: 3 * MINUTE,
        answer_max: HOUR,
        wanted: HOUR,
        running_max,
        timeout: HOUR / 2,
    };
    let cache = LookupCache::new(pace, move |key: &u32| {
        let (answer, answered) = mpsc::channel::<Option<&str>>();
        ask.send((*key, answer)).ok()?;
        answered.recv().ok()?.map(str::to_owned)
    });
    Service { cache, asked, start: Instant::now() }
}

impl Service {
    fn get(&self, key: u32, after: Duration) -> Option<String> {
        self.cache.get(&key, self.start + after)
    }

    /// Next look-up that was started.
    fn asked(&self) -> (u32, mpsc::Sender<Option<&'static str>>) {
        self.asked.recv_timeout(MINUTE).expect("a look-up")
    }

    /// Keys of all look-ups that were started and have not ended, whether or not their threads are
    /// running yet.
    fn running(&self) -> Vec<u32> {
        let known = lock(&self.cache.known);
        let mut keys: Vec<u32> =
            known.answers.iter().filter(|(_, answer)| answer.due == Due::Running).map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// Completes the running look-up, and waits until its result is recorded.
    fn answer(&self, found: Option<&'static str>) {
        let (key, answer) = self.asked();
        answer.send(found).unwrap();
        self.settled(key);
    }

    /// Waits until the result of a completed look-up is recorded.
    fn settled(&self, key: u32) {
        while lock(&self.cache.known).answers[&key].due == Due::Running {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn lookup_does_not_block_and_runs_once() {
    let service = service(4);
    assert_eq!(service.get(7, Duration::ZERO), None);
    assert_eq!(service.get(7, Duration::ZERO), None);
    service.answer(Some("alice"));
    assert_eq!(service.get(7, MINUTE).as_deref(), Some("alice"));
    assert!(service.running().is_empty());
}

#[test]
fn failed_lookup_is_retried_at_growing_intervals() {
    let service = service(4);
    let mut at = Duration::ZERO;
    for minutes in [1, 2, 3, 3] {
        service.get(7, at);
        service.answer(None);
        at += minutes * MINUTE;
        service.get(7, at.checked_sub(Duration::from_secs(1)).unwrap());
        assert!(service.running().is_empty(), "before {minutes} minutes");
    }
    service.get(7, at);
    service.answer(Some("bob"));
    assert_eq!(service.get(7, at).as_deref(), Some("bob"));
}

#[test]
fn old_answer_is_returned_until_there_is_a_new_one() {
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
fn concurrent_lookups_are_bounded() {
    let service = service(2);
    for key in 1..=3 {
        service.get(key, Duration::ZERO);
    }
    let running = [service.asked(), service.asked()];
    service.get(3, Duration::ZERO);
    assert_eq!(service.running(), [1, 2]);
    drop(running);
    assert_eq!(service.asked().0, 3);
}

#[test]
fn longest_waiting_key_is_looked_up_next() {
    let service = service(1);
    service.get(1, 3 * MINUTE);
    let (_, answer) = service.asked();
    for (key, minute) in [(7, 2), (9, 0), (8, 1)] {
        service.get(key, minute * MINUTE);
    }
    drop(answer);
    let order = [(); 3].map(|()| service.asked().0);
    assert_eq!(order, [9, 8, 7]);
}

#[test]
fn unused_keys_are_forgotten_even_if_every_lookup_hangs() {
    let service = service(1);
    for key in 0..1000 {
        service.get(key, key * MINUTE);
    }
    // Those of the last hour, and the hung ones.
    let known = lock(&service.cache.known);
    assert!(known.answers.len() < 2 * (60 + HUNG_MAX + 1) + FEW, "{}", known.answers.len());
    assert!(known.answers.contains_key(&0) && known.answers.contains_key(&999));
    assert!(known.due.len() <= known.answers.len());
}

#[test]
fn key_that_is_unused_when_it_is_due_is_looked_up_at_its_next_request() {
    let service = service(1);
    service.get(1, Duration::ZERO);
    let (_, _hangs) = service.asked();
    service.get(2, Duration::ZERO);
    service.get(3, 2 * HOUR);
    service.answer(None);
    assert_eq!(service.running(), [1]);
    service.get(2, 2 * HOUR);
    assert_eq!(service.running(), [1, 2]);
}

#[test]
fn hung_lookup_delays_others_up_to_a_limit_and_its_late_answer_is_used() {
    let service = service(1);
    service.get(1, Duration::ZERO);
    let (_, hangs) = service.asked();
    service.get(2, 29 * MINUTE);
    assert_eq!(service.running(), [1]);
    service.get(2, 30 * MINUTE);
    assert_eq!(service.cache.hung(service.start + 30 * MINUTE).keys, [1]);
    service.answer(Some("bob"));
    assert_eq!(service.get(2, 30 * MINUTE).as_deref(), Some("bob"));
    // A hung look-up is not repeated.
    service.get(1, 40 * MINUTE);
    assert_eq!(service.running(), [1]);
    assert!(service.asked.try_recv().is_err());
    hangs.send(Some("alice")).unwrap();
    service.settled(1);
    assert_eq!(service.get(1, 40 * MINUTE).as_deref(), Some("alice"));
    assert!(service.cache.hung(service.start + 40 * MINUTE).keys.is_empty());
}

#[test]
fn hung_lookup_is_retried_as_rarely_as_a_failed_one() {
    let service = service(1);
    service.get(1, Duration::ZERO);
    let (_, hangs) = service.asked();
    service.get(2, 30 * MINUTE);
    service.answer(Some("bob"));
    hangs.send(None).unwrap();
    service.settled(1);
    service.get(1, Duration::from_secs(179));
    assert!(service.running().is_empty());
    service.get(1, 4 * MINUTE);
    assert_eq!(service.asked().0, 1);
}

#[test]
fn threads_are_bounded_by_the_limits_of_running_and_hung_lookups() {
    let service = service(2);
    let mut hanging = Vec::new();
    let hours = u32::try_from(HUNG_MAX).unwrap() / 2 + 4;
    for key in 0..hours {
        // Beside those that are replaced, two more can run.
        let is_full = 2 * key as usize >= HUNG_MAX + 2;
        assert_eq!(service.cache.hung(service.start + key * HOUR).is_full, is_full, "{key}");
        service.get(key, key * HOUR);
        service.get(key + 1000, key * HOUR);
        hanging.extend(service.asked.try_iter());
    }
    // Threads that were just started may not be running yet.
    while hanging.len() < HUNG_MAX + 2 {
        hanging.push(service.asked());
    }
    let hung = service.cache.hung(service.start + hours * HOUR);
    assert_eq!((hung.keys.len(), hung.is_full, hanging.len()), (HUNG_MAX + 2, true, HUNG_MAX + 2));
    // When one returns, another can run.
    let (key, back) = hanging.swap_remove(0);
    assert!(hung.keys.contains(&key));
    back.send(None).unwrap();
    service.settled(key);
    service.get(5000, (hours + 1) * HOUR);
    assert_eq!(service.asked().0, 5000);
}

#[test]
fn consecutive_lookups_share_one_thread() {
    let (ran, threads) = mpsc::channel();
    let pace =
        Pace { retry_min: MINUTE, retry_max: MINUTE, answer_max: HOUR, wanted: HOUR, running_max: 4, timeout: HOUR };
    let cache = LookupCache::new(pace, move |_: &u32| {
        ran.send(thread::current().id()).ok()?;
        Some(())
    });
    let now = Instant::now();
    let mut ids = std::collections::HashSet::new();
    for key in 0..100 {
        cache.get(&key, now);
        ids.insert(threads.recv_timeout(Duration::from_secs(10)).unwrap());
        while lock(&cache.known).idle == 0 {
            thread::yield_now();
        }
    }
    assert_eq!(ids.len(), 1);
}
