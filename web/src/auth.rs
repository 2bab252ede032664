//! Who may read what not everybody may, command lines and where in memory something happens, and who may change what is done about it.
//!
//! There are two ways to have this authority: to be somebody whom the kernel vouches for, on the Unix socket, or to know a token. A token that
//! is wrong is refused wherever it is sent, so that the mistake shows. There is no pause after one: it would hold a connection, which is what an attacker
//! wants, and at least 16 bytes are not guessed.

mod requester;
mod token;

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, header, request::Parts},
    middleware::Next,
    response::Response,
};
pub use requester::{Credential, Requester};
pub use token::Token;

use crate::{
    Node,
    problem::{Kind, Problem},
};

/// What somebody may do beyond what everybody may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// Read everything.
    Read,
    /// Change things, too.
    Write,
}

impl Grant {
    /// Its name in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Who sent a request, as far as the way it came tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// A client of which nothing is known.
    #[default]
    Unknown,
    /// A client over TCP, be it only from this machine, by its address. IPv4 addresses are never in their IPv6 form.
    Remote(SocketAddr),
    /// A process on this machine whose credentials the kernel passed with the connection.
    Local {
        /// User id when it connected.
        uid: u32,
        /// Process id, where the kernel gave one. The process may have ended since.
        pid: Option<u32>,
        /// What they may do.
        grant: Option<Grant>,
    },
}

/// The tokens that are in force. Cheap to clone; all clones change together.
#[derive(Clone, Debug, Default)]
pub struct Access(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    tokens: RwLock<Tokens>,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Tokens {
    read: TokenState,
    write: TokenState,
}

#[derive(Debug, Default)]
enum TokenState {
    /// None was asked for.
    #[default]
    None,
    /// One was asked for and cannot be had now, so that none is right.
    Lost,
    InForce(Token),
}

/// What whoever sent a request may do.
#[derive(Clone, Debug, Default)]
struct Permissions {
    grant: Option<Grant>,
    /// The most that a token would give.
    with_token: Option<Grant>,
    requester: Requester,
}

// === impl TokenState ===

impl TokenState {
    fn is(&self, presented: &[u8]) -> bool {
        matches!(self, Self::InForce(token) if token.is(presented))
    }

    const fn was_asked_for(&self) -> bool {
        !matches!(self, Self::None)
    }
}

// === impl Tokens ===

impl Tokens {
    /// Where both are the same, it is the one that gives less.
    fn grant(&self, presented: &[u8]) -> Option<Grant> {
        let (read, write) = (self.read.is(presented), self.write.is(presented));
        if read { Some(Grant::Read) } else { write.then_some(Grant::Write) }
    }

    /// What a request shows: a token, also where it comes over the socket.
    fn credential(&self, peer: Peer, headers: &HeaderMap) -> Credential {
        match (presented(headers).map(|presented| self.grant(presented)), peer) {
            (Some(Some(Grant::Read)), _) => Credential::ReadToken,
            (Some(Some(Grant::Write)), _) => Credential::WriteToken,
            (Some(None), _) => Credential::WrongToken,
            (None, Peer::Local { .. }) => Credential::Socket,
            (None, Peer::Unknown | Peer::Remote(_)) => Credential::None,
        }
    }

    const fn state(&mut self, grant: Grant) -> &mut TokenState {
        match grant {
            Grant::Read => &mut self.read,
            Grant::Write => &mut self.write,
        }
    }

    fn most(&self) -> Option<Grant> {
        let read = self.read.was_asked_for().then_some(Grant::Read);
        self.write.was_asked_for().then_some(Grant::Write).or(read)
    }
}

// === impl Access ===

impl Access {
    /// By these tokens, and by whom the kernel vouches for.
    #[must_use]
    pub fn by_tokens(tokens: impl IntoIterator<Item = (Grant, Token)>) -> Self {
        let access = Self::default();
        for (grant, token) in tokens {
            access.change(grant, Some(token));
        }
        access
    }

    /// Another token gives this from now on; or, with `None`, none that anybody could know.
    pub fn change(&self, grant: Grant, token: Option<Token>) {
        let mut tokens = self.0.tokens.write().unwrap_or_else(PoisonError::into_inner);
        *tokens.state(grant) = token.map_or(TokenState::Lost, TokenState::InForce);
    }

    /// No token gives this any more, as none is wanted.
    pub fn forget(&self, grant: Grant) {
        *self.0.tokens.write().unwrap_or_else(PoisonError::into_inner).state(grant) = TokenState::None;
    }

    /// What this token gives.
    #[must_use]
    pub fn grant(&self, presented: &[u8]) -> Option<Grant> {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).grant(presented)
    }

    /// How often a wrong token was sent.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    fn permissions(&self, peer: Peer, headers: &HeaderMap) -> Result<Permissions, Problem> {
        let tokens = self.0.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let credential = tokens.credential(peer, headers);
        let grant = match (credential, peer) {
            (Credential::WrongToken, _) => {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                return Err(wrong(&tokens));
            }
            (Credential::ReadToken, _) => Some(Grant::Read),
            (Credential::WriteToken, _) => Some(Grant::Write),
            (Credential::Socket, Peer::Local { grant, .. }) => grant,
            (Credential::Socket | Credential::None, _) => None,
        };
        Ok(Permissions { grant, with_token: tokens.most(), requester: Requester { peer, credential } })
    }

    /// What a request shows.
    pub(crate) fn credential(&self, peer: Peer, headers: &HeaderMap) -> Credential {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).credential(peer, headers)
    }
}

