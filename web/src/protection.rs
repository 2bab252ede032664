//! Protection of the metrics listener: TLS, and users with passwords. It may change at run time.

mod basic_auth;
mod tls;
mod turns;
mod users;

use std::sync::{Arc, PoisonError, RwLock};

use basic_auth::Verifications;
pub(crate) use basic_auth::{BasicAuth, check};
pub use tls::{Tls, TlsError, TlsFiles, TlsVersion};
pub use users::{Users, UsersError};

/// Protection in effect; without TLS and users by default. Cheap to clone; all clones share their
/// state.
#[derive(Clone, Debug, Default)]
pub struct Protection(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    current: RwLock<Current>,
    verifications: Verifications,
}

#[derive(Debug, Default)]
struct Current {
    tls: Option<Tls>,
    users: Option<Arc<Users>>,
}

impl Protection {
    /// Replaces TLS for new connections, and the users for new requests; `None` stands for no
    /// encryption, and for no passwords. Verified passwords of unchanged hashes stay known.
    pub fn change(&self, tls: Option<Tls>, mut users: Option<Users>) {
        let mut current = self.0.current.write().unwrap_or_else(PoisonError::into_inner);
        if let (Some(users), Some(former)) = (&mut users, &current.users) {
            users.replace(former);
        }
        *current = Current { tls, users: users.map(Arc::new) };
    }

    /// Whether new connections are over TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls().is_some()
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }

    fn users(&self) -> Option<Arc<Users>> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).users.clone()
    }
}
