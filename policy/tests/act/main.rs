//! The loop over whole histories: what it does, keeps and takes back.
#![cfg(test)]

mod limits;
mod safety;
mod stages;
mod world;
