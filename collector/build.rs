//! Build of the probes, whose object becomes part of the binary and so cannot differ from the
//! collector that loads it.
#![allow(clippy::print_stdout, reason = "this is how a build script talks to cargo")]

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let (Some(root), Some(out_dir)) = (env::var_os("CARGO_MANIFEST_DIR"), env::var_os("OUT_DIR")) else {
        return fail("not run by cargo");
    };
    let Some(root) = Path::new(&root).parent() else {
        return fail("the collector is not in the workspace");
    };
    for source in
        ["abi/src", "abi/uvm-layouts.json", "ebpf/src", "ebpf/Cargo.toml", "ebpf/Cargo.lock", "scripts/build-ebpf"]
    {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo::rerun-if-env-changed=UVMD_CACHE");

    let object = PathBuf::from(out_dir).join("uvmd-probes");
    let script = root.join("scripts/build-ebpf");
    match Command::new(&script).arg(&object).output() {
        Ok(output) if output.status.success() => ExitCode::SUCCESS,
        Ok(output) => fail(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => fail(&format!("cannot run {}: {error}", script.display())),
    }
}

fn fail(reason: &str) -> ExitCode {
    for line in reason.lines() {
        println!("cargo::error={line}");
    }
    ExitCode::FAILURE
}
