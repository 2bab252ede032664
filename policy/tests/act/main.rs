//! The loop over whole histories: what it does, keeps and takes back.
#![cfg(test)]

mod any;
mod card;
mod frames;
mod limits;
mod memory;
mod parameters;
mod program;
mod restrictions;
mod safety;
mod stages;
mod walker;
mod world;
