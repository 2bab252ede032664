//! Who may ask, and what a browser may do with the answer.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version, header, uri::Authority},
    middleware::Next,
    response::Response,
};

use crate::problem::Problem;

/// Which `Host` a request may be addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRule {
    /// Served beyond this machine: how clients name it is not ours to know.
    Any,
    /// Served on loopback: a name that a foreign site made point here is refused.
    Loopback,
}

impl HostRule {
    pub(crate) fn for_listener(listen: SocketAddr) -> Self {
        if listen.ip().is_loopback() { Self::Loopback } else { Self::Any }
    }

    /// Any port is fine: tunnels forward from others.
    fn allows(self, authority: &Authority) -> bool {
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        self == Self::Any || name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip| ip.is_loopback())
    }
}

pub(crate) async fn check_host(
    State(rule): State<HostRule>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    match requested_host(request.uri(), request.headers())? {
        Some(host) if !rule.allows(&host) => {
            let detail =
                format!("this service answers on loopback only, as 127.0.0.1, [::1] or localhost, not as {host}");
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail))
        }
        // HTTP/1.0 has no Host, and no browser speaks it.
        None if request.version() != Version::HTTP_10 => Err(bad_host("the request names no Host")),
        _ => Ok(next.run(request).await),
    }
}

/// Lets no page of another site change anything through a visitor's browser: browsers name the site of whatever is not merely read, and a program
/// that is no browser names none.
pub(crate) async fn check_origin(request: Request, next: Next) -> Result<Response, Problem> {
    if request.method().is_safe() {
        return Ok(next.run(request).await);
    }
    let headers = request.headers();
    let host = requested_host(request.uri(), headers)?;
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_own = |origin: &HeaderValue| {
        let site = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let authority = site.and_then(|(_, authority)| authority.parse::<Authority>().ok());
        authority.is_some() && authority == host
    };
    let from_elsewhere = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if from_elsewhere || !origins.all(is_own) {
        let detail =
            "a page of another site asked for this, through a visitor's browser: only uvmd's own may change things";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail.to_owned()));
    }
    Ok(next.run(request).await)
}

/// RFC 9112, 3.2: exactly one `Host`, and a proper one; a target with a host of its own wins.
fn requested_host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad_host("the request names more than one Host"));
    }
    let host = host.map(|host| Authority::try_from(host.as_bytes())).transpose();
    let host = host.map_err(|_| bad_host("the request's Host is not HOST or HOST:PORT"))?;
    Ok(uri.authority().cloned().or(host))
}

fn bad_host(detail: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail.to_owned())
}

/// The page loads only what this service serves, runs in no frame, and nothing is kept in a cache.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

pub(crate) async fn set_headers(mut response: Response) -> Response {
    response.headers_mut().extend(HEADERS);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rule: HostRule, host: &str) -> bool {
        rule.allows(&host.parse().unwrap())
    }

    #[test]
    fn on_loopback_only_loopback_names_are_answered() {
        for host in ["127.0.0.1:9477", "127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:9477", "127.8.8.8"] {
            assert!(allows(HostRule::Loopback, host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]"] {
            assert!(!allows(HostRule::Loopback, host), "{host}");
        }
    }

    #[test]
    fn beyond_loopback_any_name_is_answered() {
        let listen: SocketAddr = "0.0.0.0:9477".parse().unwrap();
        assert!(allows(HostRule::for_listener(listen), "gpu-17.cluster:9477"));
        assert_eq!(HostRule::for_listener("[::1]:9477".parse().unwrap()), HostRule::Loopback);
    }
}
