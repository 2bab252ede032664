//! Tests of importers, of the detector and of conversions, on small and published traces.
#![cfg(test)]

mod detection;
mod footprints;
mod from_ops;
mod importers;
mod live;
mod published;
mod support;
