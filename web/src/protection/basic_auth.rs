//! Basic authentication (RFC 7617). A verification takes a processor for long by design, so requests
//! take [turns](super::turns), and a password that was verified before needs none.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use sys::cpu_time;
use tokio::{
    sync::{Notify, oneshot},
    task,
    time::{self, Instant},
};

use super::{
    Protection,
    turns::{Number, Turn, Turns},
    users::{Digest, Presented, Users},
};
use crate::{
    auth::Credential,
    peers::PeerKey,
    problem::{Kind, Problem},
    reserved_places::OnReservedPlace,
};

const CHALLENGE: &str = "Basic realm=\"uvmd\", charset=\"UTF-8\"";

/// Maximum time that a request waits for its turn, less than Prometheus waits for a scrape.
const WAIT_MAX: Duration = Duration::from_secs(8);

/// Check of the requests of a listener.
#[derive(Clone, Debug)]
pub(crate) struct BasicAuth {
    pub(crate) protection: Protection,
    /// Requests that had no turn.
    pub(crate) rejected: Arc<AtomicU64>,
}

/// Verifications of all users that there are or were. Cheap to clone; all clones share their state.
#[derive(Clone, Debug)]
pub(super) struct Verifications(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    turns: Mutex<Turns>,
    /// Notified when a request may have its turn.
    changed: Notify,
    /// Begin of the clock of the turns.
    begun: Instant,
}

/// Result of a verification, and the processor time that it took.
#[derive(Clone, Copy, Debug, Default)]
struct Verification {
    is_verified: bool,
    cpu_time: Duration,
}

/// Reason why a request waits no more.
#[derive(Clone, Copy, Debug)]
enum Granted {
    Turn,
    /// Its credentials were verified in the turn of another one.
    Verified,
}

/// Request that waits for its turn, until it is dropped.
struct Waiting {
    verifications: Verifications,
    number: Number,
}

impl Default for Verifications {
    fn default() -> Self {
        let (turns, changed, begun) = (Mutex::default(), Notify::new(), Instant::now());
        Self(Arc::new(Shared { turns, changed, begun }))
    }
}

impl Verifications {
    /// Whether the credentials are verified: by this verification, in its turn, or by that of
    /// another request meanwhile. `None` if it had no turn, and others came first.
    async fn verify(
        &self,
        peer: PeerKey,
        digest: Digest,
        wait_max: Duration,
        was_verified: impl Fn() -> bool,
        verification: impl Future<Output = Verification> + Send + 'static,
    ) -> Option<bool> {
        let number = self.turns().arrive(peer, digest, self.now());
        let waiting = Waiting { verifications: self.clone(), number };
        // It may be first.
        self.0.changed.notify_waiters();
        match time::timeout(wait_max, self.turn(number, was_verified)).await {
            Ok(Some(Granted::Turn)) => drop(waiting),
            Ok(Some(Granted::Verified)) => return Some(true),
            Ok(None) | Err(_) => return None,
        }
        let (verifications, (done, is_done)) = (self.clone(), oneshot::channel());
        // A client that leaves does not make room for another verification.
        tokio::spawn(async move {
            let Verification { is_verified, cpu_time } = verification.await;
            verifications.turns().end(peer, is_verified, cpu_time, verifications.now());
            verifications.0.changed.notify_waiters();
            let _ = done.send(is_verified);
        });
        Some(is_done.await.unwrap_or(false))
    }

    /// Waits for the turn of a request and takes it, unless its credentials are verified meanwhile.
    /// `None` if it waits no more, as others came first.
    async fn turn(&self, number: Number, was_verified: impl Fn() -> bool) -> Option<Granted> {
        loop {
            let changed = self.0.changed.notified();
            if was_verified() {
                return Some(Granted::Verified);
            }
            let turn = {
                let mut turns = self.turns();
                let turn = turns.turn(number, self.now());
                if turn == Turn::Now {
                    turns.take(number);
                }
                turn
            };
            match turn {
                Turn::Now => return Some(Granted::Turn),
                Turn::At(at) => tokio::select! {
                    () = changed => {}
                    () = time::sleep_until(self.0.begun + at) => {}
                },
                Turn::Later => changed.await,
                Turn::Never => return None,
            }
        }
    }

    fn now(&self) -> Duration {
        self.0.begun.elapsed()
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.verifications.turns().leave(self.number);
        self.verifications.0.changed.notify_waiters();
    }
}

