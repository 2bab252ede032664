//! Users and their passwords.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bcrypt::HashParts;
use ring::{hmac, rand::SystemRandom};
use thiserror::Error;

/// Users with hashes of their passwords.
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Hash that an unknown user is verified with, so that it takes as long.
    dummy: String,
    verified: Arc<Verified>,
}

/// Credentials that were verified. A digest includes the hash of the password, so that it is void
/// once the hash is another one.
struct Verified {
    /// Random key of the digests.
    key: hmac::Key,
    /// The last verified one of each user.
    digests: Mutex<BTreeMap<String, Digest>>,
}

/// Keyed hash of a name, a password, and the hash that the password is verified with.
#[derive(Clone, Copy)]
pub(super) struct Digest(hmac::Tag);

/// Reason why there are no users.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UsersError {
    /// A text is no hash.
    #[error("the password of {0} is no hash by bcrypt")]
    InvalidHash(String),
    /// The kernel has no random numbers.
    #[error("the kernel has no random numbers")]
    NoRandomNumbers,
}

/// Name and password of a request.
pub(super) struct Presented {
    pub(super) name: String,
    pub(super) password: Vec<u8>,
}

impl Users {
    /// Users by name with hashes by bcrypt in their text form.
    ///
    /// # Errors
    /// See [`UsersError`].
    pub fn new(users: impl IntoIterator<Item = (String, String)>) -> Result<Self, UsersError> {
        let (mut hashes, mut max_cost) = (BTreeMap::new(), 0);
        for (name, hash) in users {
            let parts = HashParts::from_str(&hash).map_err(|_| UsersError::InvalidHash(name.clone()))?;
            max_cost = parts.get_cost().max(max_cost);
            hashes.insert(name, hash);
        }
        let dummy = format!("$2b${max_cost:02}${:.<53}", "");
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| UsersError::NoRandomNumbers)?;
        let verified = Verified { key, digests: Mutex::default() };
        Ok(Self { hashes, dummy, verified: Arc::new(verified) })
    }

    /// Shares the verified credentials with these former users: those of unchanged hashes need no
    /// further verification.
    pub(super) fn replace(&mut self, former: &Self) {
        self.verified = Arc::clone(&former.verified);
        self.verified.digests().retain(|name, _| self.hashes.contains_key(name));
    }

    pub(super) fn digest(&self, Presented { name, password }: &Presented) -> Digest {
        // No two credentials have the same bytes: a name and a hash have no colon.
        let message = [self.hash(name).as_bytes(), b":", name.as_bytes(), b":", password].concat();
        Digest(hmac::sign(&self.verified.key, &message))
    }

    /// Whether these credentials of the user were verified before.
    pub(super) fn was_verified(&self, name: &str, digest: Digest) -> bool {
        self.verified.digests().get(name).is_some_and(|verified| *verified == digest)
    }

    /// Whether the password is that of the user. Takes a processor for long, for an unknown user
    /// as well.
    pub(super) fn verify(&self, presented: &Presented) -> bool {
        let Presented { name, password } = presented;
        let is_password = bcrypt::verify(password, self.hash(name)).unwrap_or(false);
        let is_verified = is_password && self.hashes.contains_key(name);
        if is_verified {
            self.verified.digests().insert(name.clone(), self.digest(presented));
        }
        is_verified
    }

    fn hash(&self, name: &str) -> &str {
        self.hashes.get(name).unwrap_or(&self.dummy)
    }
}

impl Verified {
    fn digests(&self) -> MutexGuard<'_, BTreeMap<String, Digest>> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Digest {
    /// Digest with a key that all tests share.
    #[cfg(test)]
    pub(super) fn of_test(text: &str) -> Self {
        Self(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b""), text.as_bytes()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest")
    }
}

// Its time tells nothing: nobody else knows a digest, or can choose one.
impl PartialEq for Digest {
    fn eq(&self, Self(other): &Self) -> bool {
        let Self(tag) = self;
        tag.as_ref() == other.as_ref()
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(tag) = self;
        tag.as_ref().hash(state);
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hashes.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presented(name: &str, password: &str) -> Presented {
        Presented { name: name.to_owned(), password: password.into() }
    }

    fn was_verified(users: &Users, presented: &Presented) -> bool {
        users.was_verified(&presented.name, users.digest(presented))
    }

    fn users(users: &[(&str, &str)]) -> Users {
        let hash = |password| bcrypt::hash(password, 4).unwrap();
        Users::new(users.iter().map(|(name, password)| ((*name).to_owned(), hash(*password)))).unwrap()
    }

    #[test]
    fn only_the_password_of_the_user_is_verified() {
        let users = users(&[("a", "secret"), ("b", "other")]);
        for (name, password, is_password) in [
            ("a", "secret", true),
            ("a", "secreT", false),
            ("a", "", false),
            ("a", "other", false),
            ("b", "other", true),
            ("c", "secret", false),
            ("", "", false),
        ] {
            let presented = presented(name, password);
            assert_eq!(users.verify(&presented), is_password, "{name} {password}");
            assert_eq!(was_verified(&users, &presented), is_password, "{name} {password}");
        }
        assert!(was_verified(&users, &presented("a", "secret")));
    }

    #[test]
    fn credentials_stay_verified_as_long_as_the_hash_is_the_same() {
        let hash = |password| bcrypt::hash(password, 4).unwrap();
        let (kept, lost, other) = (hash("kept"), hash("lost"), hash("other"));
        let of = |users: &[(&str, &String)]| {
            Users::new(users.iter().map(|(name, hash)| ((*name).to_owned(), (*hash).clone()))).unwrap()
        };
        let former = of(&[("a", &kept), ("b", &lost), ("c", &other)]);
        let [a, b, c] = [("a", "kept"), ("b", "lost"), ("c", "other")].map(|(name, text)| presented(name, text));
        assert!([&a, &b, &c].into_iter().all(|each| former.verify(each)));
        let mut users = of(&[("a", &kept), ("b", &hash("new")), ("d", &other)]);
        users.replace(&former);
        assert_eq!([&a, &b, &c].map(|each| was_verified(&users, each)), [true, false, false]);
        assert!(!was_verified(&users, &presented("d", "other")), "of another user");
        // A verification that began before the change ends after it.
        assert!(former.verify(&b) && !was_verified(&users, &b));
        assert!(former.verify(&a) && was_verified(&users, &a));
        let mut again = of(&[("c", &other)]);
        again.replace(&users);
        assert!(!was_verified(&again, &c), "it was no user in between");
    }

    #[test]
    fn hash_of_an_unknown_user_has_the_highest_cost_and_is_valid() {
        let hash = |cost| bcrypt::hash("secret", cost).unwrap();
        let users = Users::new([("a".to_owned(), hash(4)), ("b".to_owned(), hash(5))]).unwrap();
        assert_eq!(HashParts::from_str(&users.dummy).unwrap().get_cost(), 5);
        assert!(bcrypt::verify("", &users.dummy).is_ok());
    }

    #[test]
    fn text_that_is_no_hash_is_refused_and_not_shown() {
        let error = Users::new([("a".to_owned(), "sekrit".to_owned())]).unwrap_err();
        assert_eq!(error, UsersError::InvalidHash("a".to_owned()));
        assert!(!error.to_string().contains("sekrit"));
        assert_eq!(format!("{:?}", users(&[("a", "secret")])), "{\"a\"}");
    }
}
