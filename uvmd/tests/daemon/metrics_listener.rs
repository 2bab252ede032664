//! Listener for metrics alone: its address, and its passwords, which a reload replaces.

use std::{
    fs::{self, Permissions},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
};

use serde_json::json;

use crate::support::{Daemon, Node, eventually, http, privileged};

/// `a:secret`.
const RIGHT: &str = "Authorization: Basic YTpzZWNyZXQ=\r\n";
/// Hash of `secret`.
const SECRET: &str = "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
/// Hash of `other`.
const OTHER: &str = "$2b$04$abcdefghijklmnopqrstuu0HtfOlPbTiymk5tcV.3TsFPDd3SYZqu";

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