/// Requires a user with a password, where there are users.
pub(crate) async fn check(
    State(BasicAuth { protection, rejected }): State<BasicAuth>,
    peer: PeerKey,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let Some(users) = protection.users() else { return Ok(next.run(request).await) };
    let Some(presented) = presented(request.headers()) else {
        return Err(denied("this requires a user and a password of metrics.web_config_file, by basic authentication"));
    };
    let is_in_reserve = request.extensions().get::<OnReservedPlace>().is_some();
    match is_verified(&protection.0.verifications, peer, is_in_reserve, users, presented).await {
        Some(true) => Ok(next.run(request).await),
        Some(false) => {
            let mut response = denied("the user is unknown, or the password wrong").into_response();
            response.extensions_mut().insert(Credential::WrongPassword);
            Ok(response)
        }
        None => {
            rejected.fetch_add(1, Ordering::Relaxed);
            let detail = "no turn to verify the password yet: other requests came first; retry in a second";
            Err(Problem::new(Kind::Overloaded, detail.to_owned()).retry_soon())
        }
    }
}

/// Whether name and password are those of a user; `None` if that could not be verified in time.
async fn is_verified(
    verifications: &Verifications,
    peer: PeerKey,
    is_in_reserve: bool,
    users: Arc<Users>,
    presented: Presented,
) -> Option<bool> {
    let (name, digest) = (presented.name.clone(), users.digest(&presented));
    if users.was_verified(&name, digest) {
        return Some(true);
    }
    // Nobody occupies the few places of the reserve by waiting.
    let wait_max = if is_in_reserve { Duration::ZERO } else { WAIT_MAX };
    let verifier = Arc::clone(&users);
    let verification = async move {
        let verify = move || {
            let begun = cpu_time::of_this_thread();
            let is_verified = verifier.verify(&presented);
            Verification { is_verified, cpu_time: cpu_time::of_this_thread().saturating_sub(begun) }
        };
        task::spawn_blocking(verify).await.unwrap_or_default()
    };
    verifications.verify(peer, digest, wait_max, || users.was_verified(&name, digest), verification).await
}

/// Name and password of a request; `None` if it has none, or more than one.
fn presented(headers: &HeaderMap) -> Option<Presented> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (name, password) = decoded.split_at_checked(colon)?;
    let name = str::from_utf8(name).ok()?.to_owned();
    Some(Presented { name, password: password.get(1..)?.to_owned() })
}

