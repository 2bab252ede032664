//! Real daemon, as a process, on any machine.
#![cfg(test)]

mod audit;
mod authority;
mod configuration;
mod control;
mod disk;
mod errors;
mod listening;
mod log;
mod metrics_listener;
mod reload;
mod running;
mod slurm;
mod support;
mod withdraw;
