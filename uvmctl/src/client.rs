//! Asks the daemon.

mod owner;
mod pages;
mod place;
mod token;
mod unix;

use std::{
    io::{self, BufRead, BufReader},
    path::PathBuf,
    thread,
    time::Duration,
};

use clap::Args;
use owner::{Impostor, Owners};
pub(crate) use pages::PAGE;
pub(crate) use place::{BaseUrl, Place};
use serde::{Deserialize, de::DeserializeOwned};
use token::TokenFile;
use ureq::{
    Agent,
    http::{Method, Request, StatusCode, header, request},
    unversioned::resolver::DefaultResolver,
};

use crate::text;

/// A page of a list has 2 MiB at most, and no other answer is much longer.
const LONGEST_ANSWER_BYTES: u64 = 16 << 20;
/// Longest wait before a retry.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Where to ask, and as whom.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// TCP address of uvmd [default: the socket if it can be opened, else port 9477 of 127.0.0.1]
    #[arg(long, global = true, value_name = "URL", env = "UVMD_URL")]
    url: Option<BaseUrl>,

    /// Unix socket of uvmd; has precedence over a URL
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// User that runs uvmd, by name or number, if neither root nor you: a socket of any other user is refused
    #[arg(long, global = true, value_name = "USER", env = "UVMD_SOCKET_OWNER", value_parser = owner::parse_user)]
    socket_owner: Option<u32>,

    /// File with a token for read or write permission. Over TCP it is sent only to a URL that is named
    #[arg(long, global = true, value_name = "FILE", env = "UVMD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

#[cfg(feature = "fuzzing")]
impl Options {
    /// To ask on this socket.
    pub(crate) fn on(socket: &std::path::Path) -> Self {
        Self { url: None, socket: Some(socket.to_owned()), socket_owner: None, token_file: None }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot reach uvmd at {place}: {reason}. Is it running there? Name another place with --url or UVMD_URL")]
    Unreachable { place: Place, reason: String },
    #[error("uvmd at {place} failed: {detail}")]
    Refused { place: Place, detail: String },
    #[error("uvmd at {place} denied the request: {detail}{remark}")]
    NoAuthority { place: Place, detail: String, remark: String },
    #[error(
        "{place} is not trusted as uvmd: {impostor}. Where that user runs uvmd, name it with --socket-owner or UVMD_SOCKET_OWNER"
    )]
    Untrusted { place: Place, impostor: String },
    #[error("{place} sent no response of uvmd: {reason}")]
    Foreign { place: Place, reason: String },
    #[error("the list of {place} does not end: {why}")]
    Endless { place: Place, why: String },
}

/// An answer, and the text it was read from.
pub(crate) struct Answer<T> {
    pub(crate) body: T,
    pub(crate) json: String,
}

/// The parts of an RFC 9457 problem that are for people.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

/// Reply to one request.
enum Reply {
    Answer(String),
    /// It has too much to do.
    ComeBack {
        after: Duration,
        refused: Error,
    },
}

/// How long a response is waited for, and how often a daemon that has too much to do is asked again.
#[derive(Clone, Copy, Debug)]
struct Patience {
    timeout: Duration,
    retries: u32,
}

impl Patience {
    const USUAL: Self = Self { timeout: Duration::from_secs(10), retries: 5 };
    const BRIEF: Self = Self { timeout: Duration::from_secs(1), retries: 0 };
}

pub(crate) struct Client {
    agent: Agent,
    place: Place,
    token: Option<TokenFile>,
    patience: Patience,
}

