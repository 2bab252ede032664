//! Asks the daemon.

mod place;
mod token;
mod unix;

use std::{
    io::{self, BufRead, BufReader},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
pub(crate) use place::{BaseUrl, Place};
use serde::{Deserialize, de::DeserializeOwned};
use token::TokenFile;
use ureq::{
    Agent,
    http::{Method, Request, StatusCode, header, request},
    unversioned::resolver::DefaultResolver,
};

use crate::text;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Thousands of processes are a few MiB.
const LONGEST_ANSWER_BYTES: u64 = 64 << 20;

/// Where to ask, and as whom.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Where uvmd serves over TCP [default: the socket if it may be opened, else port 9477 of 127.0.0.1]
    #[arg(long, global = true, value_name = "URL", env = "UVMD_URL")]
    url: Option<BaseUrl>,

    /// The Unix socket on which uvmd serves; wins over a URL
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// A file with a token that gives authority to read everything, or to change things as well
    #[arg(long, global = true, value_name = "FILE", env = "UVMD_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot reach uvmd at {place}: {reason}. Is it running there? Name another place with --url or UVMD_URL")]
    Unreachable { place: Place, reason: String },
    #[error("uvmd at {place} cannot answer: {detail}")]
    Refused { place: Place, detail: String },
    #[error("uvmd at {place} refuses: {detail}{remark}")]
    NoAuthority { place: Place, detail: String, remark: String },
    #[error("{place} does not answer as uvmd does: {reason}")]
    Foreign { place: Place, reason: String },
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

pub(crate) struct Client {
    agent: Agent,
    place: Place,
    token: Option<TokenFile>,
}

impl Client {
    /// Chooses where to ask. Fails only if there is a token file that holds no token.
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        let Options { url, socket, token_file } = options;
        let place = Place::choose(url, socket);
        let token = token_file.map(TokenFile::read).transpose()?;
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The daemon is on this node, or at the end of a tunnel: never behind the proxy that the environment names for the Internet.
            .proxy(None)
            .build();
        let agent = match &place {
            Place::Socket(path) => Agent::with_parts(config, unix::Connector::to(path), DefaultResolver::default()),
            Place::Url { .. } => config.into(),
        };
        Ok(Self { agent, place, token })
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Error> {
        let json = self.ask(&Method::GET, path, None)?;
        match serde_json::from_str(&json) {
            Ok(body) => Ok(Answer { body, json }),
            Err(error) => Err(self.foreign(unexpected(&error))),
        }
    }

    /// Changes something, with a body if there is one, and returns the answer's.
    pub(crate) fn change(&self, method: &Method, path: &str, body: Option<String>) -> Result<String, Error> {
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
            Some(token) => request.header(header::AUTHORIZATION, token.bearer()),
            None => request,
        }
    }

    fn ask(&self, method: &Method, path: &str, body: Option<String>) -> Result<String, Error> {
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
        if response.status().is_success() { Ok(json) } else { Err(self.refused(response.status(), &json)) }
    }

    /// How to be told what not everybody is told.
    pub(crate) fn remedy(&self) -> String {
        match (&self.place, &self.token) {
            (_, Some(token)) => format!("the token in {} is not uvmd's", token.path().display()),
            (Place::Socket(path), None) => format!(
                "{} tells it to root and to the group that uvmd's configuration names; or name uvmd's token with --token-file",
                path.display()
            ),
            (Place::Url { shut_socket: Some(path), .. }, None) => format!(
                "{} may not be opened by you: run this as root or as a member of its group, or name uvmd's token with --token-file",
                path.display()
            ),
            (Place::Url { .. }, None) => {
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
                    (_, Some(token)) => format!(" ({})", token.path().display()),
                    (Place::Url { shut_socket: Some(path), .. }, None) => {
                        format!(" ({} may not be opened by you)", path.display())
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
            ureq::Error::Io(error) => sys::reason(&error),
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            ureq::Error::ConnectionFailed => "no connection".to_owned(),
            ureq::Error::Timeout(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
            other => return self.foreign(text::printable(&other.to_string()).into_owned()),
        };
        Error::Unreachable { place: self.place.clone(), reason }
    }

    fn foreign(&self, reason: String) -> Error {
        Error::Foreign { place: self.place.clone(), reason }
    }
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