/// The token that a request has. Other schemes are another's business, such as a proxy's.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer";
    headers.get_all(header::AUTHORIZATION).iter().find_map(|value| {
        let (scheme, rest) = value.as_bytes().split_at_checked(SCHEME.len())?;
        let is_bearer = scheme.eq_ignore_ascii_case(SCHEME) && matches!(rest.first(), None | Some(b' '));
        is_bearer.then(|| rest.trim_ascii())
    })
}

fn wrong(tokens: &Tokens) -> Problem {
    let is_in_force = |state: &TokenState| matches!(state, TokenState::InForce(_));
    let detail = if tokens.most().is_none() {
        "a token was sent, and uvmd has none: auth.token_file and auth.write_token_file in its configuration name some"
    } else if is_in_force(&tokens.read) || is_in_force(&tokens.write) {
        "the token that was sent is not uvmd's"
    } else {
        "no token is right now: uvmd cannot read its own, as its log says"
    };
    Problem::new(Kind::InvalidToken, detail.to_owned()).challenging("Bearer realm=\"uvmd\", error=\"invalid_token\"")
}

/// Finds out what whoever sent a request may do.
pub(crate) async fn establish(
    State(node): State<Arc<Node>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or_default();
    let permissions = node.access.permissions(peer, request.headers())?;
    request.extensions_mut().insert(permissions);
    Ok(next.run(request).await)
}

fn of(parts: &Parts) -> Permissions {
    parts.extensions.get::<Permissions>().cloned().unwrap_or_default()
}

/// Extracts whether whoever sent a request may read everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPermission(pub(crate) bool);

impl<S: Send + Sync> FromRequestParts<S> for ReadPermission {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(of(parts).grant.is_some()))
    }
}

/// Extracts whether whoever sent a request may change things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritePermission(pub(crate) bool);

impl<S: Send + Sync> FromRequestParts<S> for WritePermission {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(of(parts).grant == Some(Grant::Write)))
    }
}

/// Lets nobody pass who may not read everything.
pub(crate) struct Reader;

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match of(parts) {
            Permissions { grant: Some(_), .. } => Ok(Self),
            Permissions { with_token: Some(_), .. } => {
                let detail = "this needs read permission: send the token of auth.token_file or auth.write_token_file, as in \"Authorization: \
                              Bearer TOKEN\", or use uvmd's Unix socket as root or a member of socket.group";
                Err(Problem::new(Kind::TokenRequired, detail.to_owned()).challenging("Bearer realm=\"uvmd\""))
            }
            Permissions { with_token: None, .. } => {
                let detail = "this needs read permission: use uvmd's Unix socket as root or a member of socket.group, or configure \
                              a token for uvmd (auth.token_file)";
                Err(Problem::new(Kind::PermissionDenied, detail.to_owned()))
            }
        }
    }
}

/// Lets nobody pass who may not change things, and tells who it is.
pub(crate) struct Writer(pub(crate) Requester);

impl<S: Send + Sync> FromRequestParts<S> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match of(parts) {
            Permissions { grant: Some(Grant::Write), requester, .. } => Ok(Self(requester)),
            Permissions { requester: Requester { credential: Credential::ReadToken, .. }, .. } => {
                let detail = "the token that was sent grants read permission only; that of auth.write_token_file grants write permission";
                Err(Problem::new(Kind::InsufficientToken, detail.to_owned())
                    .challenging("Bearer realm=\"uvmd\", error=\"insufficient_scope\""))
            }
            Permissions { with_token: Some(Grant::Write), .. } => {
                let detail = "this requires write permission: send the token of auth.write_token_file, as in \
                              \"Authorization: Bearer TOKEN\", or use uvmd's Unix socket as root or a member of socket.write_group";
                Err(Problem::new(Kind::TokenRequired, detail.to_owned()).challenging("Bearer realm=\"uvmd\""))
            }
            _ => {
                let detail = "this requires write permission: use uvmd's Unix socket as root or a member of socket.write_group, \
                              or configure uvmd with a token (auth.write_token_file)";
                Err(Problem::new(Kind::PermissionDenied, detail.to_owned()))
            }
        }
    }
}
