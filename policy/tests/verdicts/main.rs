//! Verdicts over whole histories: what is told, since when, and when it ends.
#![cfg(test)]

mod bounds;
mod held;
mod kinds;
mod oddities;
mod support;
mod victims;
