//! The real daemon, as a process, on whatever machine this is.
#![cfg(test)]

mod authority;
mod configuration;
mod control;
mod errors;
mod log;
mod running;
mod support;
