//! Verdicts over complete histories: their kinds, starts and ends.
#![cfg(test)]

mod bounds;
mod kinds;
mod late;
mod oddities;
mod support;
mod usage;
mod verdict_time;
mod victims;
