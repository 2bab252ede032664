//! Tests of the command line against the real API with test data, and against faulty servers.
#![cfg(test)]

mod authority;
mod completion;
mod daemons;
mod diagnose;
mod doctor;
mod events;
mod job;
mod listings;
mod live;
mod one;
mod ops;
mod output;
mod pages;
mod plan;
mod policy;
mod sim;
mod support;
