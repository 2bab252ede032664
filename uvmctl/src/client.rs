//! HTTP client of uvmd.

mod endpoint;
mod owner;
mod pages;
mod token;
mod unix;

use std::{
    io::{self, BufRead, BufReader},
    path::PathBuf,
    thread,
    time::Duration,
};

use clap::{ArgMatches, Args, parser::ValueSource};
pub(crate) use endpoint::{BaseUrl, Endpoint};
pub(crate) use owner::parse_user;
use owner::{Impostor, Owners};
pub(crate) use pages::PAGE;
use serde::{Deserialize, de::DeserializeOwned};
use token::TokenFile;
use ureq::{
    Agent,
    http::{Method, Request, StatusCode, header, request},
    unversioned::resolver::DefaultResolver,
};

use crate::text;

/// Maximum size of a response. A page of a list has 2 MiB at most; no other response is much
/// longer.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;
/// Longest wait before a retry.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Endpoint and credentials.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
#[group(skip)]
pub(crate) struct Options {
    /// TCP address of uvmd [default: the socket if it can be opened, else port 9477 of 127.0.0.1]
    #[arg(long, global = true, value_name = "URL", env = "UVMD_URL")]
    url: Option<BaseUrl>,

    /// Unix socket of uvmd; has precedence over a URL
    #[arg(long, global = true, value_name = "PATH", env = "UVMD_SOCKET")]
    socket: Option<PathBuf>,

    /// User that runs uvmd, by name or number, if neither root nor you: a socket of any other user
    /// is refused
    #[arg(long, global = true, value_name = "USER", env = "UVMD_SOCKET_OWNER", value_parser = owner::parse_user)]
    socket_owner: Option<u32>,

    /// File with a token for read or write permission. Over TCP it is sent only to a URL that is
    /// named
    #[arg(long, global = true, value_name = "FILE", env = "UVMD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

impl Options {
    /// Options with a URL of the command line before a socket of the environment.
    pub(crate) fn by_source(self, matches: &ArgMatches) -> Self {
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        if is_given("url") && !is_given("socket") { Self { socket: None, ..self } } else { self }
    }
}

#[cfg(feature = "fuzzing")]
impl Options {
    /// Options for this socket.
    pub(crate) fn on(socket: &std::path::Path) -> Self {
        Self { url: None, socket: Some(socket.to_owned()), socket_owner: None, token_file: None }
    }
}

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "cannot reach uvmd at {endpoint}: {reason}. Is it running there? Name another address with --url or UVMD_URL"
    )]
    Unreachable { endpoint: Endpoint, reason: String },
    #[error("uvmd at {endpoint} failed: {detail}")]
    Failed { endpoint: Endpoint, detail: String },
    #[error("{detail} (uvmd at {endpoint})")]
    NotFound { endpoint: Endpoint, detail: String },
    #[error("uvmd at {endpoint} rejected the request: {detail}")]
    Rejected { endpoint: Endpoint, detail: String },
    #[error("uvmd at {endpoint} denied the request: {detail}{remark}")]
    Denied { endpoint: Endpoint, detail: String, remark: String },
    #[error(
        "{endpoint} is not trusted as uvmd: {impostor}. If that user runs uvmd, name the user with --socket-owner or UVMD_SOCKET_OWNER"
    )]
    Untrusted { endpoint: Endpoint, impostor: String },
    #[error("the response of {endpoint} is not uvmd's: {reason}")]
    NotUvmd { endpoint: Endpoint, reason: String },
    #[error("the list of {endpoint} does not end: {reason}")]
    Endless { endpoint: Endpoint, reason: String },
}

/// Parsed response with its JSON text.
pub(crate) struct Response<T> {
    pub(crate) body: T,
    pub(crate) json: String,
}

