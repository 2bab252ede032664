//! Read permission, for command lines and addresses in memory, and write permission, for changes.
//!
//! Permission comes from the credentials of a peer on the Unix socket, which the kernel vouches
//! for, or from a token. A wrong token is rejected on every path, so that the mistake shows. No
//! delay follows a wrong token: a delay would hold a connection, which serves an attacker, and a
//! token of at least 16 bytes cannot be guessed.

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
pub use token::{InvalidToken, Token};

use crate::{
    Node,
    problem::{Kind, Problem},
};

/// Permission beyond that of every client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// Read permission.
    Read,
    /// Read and write permission.
    Write,
}

impl Grant {
    /// Name in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Sender of a request, as far as its transport identifies one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// An unidentified client.
    #[default]
    Unknown,
    /// A client over TCP, by its address, also from this machine. An IPv4 address is never in IPv6
    /// form.
    Remote(SocketAddr),
    /// A process on this machine whose credentials the kernel passed with the connection.
    Local {
        /// User id at the time of the connection.
        uid: u32,
        /// Process id, if the kernel passed one. The process may have exited since.
        pid: Option<u32>,
        /// Permission of the user.
        grant: Option<Grant>,
    },
}

/// Tokens in effect. Cheap to clone; all clones share their state.
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
    /// No token is configured.
    #[default]
    None,
    /// A token is configured and cannot be read now: every token is wrong.
    Lost,
    InForce(Token),
}

/// Permissions of a request's sender.
#[derive(Clone, Debug, Default)]
struct Permissions {
    grant: Option<Grant>,
    /// Highest permission that a configured token grants.
    with_token: Option<Grant>,
    requester: Requester,
}

// === impl TokenState ===

impl TokenState {
    fn is(&self, presented: &[u8]) -> bool {
        matches!(self, Self::InForce(token) if token.is(presented))
    }

    const fn is_configured(&self) -> bool {
        !matches!(self, Self::None)
    }
}

// === impl Tokens ===

impl Tokens {
    /// Permission of a presented token. If both tokens are equal, the lower permission.
    fn grant(&self, presented: &[u8]) -> Option<Grant> {
        let (read, write) = (self.read.is(presented), self.write.is(presented));
        if read { Some(Grant::Read) } else { write.then_some(Grant::Write) }
    }

    /// Credential of a request. A token takes precedence over the socket.
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

    fn highest_configured(&self) -> Option<Grant> {
        let read = self.read.is_configured().then_some(Grant::Read);
        self.write.is_configured().then_some(Grant::Write).or(read)
    }
}

// === impl Access ===

impl Access {
    /// Permissions by these tokens and by the credentials of local peers.
    #[must_use]
    pub fn by_tokens(tokens: impl IntoIterator<Item = (Grant, Token)>) -> Self {
        let access = Self::default();
        for (grant, token) in tokens {
            access.change(grant, Some(token));
        }
        access
    }

    /// Replaces the token of this permission; `None` stands for a token that no client can know.
    pub fn change(&self, grant: Grant, token: Option<Token>) {
        let mut tokens = self.0.tokens.write().unwrap_or_else(PoisonError::into_inner);
        *tokens.state(grant) = token.map_or(TokenState::Lost, TokenState::InForce);
    }

    /// Removes the token of this permission, as none is configured.
    pub fn forget(&self, grant: Grant) {
        *self.0.tokens.write().unwrap_or_else(PoisonError::into_inner).state(grant) = TokenState::None;
    }

    /// Permission of this token.
    #[must_use]
    pub fn grant(&self, presented: &[u8]) -> Option<Grant> {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).grant(presented)
    }

    /// Counts a request with a wrong password.
    pub(crate) fn add_failure(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests with a wrong token or password.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    fn permissions(&self, peer: Peer, headers: &HeaderMap) -> Result<Permissions, Problem> {
        let tokens = self.0.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let credential = tokens.credential(peer, headers);
        let grant = match (credential, peer) {
            (Credential::WrongToken, _) => {
                self.0.failures.fetch_add(1, Ordering::Relaxed);
                return Err(invalid_token(&tokens));
            }
            (Credential::ReadToken, _) => Some(Grant::Read),
            (Credential::WriteToken, _) => Some(Grant::Write),
            (Credential::Socket, Peer::Local { grant, .. }) => grant,
            (Credential::Socket | Credential::None | Credential::WrongPassword, _) => None,
        };
        Ok(Permissions { grant, with_token: tokens.highest_configured(), requester: Requester { peer, credential } })
    }

    /// Credential of a request.
    pub(crate) fn credential(&self, peer: Peer, headers: &HeaderMap) -> Credential {
        self.0.tokens.read().unwrap_or_else(PoisonError::into_inner).credential(peer, headers)
    }
}

/// Bearer token of a request. Other schemes belong to others, such as a proxy.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer";
    headers.get_all(header::AUTHORIZATION).iter().find_map(|value| {
        let (scheme, rest) = value.as_bytes().split_at_checked(SCHEME.len())?;
        let is_bearer = scheme.eq_ignore_ascii_case(SCHEME) && matches!(rest.first(), None | Some(b' '));
        is_bearer.then(|| rest.trim_ascii())
    })
}

fn invalid_token(tokens: &Tokens) -> Problem {
    let is_in_force = |state: &TokenState| matches!(state, TokenState::InForce(_));
    let detail = if tokens.highest_configured().is_none() {
        "the request has a token, and uvmd has none: configure auth.token_file or auth.write_token_file"
    } else if is_in_force(&tokens.read) || is_in_force(&tokens.write) {
        "the token that was sent is not uvmd's"
    } else {
        "no token is valid now: uvmd cannot read its token file; its log has the reason"
    };
    Problem::new(Kind::InvalidToken, detail.to_owned()).challenging("Bearer realm=\"uvmd\", error=\"invalid_token\"")
}

/// Attaches the permissions of its sender to a request.
pub(crate) async fn attach_permissions(
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

/// Extractor of read permission: whether the sender of a request has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPermission(pub(crate) bool);

impl<S: Send + Sync> FromRequestParts<S> for ReadPermission {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(of(parts).grant.is_some()))
    }
}

/// Extractor of write permission: whether the sender of a request has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritePermission(pub(crate) bool);

impl<S: Send + Sync> FromRequestParts<S> for WritePermission {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(of(parts).grant == Some(Grant::Write)))
    }
}

/// Extractor that rejects a sender without read permission.
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

/// Extractor of the requester that rejects a sender without write permission.
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
