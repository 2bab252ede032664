//! Hooks before a stand-in for the driver: what is recorded of functions that the lab's CUDA lacks,
//! and of contexts that end.
#![cfg(test)]
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "functions of the driver's ABI")]

mod contexts;
mod copies;
mod driver;
mod graphs;
mod hints;
mod pools;
mod program;
mod variables;
