//! The loop over whole histories: what it does, keeps and takes back.
#![cfg(test)]

mod any;
mod limits;
mod program;
mod safety;
mod stages;
mod world;
