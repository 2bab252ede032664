//! Listener for metrics alone: its address, and its passwords, which a reload replaces.

use std::{
    fs::{self, Permissions},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::json;

use crate::support::{Daemon, Node, eventually, http, privileged};

/// `a:secret`.
const RIGHT: &str = "Authorization: Basic YTpzZWNyZXQ=\r\n";
/// Hash of `secret`.
const SECRET: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
/// Hash of `other`.
const OTHER: &str = "$2b$04$abcdefghijklmnopqrstuu0HtfOlPbTiymk5tcV.3TsFPDd3SYZqu";
/// `a:other`.
const RIGHT_OTHER: &str = "Authorization: Basic YTpvdGhlcg==\r\n";
/// Hashes of `secret` and `other` whose verification takes a while.
const SLOW_SECRET: &str = "$2b$06$abcdefghijklmnopqrstuuxLa0AkDDSrQ9VwNnETzOsObiucpMYgC";
const SLOW_OTHER: &str = "$2b$06$abcdefghijklmnopqrstuu6FttqYLNXdPO90XO7YlC0uHRd1WxOhm";

fn configure(node: &Node, top: &str) {
    let web = node.path("web.yml");
    let text =
        format!("listen = \"127.0.0.1:0\"\n{top}\n[metrics]\nlisten = \"127.0.0.1:0\"\nweb_config_file = {web:?}\n");
    fs::write(node.path("uvmd.toml"), text).unwrap();
}

fn passwords(node: &Node, hash: &str, mode: u32) {
    fs::write(node.path("web.yml"), format!("basic_auth_users:\n  a: {hash}\n")).unwrap();
    fs::set_permissions(node.path("web.yml"), Permissions::from_mode(mode)).unwrap();
}

/// Status of a scrape from this address; `None` if uvmd closed the connection.
fn scrape(from: Ipv4Addr, to: SocketAddrV4, headers: &str) -> Option<u16> {
    let try_scrape = || -> io::Result<String> {
        let client = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&client, &SocketAddrV4::new(from, 0))?;
        connect(&client, &to)?;
        let mut stream = TcpStream::from(client);
        stream.write_all(format!("GET /metrics HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    try_scrape().ok()?.split(' ').nth(1)?.parse().ok()
}

/// Tries one password after another from this address.
fn guess(from: Ipv4Addr, to: SocketAddrV4, is_over: &AtomicBool) {
    for number in 0_u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // `a:x` and six more bytes.
        scrape(from, to, &format!("Authorization: Basic YTp4{number:08}\r\n"));
    }
}

#[test]
fn passwords_are_read_again_at_a_reload_as_a_whole_or_not_at_all() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "");
    passwords(&node, SECRET, 0o600);
    let mut daemon = Daemon::spawn(node.configured(&node.path("uvmd.toml")));
    let line = daemon.read_until("serves metrics alone on ");
    let address = line.trim_end().split("http://").nth(1).unwrap().trim_end_matches("/metrics").to_owned();
    let get = |path: &str, headers: &str| http(TcpStream::connect(&address).unwrap(), "GET", path, headers, "");
    assert_eq!((get("/metrics", "").status, get("/metrics", RIGHT).status), (401, 200));
    assert_eq!(get("/api/v1/status", RIGHT).status, 404);

    passwords(&node, OTHER, 0o644);
    daemon.signal("HUP");
    assert!(daemon.read_until("not reloaded").contains("metrics.web_config_file: "));
    assert_eq!(get("/metrics", RIGHT).status, 200, "the earlier ones are in effect");
    let status = daemon.json("/api/v1/status");
    assert_eq!(status["configuration"]["last_reload_successful"], json!(false));

    passwords(&node, OTHER, 0o600);
    daemon.signal("HUP");
    daemon.read_until("reloaded ");
    assert_eq!(get("/metrics", RIGHT).status, 401);

    let text = fs::read_to_string(node.path("uvmd.toml")).unwrap();
    fs::write(node.path("uvmd.toml"), text.replace("[metrics]\nlisten = \"127.0.0.1:0\"", "[metrics]")).unwrap();
    daemon.signal("HUP");
    assert!(daemon.read_until("needs a restart: ").trim_end().ends_with("needs a restart: metrics.listen"));
}

#[test]
fn scraper_is_served_across_reloads_while_eight_addresses_guess_passwords() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "");
    passwords(&node, SLOW_SECRET, 0o600);
    let mut daemon = Daemon::spawn(node.configured(&node.path("uvmd.toml")));
    let line = daemon.read_until("serves metrics alone on ");
    let address = line.trim_end().split("http://").nth(1).unwrap().trim_end_matches("/metrics");
    let address: SocketAddrV4 = address.parse().unwrap();
    let scrape = |headers| scrape(Ipv4Addr::LOCALHOST, address, headers);
    assert_eq!(scrape(RIGHT), Some(200));
    let failures = |daemon: &Daemon| {
        let metrics = daemon.metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix("uvmd_auth_failures_total "));
        line.unwrap().parse::<f64>().unwrap()
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|threads| {
        for client in 0..24_u8 {
            let (from, is_over) = (Ipv4Addr::new(127, 0, 0, 2 + client % 8), &is_over);
            threads.spawn(move || guess(from, address, is_over));
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("passwords are guessed", || failures(&daemon) >= 3.0);
            daemon.signal("HUP");
            daemon.read_until("reloaded ");
            let statuses: Vec<_> = (0..10).map(|_| scrape(RIGHT)).collect();
            assert_eq!(statuses, [Some(200); 10], "a password with an unchanged hash needs no verification");

            passwords(&node, SLOW_OTHER, 0o600);
            daemon.signal("HUP");
            daemon.read_until("reloaded ");
            // Clients that guess were first. A scrape that is refused keeps its position.
            eventually("the new password is verified", || scrape(RIGHT_OTHER) == Some(200));
            assert_eq!(scrape(RIGHT_OTHER), Some(200));
            let before = failures(&daemon);
            eventually("passwords are still guessed", || failures(&daemon) > before);
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn occupied_address_is_served_once_it_is_free_and_the_rest_at_once() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut command = node.listening_on("127.0.0.1:0");
    command.args(["--set", &format!("metrics.listen={address}")]);
    let daemon = Daemon::spawn(command);
    let warnings = || daemon.json("/api/v1/status")["warnings"].clone();
    eventually("it is warned of", || warnings()[0]["name"] == "metrics_listener_unavailable");
    let message = warnings()[0]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("choose with metrics.listen; everything else is served"), "{message}");
    drop(taken);
    eventually("it is served", || TcpStream::connect(address).is_ok());
    eventually("the warning ends", || warnings() == json!([]));
    assert_eq!(http(TcpStream::connect(address).unwrap(), "GET", "/metrics", "", "").status, 200);
}
