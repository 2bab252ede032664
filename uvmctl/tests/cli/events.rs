//! Streams of events.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    process::{Command, Stdio},
    thread,
};

use api::decision::{Call, CallResult, Event, Outcome, Switched};

use crate::{
    policy::decision,
    support::{run, stderr, uvmctl},
};

const NOW: &str = "2026-11-21T14:00:00.000Z";

/// Serves one event per stream: the first, then the second to a request with the first's id.
fn serve_events(first: &Event, second: &Event) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let texts = [first, second].map(|event| serde_json::to_string(event).unwrap());
    thread::spawn(move || {
        for ((number, text), stream) in (7..).zip(texts).zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            let mut last = None;
            while request.read_line(&mut line).unwrap() > 2 {
                last = line.to_lowercase().trim().strip_prefix("last-event-id: ").map(str::to_owned).or(last);
                line.clear();
            }
            assert_eq!(last.is_some(), number > 7);
            let body = format!(": heartbeat\n\nid: 1-{number}\nevent: x\ndata: {text}\n\n");
            // The client may close the connection at any time.
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{body}");
        }
    });
    url
}

fn confirmed() -> Event {
    Event {
        r#type: "decision_updated".to_owned(),
        time: NOW.to_owned(),
        decision_id: Some(17),
        pid: Some(41_207),
        decision: Some(decision()),
        ..Event::default()
    }
}

fn switched() -> Event {
    Event {
        r#type: "policy_switched".to_owned(),
        time: NOW.to_owned(),
        switched: Some(Switched { active: false, actor: "uid 0 on the socket".to_owned() }),
        ..Event::default()
    }
}

/// First `count` lines of output, and the exit code after an interrupt.
fn followed(url: &str, arguments: &[&str], count: usize) -> (Vec<String>, Option<i32>) {
    let mut child = uvmctl(url).arg("events").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().take(count).map(Result::unwrap).collect();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    (lines, child.wait().unwrap().code())
}

#[test]
fn events_continue_over_the_end_of_a_stream_until_interrupted() {
    let (lines, code) = followed(&serve_events(&confirmed(), &switched()), &[], 2);
    let expected = [
        "14:00:00.000 41207 decision 17: cycle confirmed (link -55 %): it walks 96 MiB again and again",
        "14:00:00.000 acting is switched off by uid 0 on the socket",
    ];
    assert_eq!((lines.as_slice(), code), (expected.map(str::to_owned).as_slice(), Some(0)));
}

#[test]
fn json_has_one_line_per_selected_event() {
    let url = serve_events(&confirmed(), &switched());
    let (lines, _) = followed(&url, &["-o", "json", "--type", "policy_switched"], 1);
    assert_eq!(serde_json::from_str::<Event>(&lines[0]).unwrap(), switched());
}

#[test]
fn touches_are_shown_on_request() {
    let call = |action: &str| Call {
        action: action.to_owned(),
        result: CallResult { result: "done".to_owned(), ..CallResult::default() },
        count: 12,
        ..Call::default()
    };
    let applied = |calls| Event {
        r#type: "decision_applied".to_owned(),
        time: NOW.to_owned(),
        outcome: Some(Outcome { calls, ..Outcome::default() }),
        ..Event::default()
    };
    let events = || serve_events(&applied(vec![call("touch")]), &applied(vec![call("touch"), call("migrate_to_gpu")]));
    let line = |arguments: &[&str]| followed(&events(), arguments, 1).0.remove(0);
    assert_eq!(line(&[]), "14:00:00.000 touch done x12, migrate to gpu done x12");
    assert_eq!(line(&["--verbose"]), "14:00:00.000 touch done x12");
    assert_eq!(line(&["--type", "decision_applied"]), "14:00:00.000 touch done x12");
}

#[test]
fn options_for_lists_do_not_apply_to_a_stream() {
    for arguments in [&["--watch"][..], &["--sort-by", "pid"], &["--no-headers"], &["-o", "name"], &["--type", "x"]] {
        let output = run("http://192.0.2.1:1", &[&["events"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
}
