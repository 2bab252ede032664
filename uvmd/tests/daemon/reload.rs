//! SIGHUP: the files are read again, and take effect completely or not at all.

use std::{
    fs::{self, Permissions},
    io::Write,
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    path::PathBuf,
    process::{self, Command},
};

use serde_json::{Value, json};

use crate::support::{Daemon, Node, TIMEOUT, eventually, http, privileged};

const TOKEN: &str = "0123456789abcdef";
/// Bit of the signal in the masks of /proc.
const SIGHUP: u64 = 1;

/// Writes a configuration with these texts; `[policy]` comes last.
fn configure(node: &Node, top: &str, policy: &str) {
    fs::write(node.path("uvmd.toml"), format!("listen = \"127.0.0.1:0\"\n{top}\n[policy]\n{policy}\n")).unwrap();
}

/// Writes a fragment of the configuration or of the overrides.
fn fragment(node: &Node, path: &str, text: &str) {
    let path = node.path(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
}

fn command(node: &Node) -> Command {
    node.configured(&node.path("uvmd.toml"))
}

fn start(node: &Node) -> Daemon {
    Daemon::spawn(command(node))
}

fn token_file(node: &Node, name: &str) -> String {
    format!("auth.token_file = {:?}", node.write_token(name, TOKEN))
}

fn configuration(daemon: &Daemon) -> Value {
    daemon.json("/api/v1/status")["configuration"].clone()
}

/// Status of a response to a request with the token.
fn status_with_token(daemon: &Daemon) -> u16 {
    http(daemon.connect(), "GET", "/api/v1/status", &format!("Authorization: Bearer {TOKEN}\r\n"), "").status
}

#[test]
fn reload_applies_options_and_names_those_that_need_a_restart() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "hostname = \"old\"", "mode = \"observe\"");
    let mut daemon = start(&node);
    assert_eq!(
        (daemon.json("/api/v1/policy")["default_mode"].clone(), status_with_token(&daemon)),
        (json!("observe"), 401)
    );
    let token = token_file(&node, "token");
    configure(
        &node,
        &format!("hostname = \"new\"\nlog.filter = \"debug\"\nmetrics.per_process = true\n{token}"),
        "mode = \"shadow\"",
    );
    fs::write(node.path("overrides.toml"), "[[override]]\nid = \"a\"\nmode = \"shadow\"\n").unwrap();
    daemon.signal("HUP");
    let line = daemon.read_until("reloaded ");
    for key in ["auth.token_file", "log.filter", "metrics.per_process", "policy.mode"] {
        assert!(line.contains(key), "{key}: {line}");
    }
    assert!(!line.contains("hostname"), "{line}");
    assert!(daemon.read_until("needs a restart: ").trim_end().ends_with("needs a restart: hostname"));
    assert_eq!(
        (daemon.json("/api/v1/policy")["default_mode"].clone(), status_with_token(&daemon)),
        (json!("shadow"), 200)
    );
    assert_eq!(daemon.json("/api/v1/overrides")["overrides"][0]["override"]["id"], "a");
    let status = daemon.json("/api/v1/status");
    assert_eq!(
        (&status["hostname"], &status["configuration"]["restart_required"]),
        (&json!("old"), &json!(["hostname"]))
    );
    // No further changes, and the restart is still pending.
    daemon.signal("HUP");
    assert!(daemon.read_until("reloaded ").contains("no option changed"));
    daemon.read_until("needs a restart: hostname");
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success() && log.contains("stopping on SIGTERM"), "{log}");
}

