//! Tests of the page's scripts, run by Node.

use std::{env, process::Command};

#[test]
fn the_tests_of_the_page_scripts_pass() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
    let tests: Vec<_> = std::fs::read_dir(page).unwrap().map(|file| file.unwrap().path()).collect();
    let tests: Vec<_> = tests.into_iter().filter(|path| path.to_string_lossy().ends_with(".test.mjs")).collect();
    assert!(!tests.is_empty(), "no tests in {page}");
    match Command::new("node").arg("--test").args(&tests).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => {
            assert!(env::var("UVMD_TEST_REQUIRE_ROOT").as_deref() != Ok("1"), "node is missing: {error}");
            println!("skipped: node is missing: {error}");
        }
    }
}
