//! Sets `UVMD_COMMIT`, the commit that uvmd is built from, for `uvmd_build_info`: the variable of
//! that name if the build has one, as a package's has, else the checkout's commit, else `unknown`.
//! A build from an archive is reproducible without git.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-env-changed=UVMD_COMMIT");
    let commit = env::var("UVMD_COMMIT").ok().filter(|commit| is_plain(commit)).or_else(of_checkout);
    println!("cargo::rustc-env=UVMD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Whether the text is a plain commit id: it becomes a label.
fn is_plain(commit: &str) -> bool {
    !commit.is_empty() && commit.len() <= 64 && commit.chars().all(|c| c.is_ascii_alphanumeric() || "-._+".contains(c))
}

fn of_checkout() -> Option<String> {
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Rebuilt with the next commit, which adds a line to HEAD's log.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    Some(head).filter(|commit| is_plain(commit))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
