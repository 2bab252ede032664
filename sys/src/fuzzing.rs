//! Private parsers, for fuzz targets only.

pub use crate::actor::fuzzing::{DESCRIPTORS_MAX, Direction, Received, receive_packet};
