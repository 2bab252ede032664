//! The real daemon, as a process, on whatever machine this is.
#![cfg(test)]

mod errors;
mod running;
mod support;
mod uvmctl;
