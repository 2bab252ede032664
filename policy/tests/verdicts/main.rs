//! Verdicts over complete histories: their kinds, starts and ends.
#![cfg(test)]

mod bounds;
mod held;
mod kinds;
mod oddities;
mod support;
mod victims;
