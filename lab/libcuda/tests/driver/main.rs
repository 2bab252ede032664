//! The library through its ABI, loaded as programs load it.
#![cfg(test)]
#![expect(unsafe_code, reason = "calls the functions of a driver")]

mod abi;
mod accesses;
mod copies;
mod fresh;
mod graphs;
mod kernels;
mod log;
mod memory;
mod processes;
mod streams;
mod support;
mod table;
