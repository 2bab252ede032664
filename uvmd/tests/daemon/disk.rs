//! Full and read-only state folder.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{Daemon, Node, privileged};

const BODY: &str = r#"{"match":{"uid":64001},"mode":"shadow","policy":"cycle"}"#;

/// Node whose state folder is a file system of 64 KiB, unmounted on drop.
struct SmallDisk(Node);

impl SmallDisk {
    /// `None` if it cannot be mounted, with a message.
    fn new() -> Option<Self> {
        if !privileged() {
            return None;
        }
        let disk = Self(Node::new());
        fs::create_dir(disk.state()).unwrap();
        let is_mounted = disk.mount(&["-t", "tmpfs", "-o", "size=64k,mode=700", "none"]);
        if !is_mounted {
            println!("skipped: no file system can be mounted");
        }
        is_mounted.then_some(disk)
    }

    fn mount(&self, arguments: &[&str]) -> bool {
        Command::new("mount").args(arguments).arg(self.state()).stderr(Stdio::null()).status().unwrap().success()
    }

    fn state(&self) -> PathBuf {
        self.0.path("state")
    }

    /// Takes all room.
    fn fill(&self) {
        let mut file = fs::File::create(self.state().join("fill")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.state().join("fill")).unwrap();
    }

    /// uvmd that may act.
    fn uvmd(&self) -> Daemon {
        let mut command = self.0.with_socket("127.0.0.1:0");
        command.args(["--set", "policy.enabled=true"]);
        Daemon::spawn(command)
    }

    fn put(&self, id: &str) -> (u16, Value) {
        self.0.ask("PUT", &format!("/api/v1/overrides/{id}"), BODY)
    }

    /// Ids of the overrides whose lines in the audit log are whole.
    fn audited(&self) -> Vec<String> {
        let text = fs::read_to_string(self.state().join("audit.jsonl")).unwrap();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|line| Some(line.get("id")?.as_str()?.to_owned())).collect()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.state()).stderr(Stdio::null()).status();
    }
}

#[test]
fn full_disk_keeps_acting_off_over_restarts_and_spoils_no_later_line_of_the_audit_log() {
    let Some(disk) = SmallDisk::new() else { return };
    let daemon = disk.uvmd();
    assert_eq!(disk.put("before").0, 201);
    disk.fill();
    let (status, body) = disk.put("denied");
    assert_eq!((status, &body["type"]), (507, &json!("/problems/change-not-saved")));
    // Until the last block of the audit log is full too, in the middle of a line.
    let is_unaudited = |number: &u32| disk.put(&format!("denied{number}")).1["type"] == "/problems/change-not-audited";
    assert!((0..50).any(|number| is_unaudited(&number)));
    let text = fs::read_to_string(disk.state().join("audit.jsonl")).unwrap();
    assert!(!text.ends_with('\n'), "the last line is cut");
    assert_eq!(disk.0.ask("POST", "/api/v1/policy/off", "").1["persist_pending"], true);
    daemon.signal("KILL");
    daemon.wait();

    let daemon = disk.uvmd();
    let off = disk.0.get("/api/v1/policy");
    assert_eq!(off["active"], false, "{off}");
    assert_eq!(off["disabled_by"][0]["actor"], "a request whose name a full disk did not save");
    let ids: Vec<Value> = disk.0.get("/api/v1/overrides")["overrides"].as_array().unwrap().clone();
    assert_eq!(ids.iter().map(|each| each["override"]["id"].clone()).collect::<Vec<_>>(), ["before"]);
    disk.free();
    assert_eq!(disk.put("after").0, 201);
    assert!(disk.audited().contains(&"after".to_owned()), "{:?}", disk.audited());
    assert_eq!(disk.0.ask("POST", "/api/v1/policy/on", "").1["active"], true);
    daemon.signal("TERM");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
}

#[test]
fn read_only_disk_prevents_neither_the_start_nor_the_counts() {
    let Some(disk) = SmallDisk::new() else { return };
    let daemon = disk.uvmd();
    assert_eq!(disk.put("before").0, 201);
    daemon.signal("TERM");
    daemon.wait();
    assert!(disk.mount(&["-o", "remount,ro"]));

    let daemon = disk.uvmd();
    let warning = &disk.0.get("/api/v1/status")["warnings"][0];
    assert_eq!(warning["name"], "audit_unavailable", "before the first line");
    assert_eq!(disk.put("after").1["type"], "/problems/change-not-audited");
    assert_eq!(disk.0.ask("DELETE", "/api/v1/overrides/before", "").1["type"], "/problems/change-not-saved");
    let off = disk.0.ask("POST", "/api/v1/policy/off", "").1;
    assert_eq!((&off["active"], &off["persist_pending"]), (&json!(false), &json!(true)));
    let status = disk.0.get("/api/v1/status");
    assert_eq!(status["warnings"][0]["name"], "audit_unavailable");
    assert!(daemon.metrics().contains("\nuvmd_advice_journal_writable 0\n"));
    assert!(disk.mount(&["-o", "remount,rw"]));
    // uvmd has its own mounts. In these, the file system was read-only when uvmd started.
    let mut remount = Command::new("nsenter");
    remount.args(["--mount", "--target", &daemon.pid().to_string(), "mount", "-o", "remount,rw"]).arg(disk.state());
    assert!(remount.status().unwrap().success());
    assert_eq!(disk.put("after").0, 201);
    crate::support::eventually("the journal is written again", || {
        daemon.metrics().contains("\nuvmd_advice_journal_writable 1\n")
    });
    crate::support::eventually("acting is off beyond restarts", || {
        disk.0.get("/api/v1/policy")["persist_pending"] == false
    });
}
