//! Completion as requested by bash.

use std::{
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use api::{
    ProcessSummaries, ProcessSummary,
    decision::{Decision, Decisions},
    rule::{Override, OverrideStatus, Overrides},
};

use crate::support::{Canned, run, stdout};

/// Candidates for the last word of a line, by the script for bash.
fn complete(line: &str) -> Vec<String> {
    // The script finds `uvmctl` in PATH.
    let program = Path::new(env!("CARGO_BIN_EXE_uvmctl"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    // Splits words like readline, except for quoted ones.
    let script = r#"
        source <(uvmctl completions bash) || exit 1
        COMP_WORDBREAKS=$' \t\n:='
        read -r -a COMP_WORDS <<< "$(sed 's/[:=]/ & /g' <<< "$LINE")"
        [[ $LINE == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _clap_complete_uvmctl uvmctl "${COMP_WORDS[COMP_CWORD]}" ""
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", script])
        .env("PATH", path)
        .env("LINE", line)
        .env_remove("UVMD_URL")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

fn daemon() -> Canned {
    let process = |pid, name: &str| ProcessSummary { pid, name: name.to_owned(), ..ProcessSummary::default() };
    let processes = vec![process(41_207, "python"), process(41_300, "\u{1b}evil"), process(512, "idle")];
    let r#override = Override { id: Some("llm".to_owned()), mode: "act".to_owned(), ..Override::default() };
    let overrides = vec![OverrideStatus { r#override, ..OverrideStatus::default() }];
    let decisions = vec![Decision { id: 17, policy: "cycle".to_owned(), ..Decision::default() }];
    Canned::default()
        .with("/api/v1/processes/summary", &ProcessSummaries { processes, ..ProcessSummaries::default() })
        .with("/api/v1/overrides", &Overrides { overrides, ..Overrides::default() })
        .with("/api/v1/decisions", &Decisions { decisions, ..Decisions::default() })
}

#[test]
fn candidates_are_pids_and_ids_known_to_uvmd() {
    let url = daemon().serve();
    let complete = |line: &str| complete(&format!("uvmctl --url {url} {line}"));
    assert_eq!(complete("explain 41"), ["41207", "41300"]);
    assert_eq!(complete("show process/5"), ["process/512"]);
    assert_eq!(complete("policy set --pid 51"), ["512"]);
    assert_eq!(complete("policy unset l"), ["llm"]);
    assert_eq!(complete("policy export override/"), ["override/llm"]);
    assert_eq!(complete("decisions 1"), ["17"]);
    assert_eq!(complete("explain 9"), [""]);
}

#[test]
fn commands_and_options_need_no_daemon() {
    let contains = |line: &str, word: &str| {
        let candidates = complete(line);
        assert!(candidates.iter().any(|candidate| candidate == word), "{line}: {candidates:?}");
    };
    contains("uvmctl ex", "explain");
    contains("uvmctl policy ", "apply");
    contains("uvmctl ps --sort", "--sort-by");
    contains("uvmctl ps -o ", "yaml");
}

#[test]
fn without_a_response_there_are_no_candidates_and_no_errors() {
    // The server accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    assert_eq!(complete(&format!("uvmctl --url {url} explain 4")), [""]);
    assert_eq!(complete("uvmctl --socket /nowhere/uvmd.sock explain 4"), [""]);
    assert_eq!(complete("uvmctl --url nonsense explain 4"), [""]);
    assert_eq!(complete("uvmctl --token-file /nowhere explain 4"), [""]);
}

#[test]
fn each_shell_has_a_completion_script() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run("http://192.0.2.1:1", &["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(stdout(&output).contains("UVMCTL_COMPLETE"), "{shell}: {}", stdout(&output));
    }
}
