//! What importers and detectors make of traces.
#![cfg(test)]

mod detection;
mod from_ops;
mod importers;
mod published;
mod support;