/// Human-readable part of an RFC 9457 problem.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// Outcome of one attempt.
enum Reply {
    Success(String),
    /// Status 503 with `Retry-After`: the daemon is overloaded.
    Overloaded {
        retry_after: Duration,
        error: Error,
    },
    /// The connection ended before the response, as one that the daemon closed while it was idle.
    Disconnected(Error),
}

/// Timeout of a request, and retries while the daemon is overloaded.
#[derive(Clone, Copy, Debug)]
struct RetryPolicy {
    timeout: Duration,
    retries: u32,
}

impl RetryPolicy {
    const DEFAULT: Self = Self { timeout: Duration::from_secs(10), retries: 5 };
    const BRIEF: Self = Self { timeout: Duration::from_secs(1), retries: 0 };
}

pub(crate) struct Client {
    agent: Agent,
    endpoint: Endpoint,
    token: Option<TokenFile>,
    retry_policy: RetryPolicy,
}

impl Client {
    /// Creates a client for the selected endpoint. Fails only if a token file holds no token.
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        Self::with(options, RetryPolicy::DEFAULT)
    }

    /// Client for completion, with a short timeout: the shell blocks at each key press.
    pub(crate) fn brief(options: Options) -> anyhow::Result<Self> {
        Self::with(options, RetryPolicy::BRIEF)
    }

    fn with(options: Options, retry_policy: RetryPolicy) -> anyhow::Result<Self> {
        let Options { url, socket, socket_owner, token_file } = options;
        let token = token_file.map(TokenFile::read).transpose()?;
        Ok(Self::at(Endpoint::choose(url, socket), Owners::new(socket_owner), token, retry_policy))
    }

    /// Creates a client for an endpoint.
    fn at(endpoint: Endpoint, owners: Owners, token: Option<TokenFile>, retry_policy: RetryPolicy) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(retry_policy.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            // The daemon is on this node or behind a tunnel, never behind the environment's
            // Internet proxy.
            .proxy(None)
            .build();
        let agent = match &endpoint {
            Endpoint::Socket(path) => {
                Agent::with_parts(config, unix::Connector::to(path, owners), DefaultResolver::default())
            }
            Endpoint::Url(_) | Endpoint::DefaultPort { .. } => config.into(),
        };
        Self { agent, endpoint, token, retry_policy }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Response<T>, Error> {
        self.send(&Method::GET, path, None).and_then(|json| self.parse(json))
    }

    fn parse<T: DeserializeOwned>(&self, json: String) -> Result<Response<T>, Error> {
        match serde_json::from_str(&json) {
            Ok(body) => Ok(Response { body, json }),
            Err(error) => Err(self.not_uvmd(unexpected(&error))),
        }
    }

    /// Sends a request that changes state, and returns the body of the response.
    pub(crate) fn change(&self, method: &Method, path: &str, body: Option<&str>) -> Result<String, Error> {
        self.send(method, path, body)
    }

    /// Opens a stream of server-sent events, which resumes after the event with this id.
    pub(crate) fn stream(&self, path: &str, last_event_id: Option<&str>) -> Result<impl BufRead + use<>, Error> {
        let mut request = self.request(&Method::GET, path);
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let request = request.body(()).map_err(|error| self.transport_error(error.into()))?;
        // Events may be rare. The daemon sends heartbeats between them.
        let request = self.agent.configure_request(request).timeout_global(None).build();
        let mut response = self.agent.run(request).map_err(|error| self.transport_error(error))?;
        if !response.status().is_success() {
            let json = response.body_mut().read_to_string().map_err(|error| self.transport_error(error))?;
            return Err(self.problem(response.status(), &json));
        }
        Ok(BufReader::new(response.into_body().into_reader()))
    }

    fn request(&self, method: &Method, path: &str) -> request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.endpoint.base()));
        // A socket's client that is not in its group may know the token.
        match &self.token {
            Some(token) if self.endpoint.may_receive_tokens() => request.header(header::AUTHORIZATION, token.bearer()),
            _ => request,
        }
    }

    /// Sends a request, and retries a GET as `Retry-After` allows, and once on another connection.
    fn send(&self, method: &Method, path: &str, body: Option<&str>) -> Result<String, Error> {
        let is_repeatable = *method == Method::GET;
        let mut retries = if is_repeatable { self.retry_policy.retries } else { 0 };
        let mut may_reconnect = is_repeatable;
        loop {
            match self.send_once(method, path, body)? {
                Reply::Disconnected(_) if may_reconnect => may_reconnect = false,
                Reply::Success(json) => return Ok(json),
                Reply::Overloaded { retry_after, .. } if retries > 0 => {
                    retries -= 1;
                    thread::sleep(retry_after.min(RETRY_MAX));
                }
                Reply::Disconnected(error) | Reply::Overloaded { error, .. } => return Err(error),
            }
        }
    }

    fn send_once(&self, method: &Method, path: &str, body: Option<&str>) -> Result<Reply, Error> {
        let request = self.request(method, path);
        let sent = match body {
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, "application/json").body(body);
                request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request))
            }
            None => request.body(()).map_err(ureq::Error::from).and_then(|request| self.agent.run(request)),
        };
        let mut response = match sent {
            Ok(response) => response,
            Err(error) if is_disconnected(&error) => return Ok(Reply::Disconnected(self.transport_error(error))),
            Err(error) => return Err(self.transport_error(error)),
        };
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_string();
        let json = body.map_err(|error| self.transport_error(error))?;
        if response.status().is_success() {
            return Ok(Reply::Success(json));
        }
        let error = self.problem(response.status(), &json);
        let retry_after =
            response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        match retry_after.filter(|_| response.status() == StatusCode::SERVICE_UNAVAILABLE) {
            Some(seconds) => Ok(Reply::Overloaded { retry_after: Duration::from_secs(seconds), error }),
            None => Err(error),
        }
    }

    /// Remedy for missing read permission.
    pub(crate) fn remedy(&self) -> String {
        match (&self.endpoint, &self.token) {
            (Endpoint::DefaultPort { .. }, Some(token)) => withheld(token),
            (_, Some(token)) => format!("the token in {} is not uvmd's", token.path().display()),
            (Endpoint::Socket(path), None) => format!(
                "{} gives read permission to root and to the group of `socket.group`; or name uvmd's token with --token-file",
                path.display()
            ),
            (Endpoint::DefaultPort { denied_socket: Some(path) }, None) => format!(
                "no permission to open {}: run this as root or as a member of its group, or name uvmd's token with --token-file and its address with --url",
                path.display()
            ),
            (Endpoint::Url(_) | Endpoint::DefaultPort { .. }, None) => {
                "name uvmd's token with --token-file or UVMD_TOKEN_FILE, or run this as root on the node itself"
                    .to_owned()
            }
        }
    }

    fn problem(&self, status: StatusCode, json: &str) -> Error {
        let endpoint = self.endpoint.clone();
        let Ok(Problem { detail }) = serde_json::from_str(json) else {
            let remedy = "name the address of uvmd with --url or --socket";
            return self.not_uvmd(match status {
                StatusCode::NOT_FOUND => format!("there is no such page (status 404); {remedy}"),
                status => format!("status {status}; {remedy}"),
            });
        };
        let detail = text::printable(&detail).into_owned();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                // The daemon does not know of a socket that could not be opened, or of a token
                // withheld.
                let remark = match (&self.endpoint, &self.token) {
                    (Endpoint::DefaultPort { .. }, Some(token)) => format!(" ({})", withheld(token)),
                    (_, Some(token)) => format!(" ({})", token.path().display()),
                    (Endpoint::DefaultPort { denied_socket: Some(path) }, None) => {
                        format!(" (no permission to open {})", path.display())
                    }
                    _ => String::new(),
                };
                Error::Denied { endpoint, detail, remark }
            }
            // A missing object is named; a missing path is one of another version.
            StatusCode::NOT_FOUND if detail.starts_with("there is no /") => {
                let remedy = "uvmd and this uvmctl may be of different versions: restart uvmd after an upgrade";
                Error::NotFound { endpoint, detail: format!("{detail}; {remedy}") }
            }
            StatusCode::NOT_FOUND => Error::NotFound { endpoint, detail },
            status if status.is_client_error() => Error::Rejected { endpoint, detail },
            _ => Error::Failed { endpoint, detail },
        }
    }

    fn transport_error(&self, error: ureq::Error) -> Error {
        let reason = match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                return self.not_uvmd("not text".to_owned());
            }
            ureq::Error::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref::<Impostor>()) {
                Some(impostor) => {
                    return Error::Untrusted { endpoint: self.endpoint.clone(), impostor: impostor.to_string() };
                }
                None => sys::reason(&error),
            },
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            ureq::Error::ConnectionFailed => "no connection".to_owned(),
            ureq::Error::Timeout(_) => format!("no response within {} s", self.retry_policy.timeout.as_secs()),
            other => return self.not_uvmd(text::printable(&other.to_string()).into_owned()),
        };
        Error::Unreachable { endpoint: self.endpoint.clone(), reason }
    }

    fn not_uvmd(&self, reason: String) -> Error {
        Error::NotUvmd { endpoint: self.endpoint.clone(), reason }
    }
}

