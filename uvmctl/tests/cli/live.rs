//! Live view on a terminal made by script(1).

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::support::{busy, nothing, run, serve_snapshot, stderr, stdout};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Sequences that enter and leave the alternate screen.
const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";

/// Shell on a terminal that runs the view.
struct Terminal {
    script: Child,
    output: Arc<Mutex<String>>,
}

impl Terminal {
    /// Starts the view on a terminal of 80 by 24. After its exit, the shell prints the exit code
    /// and the terminal's modes.
    fn with_top(url: &str) -> Self {
        let top = format!("{} --url {url} top --interval 0.1", env!("CARGO_BIN_EXE_uvmctl"));
        let command = format!(
            "stty rows 24 cols 80; echo tty=$(tty).; {top} </dev/tty & pid=$!; echo pid=$pid.; wait $pid; echo rc=$?.; stty -a; echo end."
        );
        let mut script = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("TERM", "xterm")
            .env("LC_ALL", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let (shown, mut pipe) = (Arc::clone(&output), script.stdout.take().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { script, output }
    }

    fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits until the output has `text` `times` times.
    fn wait_for(&self, text: &str, times: usize) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let output = self.output();
            if output.matches(text).count() >= times {
                return output;
            }
            assert!(Instant::now() < deadline, "no {text:?} in {output:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().unwrap();
        stdin.write_all(keys.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Value that the shell printed after `name`.
    fn shell_value(&self, name: &str) -> String {
        let output = self.wait_for(name, 1);
        let (_, rest) = output.split_once(name).unwrap();
        rest.split('.').next().unwrap().to_owned()
    }

    fn pid(&self) -> String {
        self.shell_value("pid=")
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.pid()]).status().unwrap().success());
    }

    /// State of the process, by the letter of ps.
    fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    }