impl Client {
    /// Chooses where to ask. Fails only if there is a token file that holds no token.
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        Self::with(options, Patience::USUAL)
    }

    /// The same for a completion, which somebody waits for at each key.
    pub(crate) fn brief(options: Options) -> anyhow::Result<Self> {
        Self::with(options, Patience::BRIEF)
    }

    fn with(options: Options, patience: Patience) -> anyhow::Result<Self> {
        let Options { url, socket, socket_owner, token_file } = options;
        let token = token_file.map(TokenFile::read).transpose()?;
        Ok(Self::at(Place::choose(url, socket), Owners::new(socket_owner), token, patience))
    }

    /// Asks there.
    fn at(place: Place, owners: Owners, token: Option<TokenFile>, patience: Patience) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(patience.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            // The daemon is on this node, or at the end of a tunnel: never behind the proxy that the environment names for the Internet.
            .proxy(None)
            .build();
        let agent = match &place {
            Place::Socket(path) => {
                Agent::with_parts(config, unix::Connector::to(path, owners), DefaultResolver::default())
            }
            Place::Url(_) | Place::UsualPort { .. } => config.into(),
        };
        Self { agent, place, token, patience }
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Error> {
        self.ask(&Method::GET, path, None).and_then(|json| self.parse(json))
    }

    fn parse<T: DeserializeOwned>(&self, json: String) -> Result<Answer<T>, Error> {
        match serde_json::from_str(&json) {
            Ok(body) => Ok(Answer { body, json }),
            Err(error) => Err(self.foreign(unexpected(&error))),
        }
    }

    /// Changes something, with a body if there is one, and returns the answer's.
    pub(crate) fn change(&self, method: &Method, path: &str, body: Option<&str>) -> Result<String, Error> {
        self.ask(method, path, body)
    }

    /// What comes, for as long as it comes: lines of server-sent events, from behind the event of this name on.
    pub(crate) fn stream(&self, path: &str, last_event_id: Option<&str>) -> Result<impl BufRead + use<>, Error> {
        let mut request = self.request(&Method::GET, path);
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let request = request.body(()).map_err(|error| self.failed(error.into()))?;
        // Nothing may happen for long; the daemon says so every now and then.
        let request = self.agent.configure_request(request).timeout_global(None).build();
        let mut response = self.agent.run(request).map_err(|error| self.failed(error))?;
        if !response.status().is_success() {
            let json = response.body_mut().read_to_string().map_err(|error| self.failed(error))?;
            return Err(self.refused(response.status(), &json));
        }
        Ok(BufReader::new(response.into_body().into_reader()))
    }

    fn request(&self, method: &Method, path: &str) -> request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.place.base()));
        // On a socket, too: who is not in its group may know the token.
        match &self.token {
            Some(token) if self.place.may_be_told_tokens() => request.header(header::AUTHORIZATION, token.bearer()),
            _ => request,
        }
    }

    /// Asks again where the daemon says when to.
    fn ask(&self, method: &Method, path: &str, body: Option<&str>) -> Result<String, Error> {
        let mut retries = if *method == Method::GET { self.patience.retries } else { 0 };
        loop {
            match self.ask_once(method, path, body)? {
                Reply::Answer(json) => return Ok(json),
                Reply::ComeBack { after, .. } if retries > 0 => {
                    retries -= 1;
                    thread::sleep(after.min(RETRY_MAX));
                }
                Reply::ComeBack { refused, .. } => return Err(refused),
            }
        }
    }

    fn ask_once(&self, method: &Method, path: &str, body: Option<&str>) -> Result<Reply, Error> {
        let request = self.request(method, path);
        let sent = match body {
            Some(body) => {
                let request = request.header(header::CONTENT_TYPE, "application/json").body(body);
                request.map_err(ureq::Error::from).and_then(|request| self.agent.run(request))
            }
            None => request.body(()).map_err(ureq::Error::from).and_then(|request| self.agent.run(request)),
        };
        let mut response = sent.map_err(|error| self.failed(error))?;
        let body = response.body_mut().with_config().limit(LONGEST_ANSWER_BYTES).read_to_string();
        let json = body.map_err(|error| self.failed(error))?;
        if response.status().is_success() {
            return Ok(Reply::Answer(json));
        }
        let refused = self.refused(response.status(), &json);
        let after = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        match after.filter(|_| response.status() == StatusCode::SERVICE_UNAVAILABLE) {
            Some(seconds) => Ok(Reply::ComeBack { after: Duration::from_secs(seconds), refused }),
            None => Err(refused),
        }
    }

    /// How to be told what not everybody is told.
    pub(crate) fn remedy(&self) -> String {
        match (&self.place, &self.token) {
            (Place::UsualPort { .. }, Some(token)) => withheld(token),
            (_, Some(token)) => format!("the token in {} is not uvmd's", token.path().display()),
            (Place::Socket(path), None) => format!(
                "{} gives read permission to root and to the group of `socket.group`; or name uvmd's token with --token-file",
                path.display()
            ),
            (Place::UsualPort { shut_socket: Some(path) }, None) => format!(
                "no permission to open {}: run this as root or as a member of its group, or name uvmd's token with --token-file and where it serves with --url",
                path.display()
            ),
            (Place::Url(_) | Place::UsualPort { .. }, None) => {
                "name uvmd's token with --token-file or UVMD_TOKEN_FILE, or run this as root on the node itself"
                    .to_owned()
            }
        }
    }

    fn refused(&self, status: StatusCode, json: &str) -> Error {
        let place = self.place.clone();
        let Ok(Problem { detail }) = serde_json::from_str(json) else {
            return self.foreign(format!("status {status}"));
        };
        let detail = text::printable(&detail).into_owned();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                // The daemon does not know what else was tried.
                let remark = match (&self.place, &self.token) {
                    (Place::UsualPort { .. }, Some(token)) => format!(" ({})", withheld(token)),
                    (_, Some(token)) => format!(" ({})", token.path().display()),
                    (Place::UsualPort { shut_socket: Some(path) }, None) => {
                        format!(" (no permission to open {})", path.display())
                    }
                    _ => String::new(),
                };
                Error::NoAuthority { place, detail, remark }
            }
            _ => Error::Refused { place, detail },
        }
    }

    fn failed(&self, error: ureq::Error) -> Error {
        let reason = match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                return self.foreign("not text".to_owned());
            }
            ureq::Error::Io(error) => match error.get_ref().and_then(|error| error.downcast_ref::<Impostor>()) {
                Some(impostor) => {
                    return Error::Untrusted { place: self.place.clone(), impostor: impostor.to_string() };
                }
                None => sys::reason(&error),
            },
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            ureq::Error::ConnectionFailed => "no connection".to_owned(),
            ureq::Error::Timeout(_) => format!("no answer within {} s", self.patience.timeout.as_secs()),
            other => return self.foreign(text::printable(&other.to_string()).into_owned()),
        };
        Error::Unreachable { place: self.place.clone(), reason }
    }

    fn foreign(&self, reason: String) -> Error {
        Error::Foreign { place: self.place.clone(), reason }
    }
}