fn denied(detail: &str) -> Problem {
    Problem::new(Kind::InvalidCredentials, detail.to_owned()).challenging(CHALLENGE)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use tokio::task::JoinSet;

    use super::*;

    fn of(values: &[&str]) -> Option<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        presented(&headers).map(|Presented { name, password }| (name, password))
    }

    /// Verifications by a processor of the test, whose time is that of its clock.
    #[derive(Clone, Default)]
    struct Bench {
        verifications: Verifications,
        /// Processor time spent for each peer, in order.
        spent: Arc<Mutex<Vec<(PeerKey, Duration)>>>,
        /// Passwords that were verified.
        verified: Arc<Mutex<Vec<String>>>,
    }

    impl Bench {
        async fn request(&self, peer: PeerKey, password: &str, cost: Duration) -> Option<bool> {
            self.request_for(WAIT_MAX, peer, password, cost).await
        }

        async fn request_for(&self, wait_max: Duration, peer: PeerKey, password: &str, cost: Duration) -> Option<bool> {
            let Self { verifications, spent, verified } = self.clone();
            let was_verified = || verified.lock().unwrap().iter().any(|known| known == password);
            if was_verified() {
                return Some(true);
            }
            let (owned, list) = (password.to_owned(), Arc::clone(&verified));
            let verification = async move {
                time::sleep(cost).await;
                spent.lock().unwrap().push((peer, cost));
                let is_verified = owned == RIGHT;
                if is_verified {
                    list.lock().unwrap().push(owned);
                }
                Verification { is_verified, cpu_time: cost }
            };
            verifications.verify(peer, Digest::of_test(password), wait_max, was_verified, verification).await
        }

        /// Clients of this peer that try one password after another.
        fn guess(&self, peer: PeerKey, clients: usize, cost: Duration, guesses: &mut JoinSet<()>) {
            for client in 0..clients {
                let bench = self.clone();
                guesses.spawn(async move {
                    for at in 0.. {
                        let password = format!("{peer:?} {client} {at}");
                        if bench.request(peer, &password, cost).await.is_none() {
                            time::sleep(100 * MS).await;
                        }
                    }
                });
            }
        }

        /// A client of this peer that tries a password after each interval, without a wait for the
        /// result.
        fn flood(&self, peer: PeerKey, interval: Duration, guesses: &mut JoinSet<()>) {
            let bench = self.clone();
            guesses.spawn(async move {
                let mut requests = JoinSet::new();
                for at in 0.. {
                    let bench = bench.clone();
                    requests.spawn(async move { bench.request(peer, &format!("flood {at}"), USUAL).await });
                    while requests.try_join_next().is_some() {}
                    time::sleep(interval).await;
                }
            });
        }

        fn spent(&self, of: impl Fn(PeerKey) -> bool) -> Duration {
            self.spent.lock().unwrap().iter().filter(|(peer, _)| of(*peer)).map(|(_, cost)| *cost).sum()
        }

        fn verifications(&self) -> usize {
            self.spent.lock().unwrap().len()
        }
    }

    const RIGHT: &str = "secret";
    const MS: Duration = Duration::from_millis(1);
    /// Time of a verification of a hash of cost 10, and of cost 14.
    const USUAL: Duration = Duration::from_millis(60);
    const LONG: Duration = Duration::from_millis(900);

    fn address(last: u8) -> PeerKey {
        PeerKey::Address([10, 0, 0, last].into())
    }

    #[test]
    fn credentials_are_taken_from_one_basic_header() {
        let pair = |name: &str, password: &str| Some((name.to_owned(), password.into()));
        assert_eq!(of(&["Basic YTpi"]), pair("a", "b"));
        assert_eq!(of(&["bAsIc  YTpiOmM="]), pair("a", "b:c"));
        assert_eq!(of(&["Basic Og=="]), pair("", ""));
        for none in
            [&[][..], &["Basic"], &["Basic YQ=="], &["Basic !"], &["Bearer YTpi"], &["Basic YTpi", "Basic YTpi"]]
        {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn first_scrape_is_served_beside_a_few_guessing_clients_of_its_address() {
        for peer in [PeerKey::Loopback, address(1)] {
            let (bench, mut guesses) = (Bench::default(), JoinSet::new());
            bench.guess(peer, 6, USUAL, &mut guesses);
            time::sleep(60 * USUAL).await;
            let before = bench.verifications();
            assert_eq!(bench.request(peer, RIGHT, USUAL).await, Some(true), "{peer:?}");
            assert!(bench.verifications() - before <= 8, "{peer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn few_requests_wait_and_the_others_are_rejected_at_once() {
        let (bench, mut guesses) = (Bench::default(), JoinSet::new());
        bench.guess(address(1), 2, LONG, &mut guesses);
        bench.guess(address(2), 2, LONG, &mut guesses);
        time::sleep(Duration::from_mins(1)).await;
        let (quick, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let mut requests = JoinSet::new();
        for at in 0..48 {
            let (bench, quick) = (bench.clone(), Arc::clone(&quick));
            requests.spawn(async move {
                let outcome = bench.request(address(1), &format!("flood {at}"), LONG).await;
                if outcome.is_none() && begun.elapsed() < MS {
                    quick.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        time::sleep(MS).await;
        assert!(quick.load(Ordering::Relaxed) >= 40, "{quick:?} of 48 leave their places");
    }

    #[tokio::test(start_paused = true)]
    async fn scraper_that_waits_shorter_than_uvmd_is_served_by_its_second_scrape() {
        let (bench, mut guesses) = (Bench::default(), JoinSet::new());
        bench.guess(address(1), 6, LONG, &mut guesses);
        time::sleep(Duration::from_mins(1)).await;
        let mut scrapes = Vec::new();
        for _ in 0..3 {
            scrapes.push(time::timeout(WAIT_MAX * 3 / 4, bench.request(address(1), RIGHT, LONG)).await.ok());
            time::sleep(Duration::from_secs(15)).await;
        }
        assert_eq!((scrapes[0], scrapes[2]), (None, Some(Some(true))), "{scrapes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn scraper_is_served_by_its_second_scrape_beside_a_flood_of_guesses() {
        for peer in [PeerKey::Loopback, address(1)] {
            let (bench, mut guesses) = (Bench::default(), JoinSet::new());
            bench.flood(peer, 2 * MS, &mut guesses);
            time::sleep(Duration::from_secs(20)).await;
            let first = bench.request(peer, RIGHT, USUAL).await;
            time::sleep(Duration::from_secs(15)).await;
            assert_eq!((first, bench.request(peer, RIGHT, USUAL).await), (None, Some(true)), "{peer:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn scraper_is_served_by_its_second_scrape_where_a_verification_takes_long() {
        for peer in [PeerKey::Loopback, address(1)] {
            let (bench, mut guesses) = (Bench::default(), JoinSet::new());
            bench.guess(peer, 48, LONG, &mut guesses);
            time::sleep(Duration::from_mins(1)).await;
            let mut scrapes = Vec::new();
            for _ in 0..3 {
                scrapes.push(bench.request(peer, RIGHT, LONG).await);
                time::sleep(Duration::from_secs(15)).await;
            }
            assert_eq!(scrapes[1..], [Some(true); 2], "{peer:?}: {scrapes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peer_without_a_recent_failure_waits_for_one_verification_alone() {
        let (bench, mut guesses) = (Bench::default(), JoinSet::new());
        for last in 1..=8 {
            bench.guess(address(last), 8, USUAL, &mut guesses);
        }
        for at in 0..10 {
            time::sleep(Duration::from_secs(1) + at * MS).await;
            let begun = Instant::now();
            let password = if at == 0 { RIGHT.to_owned() } else { format!("{RIGHT} {at}") };
            let verified = bench.request(address(100 + u8::try_from(at).unwrap()), &password, USUAL).await;
            assert_eq!(verified, Some(at == 0));
            assert!(begun.elapsed() <= 3 * USUAL, "{:?}", begun.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_take_a_fifth_of_a_processor_for_one_address_and_half_of_one_for_all() {
        let minute = Duration::from_mins(1);
        for (peers, cost) in [(1, USUAL), (1, LONG), (2, USUAL), (8, USUAL), (8, LONG)] {
            let (bench, mut guesses) = (Bench::default(), JoinSet::new());
            for last in 1..=peers {
                bench.guess(address(last), 4, cost, &mut guesses);
            }
            time::sleep(minute).await;
            let most = (1..=peers).map(|last| bench.spent(|peer| peer == address(last))).max().unwrap();
            let all = bench.spent(|_| true);
            assert!(most <= minute / 5 + cost && all <= minute / 2 + cost, "{peers} {cost:?}: {most:?} {all:?}");
            let expected = (u32::from(peers) * minute / 5).min(minute / 2);
            assert!(all + 2 * cost >= expected, "{peers} {cost:?}: {all:?} of {expected:?}");
        }
        let (bench, mut guesses) = (Bench::default(), JoinSet::new());
        bench.guess(PeerKey::Loopback, 24, USUAL, &mut guesses);
        time::sleep(minute).await;
        assert!(bench.spent(|_| true) <= minute / 2 + USUAL);
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_leaves_ends_its_wait_and_not_its_verification() {
        let bench = Bench::default();
        let waits = |cost| time::timeout(MS, bench.request(PeerKey::User(1), "wrong", cost));
        assert!(waits(LONG).await.is_err() && waits(LONG).await.is_err(), "the second one waits");
        time::sleep(2 * LONG).await;
        assert_eq!(bench.verifications(), 1);
        let begun = Instant::now();
        assert_eq!(bench.request(PeerKey::User(2), RIGHT, USUAL).await, Some(true));
        assert_eq!(begun.elapsed(), USUAL);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_waits_for_long_is_rejected_and_the_same_password_waits_for_its_result_alone() {
        let (bench, begun) = (Bench::default(), Instant::now());
        let endless = 2 * WAIT_MAX;
        let (slow, equal, rejected) = tokio::join!(
            bench.request(PeerKey::User(1), "wrong", endless),
            bench.request(PeerKey::User(2), RIGHT, USUAL),
            async {
                let outcome = bench.request(PeerKey::User(3), "other", USUAL).await;
                (outcome, begun.elapsed())
            },
        );
        assert_eq!((slow, equal, rejected), (Some(false), None, (None, WAIT_MAX)));
        let both = async || {
            let other = bench.request(PeerKey::User(3), RIGHT, USUAL);
            let (one, other) = tokio::join!(bench.request(PeerKey::User(2), RIGHT, USUAL), other);
            (one, other, bench.verifications())
        };
        assert_eq!(both().await, (None, None, 1), "until it is paid for");
        time::sleep(endless).await;
        assert_eq!(both().await, (Some(true), Some(true), 2), "one verification for both");
    }

    #[tokio::test(start_paused = true)]
    async fn request_on_a_reserved_place_has_its_turn_at_once_or_keeps_its_position() {
        let bench = Bench::default();
        let on_reserve = |peer, password| bench.request_for(Duration::ZERO, peer, password, USUAL);
        assert_eq!(on_reserve(address(1), "wrong").await, Some(false));
        assert_eq!(on_reserve(address(2), RIGHT).await, None, "the last one is not paid for");
        time::sleep(MS).await;
        let mut guesses = JoinSet::new();
        bench.guess(address(2), 8, USUAL, &mut guesses);
        time::sleep(MS).await;
        assert_eq!(bench.request(address(2), RIGHT, USUAL).await, Some(true));
        assert_eq!(bench.verifications(), 2, "its position was kept, and those that came later wait");
        assert_eq!(on_reserve(address(2), RIGHT).await, Some(true), "it is known now");
    }
}