#[test]
fn one_invalid_file_rejects_the_whole_reload() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let token = token_file(&node, "token");
    configure(&node, &token, "mode = \"observe\"");
    let mut daemon = start(&node);
    let first = configuration(&daemon)["last_reload_success_at"].clone();
    let etag = configuration(&daemon)["etag"].clone();
    let overrides = "[[override]]\nid = \"a\"\nmode = \"shadow\"\n";
    let other_token = token_file(&node, "other-token").replace("auth.token_file", "auth.write_token_file");
    let good = || {
        configure(&node, &format!("log.filter = \"debug\"\n{token}\n{other_token}"), "mode = \"shadow\"");
        fs::write(node.path("overrides.toml"), overrides).unwrap();
        fs::set_permissions(node.path("other-token"), Permissions::from_mode(0o600)).unwrap();
    };
    let configuration_is_wrong = || configure(&node, "log.filter = \"loud\"", "mode = \"shadow\"");
    let overrides_are_wrong = || fs::write(node.path("overrides.toml"), "[[override]]\nmode = \"on\"\n").unwrap();
    let token_is_open = || fs::set_permissions(node.path("other-token"), Permissions::from_mode(0o644)).unwrap();
    let fragment_is_wrong = || fragment(&node, "conf.d/a.toml", "\nlog.filter = \"loud\"\n");
    let id_is_there_twice = || fragment(&node, "overrides.d/a.toml", overrides);
    let breaks: [(&dyn Fn(), &str); 5] = [
        (&configuration_is_wrong, "uvmd.toml:2: log.filter: invalid value"),
        (&overrides_are_wrong, "overrides.toml:"),
        (&token_is_open, "mode 644"),
        (&fragment_is_wrong, "conf.d/a.toml:2: log.filter: invalid value"),
        (&id_is_there_twice, "overrides.d/a.toml:2: override.id: "),
    ];
    for (break_it, message) in breaks {
        // Two checks of the overrides would apply them before this, without a signal.
        for file in ["overrides.toml", "overrides.d/a.toml", "conf.d/a.toml"] {
            fs::remove_file(node.path(file)).ok();
        }
        good();
        break_it();
        daemon.signal("HUP");
        let line = daemon.read_until("not reloaded");
        assert!(line.contains("ERROR") && line.contains(message), "{line}");
        let status = daemon.json("/api/v1/status");
        assert_eq!(daemon.json("/api/v1/policy")["default_mode"], "observe", "{message}");
        assert_eq!(
            (&status["configuration"]["last_reload_successful"], &status["configuration"]["last_reload_success_at"]),
            (&json!(false), &first)
        );
        assert_eq!(status["configuration"]["etag"], etag);
        assert!(status["configuration"]["error"].as_str().unwrap().contains(message), "{status}");
        assert_eq!(status["warnings"][0]["name"], "configuration_not_reloaded");
        assert!(daemon.metrics().contains("\nuvmd_config_last_reload_successful 0\n"));
    }
    fs::remove_file(node.path("overrides.d/a.toml")).unwrap();
    good();
    daemon.signal("HUP");
    daemon.read_until("reloaded ");
    eventually("it is told", || configuration(&daemon)["last_reload_successful"] == true);
    assert_eq!(
        (configuration(&daemon)["error"].clone(), daemon.json("/api/v1/status")["warnings"].clone()),
        (json!(null), json!([]))
    );
    assert_eq!(daemon.json("/api/v1/policy")["default_mode"], "shadow");
    assert_ne!(configuration(&daemon)["etag"], etag, "another configuration is in effect");
}

#[test]
fn fragments_take_part_in_a_reload() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "", "mode = \"observe\"");
    let mut daemon = start(&node);
    fragment(&node, "conf.d/10-site.toml", "policy.mode = \"shadow\"\n");
    fragment(&node, "overrides.d/b.json", "[{\"id\": \"b\", \"mode\": \"shadow\"}]");
    daemon.signal("HUP");
    let line = daemon.read_until("reloaded ");
    assert!(line.contains("conf.d/10-site.toml: policy.mode changed"), "{line}");
    assert_eq!(daemon.json("/api/v1/policy")["default_mode"], "shadow");
    assert_eq!(daemon.json("/api/v1/overrides")["overrides"][0]["override"]["id"], "b");
    // Without a signal.
    fragment(&node, "overrides.d/c.toml", "[[override]]\nid = \"c\"\nmode = \"shadow\"\n");
    let ids = || daemon.json("/api/v1/overrides")["overrides"].as_array().unwrap().len();
    eventually("the fragment is in effect", || ids() == 2);
    fs::remove_file(node.path("overrides.d/b.json")).unwrap();
    eventually("the other is not any more", || ids() == 1);
}

