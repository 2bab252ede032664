//! Hooks before a stand-in for the driver: what is recorded of contexts that end.
#![cfg(test)]
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "functions of the driver's ABI")]

mod contexts;
mod driver;
mod program;