/// Whether the server closed the connection, rather than being unreachable.
fn is_disconnected(error: &ureq::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let kinds = [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof];
    matches!(error, ureq::Error::Io(error) if kinds.contains(&error.kind()))
}

/// Remark that a token was withheld, with the remedy.
fn withheld(token: &TokenFile) -> String {
    format!(
        "the token in {} was not sent, as any program may have this port: where it is uvmd's, name it with --url or UVMD_URL",
        token.path().display()
    )
}

/// Reason why a response does not have the expected form.
fn unexpected(error: &serde_json::Error) -> String {
    let reason = text::printable(&error.to_string()).into_owned();
    // A missing figure must not be shown as 0.
    if reason.starts_with("missing field") {
        return format!("{reason}; if it is uvmd, it is older than this uvmctl: restart it after an upgrade");
    }
    reason
}

#[cfg(test)]
mod testing {
    use super::*;

    pub(super) const TOKEN: &str = "0123456789abcdef";

    /// Client with a token.
    pub(super) fn client(endpoint: Endpoint, owners: Owners) -> Client {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, TOKEN).unwrap();
        Client::at(endpoint, owners, Some(TokenFile::read(path).unwrap()), RetryPolicy::DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn tokens_are_sent_to_explicit_urls_and_sockets_but_not_to_the_default_port() {
        let nowhere = Path::new("/nonexistent/uvmd.sock");
        for (endpoint, is_sent) in [
            (Endpoint::choose(Some("http://127.0.0.1:9477".parse().unwrap()), None), true),
            (Endpoint::choose(None, Some(nowhere.to_owned())), true),
            (Endpoint::by_default(nowhere), false),
        ] {
            let client = testing::client(endpoint.clone(), Owners::new(None));
            let request = client.request(&Method::GET, "/api/v1/status").body(()).unwrap();
            let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
            let bearer = format!("Bearer {}", testing::TOKEN);
            assert_eq!(sent, is_sent.then_some(bearer.as_str()), "{endpoint}");
        }
    }

    #[test]
    fn a_denial_at_the_default_port_reports_the_withheld_token() {
        let client = testing::client(Endpoint::by_default(Path::new("/nonexistent/uvmd.sock")), Owners::new(None));
        let error = client.problem(StatusCode::UNAUTHORIZED, r#"{"detail":"send the token"}"#).to_string();
        assert!(
            error.contains("denied the request: send the token (the token in ") && error.contains("was not sent"),
            "{error}"
        );
        assert!(client.remedy().contains("was not sent") && client.remedy().contains("--url"), "{}", client.remedy());
    }
}
