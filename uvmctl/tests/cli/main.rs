//! The real command line against the real API with made-up figures, against uvmd, and against what is neither.
#![cfg(test)]

mod daemons;
mod listings;
mod support;