#[test]
fn early_sighup_is_pending_and_a_late_one_is_harmless() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "", "");
    let text = fs::read_to_string(node.path("uvmd.toml")).unwrap();
    // It waits for its configuration until there is a writer.
    fs::remove_file(node.path("uvmd.toml")).unwrap();
    assert!(Command::new("mkfifo").arg(node.path("uvmd.toml")).status().unwrap().success());
    let mut command = command(&node);
    let child = command.stderr(process::Stdio::piped()).spawn().unwrap();
    eventually("it handles SIGHUP", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & SIGHUP != 0
    });
    assert!(Command::new("kill").args(["-s", "HUP", &child.id().to_string()]).status().unwrap().success());
    fs::write(node.path("uvmd.toml"), &text).unwrap();
    fs::remove_file(node.path("uvmd.toml")).unwrap();
    fs::write(node.path("uvmd.toml"), &text).unwrap();
    let mut daemon = Daemon::of(child);
    assert!(daemon.read_until("reloaded ").contains("no option changed"));

    let mut unfinished = TcpStream::connect(&daemon.address).unwrap();
    unfinished.write_all(b"GET /livez HTT").unwrap();
    // Accepted after the connection before it, which is therefore being served.
    assert_eq!(daemon.get("/livez").0, 200);
    daemon.signal("TERM");
    // The connection delays it for a moment.
    daemon.read_until("stopping on SIGTERM");
    daemon.signal("HUP");
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("INFO uvmd::service::reload"), "{log}");
}

#[test]
fn log_is_reopened_despite_invalid_files() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    let (log, old) = (node.path("uvmd.log"), node.path("uvmd.log.1"));
    configure(&node, &format!("log.file = {log:?}"), "");
    let mut command = command(&node);
    let mut child = command.stderr(process::Stdio::piped()).spawn().unwrap();
    let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
    eventually("it serves", || read(&log).contains("serves on http://"));
    fs::rename(&log, &old).unwrap();
    fs::write(node.path("uvmd.toml"), "nonsense").unwrap();
    assert!(Command::new("kill").args(["-s", "HUP", &child.id().to_string()]).status().unwrap().success());
    eventually("the new file says so", || read(&log).contains("not reloaded"));
    assert!(!read(&old).contains("not reloaded"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn systemd_is_notified_of_a_reload() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "", "");
    let socket = UnixDatagram::bind(node.path("notify")).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = command(&node);
    command.env("NOTIFY_SOCKET", node.path("notify"));
    let daemon = Daemon::spawn(command);
    let receive = || {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    // Status messages come with snapshots, in between.
    let mut statuses = Vec::new();
    let mut next = || loop {
        match receive() {
            status if status.starts_with("STATUS=") => statuses.push(status),
            message => break message,
        }
    };
    assert_eq!(next(), "READY=1\n");
    daemon.signal("HUP");
    let begun = next();
    let time = begun.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap_or_else(|| panic!("{begun}"));
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let seconds = time.trim_end().parse::<u64>().unwrap() as f64 / 1e6;
    // Without suspended time.
    assert!(seconds > 0.0 && seconds <= uptime + 1.0, "{seconds} of {uptime}");
    assert_eq!(next(), "READY=1\n");
    fs::write(node.path("uvmd.toml"), "nonsense").unwrap();
    daemon.signal("HUP");
    assert!(next().starts_with("RELOADING=1\n"));
    assert_eq!(next(), "READY=1\n");
    assert!(statuses.iter().all(|status| !status.contains("not reloaded")), "{statuses:?}");
    let status = receive();
    assert!(status.starts_with("STATUS=") && status.contains("; not reloaded: "), "{status}");
    assert_eq!(status.lines().count(), 1, "{status}");
}

#[test]
fn slow_file_changes_nothing_and_is_read_by_one_thread() {
    if !privileged() {
        return;
    }
    let node = Node::new();
    configure(&node, "", "");
    let text = fs::read_to_string(node.path("uvmd.toml")).unwrap();
    let mut daemon = start(&node);
    fs::remove_file(node.path("uvmd.toml")).unwrap();
    assert!(Command::new("mkfifo").arg(node.path("uvmd.toml")).status().unwrap().success());
    daemon.signal("HUP");
    daemon.read_until("the files could not be read within 10 s");
    daemon.signal("HUP");
    daemon.read_until("still being read since the last SIGHUP");
    assert_eq!(daemon.get("/livez").0, 200);
    // Once the disk recovers, the next file is read.
    fs::write(node.path("uvmd.toml"), &text).unwrap();
    fs::remove_file(node.path("uvmd.toml")).unwrap();
    fs::write(node.path("uvmd.toml"), &text).unwrap();
    eventually("it is reloaded", || {
        daemon.signal("HUP");
        configuration(&daemon)["last_reload_successful"] == true
    });
    daemon.signal("TERM");
    assert!(daemon.wait().0.success());
}
