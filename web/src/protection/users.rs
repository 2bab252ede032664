//! Users and their passwords.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bcrypt::HashParts;
use ring::{hmac, rand::SystemRandom};
use thiserror::Error;

/// Users with hashes of their passwords.
pub struct Users {
    hashes: BTreeMap<String, String>,
    /// Hash that an unknown user is verified with, so that it takes as long.
    dummy: String,
    /// Random key of the hashes below.
    key: hmac::Key,
    /// Keyed hash of the last verified name and password of each user.
    verified: Mutex<BTreeMap<String, hmac::Tag>>,
}

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
        Ok(Self { hashes, dummy, key, verified: Mutex::default() })
    }

    /// Whether this name and password were verified before.
    pub(super) fn was_verified(&self, presented: &Presented) -> bool {
        let tag = self.verified().get(&presented.name).copied();
        tag.is_some_and(|tag| hmac::verify(&self.key, &presented.message(), tag.as_ref()).is_ok())
    }

    /// Whether the password is that of the user. Takes a processor for long, for an unknown user
    /// as well.
    pub(super) fn verify(&self, presented: &Presented) -> bool {
        let known = self.hashes.get(&presented.name);
        let is_password = bcrypt::verify(&presented.password, known.unwrap_or(&self.dummy)).unwrap_or(false);
        let is_verified = known.is_some() && is_password;
        if is_verified {
            let tag = hmac::sign(&self.key, &presented.message());
            self.verified().insert(presented.name.clone(), tag);
        }
        is_verified
    }

    fn verified(&self) -> MutexGuard<'_, BTreeMap<String, hmac::Tag>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hashes.keys()).finish()
    }
}

impl Presented {
    /// Name and password, and nothing else that has the same bytes: a name has no colon.
    fn message(&self) -> Vec<u8> {
        [self.name.as_bytes(), b":", &self.password].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presented(name: &str, password: &str) -> Presented {
        Presented { name: name.to_owned(), password: password.into() }
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
            assert_eq!(users.was_verified(&presented), is_password, "{name} {password}");
        }
        assert!(users.was_verified(&presented("a", "secret")));
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
