//! Loop over complete histories: its actions, retained memory and withdrawals.
#![cfg(test)]

mod any;
mod card;
mod frames;
mod limits;
mod memory;
mod parameters;
mod plans;
mod program;
mod restrictions;
mod safety;
mod stages;
mod walker;
mod world;
