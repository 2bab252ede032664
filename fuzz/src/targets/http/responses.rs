//! Parser of a service's responses.

use serde_json::Value;

/// Maximum of headers of a response.
const HEADERS_MAX: usize = 64;

/// Checks that the bytes are a sequence of responses, each whole and well formed.
pub(super) fn check(mut answered: &[u8], sent: &[u8]) {
    let asks = |word: &[u8]| sent.windows(word.len()).any(|part| part == word);
    while !answered.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(answered).expect("a response is well formed");
        let httparse::Status::Complete(length) = parsed else { panic!("half a head: {answered:?}") };
        let status = response.code.expect("it has a status");
        let header = |name: &str| {
            let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| std::str::from_utf8(header.value).expect("headers are text"))
        };
        let kind = header("content-type").unwrap_or_default();
        assert!((200..600).contains(&status) && status != 500, "status {status}");
        // Hyper's own response to a malformed request has no body.
        let is_hypers = header("content-type").is_none() && header("content-length") == Some("0");
        let mut rest = &answered[length..];
        if status >= 400 && !is_hypers {
            assert_eq!(kind, "application/problem+json", "of status {status}");
        }
        let is_bodiless = matches!(status, 204 | 304) || (asks(b"HEAD ") && (rest.is_empty() || rest.starts_with(b"HTTP/1")));
        if !is_bodiless {
            let (body, is_whole) = if header("transfer-encoding").is_some() {
                chunked(&mut rest)
            } else if let Some(length) = header("content-length") {
                let length: usize = length.parse().expect("a length is a number");
                assert!(rest.len() >= length, "{} of {length} bytes are answered", rest.len());
                let (body, behind) = rest.split_at(length);
                rest = behind;
                (body.to_vec(), true)
            } else {
                (std::mem::take(&mut rest).to_vec(), true)
            };
            check_body(status, kind, &body, is_whole);
        }
        answered = rest;
    }
}

fn check_body(status: u16, kind: &str, body: &[u8], is_whole: bool) {
    // A stream lasts until its connection is closed.
    assert!(is_whole || kind == "text/event-stream", "half a body of {kind}");
    match kind {
        "application/json" => drop(serde_json::from_slice::<Value>(body).expect("JSON is JSON")),
        "application/problem+json" => {
            let problem: Value = serde_json::from_slice(body).expect("a problem is JSON");
            assert_eq!(problem["status"], status);
            assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
        }
        kind if kind.starts_with("text/") => drop(std::str::from_utf8(body).expect("text is UTF-8")),
        _ => {}
    }
}

/// Chunked body, and whether its end was received.
fn chunked(rest: &mut &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let size = match httparse::parse_chunk_size(rest).expect("chunks have sizes") {
            httparse::Status::Complete((behind, size)) => {
                *rest = &rest[behind..];
                usize::try_from(size).expect("it fits into memory")
            }
            httparse::Status::Partial => {
                *rest = &[];
                return (body, false);
            }
        };
        let Some((chunk, behind)) = rest.split_at_checked(size).filter(|(_, behind)| behind.starts_with(b"\r\n")) else {
            *rest = &[];
            return (body, false);
        };
        body.extend_from_slice(chunk);
        *rest = &behind[2..];
        if size == 0 {
            return (body, true);
        }
    }
}