/// That a token was not sent, and how to have it sent.
fn withheld(token: &TokenFile) -> String {
    format!(
        "the token in {} was not sent, as any program may have this port: where it is uvmd's, name it with --url or UVMD_URL",
        token.path().display()
    )
}

/// What is wrong with an answer that is not what was asked for.
fn unexpected(error: &serde_json::Error) -> String {
    let reason = text::printable(&error.to_string()).into_owned();
    // Figures that it does not tell must not be shown as 0.
    if reason.starts_with("missing field") {
        return format!("{reason}; if it is uvmd, it is older than this uvmctl: restart it after an upgrade");
    }
    reason
}

#[cfg(test)]
mod testing {
    use super::*;

    pub(super) const TOKEN: &str = "0123456789abcdef";

    /// One that knows a token.
    pub(super) fn client(place: Place, owners: Owners) -> Client {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, TOKEN).unwrap();
        Client::at(place, owners, Some(TokenFile::read(path).unwrap()), Patience::USUAL)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_token_is_sent_to_a_url_that_is_named_and_to_a_socket_and_not_to_the_usual_port() {
        let nowhere = Path::new("/nonexistent/uvmd.sock");
        for (place, is_told) in [
            (Place::choose(Some("http://127.0.0.1:9477".parse().unwrap()), None), true),
            (Place::choose(None, Some(nowhere.to_owned())), true),
            (Place::usual(nowhere), false),
        ] {
            let client = testing::client(place.clone(), Owners::new(None));
            let request = client.request(&Method::GET, "/api/v1/status").body(()).unwrap();
            let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
            let bearer = format!("Bearer {}", testing::TOKEN);
            assert_eq!(sent, is_told.then_some(bearer.as_str()), "{place}");
        }
    }

    #[test]
    fn whoever_is_refused_at_the_usual_port_is_told_that_the_token_was_not_sent() {
        let client = testing::client(Place::usual(Path::new("/nonexistent/uvmd.sock")), Owners::new(None));
        let error = client.refused(StatusCode::UNAUTHORIZED, r#"{"detail":"send the token"}"#).to_string();
        assert!(
            error.contains("denied the request: send the token (the token in ") && error.contains("was not sent"),
            "{error}"
        );
        assert!(client.remedy().contains("was not sent") && client.remedy().contains("--url"), "{}", client.remedy());
    }
}
