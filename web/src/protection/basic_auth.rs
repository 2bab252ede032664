//! Basic authentication (RFC 7617). A verification takes a processor for long by design, so their
//! number is limited: at most one at a time, and none for a pair that was verified before.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use tokio::{
    sync::{Semaphore, oneshot},
    task,
    time::{self, Instant},
};

use super::{
    Protection,
    users::{Presented, Users},
};
use crate::{
    auth::Credential,
    peers::{PeerKey, Shares},
    problem::{Kind, Problem},
};

const CHALLENGE: &str = "Basic realm=\"uvmd\", charset=\"UTF-8\"";

/// Maximum of requests whose passwords are verified or wait for that, of all peers and of one.
const PENDING_MAX: usize = 8;
const PENDING_OF_PEER_MAX: usize = 2;
/// Maximum time that a request waits for the verification of others.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause of all verifications after a wrong password, in durations of its verification: those who
/// guess take half a processor at most, all together.
const REST: u32 = 1;
/// Further pause of its peer: with two requests at a time, one peer takes a fifth of a processor.
const REST_OF_PEER: u32 = 8;
/// Maximum of requests in progress and in a pause, which bounds memory alone.
const RECENT_MAX: usize = 1024;

/// Verifications in progress, of all users that there are or were.
#[derive(Debug)]
pub(super) struct Verifications {
    pending: Shares,
    /// Those in progress, and those whose peers pause.
    recent: Shares,
    running: Arc<Semaphore>,
}

impl Default for Verifications {
    fn default() -> Self {
        Self {
            pending: Shares::new(PENDING_MAX, PENDING_OF_PEER_MAX),
            recent: Shares::new(RECENT_MAX, PENDING_OF_PEER_MAX),
            running: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Verifications {
    /// Whether the password is that of the user.
    async fn verify(&self, peer: PeerKey, users: Arc<Users>, presented: Presented) -> Result<bool, Problem> {
        let recent = self.recent.take(peer).ok_or_else(overloaded)?;
        let pending = self.pending.take(peer).ok_or_else(overloaded)?;
        let running = time::timeout(WAIT_MAX, Arc::clone(&self.running).acquire_owned()).await;
        let running = running.map_err(|_| overloaded())?;
        if users.was_verified(&presented) {
            return Ok(true);
        }
        let (done, is_done) = oneshot::channel();
        // A client that leaves does not make room for another verification.
        tokio::spawn(async move {
            let begun = Instant::now();
            let verified = task::spawn_blocking(move || users.verify(&presented)).await;
            let (is_verified, duration) = (verified.unwrap_or(false), begun.elapsed());
            drop(pending);
            let _ = done.send(is_verified);
            if !is_verified {
                time::sleep(duration * REST).await;
                drop(running);
                time::sleep(duration * REST_OF_PEER).await;
            }
            drop(recent);
        });
        Ok(is_done.await.unwrap_or(false))
    }
}

/// Requires a user with a password, where there are users.
pub(crate) async fn check(
    State(protection): State<Protection>,
    peer: PeerKey,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let Some(users) = protection.users() else { return Ok(next.run(request).await) };
    let Some(presented) = presented(request.headers()) else {
        return Err(denied("this requires a user and a password of metrics.web_config_file, by basic authentication"));
    };
    if users.was_verified(&presented) || protection.0.verifications.verify(peer, users, presented).await? {
        return Ok(next.run(request).await);
    }
    let mut response = denied("the user is unknown, or the password wrong").into_response();
    response.extensions_mut().insert(Credential::WrongPassword);
    Ok(response)
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

fn overloaded() -> Problem {
    Problem::new(Kind::Overloaded, "too many passwords are being verified: retry in a second".to_owned()).retry_soon()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(values: &[&str]) -> Option<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        presented(&headers).map(|Presented { name, password }| (name, password))
    }

    fn presented_by(name: &str, password: &str) -> Presented {
        Presented { name: name.to_owned(), password: password.into() }
    }

    fn users(cost: u32) -> Arc<Users> {
        Arc::new(Users::new([("a".to_owned(), bcrypt::hash("secret", cost).unwrap())]).unwrap())
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

    #[tokio::test]
    async fn requests_beyond_the_share_of_a_peer_are_rejected_and_others_wait() {
        let (verifications, users) = (Arc::new(Verifications::default()), users(4));
        // Nothing is verified meanwhile.
        let running = Arc::clone(&verifications.running).acquire_owned().await.unwrap();
        let mut waiting = task::JoinSet::new();
        for uid in [1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5] {
            let (verifications, users) = (Arc::clone(&verifications), Arc::clone(&users));
            waiting.spawn(
                async move { verifications.verify(PeerKey::User(uid), users, presented_by("a", "secret")).await },
            );
        }
        while verifications.recent.rejected() + verifications.pending.rejected() < 3 {
            task::yield_now().await;
        }
        drop(running);
        let results = waiting.join_all().await;
        let valid = results.iter().filter(|result| matches!(result, Ok(true))).count();
        assert_eq!((valid, results.len() - valid, verifications.pending.all()), (PENDING_MAX, 3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_waits_for_long_is_rejected() {
        let (verifications, users) = (Verifications::default(), users(4));
        let _running = Arc::clone(&verifications.running).acquire_owned().await.unwrap();
        let begun = Instant::now();
        assert!(verifications.verify(PeerKey::User(1), users, presented_by("a", "secret")).await.is_err());
        assert_eq!((begun.elapsed(), verifications.pending.all()), (WAIT_MAX, 0));
    }

    #[tokio::test]
    async fn wrong_password_delays_the_next_verification_and_a_verified_one_none() {
        let (verifications, users) = (Verifications::default(), users(4));
        let verify = |uid, password: &str| {
            verifications.verify(PeerKey::User(uid), Arc::clone(&users), presented_by("a", password))
        };
        assert!(!verify(1, "wrong").await.unwrap());
        let Verifications { pending, recent, running } = &verifications;
        assert_eq!((running.available_permits(), pending.all(), recent.all()), (0, 0, 1), "it rests");
        // A peer that pauses.
        let _recent = [(); 2].map(|()| recent.take(PeerKey::User(2)).unwrap());
        assert!(verify(2, "secret").await.is_err() && verify(3, "secret").await.unwrap());
        assert!(users.was_verified(&presented_by("a", "secret")) && !users.was_verified(&presented_by("a", "wrong")));
    }
}
