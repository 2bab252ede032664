//! Input, output and clocks, in crates that have none.

use crate::modules::Tree;

/// Paths that reach outside the process, or read a clock.
const IMPURE: [&[&str]; 14] = [
    &["std", "env"],
    &["std", "fs"],
    &["std", "io"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant", "now"],
    &["std", "time", "SystemTime", "now"],
    &["libc"],
    &["procfs"],
    &["rustix"],
    &["sys"],
    &["tokio"],
];

/// All such paths in the modules, without tests.
#[must_use]
pub fn impurities(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (at, module) in tree.modules.iter().enumerate() {
        let paths = &module.paths;
        let all = paths.names.iter().map(|(_, path)| path).chain(&paths.globs).chain(&paths.written);
        for path in all.filter_map(|path| tree.foreign(at, path)) {
            if IMPURE.iter().any(|refused| path.iter().take(refused.len()).eq(refused.iter())) {
                found.push(format!("{}: {}", module.name, path.join("::")));
            }
        }
        // Method of an instant or a time, which reads the clock.
        found.extend(
            paths.calls.iter().filter(|name| *name == "elapsed").map(|name| format!("{}: .{name}()", module.name)),
        );
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<String> {
        impurities(&Tree::of_text(text).unwrap())
    }

    #[test]
    fn input_output_and_clocks_are_found_by_any_path() {
        for (text, found) in [
            ("use std::fs;", "crate: std::fs"),
            ("use std::{fmt, net::TcpStream};", "crate: std::net::TcpStream"),
            ("use std::fs::*;", "crate: std::fs"),
            ("fn f() { ::std::thread::yield_now() }", "crate: std::thread::yield_now"),
            ("use std::time::Instant; fn f() { Instant::now(); }", "crate: std::time::Instant::now"),
            (
                "use std::time::{self, Duration}; fn f() { time::SystemTime::now(); }",
                "crate: std::time::SystemTime::now",
            ),
            ("use std::time::SystemTime as Clock; fn f() { g(Clock::now) }", "crate: std::time::SystemTime::now"),
            ("fn f() { assert!(std::process::id() == 1) }", "crate: std::process::id"),
            ("mod a { use tokio::time::sleep; }", "crate::a: tokio::time::sleep"),
            ("fn f(at: &T) { at.elapsed(); }", "crate: .elapsed()"),
        ] {
            assert_eq!(of(text), [found], "{text}");
        }
    }

    #[test]
    fn time_arguments_and_tests_are_pure() {
        assert_eq!(of("use std::time::{Duration, SystemTime}; fn f(now: SystemTime) -> Duration { g(now) }"), [""; 0]);
        assert_eq!(of("#[cfg(test)] mod tests { use std::fs; } mod net { fn f() { super::process::g() } }"), [""; 0]);
    }
}
