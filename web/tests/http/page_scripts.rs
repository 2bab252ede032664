//! What the scripts of the page work out, run by Node.

use std::{env, process::Command};

#[test]
fn the_scripts_of_the_page_do_what_their_tests_say() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
    let tests: Vec<_> = std::fs::read_dir(page).unwrap().map(|file| file.unwrap().path()).collect();
    let tests: Vec<_> = tests.into_iter().filter(|path| path.to_string_lossy().ends_with(".test.mjs")).collect();
    assert!(!tests.is_empty(), "there are none in {page}");
    match Command::new("node").arg("--test").args(&tests).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
        Err(error) => {
            assert!(env::var("UVMD_TEST_REQUIRE_ROOT").as_deref() != Ok("1"), "no node to run them: {error}");
            println!("skipped: there is no node to run them: {error}");
        }
    }
}