    fn wait_for_state(&self, state: char) {
        let deadline = Instant::now() + TIMEOUT;
        while self.state() != state {
            assert!(Instant::now() < deadline, "it is {}", self.state());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asserts that the view exits with this code and restores the terminal.
    fn assert_clean_end(&self, code: i32) {
        let output = self.wait_for("end.", 1);
        assert!(output.contains(&format!("rc={code}.")), "{output:?}");
        assert_restored(&output);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn assert_restored(output: &str) {
    let after = output.rsplit(LEFT).next().unwrap();
    assert!(output.contains(ENTERED) && output.contains(LEFT) && !after.contains(ENTERED), "{output:?}");
    assert!(after.contains("\u{1b}[?25h"), "the cursor is hidden: {after:?}");
    for mode in ["icanon", "echo", "isig", "opost", "icrnl"] {
        let is_set = after.split([' ', ';', '\r', '\n']).any(|word| word == mode);
        assert!(is_set, "{mode} is not set: {after:?}");
    }
}

#[test]
fn it_shows_processes_and_quits_by_q_f10_and_ctrl_c() {
    let url = serve_snapshot(busy());
    for quit in ["q", "\u{1b}[21~", "\u{3}"] {
        let mut terminal = Terminal::with_top(&url);
        let output = terminal.wait_for("41207", 1);
        assert!(output.contains(&format!("connecting to {url} ...")), "{output:?}");
        assert!(output.contains("gpu-17") && output.contains("H200"), "{output:?}");
        terminal.press(quit);
        terminal.assert_clean_end(0);
    }
}

#[test]
fn signals_end_the_view_and_restore_the_terminal() {
    let url = serve_snapshot(busy());
    for (signal, code) in [("-TERM", 143), ("-HUP", 129), ("-INT", 130), ("-QUIT", 131)] {
        let terminal = Terminal::with_top(&url);
        terminal.wait_for("41207", 1);
        terminal.signal(signal);
        terminal.assert_clean_end(code);
    }
}

#[test]
fn suspension_restores_the_terminal_and_continuation_enters_it_again() {
    let url = serve_snapshot(busy());
    let mut terminal = Terminal::with_top(&url);
    terminal.wait_for("41207", 1);
    terminal.press("\u{1a}");
    terminal.wait_for_state('T');
    terminal.wait_for(LEFT, 1);
    terminal.signal("-CONT");
    let again = terminal.wait_for(ENTERED, 2);
    assert!(!again.rsplit(LEFT).next().unwrap().contains("\u{1b}[?25h\u{1b}[?25h"));
    terminal.wait_for("41207", 2);
    terminal.press("q");
    terminal.assert_clean_end(0);
}

#[test]
fn continuation_after_sigstop_redraws_everything() {
    let url = serve_snapshot(busy());
    let mut terminal = Terminal::with_top(&url);
    terminal.wait_for("41207", 1);
    terminal.signal("-STOP");
    terminal.wait_for_state('T');
    terminal.signal("-CONT");
    terminal.wait_for("41207", 2);
    terminal.press("q");
    terminal.assert_clean_end(0);
}

#[test]
fn the_view_ends_with_its_terminal() {
    let url = serve_snapshot(busy());
    let mut terminal = Terminal::with_top(&url);
    terminal.wait_for("41207", 1);
    let process = format!("/proc/{}", terminal.pid());
    terminal.script.kill().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while std::path::Path::new(&process).exists() {
        assert!(Instant::now() < deadline, "it goes on");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_view_follows_the_size_of_its_terminal() {
    let url = serve_snapshot(busy());
    let mut terminal = Terminal::with_top(&url);
    terminal.wait_for("41207", 1);
    assert!(!terminal.output().contains("BATCHP99"));
    let device = terminal.shell_value("tty=");
    let resized = Command::new("stty").args(["-F", &device, "rows", "50", "cols", "200"]).status().unwrap();
    assert!(resized.success());
    terminal.wait_for("BATCHP99", 1);
    terminal.wait_for("\u{1b}[50;1H", 1);
    terminal.press("q");
    terminal.assert_clean_end(0);
}

#[test]
fn keys_act_by_focus() {
    let url = serve_snapshot(busy());
    let mut terminal = Terminal::with_top(&url);
    terminal.wait_for("41207", 1);
    terminal.press("?");
    terminal.wait_for("select a process", 1);
    terminal.press("q");
    terminal.press("/idle\r");
    terminal.wait_for(">    512 idle", 1);
    // Ctrl-L forces a full redraw; unchanged cells would not be sent otherwise.
    terminal.press("\\nobody\u{c}");
    terminal.wait_for("match;", 1);
    terminal.wait_for("nobody_", 1);
    terminal.press("\u{3}");
    terminal.assert_clean_end(0);
}

#[test]
fn unchanged_frames_send_few_bytes() {
    let url = serve_snapshot(busy());
    let mut terminal = Terminal::with_top(&url);
    terminal.wait_for("41207", 1);
    // Waits until the output of the start has settled, even on a slow machine.
    let deadline = Instant::now() + TIMEOUT;
    let mut sent = 0;
    while !(1..50 * 15).contains(&sent) && Instant::now() < deadline {
        let before = terminal.output().len();
        thread::sleep(Duration::from_secs(1));
        sent = terminal.output().len() - before;
    }
    assert!((1..50 * 15).contains(&sent), "{sent} bytes in 10 frames");
    terminal.press("q");
    terminal.assert_clean_end(0);
}

#[test]
fn without_a_daemon_the_terminal_is_unchanged() {
    let terminal = Terminal::with_top(&format!("http://{}", nothing()));
    let output = terminal.wait_for("end.", 1);
    assert!(output.contains("rc=3.") && output.contains("connection refused"), "{output:?}");
    assert!(!output.contains(ENTERED), "{output:?}");
}

// === plain frames ===

#[test]
fn without_a_terminal_plain_frames_are_printed() {
    let url = serve_snapshot(busy());
    let output = run(&url, &["top", "--once", "--totals"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.starts_with("gpu-17  drops 0  driver 550.163.01 (550-555)  acting: off  counts for 4 min 12 s"),
        "{text}"
    );
    assert!(text.contains("41207 python train.py") && text.contains("18.4k") && !text.contains("nbody"), "{text}");
    assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text}");
    let two = stdout(&run(&url, &["top", "--batch", "2", "--interval", "0.1", "--all", "--sort", "pid"]));
    let pids: Vec<_> = ["    512 idle", "  41207 python", "      9 nbody"].map(|row| two.find(row).unwrap()).into();
    assert!(pids.is_sorted(), "{two}");
    assert_eq!(two.matches("gpu-17").count(), 2, "{two}");
}

#[test]
fn frames_end_with_the_daemon_or_the_reader() {
    let gone = run(&format!("http://{}", nothing()), &["top"]);
    assert_eq!((gone.status.code(), stdout(&gone)), (Some(3), String::new()));
    let url = serve_snapshot(busy());
    let mut child = crate::support::uvmctl(&url)
        .args(["top", "--interval", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn invalid_values_are_usage_errors_that_list_valid_ones() {
    for (arguments, hint) in [
        (&["top", "--sort", "beauty"][..], "evicted"),
        (&["top", "--interval", "0"], "0.1 to 3600"),
        (&["top", "--batch", "0"], "1.."),
        (&["top", "--once", "--batch", "2"], "cannot be used with"),
    ] {
        let output = run("http://127.0.0.1:1", arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(hint), "{}", stderr(&output));
    }
}
